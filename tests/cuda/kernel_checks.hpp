// SPDX-License-Identifier: MIT
/// Kernels that are no layer's alone, against formulas on the host: copies of parameters, rows of logits with
/// a stride, sums of columns, tokens that repeat, the norm of gradients, AdamW. Most are called with tensors
/// that are aligned and with ones that are not, and the bits of both are the same.
#pragma once

#include <adacc/train.cuh>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "device_memory.hpp"
#include "layers_cases.hpp"

namespace layers {

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// Copies of parameters have the host's bits, but for NaNs.
template <class Fail>
void check_copies(cudaStream_t stream, const Fail& fail) {
  for (const std::size_t elems : {1, 3, 4, 1027}) {
    std::vector<float> numbers;
    std::vector<bfloat16> expected;
    for (std::size_t i = 0; i < elems; ++i) numbers.push_back(1 + 1e-3F * static_cast<float>(i));
    numbers[0] = 1 + 0x1p-8F, numbers[elems / 2] = 1 + 3 * 0x1p-8F;  // ties go to even ones
    for (const float number : numbers) expected.push_back(to_bfloat16(number));
    for (const std::size_t shift : {0, 1}) {
      Cuda cuda(stream);
      const Device<float> from(numbers, shift);
      const Device<std::byte> workspace(detail::cuda_copy_bytes(elems, Dtype::bf16));
      Bytes left(workspace.data, Shape(workspace.size));
      detail::in_activation_type<bfloat16>(cuda, "copy", View<const float>(from.data, Shape(elems)),
                                           left);
      std::vector<bfloat16> copies(elems);
      cudaMemcpyAsync(copies.data(), workspace.data, workspace.size, cudaMemcpyDeviceToHost,
                      stream);
      cudaStreamSynchronize(stream);
      if (left.size() != 0 || !(copies == expected))
        fail("copy", Shape(elems), "copies have other bits than the host's");
    }
  }
}

inline float number_of(float x) { return x; }
inline float number_of(bfloat16 x) { return to_float(x); }

/// A row of logits each: numbers; much of it masked, by packets and in between; a NaN among those; one that
/// is masked as a whole.
inline std::vector<float> logits(std::size_t classes) {
  constexpr float masked = -std::numeric_limits<float>::infinity();
  std::vector<float> list;
  for (std::size_t r = 0; r < 4; ++r)
    for (std::size_t c = 0; c < classes; ++c) {
      const float x = 4 * value(50, r * classes + c);
      const bool mask = c < classes / 2 || c % 3 == 0;
      list.push_back(r == 3             ? masked
                     : r == 2 && c == 1 ? std::numeric_limits<float>::quiet_NaN()
                     : r != 0 && mask   ? masked
                                        : x);
    }
  return list;
}

/// Losses and gradients of rows that begin `stride` elements one after the other; behind the classes nothing is read, and
/// zeros are written. Bits do not depend on whether rows are kept in shared memory, with a limit beyond the device's, the
/// default one, or none.
template <class T, class Fail>
void check_strides(cudaStream_t stream, std::size_t classes, std::size_t stride, double tolerance,
                   const Fail& fail) {
  const Shape in(4, classes);
  const std::vector<float> numbers = logits(classes);
  std::vector<std::int32_t> targets;
  for (std::size_t r = 0; r < 4; ++r) targets.push_back(static_cast<std::int32_t>(classes - 1 - r));
  std::vector<T> first;
  constexpr std::size_t no_limit = std::size_t{1} << 40;
  for (const std::size_t most_kept : {no_limit, detail::softmax_row_bytes, std::size_t{0}}) {
    const std::size_t shift = most_kept == detail::softmax_row_bytes ? 1 : 0;
    Cuda cuda(stream);
    const Device<T> rows(4 * stride, shift);
    const Device<double> losses(4), divisor(std::vector<double>{4});
    const Device<std::int32_t> to(targets);
    cudaMemset(rows.data, 0x5A, rows.size * sizeof(T));
    for (std::size_t r = 0; r < 4; ++r) {
      std::vector<T> row;
      for (std::size_t c = 0; c < classes; ++c)
        row.push_back(detail::from_number<T>(numbers[r * classes + c]));
      cudaMemcpy(rows.data + r * stride, row.data(), classes * sizeof(T), cudaMemcpyHostToDevice);
    }
    cudaDeviceSynchronize();
    detail::softmax_loss(cuda, "softmax", 4, classes, stride, rows.data, to.data, divisor.data,
                         losses.data, rows.data, most_kept);
    cudaStreamSynchronize(stream);
    const std::vector<T> made = rows.list();
    const std::vector<double> loss = losses.list();
    if (const Error why = cuda.take_error()) fail("softmax", in, why.text());
    if (first.empty()) first = made;
    else if (!same_bits(made, first)) fail("softmax", in, "not aligned it has other bits");
    const T zero{};
    for (std::size_t r = 0; r < 4; ++r) {
      for (std::size_t c = classes; c < stride; ++c)
        if (std::memcmp(&made[r * stride + c], &zero, sizeof zero) != 0)
          return fail("softmax", in, "no zero behind the classes");
      if (r > 1) {
        if (!std::isnan(loss[r])) fail("softmax", in, "a NaN is lost", loss[r]);
        continue;
      }
      const float* const x = numbers.data() + r * classes;
      double top = x[classes - 1], sum = 0;
      for (std::size_t c = 0; c < classes; ++c) top = std::fmax(top, x[c]);
      for (std::size_t c = 0; c < classes; ++c) sum += std::exp(x[c] - top);
      const auto target = static_cast<std::size_t>(targets[r]);
      const double expected = std::log(sum) + top - x[target];
      if (std::isinf(expected) ? !std::isinf(loss[r])
                               : !(std::fabs(loss[r] - expected) <= 1e-5 * (1 + expected)))
        fail("softmax", in, "losses differ", loss[r] - expected);
      for (std::size_t c = 0; c < classes; ++c) {
        const double slope = (std::exp(x[c] - top) / sum - (c == target ? 1 : 0)) / 4;
        const double error = number_of(made[r * stride + c]) - slope;
        if (!(std::fabs(error) <= tolerance * (1e-3 + std::fabs(slope))))
          return fail("softmax", in, "gradients differ", error);
      }
    }
  }
}

/// Sums of columns: of more rows than there are chunks of the fewest, of packets and of parts of one.
template <class T, class Fail>
void check_sums(cudaStream_t stream, std::size_t rows, std::size_t cols, const Fail& fail) {
  const Shape in(rows, cols);
  std::vector<T> numbers;
  std::vector<double> expected(cols, 1);
  for (std::size_t i = 0; i < in.elems(); ++i) {
    const float x = value(80, i);
    numbers.push_back(detail::from_number<T>(x));
    expected[i % cols] += x;
  }
  std::vector<float> first;
  for (const std::size_t shift : {0, 1}) {
    Cuda cuda(stream);
    const Device<T> matrix(numbers, shift);
    const Device<float> added(std::vector<float>(cols, 1)), written(std::vector<float>(cols, NAN));
    const Device<std::byte> workspace(detail::CudaChunks{rows}.all_bytes(1, cols, Dtype::f32));
    const Bytes lent(workspace.data, Shape(workspace.size));
    detail::add_matrix_sums(cuda, "sums", rows, cols, matrix.data, added.data, false, lent);
    detail::add_matrix_sums(cuda, "sums", rows, cols, matrix.data, written.data, true, lent);
    cudaStreamSynchronize(stream);
    std::vector<float> made = added.list();
    for (const float sum : written.list()) made.push_back(sum + 1);
    if (shift == 0) first = made;
    else if (!same_bits(made, first)) fail("sums", in, "not aligned they have other bits");
    for (std::size_t c = 0; c < 2 * cols; ++c)
      if (!(std::fabs(made[c] - expected[c % cols]) <= 1e-6 * static_cast<double>(rows)))
        return fail("sums", in, "sums of columns differ", made[c] - expected[c % cols]);
  }
}

/// Tokens of several tiles, which are sorted apart: the sum of each is that of its rows in order, bit for bit. One stands
/// in nearly all rows, one in the last tile alone, one in all tiles but the first; some are unknown.
template <class T, class Fail>
void check_repeats(cudaStream_t stream, std::size_t tiles, std::size_t channels, const Fail& fail) {
  constexpr std::size_t span = detail::TokenOrder::span;
  Embedding f;
  f.vocab = 300, f.context = 1, f.channels = channels, f.positions = false;
  const std::size_t rows = (tiles - 1) * span + 100;
  const Shape in(rows, 1);
  Parameter words;
  words.shape = Shape(f.vocab, channels);
  std::vector<std::int32_t> tokens;
  for (std::size_t r = 0; r < rows; ++r) {
    const auto drawn = static_cast<std::int32_t>(random_word({.seed = 3}, r) % 8);
    tokens.push_back(drawn > 2                              ? 299
                     : drawn == 2                           ? (r % 2 == 0 ? -1 : 300)
                     : drawn == 1 && r + 100 >= rows        ? 7
                     : drawn == 1 && tiles > 1 && r >= span ? 256
                                                            : static_cast<std::int32_t>(r % 90));
  }
  std::vector<T> slopes;
  std::vector<float> expected(f.vocab * channels);
  for (std::size_t i = 0; i < rows * channels; ++i) {
    slopes.push_back(detail::from_number<T>(value(90, i) / 3));
    if (const auto token = static_cast<std::size_t>(tokens[i / channels]); token < f.vocab)
      expected[token * channels + i % channels] += number_of(slopes[i]);
  }
  for (float& sum : expected) sum += 1;
  for (const std::size_t shift : {0, 1}) {
    Cuda cuda(stream);
    const Device<std::int32_t> x(tokens, shift);
    const Device<T> dy(slopes, shift);
    const Device<float> gradients(std::vector<float>(expected.size(), 1), shift);
    const Device<std::byte> workspace(
        kernel<Embedding, Cuda>::needs(f, in, {dtype_of<T>, 1, Pass::backward}).workspace);
    call_backward(
        f, cuda,
        BackwardCall<T, std::int32_t>{.x = View<const std::int32_t>(x.data, in),
                                      .dy = View<const T>(dy.data, in.append(channels)),
                                      .dparams = Params<float>(gradients.data, &words, 1),
                                      .workspace = Bytes(workspace.data, Shape(workspace.size))});
    cudaStreamSynchronize(stream);
    if (!same_bits(gradients.list(), expected))
      fail("embedding", in, "the sums of repeated tokens have other bits than sums in order");
  }
}

/// Of sizes that a thread takes by several packets at a time, by one, and by parts of one.
template <class Fail>
void check_norm(cudaStream_t stream, const Fail& fail) {
  for (const std::size_t elems : {1, 5, 1030, 12291, 41000}) {
    std::vector<float> numbers;
    double squares = 0, first = 0;
    for (std::size_t i = 0; i < elems; ++i) {
      numbers.push_back(value(60, i) + 1e-3F);
      squares += double{numbers[i]} * numbers[i];
    }
    for (const std::size_t shift : {0, 1}) {
      Cuda cuda(stream);
      const Device<float> gradients(numbers, shift);
      const Device<double> places(gradient_norm_places);
      gradient_norm(cuda, View<float>(gradients.data, Shape(elems)),
                    View<double>(places.data, Shape(places.size)));
      cudaStreamSynchronize(stream);
      double norm = 0;
      cudaMemcpy(&norm, places.data, sizeof norm, cudaMemcpyDeviceToHost);
      if (!(std::fabs(norm - std::sqrt(squares)) <= 1e-12 * norm))
        fail("gradient norm", Shape(elems), "norms differ", norm - std::sqrt(squares));
      if (shift == 0) first = norm;
      else if (!(norm == first))
        fail("gradient norm", Shape(elems), "not aligned it has other bits");
    }
  }
}

/// Parameters of all small sizes that lie one behind the other, so that packets have some that decay and some
/// that do not; more of them than a launch can be told.
template <class Fail>
void check_adamw(cudaStream_t stream, const Fail& fail) {
  std::vector<Parameter> table;
  std::size_t elems = 0;
  for (std::size_t i = 0; i < 800; ++i) {
    Parameter parameter;
    parameter.shape = Shape(1 + i % 11 + (i == 300 ? 9000 : 0));
    parameter.decay = i % 5 % 2 != 0;
    parameter.offset = elems;
    elems += parameter.shape.elems();
    table.push_back(parameter);
  }
  const auto numbers = [&](std::uint32_t stream_of, bool square) {
    std::vector<float> list;
    for (std::size_t i = 0; i < elems; ++i) {
      const float x = value(stream_of, i);
      list.push_back(square ? x * x : x);
    }
    return list;
  };
  const std::vector<float> p = numbers(70, false), g = numbers(71, false), m = numbers(72, false),
                           v = numbers(73, true);
  const AdamW adamw{.weight_decay = 0.3F};
  CudaUpdateTerms terms;
  terms.number = 3, terms.rate = 1e-2, terms.scale = 0.5;
  std::vector<float> first;
  for (const std::size_t shift : {0, 1}) {
    Cuda cuda(stream);
    const Device<float> params(p, shift), gradients(g, shift), one(m, shift), two(v, shift);
    const Shape all(elems);
    const View<float> state[] = {{one.data, all}, {two.data, all}};
    optimizer_kernel<AdamW, Cuda>::update(
        adamw, cuda, table, UpdateBlocks<float>{{params.data, all}, {gradients.data, all}, state},
        terms);
    cudaStreamSynchronize(stream);
    const std::vector<float> made = params.list(), moments = two.list(), cleared = gradients.list();
    if (shift == 0) first = made;
    else if (!same_bits(made, first)) fail("AdamW", all, "not aligned it has other bits");
    const double b1 = adamw.beta1, b2 = adamw.beta2;
    for (const Parameter& parameter : table)
      for (std::size_t e = parameter.offset; e < parameter.offset + parameter.shape.elems(); ++e) {
        const double gradient = 0.5 * g[e], mean = b1 * m[e] + (1 - b1) * gradient,
                     square = b2 * v[e] + (1 - b2) * gradient * gradient;
        const double root = std::sqrt(square / (1 - std::pow(b2, 3))) + double{adamw.epsilon};
        const double expected =
            p[e] - 1e-2 * (mean / (1 - std::pow(b1, 3)) / root +
                           (parameter.decay ? double{adamw.weight_decay} * p[e] : 0));
        const double change = std::fabs(expected - p[e]);
        if (!(std::fabs(made[e] - expected) <= 1e-6 * (1 + 10 * change)) ||
            !(std::fabs(moments[e] - square) <= 1e-6 * (1 + square)) || cleared[e] != 0)
          return fail("AdamW", Shape(e), "an update differs", made[e] - expected);
      }
  }
}

template <class Fail>
void check_kernels(cudaStream_t stream, const Fail& fail) {
  check_copies(stream, fail);
  for (const std::size_t classes : {53, 520}) {
    check_strides<float>(stream, classes, classes, 1e-5, fail);
    check_strides<bfloat16>(stream, classes, classes, 1.0 / 256, fail);
    check_strides<float>(stream, classes, (classes + 63) / 64 * 64, 1e-5, fail);
    check_strides<bfloat16>(stream, classes, (classes + 63) / 64 * 64, 1.0 / 256, fail);
  }
  check_strides<bfloat16>(stream, 12300, 12352, 1.0 / 256, fail);  // several packets at a time
  // Rows of more shared memory than every kernel may have, and of more than the device has.
  check_strides<bfloat16>(stream, 25001, 25024, 1.0 / 256, fail);
  check_strides<float>(stream, 60000, 60032, 1e-5, fail);
  check_sums<float>(stream, 4200, 8, fail);
  check_sums<bfloat16>(stream, 4200, 8, fail);
  check_sums<bfloat16>(stream, 40, 264, fail);
  check_sums<bfloat16>(stream, 40, 261, fail);
  check_repeats<float>(stream, 1, 5, fail);
  check_repeats<bfloat16>(stream, 3, 4, fail);
  check_repeats<float>(stream, 10, 1, fail);  // more tiles than a block has warps
  check_norm(stream, fail);
  check_adamw(stream, fail);
}

}  // namespace layers
