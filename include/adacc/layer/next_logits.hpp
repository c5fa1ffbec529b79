// SPDX-License-Identifier: MIT
/// The output head of a language model as a layer: logits of the token behind each sequence.
///
/// The loss of a language model has no output to sample from. This layer takes its place, with the same parameters
/// (generator_of() in train/generate.hpp).
#pragma once

#include <array>
#include <cstddef>

#include "../model/contract.hpp"
#include "cross_entropy_head.hpp"
#include "math/product.hpp"

namespace adacc { inline namespace v0_1 {

/// x (B, T, channels) to logits (B, vocab) of the last position, in passes that continue sequences of the last valid one
/// (CarriedState::valid). The weight is the head's.
struct NextLogits {
  CrossEntropyHead head{};

  static constexpr const char* name = "next_logits";
  static constexpr LayerFacts facts{
      .extends_sequences = true, .in_place_of_loss = true, .runs_in_bf16 = true};
  static constexpr auto backward_reads = reads::input;

  constexpr Shape output_shape(Shape in) const { return Shape(in[0], head.vocab); }

  constexpr std::array<ParameterSpec, 1> parameters(Shape in) const { return head.parameters(in); }

  /// Words are taken in blocks, as the head takes them.
  constexpr LayerNeeds needs(Shape in, NeedsQuery query) const {
    if (in.rank() != 3 || in.elems() == 0)
      return {.error = Error::say(name, " takes (batch, time, channels), each at least 1, and got ",
                                  in)};
    LayerNeeds needs = head.needs(in, query);
    needs.workspace = 0;
    const std::size_t channels = in.cols(), block = detail::smaller(head.vocab, head.block_words);
    for (const std::size_t words : {block, block == 0 ? 0 : head.vocab % block}) {
      if (words == 0) continue;
      const auto include = [&](std::size_t m, std::size_t n, std::size_t k) {
        const std::size_t bytes =
            detail::product_workspace_bytes(query.scalar, m, n, k, query.workers);
        if (bytes > needs.workspace) needs.workspace = bytes;
      };
      include(in[0], words, channels);
      if (query.pass == Pass::forward) continue;
      include(in[0], channels, words);
      include(words, channels, in[0]);
    }
    // Sums over blocks of words.
    if (query.pass != Pass::forward)
      needs.workspace += align_up(in[0] * channels * bytes_of(wide(query.scalar)));
    return needs;
  }

  template <class T>
  void forward(Cpu& cpu, const ForwardCall<T>& call) const {
    const Operand<T> rows = last_rows<T>(cpu, call.x);
    const std::size_t channels = call.x.cols();
    each_block(cpu, call.params, [&](std::size_t word, std::size_t count, const auto& weight) {
      detail::product(cpu, call.x.shape()[0], count, channels, rows, weight, channels, true,
                      call.y.data() + word, head.vocab, Accumulate::no, call.workspace);
    });
  }

  template <class T>
  void backward(Cpu& cpu, const BackwardCall<T>& call) const {
    using W = Wide<T>;
    const std::size_t batch = call.x.shape()[0], channels = call.x.cols();
    const Operand<T> rows = last_rows<T>(cpu, call.x);
    Bytes workspace = call.workspace;
    const View<W> sums = carve<W>(workspace, batch * channels);
    each_block(cpu, call.params, [&](std::size_t word, std::size_t count, const auto& weight) {
      const T* const dlogits = call.dy.data() + word;
      detail::product(cpu, batch, channels, count, Operand<T>{dlogits, head.vocab, 1}, weight,
                      channels, false, sums.data(), channels,
                      word == 0 ? Accumulate::no : Accumulate::yes, workspace);
      detail::product(cpu, count, channels, batch, Operand<T>{dlogits, 1, head.vocab}, rows,
                      call.dparams[0].data() + word * channels, channels, Accumulate::yes,
                      workspace);
    });
    const std::size_t time = call.x.shape()[1], last = last_position(cpu, time);
    for (std::size_t e = 0; e < call.dx.size(); ++e) {
      const std::size_t row = e / channels;
      call.dx[e] =
          row % time == last ? detail::rounded<T>(sums[row / time * channels + e % channels]) : T{};
    }
  }

 private:
  static std::size_t last_position(const Cpu& cpu, std::size_t time) {
    return (cpu.carried == nullptr ? time : cpu.carried->valid) - 1;
  }
  template <class T>
  static Operand<T> last_rows(const Cpu& cpu, View<const T> x) {
    const std::size_t time = x.shape()[1], channels = x.cols();
    return {x.data() + last_position(cpu, time) * channels, time * channels, 1};
  }
  /// use(first word, words, their part of the weight).
  template <class W, class Use>
  void each_block(Cpu& cpu, const Params<const W>& params, const Use& use) const {
    for (std::size_t word = 0; word < head.vocab; word += head.block_words) {
      const std::size_t count = detail::smaller(head.block_words, head.vocab - word);
      use(word, count, params.matrix(cpu, 0, word, count));
    }
  }
};

}}  // namespace adacc::v0_1
