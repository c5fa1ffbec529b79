// SPDX-License-Identifier: MIT
/// Rotary position embedding: queries and keys are turned by angles that grow with their position.
///
/// Channels i and i + D/2 of a head of D are a point of the plane, turned at position t by t base^(-2i/D). So a product
/// of query and key depends on their distance. Su, Lu, Pan, Murtadha, Wen, Liu, "RoFormer", arXiv 2104.09864, with the
/// halves paired as in Llama's code on the Hugging Face Hub (the paper pairs neighbours: a permutation of the weights'
/// rows).
///
/// The layer stands between the linear layer of queries, keys and values, and attention. Backward turns back and reads
/// nothing: queries and keys are kept once, turned.
#pragma once

#include <cmath>
#include <cstddef>

#include "../model/contract.hpp"
#include "math/numbers.hpp"
#include "math/rows.hpp"

namespace adacc { inline namespace v0_1 {

/// (B, T, (heads + 2 kv_heads) D) to the same; rows as Attention has them (attention.hpp). Values
/// pass as they are. Every sequence, and every document packed into one (KernelCall::positions), begins at position 0.
struct RotaryEmbedding {
  std::size_t heads = 1;     ///< query heads
  std::size_t kv_heads = 0;  ///< key and value heads; 0: as many
  double base = 10000;       ///< the base of the angles' geometric series

  static constexpr auto backward_reads = reads::none;
  static constexpr LayerFacts facts{.dx_overwrites_dy = true,
                                    .extends_sequences = true,
                                    .reads_positions = true,
                                    .runs_in_bf16 = true};
  static constexpr auto split = Split::batch;  // a part must begin at position 0
  static constexpr const char* name = "rotary_embedding";

  constexpr LayerNeeds needs(Shape in, NeedsQuery) const {
    if (heads == 0)
      return {.error = Error::say("rotary_embedding needs at least 1 head, but has 0")};
    if (in.rank() != 3 || in.elems() == 0)
      return {.error = Error::say(
                  "rotary_embedding takes (batch, time, channels of queries, keys and values),"
                  " each at least 1, and got ",
                  in)};
    if (in.cols() % (heads + 2 * key_heads()) != 0 || head_size(in) % 2 != 0)
      return {.error = Error::say("rotary_embedding: ", in.cols(), " columns are not ", heads,
                                  " + 2 x ", key_heads(), " heads of an even number of channels")};
    if (!(base > 0))
      return {.error = Error::say("rotary_embedding: the base must be a number above 0")};
    return {};
  }

  constexpr std::size_t key_heads() const { return kv_heads == 0 ? heads : kv_heads; }
  constexpr std::size_t head_size(Shape in) const { return in.cols() / (heads + 2 * key_heads()); }

  template <class T>
  void forward(Cpu& cpu, const ForwardCall<T>& call) const {
    turn(cpu, call.x, call.y, call.part.first, 1);
  }
  template <class T>
  void backward(Cpu& cpu, const BackwardCall<T>& call) const {
    turn(cpu, call.dy, call.dx, call.part.first, -1);
  }

 private:
  static constexpr std::size_t most_pairs = 128;  ///< whose angles are on the stack at a time

  template <class T>
  void turn(const Cpu& cpu, View<const T> from, View<T> to, std::size_t first_entry,
            double direction) const {
    const Shape shape = from.shape();
    const std::size_t half = head_size(shape) / 2;
    for (std::size_t first = 0; first < half; first += most_pairs) {
      const std::size_t pairs = half - first < most_pairs ? half - first : most_pairs;
      double angle[most_pairs];  // from one position to the next
      for (std::size_t i = 0; i < pairs; ++i)
        angle[i] =
            direction * std::pow(base, -static_cast<double>(first + i) / static_cast<double>(half));
      cpu.parallel(shape[1], [&](std::size_t position, int) {
        Wide<T> cosine[most_pairs], sine[most_pairs];
        std::size_t turned_to = static_cast<std::size_t>(-1);  // no position yet
        for (std::size_t entry = 0; entry < shape[0]; ++entry) {
          const std::size_t place = cpu.position_of(first_entry + entry, position, shape[1]);
          for (std::size_t i = 0; place != turned_to && i < pairs; ++i) {
            const double turned = angle[i] * static_cast<double>(place);
            cosine[i] = static_cast<Wide<T>>(std::cos(turned));
            sine[i] = static_cast<Wide<T>>(std::sin(turned));
          }
          turned_to = place;
          const std::size_t row = (entry * shape[1] + position) * shape.cols();
          for (std::size_t head = 0; head < heads + key_heads(); ++head) {
            const std::size_t at = row + 2 * half * head + first;
            turn_pairs(from.data() + at, to.data() + at, half, pairs, cosine, sine);
          }
          if (first == 0 && from.data() != to.data())
            copy_values(from.data() + row, to.data() + row, shape);
        }
      });
    }
  }

  /// May work in place.
  template <class T>
  static void turn_pairs(const T* from, T* to, std::size_t half, std::size_t pairs,
                         const Wide<T>* cosine, const Wide<T>* sine) {
    for (std::size_t i = 0; i < pairs; ++i) {
      const Wide<T> a = detail::number(from[i]), b = detail::number(from[i + half]);
      to[i] = detail::rounded<T>(a * cosine[i] - b * sine[i]);
      to[i + half] = detail::rounded<T>(b * cosine[i] + a * sine[i]);
    }
  }

  template <class T>
  void copy_values(const T* from, T* to, Shape shape) const {
    for (std::size_t c = (heads + key_heads()) * head_size(shape); c < shape.cols(); ++c)
      to[c] = from[c];
  }
};

}}  // namespace adacc::v0_1
