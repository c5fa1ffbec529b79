// SPDX-License-Identifier: MIT
// What the executor counts, for a program that is linked with it and measures its own kernels.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ptxrun {

/// Global memory, of loads [0] and of stores and atomics [1]: `bytes` is the sum over lanes, a
/// sector is 32 bytes that at least one lane of a warp touches.
struct Traffic {
  std::uint64_t requests = 0, sectors = 0, bytes = 0;
};

/// Of one kernel since clear_counts().
struct Counts {
  std::string name, shown;  ///< as the linker has it; as the source has it
  std::string_view ptx;     ///< text of its module
  std::uint64_t launches = 0, blocks = 0;
  unsigned threads = 0;            ///< of a block of the last launch
  unsigned dynamic_shared = 0;     ///< bytes of its shared memory beside what the kernel declares
  std::uint64_t instructions = 0;  ///< that warps executed
  std::uint64_t lanes = 0;         ///< of these instructions, summed
  std::uint64_t barriers = 0;      ///< that blocks passed
  Traffic traffic[2];
  /// Of shared memory: passes over its banks, and how many there would be without conflicts.
  std::uint64_t shared_passes = 0, shared_ideal = 0;
  std::map<int, std::uint64_t> by_line;  ///< of the PTX: how often warps executed it
};

/// Counts from now on, from zero. Counting is slower.
void clear_counts();

/// Products of bfloat16 that cuBLASLt was asked for since clear_counts(). A product is aligned if it meets the conditions
/// that cuBLAS's manual has for tensor cores: addresses, distances of columns, and dimensions along which matrices lie in
/// memory are multiples of 16 bytes.
struct Products {
  std::uint64_t all = 0, aligned = 0;
};
Products products();

/// How often the host has waited for the device since the program began.
std::uint64_t waits();
/// From now on each event is so many seconds behind the one recorded before; 0: when it was recorded.
void tick_events(double seconds);

/// Kernels that have been launched since clear_counts().
std::vector<Counts> counts();

}  // namespace ptxrun
