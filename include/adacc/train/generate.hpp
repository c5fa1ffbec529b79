// SPDX-License-Identifier: MIT
/// Text from a language model, token by token, with keys and values of earlier tokens carried along.
///
///     const auto network = generator_of(llama::make(config));            // logits in place of the loss
///     auto writer = Generator::make(network, {.context = 512});          // memory_bytes() is known now
///     writer->take_memory();
///     writer->bind(training.parameters());                               // or whoever has the parameters
///     auto logits = writer->feed(cpu, prompt);                           // a whole prompt, 64 tokens at a time
///     while (...) { token = sampler.next(*logits); logits = writer->feed(cpu, {&token, Shape(1)}); }
///
/// A pass is a Program of Mode::infer; layers that mix positions carry their state from pass to pass
/// (KernelCall::carried). There are two: of a block of tokens and of one. Blocks begin at multiples of 64, so a block
/// that is not yet full runs again when more of its tokens come. Logits have the bits of one pass over all tokens.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../core/block.hpp"
#include "../layer/next_logits.hpp"
#include "../model/frozen.hpp"
#include "../model/layer.hpp"
#include "../model/network.hpp"
#include "../model/sequential.hpp"
#include "inference.hpp"

namespace adacc { inline namespace v0_1 {

/// The network of a language model with logits of the next token as its output, and the parameters of `network` at the
/// same places.
template <class Model>
auto generator_of(const Network<Model, CrossEntropyHead>& network) {
  return Network{Sequential{network.model, layer(NextLogits{network.loss})}};
}
template <class Model, Freeze what>
auto generator_of(const Network<Model, Frozen<CrossEntropyHead, what, false>>& network) {
  return Network{Sequential{network.model,
                            Frozen<Layer<NextLogits>, what>{layer(NextLogits{network.loss.loss})}}};
}

/// The fate of tokens without room behind the earlier ones.
enum class WhenFull : std::uint8_t {
  refuse,  ///< an error
  forget   ///< the older half of the context is forgotten, and the newer half read again
};

struct GeneratorOptions {
  std::size_t context = 0;  ///< most tokens at a time, at most as many as the network takes
  WhenFull when_full = WhenFull::refuse;
  int workers = 1;  ///< threads of the contexts that feed() gets
  ParameterForm parameters = ParameterForm::full;
  /// GraphOptions::trained of the training, which decides on the parameters' places.
  const TrainedSet* trained = nullptr;
  const StoredParameters* stored = nullptr;  ///< GraphOptions::stored: frozen parameters in a file
};

class Generator {
 public:
  /// Tokens of a block.
  static constexpr std::size_t block = 64;

  Generator() = default;

  /// `network`: of generator_of(), which must outlive the generator.
  template <class Network>
  static Result<Generator> make(const Network& network, const GeneratorOptions& options) {
    Generator generator;
    generator.options_ = options;
    const GraphOptions how{.workers = options.workers,
                           .trained = options.trained,
                           .parameters = options.parameters,
                           .stored = options.stored};
    if (options.context == 0) return Error::say("a generator's context is of at least 1 token");
    for (Pass* const pass : {&generator.one_, &generator.many_}) {
      const std::size_t tokens = pass == &generator.one_ ? 1 : block;
      if (tokens > options.context) continue;
      auto inference = Inference<>::make(network, Shape(1, tokens), how);
      if (!inference) return inference.error;
      pass->inference = static_cast<Inference<>&&>(*inference);
    }
    // The network says whether it takes so long a sequence.
    const Result<Graph> longest = make_graph(network, Shape(1, options.context), how);
    if (!longest) return longest.error;
    for (const Node& node : longest->nodes) {
      if (!node.extends_sequences)
        return Error::say("the layer \"", node.name,
                          "\" cannot continue a sequence, and text is generated token by token: "
                          "its functor would "
                          "have to declare extends_sequences (model/contract.hpp)");
      generator.places_.push_back(generator.state_bytes_);
      std::size_t bytes = 0;
      if (!multiply(node.carried_bytes, options.context, bytes))
        return Error::say("a context of ", options.context, " tokens is too large to count");
      generator.state_bytes_ += align_up(bytes);
    }
    return static_cast<Generator&&>(generator);
  }
  template <class Network>
  static Result<Generator> make(const Network&& temporary, const GeneratorOptions&) = delete;

  /// For a pass, exactly; a training's arena may serve.
  std::size_t arena_bytes() const {
    const std::size_t one = one_.bytes(), many = many_.bytes();
    return one < many ? many : one;
  }
  /// Keys and values of a whole context.
  std::size_t state_bytes() const { return state_bytes_; }
  /// All memory but that of parameters: arena, state, and the tokens themselves.
  std::size_t memory_bytes() const {
    return arena_bytes() + state_bytes() + (options_.context + block) * sizeof(std::int32_t);
  }
  std::size_t context() const { return options_.context; }
  const Graph& graph() const { return one_.inference.graph(); }

  /// Takes memory_bytes(). With `arena`, which has arena_bytes() or more and is free between calls of feed(), the arena
  /// is not taken.
  Error take_memory(Bytes arena = {}) {
    Error error;
    if (arena.empty()) detail::take(arena_, arena_bytes(), "activations of a generator", error);
    lent_ = arena;
    detail::take(state_, state_bytes(), "keys and values of a generator", error);
    detail::take(tokens_, options_.context + block, "tokens of a generator", error);
    return error;
  }

  /// Lends the parameters: the block of a network with the loss, which stays the caller's and has to stay.
  Error bind(const ParameterBlock<float>& params) {
    Bytes arena = lent_;
    if (arena.empty()) arena = {arena_.data(), Shape(arena_.size())};
    if (const Error why = one_.inference.bind(arena, params)) return why;
    if (many_.bytes() == 0) return {};
    return many_.inference.bind(arena, params);
  }

  /// Reads tokens behind the earlier ones; the logits of the token behind them, valid until the arena is used next.
  /// Without room for the tokens, or if something fails, nothing is read.
  Result<View<const float>> feed(Cpu& cpu, View<const std::int32_t> tokens) {
    if (tokens_.size() == 0) return Error::misuse("take_memory() comes before feed()");
    if (tokens.empty()) return Error::misuse("feed() takes at least 1 token");
    const std::size_t before = end_;
    if (const Error why = make_room(tokens.size())) return why;
    const bool forgets = end_ != before;
    std::memcpy(tokens_.data() + end_, tokens.data(), tokens.size() * sizeof(std::int32_t));
    const auto logits = read(cpu, forgets ? 0 : end_, end_ + tokens.size());
    if (logits) end_ += tokens.size();
    else if (forgets) end_ = 0;  // the state is that of no text
    return logits;
  }

  /// The number of tokens read so far.
  std::size_t position() const { return end_; }
  View<const std::int32_t> tokens() const { return {tokens_.data(), Shape(end_)}; }
  /// Tokens forgotten by WhenFull::forget.
  std::size_t forgotten() const { return forgotten_; }
  /// Forgets all tokens from `position` on.
  void rewind(std::size_t position = 0) {
    if (position < end_) end_ = position;
  }

 private:
  struct Pass {
    Inference<> inference;
    std::size_t bytes() const { return inference.arena_bytes(); }
  };

  Error make_room(std::size_t count) {
    if (options_.context - end_ >= count) return {};
    const std::size_t kept = options_.context / 2;
    if (options_.when_full == WhenFull::refuse || count > options_.context - kept)
      return Error::say("the context of ", options_.context, " tokens has ", end_,
                        " of them already: ", count, " more do not fit");
    const std::size_t oldest = end_ - (end_ < kept ? end_ : kept);
    std::memmove(tokens_.data(), tokens_.data() + oldest, (end_ - oldest) * sizeof(std::int32_t));
    forgotten_ += oldest;
    end_ -= oldest;
    return {};
  }

  /// Tokens [from, to), of which those before `from` have been read.
  Result<View<const float>> read(Cpu& cpu, std::size_t from, std::size_t to) {
    constexpr std::size_t few = 4;  // one by one they cost less than a block
    Result<View<const float>> logits = View<const float>();
    while (from < to && logits) {
      const std::size_t begin = from / block * block;
      const bool whole = to - from > few && begin + block <= options_.context;
      const std::size_t first = whole ? begin : from;
      const std::size_t valid = !whole ? 1 : to - begin < block ? to - begin : block;
      for (std::size_t i = first + valid; whole && i < begin + block; ++i) tokens_[i] = 0;
      const CarriedState state{state_.data(),    places_.data(), places_.size(),
                               options_.context, first,          valid};
      const CarriedState* const earlier = cpu.carried;
      cpu.carried = &state;
      logits = (whole ? many_ : one_)
                   .inference.infer(cpu, View<const std::int32_t>(tokens_.data() + first,
                                                                  Shape(1, whole ? block : 1)));
      cpu.carried = earlier;
      from = first + valid;
    }
    return logits;
  }

  GeneratorOptions options_;
  Pass one_, many_;
  std::vector<std::size_t> places_;  ///< of the layers' states, in state_
  std::size_t state_bytes_ = 0, end_ = 0, forgotten_ = 0;
  Bytes lent_;
  Block<std::byte> arena_, state_;
  Block<std::int32_t> tokens_;  ///< those read, and room for the padding of a block
};

}}  // namespace adacc::v0_1
