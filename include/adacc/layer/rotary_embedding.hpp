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
///
/// With `norms` each head of queries and keys is divided by its root mean square first, and scaled per channel, as in
/// Qwen3 (arXiv 2505.09388). Backward then reads the input, and forms root mean squares again.
#pragma once

#include <cmath>
#include <cstddef>

#include "../model/contract.hpp"
#include "math/numbers.hpp"
#include "math/rows.hpp"
#include "rms_norm.hpp"

namespace adacc { inline namespace v0_1 {

/// (B, T, (heads + 2 kv_heads) D) to the same; rows as Attention has them (attention.hpp). Values
/// pass as they are. Every sequence, and every document packed into one (KernelCall::positions), begins at position 0.
/// Parameters, with `norms`: the weights of queries' and of keys' norms (D each).
struct RotaryEmbedding {
  std::size_t heads = 1;     ///< query heads
  std::size_t kv_heads = 0;  ///< key and value heads; 0: as many
  double base = 10000;       ///< the base of the angles' geometric series
  bool norms = false;        ///< queries and keys are normalized
  float epsilon = 1e-6F;     ///< added to their mean squares

  static constexpr auto backward_reads = reads::input;
  static constexpr LayerFacts facts{.dx_overwrites_dy = true,
                                    .extends_sequences = true,
                                    .reads_positions = true,
                                    .runs_in_bf16 = true};
  static constexpr auto split = Split::batch;  // a part must begin at position 0
  static constexpr const char* name = "rotary_embedding";

  constexpr Reads reads_when(Wanted) const { return norms ? reads::input : reads::none; }

  constexpr LayerNeeds needs(Shape in, NeedsQuery query) const {
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
    if (norms && !(epsilon > 0))
      return {.error = Error::say("rotary_embedding: epsilon must be a number above 0")};
    if (!norms || query.pass == Pass::forward) return {};
    const std::size_t turned =
        query.pass == Pass::backward ? 0 : align_up(in.elems() * bytes_of(query.scalar));
    return {.workspace = turned + detail::RowChunks(in.rows()).partials() * 2 * head_size(in) *
                                      bytes_of(wide(query.scalar))};
  }

  using Specs = ParameterSpecs<2>;

  constexpr Specs parameters(Shape in) const {
    const Shape shape(heads == 0 ? 0 : head_size(in));
    return {{{"query_norm", shape, Init::constant(1), false},
             {"key_norm", shape, Init::constant(1), false}},
            norms ? std::size_t{2} : std::size_t{0}};
  }

  constexpr std::size_t key_heads() const { return kv_heads == 0 ? heads : kv_heads; }
  constexpr std::size_t head_size(Shape in) const { return in.cols() / (heads + 2 * key_heads()); }

  template <class T>
  void forward(Cpu& cpu, const ForwardCall<T>& call) const {
    if (!norms) return turn(cpu, call.x, call.y, call.part.first, 1);
    const std::size_t cols = call.x.cols(), size = head_size(call.x.shape());
    const InstructionLevel level = detail::target_level();
    detail::for_each_row(cpu, call.x.rows(), cols, [&](std::size_t row) {
      const T* const from = call.x.data() + row * cols;
      T* const to = call.y.data() + row * cols;
      each_head(call.params, [&](std::size_t head, const Wide<T>* weight, std::size_t) {
        detail::with_target(level, [&]<class Target>(Target) {
          Wide<T> reciprocal;
          Target::template call<detail::rms_norm<T, Target>>(size, from + head * size, weight,
                                                             static_cast<Wide<T>>(epsilon),
                                                             to + head * size, reciprocal);
        });
      });
      if (from != to) copy_values(from, to, call.x.shape());
    });
    turn(cpu, View<const T>(call.y.data(), call.y.shape()), call.y, call.part.first, 1);
  }
  template <class T>
  void backward(Cpu& cpu, const BackwardCall<T>& call) const {
    if (!norms) {
      if (!call.dx.empty()) turn(cpu, call.dy, call.dx, call.part.first, -1);
      return;
    }
    using W = Wide<T>;
    const Shape in = call.x.shape();
    const std::size_t cols = in.cols(), size = head_size(in);
    const bool wants_dx = !call.dx.empty();
    std::byte* const workspace = call.workspace.data();
    // Gradients of the normalized heads: in dx, which they become, or in the workspace.
    T* const turned = wants_dx ? call.dx.data() : static_cast<T*>(static_cast<void*>(workspace));
    turn(cpu, call.dy, View<T>(turned, in), call.part.first, -1);
    void* const sums = workspace + (wants_dx ? 0 : align_up(in.elems() * sizeof(T)));
    const InstructionLevel level = detail::target_level();
    const auto sums_of_chunk = [&](std::size_t begin, std::size_t end, W* partial) {
      for (std::size_t row = begin; row < end; ++row)
        each_head(call.params, [&](std::size_t head, const W* weight, std::size_t which) {
          const std::size_t at = row * cols + head * size;
          const T* const x = call.x.data() + at;
          detail::with_target(level, [&]<class Target>(Target) {
            W r;
            Target::template call<detail::rms_scale<T, Target>>(size, x, static_cast<W>(epsilon),
                                                                r);
            if (!call.dparams[which].empty())
              Target::template call<detail::rms_norm_sums<T, Target>>(size, x, turned + at, r,
                                                                      partial + which * size);
            if (wants_dx)
              Target::template call<detail::rms_norm_gradient<T, Target>>(size, x, turned + at,
                                                                          weight, r, turned + at);
          });
        });
    };
    detail::sum_over_rows(cpu, in.rows(), 2 * size, static_cast<W*>(sums), sums_of_chunk,
                          [&](const W* partials, std::size_t count) {
                            for (std::size_t which = 0; which < 2; ++which)
                              if (!call.dparams[which].empty())
                                detail::add_partials(cpu, partials + which * size, count, 2 * size,
                                                     call.dparams[which]);
                          });
  }

 private:
  /// body(head, its norm's weight, 0 for queries and 1 for keys), for all heads that are turned.
  template <class Params, class Body>
  void each_head(const Params& params, const Body& body) const {
    for (std::size_t head = 0; head < heads + key_heads(); ++head) {
      const std::size_t which = head < heads ? 0 : 1;
      body(head, params[which].data(), which);
    }
  }

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
