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
  constexpr std::uint64_t number() const { return form_.number() << 1 | (recomputes() ? 1U : 0U); }

  friend constexpr bool operator==(const Policy&, const Policy&) = default;

  friend constexpr Policy keep(const Form& form);
  friend constexpr Policy recompute();

 private:
  enum class Kind : std::uint8_t { planned, keep, recompute };
  Kind kind_ = Kind::planned;
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
constexpr Policy recompute() {
  Policy policy;
  policy.kind_ = Policy::Kind::recompute;
  return policy;
}

/// "planned", "recompute" or the name of the form.
constexpr const char* name_of(const Policy& policy) {
  return policy.planned() ? "planned" : policy.recomputes() ? "recompute" : policy.form().name();
}

}}  // namespace adacc::v0_1
