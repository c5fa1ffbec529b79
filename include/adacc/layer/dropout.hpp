// SPDX-License-Identifier: MIT
/// Dropout whose mask is never stored: backward draws it again.
///
/// Element e is dropped if word e of the context's stream (core/random.hpp) is below rate * 2^32. So the mask depends
/// on seed, step, micro-step, activation and element, and on nothing else: a recomputed dropout, and one on another
/// number of threads, drops the same elements. Srivastava et al., "Dropout", 2014, in the inverted form: remaining
/// elements are scaled by 1 / (1 - rate) in training, and evaluation is the identity.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/random.hpp"
#include "../model/contract.hpp"
#include "math/numbers.hpp"
#include "math/rows.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Words 4 * first … 4 * first + 4 * lanes - 1 of the stream `key`: random_block for `lanes`
/// blocks at once, in structure-of-arrays form, so that compilers make vectors of the lanes.
/// `first` is a multiple of `lanes`, a power of two.
template <std::size_t lanes>
void random_words(const RandomKey& key, std::uint64_t first, std::uint32_t* words) {
  std::uint32_t c0[lanes], c1[lanes], c2[lanes], c3[lanes];
  const std::uint32_t high = static_cast<std::uint32_t>(first >> 32) & 0xFF;
  for (std::size_t i = 0; i < lanes; ++i) {
    c0[i] = static_cast<std::uint32_t>(first) + static_cast<std::uint32_t>(i);
    c1[i] = key.activation;
    c2[i] = key.step;
    c3[i] =
        std::uint32_t{key.micro_step} | static_cast<std::uint32_t>(key.purpose) << 16 | high << 24;
  }
  std::uint32_t k0 = static_cast<std::uint32_t>(key.seed);
  std::uint32_t k1 = static_cast<std::uint32_t>(key.seed >> 32);
  for (int round = 0; round < Philox::rounds; ++round) {
    for (std::size_t i = 0; i < lanes; ++i) {
      const std::uint64_t p0 = std::uint64_t{Philox::factor_0} * c0[i];
      const std::uint64_t p1 = std::uint64_t{Philox::factor_1} * c2[i];
      c0[i] = static_cast<std::uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
      c1[i] = static_cast<std::uint32_t>(p1);
      c2[i] = static_cast<std::uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
      c3[i] = static_cast<std::uint32_t>(p0);
    }
    k0 += Philox::step_0;
    k1 += Philox::step_1;
  }
  for (std::size_t i = 0; i < lanes; ++i) {
    words[4 * i] = c0[i];
    words[4 * i + 1] = c1[i];
    words[4 * i + 2] = c2[i];
    words[4 * i + 3] = c3[i];
  }
}

}  // namespace detail

/// Any shape, elementwise; the identity in evaluation. A NaN stays a NaN, dropped or not.
struct Dropout {
  float rate = 0;  ///< the probability of an element to be dropped, in [0, 1)

  static constexpr auto backward_reads = reads::none;
  static constexpr auto split = Split::rows;
  static constexpr const char* name = "dropout";
  static constexpr LayerFacts facts{
      .draws_numbers = true, .dx_overwrites_dy = true, .runs_in_bf16 = true};

  constexpr LayerNeeds needs(Shape, NeedsQuery) const {
    if (rate >= 0 && rate < 1) return {};
    return {.error = Error::say("dropout: the rate must be at least 0 and below 1")};
  }

  template <class T>
  void forward(Cpu& cpu, const ForwardCall<T>& call) const {
    mask(cpu, call.part, call.x, call.y);
  }

  template <class T>
  void backward(Cpu& cpu, const BackwardCall<T>& call) const {
    mask(cpu, call.part, call.dy, call.dx);
  }

 private:
  template <class T>
  void mask(Cpu& cpu, const Part& part, View<const T> from, View<T> to) const {
    constexpr std::size_t piece = 256;  // 64 Philox blocks
    static_assert(detail::tile_elems % piece == 0);
    const bool identity = !cpu.training || !(rate > 0);
    if (identity && from.data() == to.data()) return;
    const RandomKey key = cpu.key.with_purpose(Purpose::dropout);
    const auto threshold = static_cast<std::uint32_t>(static_cast<double>(rate) * 4294967296.0);
    using W = Wide<T>;
    const W scale = 1 / (1 - static_cast<W>(rate));
    // This may be a part of the activation, but pieces are cut as in the whole, whose mask is wanted. The first piece
    // then begins at element `skip` of its words.
    const std::size_t begin = part.first * from.cols(), skip = begin % piece;
    detail::for_each_piece(cpu, skip + from.size(), piece, [&](std::size_t i, std::size_t n) {
      const std::size_t at = i < skip ? skip : i, count = i + n - at;
      const detail::Numbers in(from.data() + (at - skip), count);
      T* const out = to.data() + (at - skip);
      if (identity) return detail::store(out, count, in.array());
      std::uint32_t words[piece];
      detail::random_words<piece / 4>(key, (begin - skip + i) / 4, words);
      W factor[piece];
      const W kept = scale;  // a reference to scale would keep the loop from becoming vectors
      for (std::size_t k = 0; k < piece; ++k) factor[k] = words[k] < threshold ? W(0) : kept;
      detail::store(out, count, in.array() * detail::as_array(factor + (at - i), count));
    });
  }
};

}}  // namespace adacc::v0_1
