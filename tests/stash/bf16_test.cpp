// SPDX-License-Identifier: MIT
// A trainer by hand whose activations are in bf16 and whose parameters are not: on a tape it has the bits of no tape,
// in half the bytes of fp32.
#include "adacc/stash/tape_start.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include <adacc/codec/int8_outlier.hpp>

namespace bf16_stash_test { namespace {

using namespace adacc;

constexpr std::size_t layers = 10, rows = 32, channels = 48, row = rows * channels,
                      weights = channels * channels;

float wide(float x) { return x; }
float wide(bfloat16 x) { return to_float(x); }
void put(float x, float& to) { to = x; }
void put(float x, bfloat16& to) { to = to_bfloat16(x); }

/// h[l + 1] = softsign(h[l] w[l]), the loss half of |h[layers]|^2.
template <class T>
struct Net {
  std::vector<float> w = std::vector<float>(layers * weights), dw = w;
  std::vector<T> x = std::vector<T>(row);

  Net() {
    for (std::size_t i = 0; i < w.size(); ++i)
      w[i] = 0.4F * (unit_float(random_word({.seed = 1}, i)) - 0.5F);
    for (std::size_t i = 0; i < row; ++i) put(unit_float(random_word({.seed = 2}, i)) - 0.5F, x[i]);
  }

  void linear(std::size_t l, const T* h, T* z) const {
    for (std::size_t b = 0; b < rows; ++b)
      for (std::size_t o = 0; o < channels; ++o) {
        float sum = 0;
        for (std::size_t i = 0; i < channels; ++i)
          sum += wide(h[b * channels + i]) * w[l * weights + i * channels + o];
        put(sum, z[b * channels + o]);
      }
  }
  static void softsign(const T* z, T* h) {
    for (std::size_t i = 0; i < row; ++i) put(wide(z[i]) / (1 + std::fabs(wide(z[i]))), h[i]);
  }
  static void softsign_backward(const T* z, const T* dh, T* dz) {
    for (std::size_t i = 0; i < row; ++i) {
      const float s = 1 + std::fabs(wide(z[i]));
      put(wide(dz[i]) + wide(dh[i]) / (s * s), dz[i]);
    }
  }
  void linear_backward(std::size_t l, const T* h, const T* dz, T* dh) {
    for (std::size_t b = 0; b < rows; ++b)
      for (std::size_t i = 0; i < channels; ++i) {
        float sum = wide(dh[b * channels + i]);
        for (std::size_t o = 0; o < channels; ++o) {
          sum += wide(dz[b * channels + o]) * w[l * weights + i * channels + o];
          dw[l * weights + i * channels + o] +=
              wide(h[b * channels + i]) * wide(dz[b * channels + o]);
        }
        put(sum, dh[b * channels + i]);
      }
  }

  /// A step without a tape.
  void plain() {
    std::vector<std::vector<T>> h(layers + 1, x), z(layers, x);
    for (std::size_t l = 0; l < layers; ++l) {
      linear(l, h[l].data(), z[l].data());
      softsign(z[l].data(), h[l + 1].data());
    }
    dw.assign(dw.size(), 0);
    std::vector<T> dh = h[layers], dz(row), before(row);
    for (std::size_t l = layers; l-- > 0;) {
      for (std::size_t i = 0; i < row; ++i) put(0, dz[i]), put(0, before[i]);
      softsign_backward(z[l].data(), dh.data(), dz.data());
      linear_backward(l, h[l].data(), dz.data(), before.data());
      dh = before;
    }
  }
};

/// The same on a tape.
template <class T>
struct Taped : Net<T> {
  Tape<T> tape;
  Cpu cpu;
  int h[layers + 1] = {}, z[layers] = {};

  explicit Taped(bool lossy = false) {
    const Shape shape(rows, channels);
    using Codecs = StashListOf<StashCodec<StashModel<T>>>;
    const Codecs codecs = lossy ? Codecs{stash_codec<Int8Outlier>()} : Codecs{};
    h[0] = tape.kernel({.name = "input", .writes = {{"h", shape, codecs}}, .gradients = true},
                       [this](const TapeCall<T>& k) {
                         std::memcpy(k.out(0).data(), this->x.data(), row * sizeof(T));
                       });
    for (std::size_t l = 0; l < layers; ++l) {
      z[l] = tape.kernel(
          {.name = "linear",
           .reads = {h[l]},
           .writes = {{"z", shape, codecs}},
           .saves = {h[l]},
           .gradients = true},
          [this, l](const TapeCall<T>& k) { this->linear(l, k.in(0).data(), k.out(0).data()); });
      h[l + 1] = tape.kernel(
          {.name = "softsign",
           .reads = {z[l]},
           .writes = {{"h", shape, codecs}},
           .saves = {z[l]},
           .gradients = true},
          [](const TapeCall<T>& k) { Net<T>::softsign(k.in(0).data(), k.out(0).data()); });
    }
    static_cast<void>(tape.kernel({.name = "loss", .reads = {h[layers]}, .saves = {h[layers]}},
                                  [](const TapeCall<T>&) {}));
  }

  Result<Array<View<const float>>> step() {
    this->dw.assign(this->dw.size(), 0);
    if (Error why = tape.begin(cpu)) return why;
    if (Error why = tape.run()) return why;
    if (Error why = tape.backward(tape.kernels() - 1)) return why;
    const View<T> loss = tape.grad(h[layers]);
    for (std::size_t i = 0; i < row; ++i) loss.data()[i] = tape.value(h[layers]).data()[i];
    for (std::size_t l = layers; l-- > 0;) {
      if (Error why = tape.backward_of(h[l + 1])) return why;
      Net<T>::softsign_backward(tape.value(z[l]).data(), tape.grad(h[l + 1]).data(),
                                tape.grad(z[l]).data());
      if (Error why = tape.backward_of(z[l])) return why;
      this->linear_backward(l, tape.value(h[l]).data(), tape.grad(z[l]).data(),
                            tape.grad(h[l]).data());
    }
    if (Error why = tape.end()) return why;
    Array<View<const float>> gradients;
    gradients.push_back({this->dw.data(), Shape(this->dw.size())});
    return gradients;
  }
  Error start(const TapeStart& how) {
    return tape.start(cpu, how, [&] { return step(); });
  }
};

TEST_CASE("a tape of bf16 has the bits of no tape under every budget, and half the bytes of fp32") {
  Net<bfloat16> net;
  net.plain();
  Net<float> in_fp32;
  in_fp32.plain();
  CHECK(net.dw != in_fp32.dw);
  for (const double percent : {100.0, 70.0, 45.0}) {
    Taped<bfloat16> half;
    const Error why = half.start({.percent = percent, .check = true});
    REQUIRE_MESSAGE(!why, why.text());
    for (int i = 0; i < 2; ++i) {
      const auto done = half.step();
      REQUIRE_MESSAGE(done, done.error.text());
      CHECK(std::memcmp(half.dw.data(), net.dw.data(), net.dw.size() * sizeof(float)) == 0);
    }
    Taped<float> whole;
    REQUIRE(!whole.start({.percent = percent}));
    CHECK(2 * half.tape.outcome().retain_peak_bytes == whole.tape.outcome().retain_peak_bytes);
  }
}

TEST_CASE("codecs take bf16, and their effect on gradients of parameters in fp32 is probed") {
  Net<bfloat16> net;
  net.plain();
  Taped<bfloat16> half(true);
  const Error why = half.start({.percent = 45, .tolerance = 1e-2, .check = true});
  REQUIRE_MESSAGE(!why, why.text());
  int compressed = 0;
  for (const Policy& policy : half.tape.stash().program().plan.policies)
    compressed += policy.form().codec != nullptr ? 1 : 0;
  CHECK(compressed > 0);
  CHECK(half.tape.outcome().error > 0);
  REQUIRE(half.step());
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < net.dw.size(); ++i) {
    const double exact = static_cast<double>(net.dw[i]),
                 difference = static_cast<double>(half.dw[i]) - exact;
    error += difference * difference, norm += exact * exact;
  }
  CHECK(error > 0);
  CHECK(error < 3e-2 * norm);
}

TEST_CASE("a check finds a step in bf16 whose gradients are not finite") {
  Taped<bfloat16> taped;
  taped.w[7] = INFINITY;
  const Error why = taped.start({.percent = 100, .check = true});
  CHECK(std::strstr(why.text(), "not finite") != nullptr);
}

}}  // namespace bf16_stash_test
