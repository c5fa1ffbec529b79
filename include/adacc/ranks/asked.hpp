// SPDX-License-Identifier: MIT
/// The values of an update that all ranks must agree on: rate, clipping, and the optimizer's own numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "../core/error.hpp"
#include "../core/number_text.hpp"
#include "../core/vector_target.hpp"
#include "../model/fingerprint.hpp"
#include "../optimizer/gradient_norm.hpp"
#include "../optimizer/optimizer.hpp"
#include "../program/plan.hpp"
#include "collectives.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// The shortest text of a number: 0.9F is 0.9.
inline std::string shortest(double value) {
  const auto narrow = static_cast<float>(value);
  return (static_cast<double>(narrow) == value ? NumberText::shortest(narrow)
                                               : NumberText::shortest(value))
      .c_str();
}

/// Calls visit(name, optimizer, value) for each value, always in the same order; `optimizer` is null unless
/// the value is the optimizer's own.
template <class Optimizer, class Visit>
void each_asked(double rate, const Clipping& clip, const Optimizer& optimizer, const Visit& visit) {
  const char* const nobody = nullptr;
  visit("learning rate", nobody, rate);
  visit("norm that gradients are clipped to", nobody, clip.norm);
  visit("step whose norm that is (0: its own, 1: the one before)", nobody,
        clip.by == ClipBy::previous ? 1.0 : 0.0);
  each_option(optimizer,
              [&](const char* name, double value) { visit(name, optimizer.name, value); });
}

/// The number of values.
template <class Optimizer>
std::size_t count_of_asked(const Optimizer& optimizer) {
  std::size_t count = 0;
  each_asked(0, Clipping(), optimizer, [&](const char*, const char*, double) { ++count; });
  return count;
}

/// A hash of `plan`, a whole number: the same in every process.
inline double number_of(const Plan& plan) {
  Mixer hash;
  hash.mix(plan.room_bytes);
  for (const Policy& policy : plan.policies) hash.mix(policy.number());
  return static_cast<double>(hash.value() >> 11);
}

/// Adds an optimizer, with state (`keeps`) and numbers, for set-up.
template <class Optimizer>
void agree_on(Agreement& agreement, const Optimizer& optimizer, const std::string& keeps) {
  agreement.add("optimizer", keeps);
  each_option(optimizer, [&](const char* name, double value) {
    agreement.add(std::string(name) + " of " + optimizer.name, shortest(value));
  });
}

/// Adds the instruction level of products of activations of type `scalar`, and of all other kernels: a shard's bits would
/// depend on the rank that computes it. Levels with the same bits count as one. A device's kernels have no level.
inline void agree_on_level(Agreement& agreement, Dtype scalar, InstructionLevel products,
                           InstructionLevel vectors) {
  const InstructionLevel highest = vectors > build_level ? vectors : build_level;
  const bool tiles = scalar == Dtype::bf16 && products == InstructionLevel::amx;
  agreement.add("instruction level (ADACC_INSTRUCTION_LEVEL chooses one that all have)",
                name_of(tiles                                ? products
                        : highest > InstructionLevel::avx512 ? InstructionLevel::avx512
                                                             : highest));
}
template <class Context>
void agree_on_level(Agreement& agreement, Dtype scalar) {
  if constexpr (!context_traits<Context>::own_memory)
    agree_on_level(agreement, scalar,
                   scalar == Dtype::bf16 ? instruction_choice().level : InstructionLevel::plain,
                   target_level());
}

/// The error of rank `rank` having value number `i` as `theirs`, and rank 0 as `base`.
template <class Optimizer>
Error disagreement_of(const Optimizer& optimizer, std::size_t i, double base, int rank,
                      double theirs) {
  std::string what;
  std::size_t at = 0;
  each_asked(0, Clipping(), optimizer, [&](const char* name, const char* of, double) {
    if (at++ == i)
      what = std::string(name) + (of == nullptr ? "" : " of ") + (of == nullptr ? "" : of);
  });
  return Error::say("the ranks disagree on the ", what.c_str(), ": rank 0 has ",
                    shortest(base).c_str(), ", rank ", rank, " ", shortest(theirs).c_str());
}

}}}  // namespace adacc::v0_1::detail
