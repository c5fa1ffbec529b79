// SPDX-License-Identifier: MIT
// A chain of element-wise layers on a tape, for tests of its outputs and sizes: z = 0.9 x + l / 8, y = softsign(z).
// The gradient of y goes back in memory of the trainer; backward of a softsign reads y alone.
#pragma once

#include "adacc/stash/tape_start.hpp"

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

namespace tape_chain {

using namespace adacc;

enum class Softsign {
  apart,     ///< y is an output like any other
  in_place,  ///< y takes the place of z
  copied,    ///< y is to take the place of z, and some backward reads z
};

class Chain {
 public:
  static constexpr int layers = 8, channels = 16;

  Chain(int most_items, Softsign how, TapeOutputs options = TapeOutputs::plain)
      : items(most_items), sized_(has(options, TapeOutputs::per_item)),
        x_(static_cast<std::size_t>(most_items * channels)), dx_(x_) {
    for (std::size_t i = 0; i < x_.size(); ++i)
      x_[i] = unit_float(random_word({.seed = 7}, i)) - 0.5F;
    const Shape shape(static_cast<std::size_t>(most_items), channels);
    int from = tape.kernel(
        {.name = "input", .writes = {{"x", shape, options}}}, [this](const TapeCall<float>& k) {
          std::memcpy(k.out(0).data(), x_.data(), k.out(0).size() * sizeof(float));
        });
    for (int l = 0; l < layers; ++l) {
      z.push_back(tape.kernel({.name = "shift", .reads = {from}, .writes = {{"z", shape, options}}},
                              [this, l](const TapeCall<float>& k) {
                                shifts += k.out(0).size();
                                for (std::size_t i = 0; i < k.out(0).size(); ++i)
                                  k.out(0)[i] = shifted(k.in(0)[i], l);
                              }));
      TapeOutput<float, Cpu> output("y", shape, options);
      if (how != Softsign::apart) output = {"y", TapeInPlace{z.back()}};
      StashReads saves = {"y"};
      if (how == Softsign::copied) saves.push_back(z.back());
      from =
          tape.kernel({.name = "softsign", .reads = {z.back()}, .writes = {output}, .saves = saves},
                      [this, how](const TapeCall<float>& k) {
                        if (how != Softsign::apart && k.in(0).data() != k.out(0).data()) ++faults;
                        for (std::size_t i = 0; i < k.out(0).size(); ++i)
                          k.out(0)[i] = softsign(k.in(0)[i]);
                      });
      y.push_back(from);
    }
  }

  Result<Array<View<const float>>> step() {
    if (Error why = tape.begin(cpu, sized_ ? items : 0)) return why;
    static_cast<void>(tape.run());
    const std::size_t count = static_cast<std::size_t>(items * channels);
    for (float& one : dx_) one = 1;
    for (int l = layers - 1; l >= 0; --l) {
      if (tape.backward(tape.kernel_of(y[static_cast<std::size_t>(l)]))) break;
      const View<const float> value = tape.value(y[static_cast<std::size_t>(l)]);
      if (value.data() == nullptr) break;
      if (value.size() != count) ++faults;
      for (std::size_t i = 0; i < count; ++i)
        dx_[i] *= 0.9F * (1 - std::fabs(value[i])) * (1 - std::fabs(value[i]));
    }
    if (Error why = tape.end()) return why;
    Array<View<const float>> gradients;
    gradients.push_back({dx_.data(), Shape(count)});
    return gradients;
  }
  Error start(const TapeStart& how) {
    return tape.start(cpu, how, [&] { return step(); });
  }
  /// Whether the last step had the gradients of a trainer without a tape.
  bool right() const {
    for (std::size_t i = 0; i < static_cast<std::size_t>(items * channels); ++i) {
      float value = x_[i], values[layers], d = 1;
      for (int l = 0; l < layers; ++l) values[l] = value = softsign(shifted(value, l));
      for (int l = layers - 1; l >= 0; --l)
        d *= 0.9F * (1 - std::fabs(values[l])) * (1 - std::fabs(values[l]));
      if (d != dx_[i]) return false;
    }
    return faults == 0;
  }

  Tape<> tape;
  Cpu cpu;
  int items;
  std::vector<int> z, y;
  std::size_t shifts = 0;  ///< elements that shift made
  int faults = 0;

 private:
  static float shifted(float x, int l) { return 0.9F * x + static_cast<float>(l) / 8; }
  static float softsign(float z) { return z / (1 + std::fabs(z)); }

  bool sized_;
  std::vector<float> x_, dx_;
};

inline bool says(const Error& why, const char* text) {
  return std::string(why.text()).find(text) != std::string::npos;
}

}  // namespace tape_chain
