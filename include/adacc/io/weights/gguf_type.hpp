// SPDX-License-Identifier: MIT
/// The element types of tensors in GGUF files: blocks of elements, and the bytes of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "stored_type.hpp"

namespace adacc { inline namespace v0_1 {

/// Numbers as in files.
enum class GgufType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  bf16 = 30
};

namespace detail {

struct GgufTypeFacts {
  GgufType type;
  const char* name;
  std::size_t block_elems, block_bytes;
};

inline constexpr GgufTypeFacts gguf_types[] = {
    {GgufType::f32, "F32", 1, 4},       {GgufType::f16, "F16", 1, 2},
    {GgufType::bf16, "BF16", 1, 2},     {GgufType::q4_0, "Q4_0", 32, 18},
    {GgufType::q4_1, "Q4_1", 32, 20},   {GgufType::q5_0, "Q5_0", 32, 22},
    {GgufType::q5_1, "Q5_1", 32, 24},   {GgufType::q8_0, "Q8_0", 32, 34},
    {GgufType::q4_k, "Q4_K", 256, 144}, {GgufType::q5_k, "Q5_K", 256, 176},
    {GgufType::q6_k, "Q6_K", 256, 210}};

/// Null if elements of this type are not read.
constexpr const GgufTypeFacts* gguf_type_facts(std::uint32_t type) {
  for (const GgufTypeFacts& facts : gguf_types)
    if (static_cast<std::uint32_t>(facts.type) == type) return &facts;
  return nullptr;
}
constexpr const GgufTypeFacts& facts_of(GgufType type) {
  return *gguf_type_facts(static_cast<std::uint32_t>(type));
}

/// The name of a type that is known and not read; null for others.
constexpr const char* unread_gguf_type(std::uint32_t type) {
  struct Named {
    std::uint32_t type;
    const char* name;
  };
  constexpr Named names[] = {{9, "Q8_1"},     {10, "Q2_K"},   {11, "Q3_K"},    {15, "Q8_K"},
                             {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
                             {20, "IQ4_NL"},  {21, "IQ3_S"},  {22, "IQ2_S"},   {23, "IQ4_XS"},
                             {24, "I8"},      {25, "I16"},    {26, "I32"},     {27, "I64"},
                             {28, "F64"},     {29, "IQ1_M"},  {34, "TQ1_0"},   {35, "TQ2_0"},
                             {39, "MXFP4"},   {40, "NVFP4"}};
  for (const Named& one : names)
    if (one.type == type) return one.name;
  return nullptr;
}

/// "F32, F16, …": all types that are read.
inline std::string read_gguf_types() {
  std::string list;
  for (const GgufTypeFacts& facts : gguf_types)
    list += std::string(list.empty() ? "" : ", ") + facts.name;
  return list;
}

}  // namespace detail

/// The name in llama.cpp: "Q4_K".
constexpr const char* name_of(GgufType type) { return detail::facts_of(type).name; }

}}  // namespace adacc::v0_1
