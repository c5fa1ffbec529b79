// SPDX-License-Identifier: MIT
/// Activations whose backward reads one bit an element: the bits, in aux.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/bytes.hpp"
#include "../core/cpu.hpp"
#include "../core/view.hpp"
#include "../model/contract.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Elements masked by one thread at a time: bytes of a mask have one writer.
inline constexpr std::size_t mask_tile = 16 * 1024;

constexpr std::size_t mask_bytes(std::size_t elems) { return div_up(elems, 8); }

/// y = value(x), and bit e of the mask is passes(x) for element e.
template <class T, class Value, class Passes>
void write_masked(const Cpu& cpu, View<const T> x, View<T> y, Bytes mask, const Value& value,
                  const Passes& passes) {
  cpu.parallel(div_up(x.size(), mask_tile), [&](std::size_t tile, int) {
    const std::size_t end =
        x.size() - tile * mask_tile < mask_tile ? x.size() : (tile + 1) * mask_tile;
    for (std::size_t i = tile * mask_tile; i < end; i += 8) {
      const std::size_t count = end - i < 8 ? end - i : 8;
      const T* const in = x.data() + i;
      T* const out = y.data() + i;
      std::uint32_t bits = 0;
      for (std::size_t k = 0; k < count; ++k) {
        bits |= (passes(in[k]) ? 1U : 0U) << k;
        out[k] = value(in[k]);
      }
      mask[i / 8] = static_cast<std::byte>(bits);
    }
  });
}

/// dx = dy where the mask's bit is set, elsewhere 0. They may be one buffer.
template <class T>
void pass_masked(const Cpu& cpu, View<const T> dy, View<T> dx, ConstBytes mask) {
  cpu.parallel(div_up(dy.size(), mask_tile), [&](std::size_t tile, int) {
    const std::size_t end =
        dy.size() - tile * mask_tile < mask_tile ? dy.size() : (tile + 1) * mask_tile;
    for (std::size_t i = tile * mask_tile; i < end; i += 8) {
      const std::size_t count = end - i < 8 ? end - i : 8;
      const auto bits = static_cast<std::uint32_t>(mask[i / 8]);
      for (std::size_t k = 0; k < count; ++k) dx[i + k] = (bits >> k & 1) != 0 ? dy[i + k] : T(0);
    }
  });
}

/// A layer whose slope is 1 or 0, from one bit an element in aux: any shape, elementwise. `Curve` has value(x), and
/// passes(x), whether the slope is 1.
template <class Curve>
struct Masked {
  static constexpr auto backward_reads = reads::none;
  static constexpr auto split = Split::rows;
  static constexpr LayerFacts facts{.dx_overwrites_dy = true};

  constexpr LayerNeeds needs(Shape in, NeedsQuery) const { return {.aux = mask_bytes(in.elems())}; }

  template <class T>
  void forward(Cpu& cpu, const ForwardCall<T>& call) const {
    write_masked(
        cpu, call.x, call.y, call.aux, [](T v) { return Curve::value(v); },
        [](T v) { return Curve::passes(v); });
  }

  template <class T>
  void backward(Cpu& cpu, const BackwardCall<T>& call) const {
    pass_masked(cpu, call.dy, call.dx, call.aux);
  }
};

}}}  // namespace adacc::v0_1::detail
