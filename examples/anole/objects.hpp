// SPDX-License-Identifier: MIT
/// What is to be told apart: vehicles from above, which differ by their size in metres, or digits
/// painted on the ground.
#pragma once

#include <adacc/core/error.hpp>
#include <adacc/io/file.hpp>

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "camera.hpp"

namespace anole {

/// A vehicle: a box with rounded ends, its windscreen darker.
class Vehicle final : public Object {
 public:
  static constexpr std::size_t classes = 6;
  static constexpr std::array<const char*, classes> names{"motorbike", "small car", "estate car",
                                                          "van",       "lorry",     "bus"};

  /// Paint is darker than snow and sand, and either way on the rest. It stands along a road that
  /// runs east.
  Vehicle(std::size_t kind, const Conditions& seen, Draws& draws) {
    constexpr float lengths[] = {2.2F, 3.6F, 4.8F, 6.3F, 8.5F, 11.5F};
    constexpr float widths[] = {0.85F, 1.6F, 1.8F, 2.05F, 2.45F, 2.55F};
    half_length_ = 0.5F * lengths[kind] * draws.uniform(0.93F, 1.07F);
    half_width_ = 0.5F * widths[kind] * draws.uniform(0.95F, 1.05F);
    const float angle = draws.uniform(-0.2F, 0.2F);
    cosine_ = std::cos(angle), sine_ = std::sin(angle);
    paint_ =
        seen.albedo > 0.4F ? draws.uniform(0.05F, 0.35F) : seen.albedo + draws.uniform(0.2F, 0.6F);
  }

  float albedo(float u, float v) const override {
    const float along = cosine_ * u + sine_ * v, across = cosine_ * v - sine_ * u;
    if (std::fabs(along) > half_length_ || std::fabs(across) > half_width_) return -1;
    const float front = along / half_length_;
    return front > 0.45F && front < 0.7F ? 0.4F * paint_ : paint_;
  }

 private:
  float half_length_ = 0, half_width_ = 0, cosine_ = 1, sine_ = 0, paint_ = 0;
};

/// The digits set of scikit-learn: 1797 pictures of 8 x 8, 0 to 16 (E. Alpaydin, C. Kaynak, "Optical
/// Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998).
struct Digits {
  static constexpr std::size_t classes = 10, rows = 8, cells = 64, count = 1797;
  struct Digit {
    std::array<unsigned char, cells> ink{};
    std::size_t kind = 0;
  };
  std::vector<Digit> all;

  /// A line for each: 64 numbers from 0 to 16 and the digit, with commas between them.
  static adacc::Result<Digits> read(const std::string& path) {
    const std::string name = adacc::one_line(path);
    std::ifstream file(path, std::ios::binary);
    if (!file || adacc::is_folder(path))
      return adacc::Error::say(name.c_str(), ": cannot be opened; expected ", expected);
    Digits digits;
    for (std::string line; std::getline(file, line);) {
      const std::size_t number = digits.all.size() + 1;
      if (line.starts_with("\x1f\x8b"))
        return adacc::Error::say(name.c_str(), ": is compressed: gunzip it first");
      if (!line.empty() && line.back() == '\r') line.pop_back();
      Digit digit;
      const char* at = line.data();
      const char* const end = at + line.size();
      for (std::size_t i = 0; i <= cells; ++i) {
        unsigned value = 0;
        const auto [stop, problem] = std::from_chars(at, end, value);
        const bool last = i == cells;
        const bool separated = last ? stop == end : stop != end && *stop == ',';
        if (problem != std::errc{} || value > (last ? 9U : 16U) || !separated)
          return adacc::Error::say(name.c_str(), ": line ", number, ", number ", i + 1,
                                   ": there is no number from 0 to ", last ? 9 : 16, "; expected ",
                                   expected);
        if (last) digit.kind = value;
        else digit.ink[i] = static_cast<unsigned char>(value);
        at = stop + 1;
      }
      if (number > count)
        return adacc::Error::say(name.c_str(), ": has more than ", count, " digits; expected ",
                                 expected);
      digits.all.push_back(digit);
    }
    if (digits.all.size() != count)
      return adacc::Error::say(name.c_str(), ": has ", digits.all.size(), " digits; expected ",
                               expected);
    return digits;
  }

 private:
  static constexpr const char* expected =
      "scikit-learn's digits.csv: 1797 lines of 65 numbers (examples/anole/digits.sh)";
};

/// A digit painted on the ground, 6.5 m high: light where the ground is dark, and the other way round.
class PaintedDigit final : public Object {
 public:
  PaintedDigit(const Digits::Digit& digit, const Conditions& seen, Draws& draws)
      : digit_(digit), ground_(seen.albedo) {
    paint_ = seen.albedo > 0.4F ? draws.uniform(0.05F, 0.2F) : draws.uniform(0.55F, 0.85F);
    metres_ = 6.5F / Digits::rows * draws.uniform(0.95F, 1.05F);
  }

  float albedo(float u, float v) const override {
    // Cells of ink, and between their middles what lies between.
    const float x = u / metres_ + 3.5F, y = v / metres_ + 3.5F;
    const float fx = std::floor(x), fy = std::floor(y);
    const int i = static_cast<int>(fx), j = static_cast<int>(fy);
    const float a = x - fx, b = y - fy;
    const float cover = ((1 - a) * (1 - b) * ink(i, j) + a * (1 - b) * ink(i + 1, j) +
                         (1 - a) * b * ink(i, j + 1) + a * b * ink(i + 1, j + 1)) /
                        16;
    return cover < 0.06F ? -1 : ground_ + cover * (paint_ - ground_);
  }

 private:
  float ink(int col, int row) const {
    if (col < 0 || row < 0 || col > 7 || row > 7) return 0;
    return digit_.ink[static_cast<std::size_t>(8 * row + col)];
  }
  const Digits::Digit& digit_;
  float ground_ = 0, paint_ = 0, metres_ = 0;
};

}  // namespace anole
