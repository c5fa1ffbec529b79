// SPDX-License-Identifier: MIT
/// What can become of an activation between forward and the last backward step that reads it: it is
/// kept in some form, or dropped and recomputed.
///
/// A policy type (Retain, Compress<Codec>, Offload<>, Recompute, Planned) is a tag: it lowers to a `Policy`
/// value in the plan, and nothing downstream is templated on it. It governs the activation that its
/// layer *produces*.
#pragma once

#include <cstdint>

#include "form.hpp"

namespace adacc { inline namespace v0_1 {

/// One activation's entry in a plan.
class Policy {
 public:
  /// Left to the planner.
  constexpr Policy() = default;

  /// Whether it is still open: left to the planner.
  constexpr bool planned() const { return kind_ == Kind::planned; }
  constexpr bool keeps() const { return kind_ == Kind::keep; }
  constexpr bool recomputes() const { return kind_ == Kind::recompute; }

  /// If it keeps(): how.
  constexpr const Form& form() const { return form_; }
  /// If it keeps the activation encoded: by what. Otherwise null.
  constexpr const CodecInfo* codec() const { return form_.codec; }
  /// Whether it keeps the activation in the arena, just as it is.
  constexpr bool retains() const { return keeps() && form_ == Form{}; }
  /// Whether it keeps it encoded, wherever.
  constexpr bool encodes() const { return keeps() && form_.encoded(); }
  /// Whether it may leave the arena.
  constexpr bool travels() const { return keeps() && form_.travels(); }

  /// Another one for each policy of a plan, the same in every process.
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
/// Keeps the activation as it is.
constexpr Policy retain() { return keep(Form{}); }
/// Sends it to a store as it is.
constexpr Policy offload() { return keep(Form{nullptr, Place::store}); }
/// Keeps it encoded.
constexpr Policy compress(const CodecInfo* codec) { return keep(Form{codec}); }
constexpr Policy recompute() {
  Policy policy;
  policy.kind_ = Policy::Kind::recompute;
  return policy;
}

/// "retain", "recompute", "planned" or the codec's name.
constexpr const char* name_of(const Policy& policy) {
  return policy.planned() ? "planned" : policy.recomputes() ? "recompute" : policy.form().name();
}

}}  // namespace adacc::v0_1
