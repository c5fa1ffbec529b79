// SPDX-License-Identifier: MIT
/// The fate of an activation between forward and the last reader in backward: kept in some form, or dropped and
/// recomputed.
///
/// Policy types (Retain, Compress<Codec>, Offload<>, Recompute, Planned) are tags: each lowers to a `Policy` value in
/// the plan, and no later code is a template over them. A policy governs the activation *produced* by its layer.
#pragma once

#include <cstdint>

#include "form.hpp"

namespace adacc { inline namespace v0_1 {

/// One activation's entry in a plan.
class Policy {
 public:
  /// The choice is left to the planner.
  constexpr Policy() = default;

  /// Whether the choice is left to the planner.
  constexpr bool planned() const { return kind_ == Kind::planned; }
  constexpr bool keeps() const { return kind_ == Kind::keep; }
  constexpr bool recomputes() const { return kind_ == Kind::recompute; }
  /// How often backward may recompute the activation: 0 unless recomputes().
  constexpr int runs() const { return runs_; }

  /// How the activation is kept; only if keeps().
  constexpr const Form& form() const { return form_; }
  /// The codec of an encoded activation; otherwise null.
  constexpr const CodecInfo* codec() const { return form_.codec; }
  /// Whether the activation is kept in the arena, unencoded.
  constexpr bool retains() const { return keeps() && form_ == Form{}; }
  /// Whether the activation is kept encoded, in any place.
  constexpr bool encodes() const { return keeps() && form_.encoded(); }
  /// Whether the activation may leave the arena.
  constexpr bool travels() const { return keeps() && form_.travels(); }

  /// A distinct number for each policy of a plan, equal in every process.
  constexpr std::uint64_t number() const {
    return recomputes() ? std::uint64_t{runs_} * 2 - 1 : form_.number() << 1;
  }

  friend constexpr bool operator==(const Policy&, const Policy&) = default;

  friend constexpr Policy keep(const Form& form);
  friend constexpr Policy recompute(int runs);

 private:
  enum class Kind : std::uint8_t { planned, keep, recompute };
  Kind kind_ = Kind::planned;
  std::uint8_t runs_ = 0;
  Form form_;
};

constexpr Policy keep(const Form& form) {
  Policy policy;
  policy.kind_ = Policy::Kind::keep;
  policy.form_ = form;
  return policy;
}
/// Keeps the activation in the arena, unencoded.
constexpr Policy retain() { return keep(Form{}); }
/// Sends the activation to a store, unencoded.
constexpr Policy offload() { return keep(Form{nullptr, Place::store}); }
/// Keeps the activation in the arena, encoded by `codec`.
constexpr Policy compress(const CodecInfo* codec) { return keep(Form{codec}); }

inline constexpr int most_runs = 8;  ///< of one activation's recomputation

/// Drops the activation, and recomputes it when backward needs it. With `runs` above 1 (at most most_runs), a value
/// that was recomputed only to recompute others is dropped again, if an activation with fewer runs lies behind it;
/// in a chain it is then recomputed up to `runs` times (program/scheduler.hpp).
constexpr Policy recompute(int runs = 1) {
  Policy policy;
  policy.kind_ = Policy::Kind::recompute;
  policy.runs_ = static_cast<std::uint8_t>(runs < 1 ? 1 : runs > most_runs ? most_runs : runs);
  return policy;
}

/// "planned", "recompute" (with the number of runs, if above 1) or the name of the form.
constexpr const char* name_of(const Policy& policy) {
  constexpr const char* again[most_runs] = {"recompute",   "recompute_2", "recompute_3",
                                            "recompute_4", "recompute_5", "recompute_6",
                                            "recompute_7", "recompute_8"};
  return policy.planned()      ? "planned"
         : policy.recomputes() ? again[policy.runs() - 1]
                               : policy.form().name();
}

}}  // namespace adacc::v0_1
