// SPDX-License-Identifier: MIT
/// AMX: matrices of registers ("tiles") of a processor, and the permission to use them.
///
/// Linux gives the registers of AMX only to a process that asks, once. Threads and child processes inherit the
/// permission. Linux refuses where a thread has an alternative stack for signals on which the registers find no room;
/// once it has given the permission, it refuses such small stacks instead (sigaltstack(), ENOMEM). Other systems have no
/// permission to give here, so their programs do without AMX.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__) && defined(__LP64__) && defined(__linux__) && defined(__GNUC__) && \
    !defined(__CUDACC__)
#define ADACC_HAS_AMX 1
#include <cpuid.h>
#else
#define ADACC_HAS_AMX 0
#endif

namespace adacc { inline namespace v0_1 { namespace detail {

/// Whether the processor multiplies bf16 by AMX.
inline bool processor_has_amx() {
#if ADACC_HAS_AMX
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned bf16_and_tiles = 1U << 22 | 1U << 24;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 &&
         (edx & bf16_and_tiles) == bf16_and_tiles;
#else
  return false;
#endif
}

/// Whether this process may use AMX. The first call asks Linux.
inline bool amx_permitted() {
#if ADACC_HAS_AMX
  static const bool permitted = [] {
    if (!processor_has_amx()) return false;
    constexpr long arch_prctl = 158, request_permission = 0x1023, tile_data = 18;
    long result = arch_prctl;
    asm volatile("syscall"
                 : "+a"(result)
                 : "D"(request_permission), "S"(tile_data)
                 : "rcx", "r11", "memory");
    return result == 0;
  }();
  return permitted;
#else
  return false;
#endif
}

#if ADACC_HAS_AMX
/// The configuration of the processor's tiles.
struct TileShapes {
  std::uint8_t palette = 1, start_row = 0, none[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
inline constexpr TileShapes tile_shapes = {};

/// The calling thread's eight tiles, of 16 rows by 64 bytes each, for as long as this object lives. Nothing called
/// meanwhile may use tiles. Afterwards tiles are free, so a change of threads has none to save.
class Tiles {
 public:
  static constexpr std::size_t rows = 16, row_bytes = 64;

  Tiles() { asm volatile("ldtilecfg %0" : : "m"(tile_shapes)); }
  ~Tiles() { asm volatile("tilerelease" : : : "memory"); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  template <int tile>
  [[gnu::always_inline]] static inline void zero() {
    asm volatile("{tilezero\t%%tmm%c0|tilezero\t%%tmm%c0}" : : "i"(tile));
  }
  /// Rows are `stride` bytes apart; no row may be skipped, so all 16 have to be readable.
  template <int tile>
  [[gnu::always_inline]] static inline void load(const void* from, std::size_t stride) {
    asm volatile("{tileloadd\t(%0,%1,1), %%tmm%c2|tileloadd\t%%tmm%c2, [%0+%1*1]}"
                 :
                 : "r"(from), "r"(stride), "i"(tile)
                 : "memory");
  }
  template <int tile>
  [[gnu::always_inline]] static inline void store(void* to, std::size_t stride) {
    asm volatile("{tilestored\t%%tmm%c2, (%0,%1,1)|tilestored\t[%0+%1*1], %%tmm%c2}"
                 :
                 : "r"(to), "r"(stride), "i"(tile)
                 : "memory");
  }
  /// Adds the product of pairs of bf16 in `a` (16 rows of 16 pairs) and `b` (16 pairs down, 16 columns) to `sum`.
  template <int sum, int a, int b>
  [[gnu::always_inline]] static inline void multiply_add() {
    asm volatile("{tdpbf16ps\t%%tmm%c2, %%tmm%c1, %%tmm%c0|tdpbf16ps\t%%tmm%c0, %%tmm%c1, %%tmm%c2}"
                 :
                 : "i"(sum), "i"(a), "i"(b));
  }
};
#endif

}}}  // namespace adacc::v0_1::detail
