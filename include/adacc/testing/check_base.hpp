// SPDX-License-Identifier: MIT
/// Common to the checks of a layer and of a loss: random parameters in guarded memory, and the verdict.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../core/guarded.hpp"
#include "../core/random.hpp"
#include "../model/contract.hpp"
#include "finite_differences.hpp"

namespace adacc { inline namespace v0_1 { namespace testing::detail {

/// Standard normal numbers times `scale`; stream `stream` of the seed. Box and Muller, 1958.
inline void fill_normal(double* values, std::size_t size, std::uint64_t seed, std::uint32_t stream,
                        double scale) {
  const RandomKey key{seed, 0, 0, stream, Purpose::probe};
  for (std::size_t i = 0; i < size; ++i) {
    const double u = (random_word(key, 2 * i) + 1.0) / 4294967297.0;
    const double v = random_word(key, 2 * i + 1) / 4294967296.0;
    values[i] = scale * std::sqrt(-2 * std::log(u)) * std::cos(6.28318530717958648 * v);
  }
}

class CheckBase {
 protected:
  explicit CheckBase(const GradientCheckOptions& options) : options_(options) {}

  bool fail(const Error& why) {
    if (result_.passed) result_.failure = why;
    result_.passed = false;
    return false;
  }

  /// Places the parameters with a gap behind each, and draws them.
  template <class F>
  void place_parameters(const F& f, Shape in) {
    constexpr std::size_t line = alignment / sizeof(double);
    std::size_t offset = 0;
    layer_traits<F>::parameters(f, in, [&](const ParameterSpec& spec) {
      Parameter parameter;
      static_cast<ParameterSpec&>(parameter) = spec;
      parameter.frozen = false;  // a trainer may train this parameter, whatever the layer says
      parameter.offset = offset;
      offset += padded_elems(spec.shape, Dtype::f64) + line;
      params_.push_back(parameter);
    });
    values_ = GuardedBlock(offset * sizeof(double));
    for (std::size_t p = 0; p < params_.size(); ++p)
      fill_normal(values_.as<double>() + params_[p].offset, params_[p].shape.elems(), options_.seed,
                  10 + static_cast<std::uint32_t>(p), options_.parameter_scale);
    kept_values_ = copy(values_);
  }

  Params<const double> parameters() const {
    return {values_.as<double>(), params_.data(), params_.size()};
  }
  Params<double> gradients(GuardedBlock& block) const {
    return {block.as<double>(), params_.data(), params_.size()};
  }

  /// Calls body(wanted) for every choice of gradients but the whole, with unwanted parameters frozen. If there are more
  /// than five parameters, all from the sixth on go together.
  template <class Body>
  void for_each_choice(const Body& body) {
    const std::size_t choices = std::size_t{1} << (params_.size() < 6 ? params_.size() : 6);
    for (std::size_t bits = 0; bits < choices; ++bits) {
      Wanted wanted;
      for (std::size_t p = 0; p < params_.size(); ++p)
        params_[p].frozen = (bits >> (p < 5 ? p : 5) & 1) == 0;
      wanted.parameters = trained_bits(params_.data(), params_.size());
      for (const bool dx : {false, true}) {
        wanted.dx = dx;
        if (!wanted.everything() && (bits != 0 || dx)) body(wanted);
      }
    }
    for (Parameter& parameter : params_) parameter.frozen = false;
  }

  /// Whether wanted gradients have the same bits as among all gradients.
  bool same_wanted(const GuardedBlock& some, const GuardedBlock& all) const {
    for (const Parameter& p : params_)
      if (!p.frozen && std::memcmp(some.data() + p.offset * sizeof(double),
                                   all.data() + p.offset * sizeof(double),
                                   p.shape.elems() * sizeof(double)) != 0)
        return false;
    return true;
  }

  /// A block for parameter gradients, filled with `start` before the call.
  GuardedBlock gradient_block(double start) const {
    GuardedBlock block(values_.size());
    for (const Parameter& p : params_)
      for (std::size_t i = 0; i < p.shape.elems(); ++i) block.as<double>()[p.offset + i] = start;
    return block;
  }

  /// Whether the gaps between parameter gradients are as gradient_block made them.
  bool gaps_intact(const GuardedBlock& block) const {
    for (std::size_t p = 0; p < params_.size(); ++p) {
      const std::size_t end =
          p + 1 < params_.size() ? params_[p + 1].offset * sizeof(double) : block.size();
      const std::size_t begin = (params_[p].offset + params_[p].shape.elems()) * sizeof(double);
      for (std::size_t i = begin; i < end; ++i)
        if (block.data()[i] != std::byte{0xFF}) return false;
    }
    return block.intact();
  }

  /// Whether gradients that began at `start` are the gradients that began at 0, plus `start`.
  bool check_accumulation(const GuardedBlock& from_zero, const GuardedBlock& from_start,
                          double start) {
    for (const Parameter& p : params_)
      for (std::size_t i = p.offset; i < p.offset + p.shape.elems(); ++i) {
        const double gradient = from_zero.as<double>()[i];
        const double added = from_start.as<double>()[i] - start;
        if (!(std::fabs(added - gradient) <= 1e-9 * (1 + std::fabs(gradient))))
          return fail(Error::say("the gradient of ", p.name, "[", i - p.offset,
                                 "] was not added to what its buffer held: parameter gradients "
                                 "are accumulated"));
      }
    return true;
  }

  template <class Objective>
  void compare_parameters(const GuardedBlock& analytic, const Objective& objective) {
    for (const Parameter& p : params_)
      compare_with_differences(result_, options_, p.name, values_.as<double>() + p.offset,
                               analytic.as<double>() + p.offset, p.shape.elems(), objective);
  }

  static GuardedBlock copy(const GuardedBlock& block) {
    GuardedBlock copied(block.size());
    if (block.size() > 0) std::memcpy(copied.data(), block.data(), block.size());
    return copied;
  }

  GradientCheckResult finish() {
    summarize(result_);
    return result_;
  }

  /// The random key of dropout and its like.
  RandomKey key() const { return {options_.seed, 3, 1, 7, Purpose::dropout}; }

  GradientCheckOptions options_;
  GradientCheckResult result_;
  std::vector<Parameter> params_;
  GuardedBlock values_{0};       ///< parameters
  GuardedBlock kept_values_{0};  ///< parameters as they must be after every call
};

}}}  // namespace adacc::v0_1::testing::detail
