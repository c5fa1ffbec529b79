/// What can become of an activation between forward and the last backward step that reads it.
///
/// A policy type is a tag: it lowers to a `Policy` value in the plan, and nothing downstream is
/// templated on it. It governs the activation that its layer *produces*.
#pragma once

#include <cstdint>

#include "../codec/codec.hpp"

namespace adacc { inline namespace v0_1 {

enum class PolicyKind : std::uint8_t { planned, retain, compress, recompute };

/// One activation's entry in a plan. `codec` is set where `kind` is compress, and only there.
struct Policy {
  PolicyKind kind = PolicyKind::planned;
  const CodecInfo* codec = nullptr;

  friend constexpr bool operator==(const Policy&, const Policy&) = default;
};

/// "retain", "recompute", "planned" or the codec's name.
constexpr const char* name_of(const Policy& policy) {
  switch (policy.kind) {
    case PolicyKind::planned: return "planned";
    case PolicyKind::retain: return "retain";
    case PolicyKind::compress: return policy.codec->name;
    case PolicyKind::recompute: return "recompute";
  }
  return "?";
}

}}  // namespace adacc::v0_1
