// SPDX-License-Identifier: MIT
/// Trains a small network with every policy, and reports; included after all headers of adacc.
#pragma once

#include <cstdint>
#include <cstring>

#include "run.hpp"

namespace {

Findings train() {
  using namespace adacc;
  using Mlp = Sequential<Layer<Linear, Compress<Int8Outlier>>, Layer<Gelu, Recompute>,
                         Layer<Linear, Retain>>;
  const Network net{Mlp{{Linear{.out = 16}}, {}, {Linear{.out = 1}}}, MeanSquaredError{}};
  const Shape shape(32, 2);
  Findings found{-1, 0, &codec_info<Int8Outlier>, 0};
  auto program = make_program(net, shape);
  if (!program) return found;
  auto training = Training<>::make(net, *program);
  if (!training) return found;
  alignas(64) float x[64], y[32];
  for (std::uint32_t i = 0; i < 20; ++i) {
    for (std::size_t e = 0; e < 64; ++e) x[e] = unit_float(random_word({.step = i}, e));
    for (std::size_t r = 0; r < 32; ++r) y[r] = x[2 * r] * x[2 * r + 1];
    const auto done = training->step(View(x, shape), View(y, Shape(32, 1)), 1e-2);
    if (!done) return found;
    found.loss = done->loss;
  }
  const View<float> params = training->params();
  for (std::size_t i = 0; i < params.size(); ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &params[i], sizeof bits);
    found.checksum = found.checksum * 31 + bits;
  }
  char text[1000];
  std::memset(text, 'x', sizeof text);
  text[sizeof text - 1] = '\0';
  found.error_bytes = std::strlen(Error::say(&text[0]).text());
  return found;
}

}  // namespace
