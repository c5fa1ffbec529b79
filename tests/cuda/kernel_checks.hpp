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

/// Losses and gradients of rows that begin `stride` elements one after the other; behind the classes nothing
/// is read (the executor sees who reads what nobody wrote) or written.
template <class T, class Fail>
void check_strides(cudaStream_t stream, std::size_t classes, std::size_t stride, double tolerance,
                   const Fail& fail) {
  const Shape in(4, classes);
  const std::vector<float> numbers = logits(classes);
  std::vector<std::int32_t> targets;
  for (std::size_t r = 0; r < 4; ++r) targets.push_back(static_cast<std::int32_t>(classes - 1 - r));
  std::vector<T> first;
  for (const std::size_t shift : {0, 1}) {
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
                         losses.data, rows.data);
    cudaStreamSynchronize(stream);
    const std::vector<T> made = rows.list();
    const std::vector<double> loss = losses.list();
    if (shift == 0) first = made;
    else if (!same_bits(made, first)) fail("softmax", in, "not aligned it has other bits");
    T untouched;
    std::memset(&untouched, 0x5A, sizeof untouched);
    for (std::size_t r = 0; r < 4; ++r) {
      for (std::size_t c = classes; c < stride; ++c)
        if (std::memcmp(&made[r * stride + c], &untouched, sizeof untouched) != 0)
          return fail("softmax", in, "writes behind the classes");
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
    const Device<float> sums(std::vector<float>(cols, 1)), alone(std::vector<float>(cols, 1)),
        partials(detail::CudaChunks{rows}.bytes(1, cols, Dtype::f32) / sizeof(float));
    detail::add_column_sums<float>(cuda, "sums", rows, cols,
                                   detail::MatrixBody<T>{matrix.data, cols}, partials.data,
                                   {{sums.data}});
    detail::add_matrix_sums(cuda, "sums", rows, cols, matrix.data, alone.data);
    cudaStreamSynchronize(stream);
    std::vector<float> made = sums.list();
    for (const float sum : alone.list()) made.push_back(sum);
    if (shift == 0) first = made;
    else if (!same_bits(made, first)) fail("sums", in, "not aligned they have other bits");
    for (std::size_t c = 0; c < 2 * cols; ++c)
      if (!(std::fabs(made[c] - expected[c % cols]) <= 1e-6 * static_cast<double>(rows)))
        return fail("sums", in, "sums of columns differ", made[c] - expected[c % cols]);
  }
}

/// A token that stands in more places than a block keeps at a time.
template <class Fail>
void check_repeats(cudaStream_t stream, const Fail& fail) {
  Embedding f;
  f.vocab = 2, f.context = 1, f.channels = 4;
  const std::size_t rows = 2 * detail::TokenSearch::span + 100;
  const Shape in(rows, 1);
  Parameter words;
  words.shape = Shape(f.vocab, f.channels);
  Parameter positions;
  positions.frozen = true;
  const Parameter table[] = {words, positions};
  std::vector<float> slopes, expected(8, 1);
  for (std::size_t i = 0; i < rows * f.channels; ++i) {
    slopes.push_back(static_cast<float>(i % 7));  // sums are exact
    expected[4 + i % 4] += slopes[i];
  }
  Cuda cuda(stream);
  const Device<std::int32_t> tokens(std::vector<std::int32_t>(rows, 1));
  const Device<float> dy(slopes), gradients(std::vector<float>(8, 1));
  call_backward(
      f, cuda,
      BackwardCall<float, std::int32_t>{.x = View<const std::int32_t>(tokens.data, in),
                                        .dy = View<const float>(dy.data, in.append(f.channels)),
                                        .dparams = Params<float>(gradients.data, table, 2)});
  cudaStreamSynchronize(stream);
  if (!same_bits(gradients.list(), expected))
    fail("embedding", in, "a repeated token's sum differs");
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
  check_sums<float>(stream, 4200, 8, fail);
  check_sums<bfloat16>(stream, 4200, 8, fail);
  check_sums<bfloat16>(stream, 40, 264, fail);
  check_sums<bfloat16>(stream, 40, 261, fail);
  check_repeats(stream, fail);
  check_norm(stream, fail);
  check_adamw(stream, fail);
}

}  // namespace layers
