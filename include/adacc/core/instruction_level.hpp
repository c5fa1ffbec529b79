// SPDX-License-Identifier: MIT
/// The instructions of the processor that kernels may use, found when the program runs.
///
/// Kernels for instructions that not every processor has are functions with a target attribute, so a program built
/// without -march has them all. One level is chosen for the whole program, once: by ADACC_INSTRUCTION_LEVEL, the macro,
/// if defined; else by the environment variable of this name, if set; else the fastest level of the
/// processor. A variable with an unknown level, or a level beyond the processor, is an error;
/// instruction_choice() returns the error, and set-ups of steps pass the error on. Programs without products of bf16 ask
/// for the level of vectors alone, vector_choice(), which leaves AMX and its permission alone.
#pragma once

#include <cstdlib>

#include "amx.hpp"
#include "config.hpp"
#include "error.hpp"
#include "same_text.hpp"

/// Before a function whose body may use the instructions of a level. Lambdas in the body do not inherit it.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDACC__)
#define ADACC_HAS_LEVELS 1
#define ADACC_AVX2 [[gnu::target("avx2,fma")]]
#define ADACC_AVX512 [[gnu::target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]]
#define ADACC_AVX512_BF16 [[gnu::target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma")]]
#else
#define ADACC_HAS_LEVELS 0
#endif

namespace adacc { inline namespace v0_1 {

/// In the order of needed instructions: a processor with one level has all levels before.
enum class InstructionLevel : unsigned char { plain, avx2, avx512, avx512_bf16, amx };
inline constexpr InstructionLevel instruction_levels[] = {
    InstructionLevel::plain, InstructionLevel::avx2, InstructionLevel::avx512,
    InstructionLevel::avx512_bf16, InstructionLevel::amx};

constexpr const char* name_of(InstructionLevel level) {
  switch (level) {
    case InstructionLevel::plain: return "plain";
    case InstructionLevel::avx2: return "avx2";
    case InstructionLevel::avx512: return "avx512";
    case InstructionLevel::avx512_bf16: return "avx512_bf16";
    default: return "amx";
  }
}

/// Whether this processor, and this build, has the instructions. The question about AMX asks Linux for the permission.
inline bool has_level(InstructionLevel level) {
  if (level == InstructionLevel::plain) return true;
#if ADACC_HAS_LEVELS
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return false;
  if (level == InstructionLevel::avx2) return true;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
    return false;
  if (level == InstructionLevel::avx512) return true;
  if (!__builtin_cpu_supports("avx512bf16")) return false;
  return level == InstructionLevel::avx512_bf16 || detail::amx_permitted();
#else
  return false;
#endif
}

/// The fastest level of the processor. A Sapphire Rapids multiplies pairs by AVX512_BF16 at half the rate of fp32's
/// multiply-adds: there AVX-512 without this instruction is the faster way to the same bits. Other processors of Intel
/// with AVX512_BF16, but Cooper Lake, are taken to be alike. AMX is the fastest if there; sums by AMX have another order,
/// and bits of their own. Levels above `most` are not looked for.
inline InstructionLevel fastest_level(InstructionLevel most = InstructionLevel::amx) {
  InstructionLevel fastest = InstructionLevel::plain;
  for (const InstructionLevel level : instruction_levels)
    if (level <= most && has_level(level)) fastest = level;
#if ADACC_HAS_LEVELS
  if (fastest == InstructionLevel::avx512_bf16 && __builtin_cpu_is("intel") &&
      !__builtin_cpu_is("cooperlake"))
    return InstructionLevel::avx512;
#endif
  return fastest;
}

/// A level, and the fault of another level that was asked for.
struct InstructionChoice {
  InstructionLevel level;
  Error error;
};

namespace detail {

/// The level of this name; null or empty: the fastest. Levels above `most` are looked for only by their name.
inline InstructionChoice choose_level(const char* name,
                                      InstructionLevel most = InstructionLevel::amx) {
  if (name == nullptr || *name == '\0') return {fastest_level(most), {}};
  for (const InstructionLevel level : instruction_levels) {
    if (!detail::same_text(name, name_of(level))) continue;
    if (has_level(level)) return {level, {}};
    const bool refused = level == InstructionLevel::amx && detail::processor_has_amx();
    Error error = Error::say("the instruction level ", name, " was asked for, but ",
                             refused ? "the operating system does not permit this process to use it"
                                     : "this processor has not got it",
                             "; it has");
    for (const InstructionLevel other : instruction_levels)
      if (other <= most && has_level(other)) error.append(" "), error.append(name_of(other));
    return {fastest_level(most), error};
  }
  Error error = Error::say("the instruction level ", name, " is unknown; expected one of");
  for (const InstructionLevel level : instruction_levels)
    error.append(" "), error.append(name_of(level));
  return {fastest_level(most), error};
}

/// The level asked for by the program, by name; null: none.
inline const char* level_asked_for() {
#if defined(ADACC_INSTRUCTION_LEVEL)
  return name_of(InstructionLevel::ADACC_INSTRUCTION_LEVEL);
#else
  return std::getenv("ADACC_INSTRUCTION_LEVEL");
#endif
}

}  // namespace detail

/// The program's choice for products of bf16, made at the first call.
inline const InstructionChoice& instruction_choice() {
  static const InstructionChoice choice = detail::choose_level(detail::level_asked_for());
  return choice;
}

/// The program's choice for all other kernels, made at the first call: they have nothing above avx512.
inline const InstructionChoice& vector_choice() {
  static const InstructionChoice choice =
      detail::choose_level(detail::level_asked_for(), InstructionLevel::avx512);
  return choice;
}

}}  // namespace adacc::v0_1
