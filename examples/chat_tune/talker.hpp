// SPDX-License-Identifier: MIT
/// Answers of a model, token by token.
#pragma once

#include <adacc/train/generate.hpp>
#include <adacc/train/sampler.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "model.hpp"

namespace chat_tune {

struct TalkOptions {
  adacc::Sampling sampling;
  std::size_t most_tokens = 256;  ///< of an answer
  adacc::WhenFull when_full = adacc::WhenFull::refuse;
};

class Talker {
 public:
  /// `stored`: where frozen weights are, as for the network's graph.
  Talker(const Model& model, const Network& network, const adacc::StoredParameters* stored,
         adacc::ParameterForm form = adacc::ParameterForm::full)
      : model_(model), writer_(writer_of(network)), stored_(stored), form_(form) {}
  Talker(const Talker&) = delete;
  Talker& operator=(const Talker&) = delete;

  /// Takes the memory of a talk, whose parameters are `params`; with `arena`, only that of keys and values.
  adacc::Error set_up(const ModelOptions& options, adacc::WhenFull when_full,
                      const adacc::ParameterBlock<float>& params, adacc::Bytes arena = {}) {
    const adacc::GeneratorOptions how{.context = options.context,
                                      .when_full = when_full,
                                      .workers = options.threads,
                                      .parameters = form_,
                                      .stored = stored_};
    auto made = std::visit([&](const auto& writer) { return adacc::Generator::make(writer, how); },
                           writer_);
    if (!made) return made.error;
    generator_ = std::move(*made);
    if (arena.size() < generator_.arena_bytes()) arena = {};
    if (const adacc::Error why = generator_.take_memory(arena)) return why;
    return generator_.bind(params);
  }
  const adacc::Generator& generator() const { return generator_; }

  /// The answer to a conversation. show(text) gets each piece as it comes, whole characters or not. What the
  /// generator has read of the same conversation before is not read again.
  template <class Show>
  adacc::Result<std::string> answer(adacc::Cpu& cpu,
                                    const std::vector<adacc::ChatMessage>& messages,
                                    adacc::Sampler& sampler, std::size_t most, const Show& show) {
    using namespace adacc;
    auto chat = encode_chat(model_.tokenizer, model_.form, messages, true);
    if (!chat) return chat.error;
    const View<const std::int32_t> known = generator_.tokens();
    std::size_t same = 0;
    while (generator_.forgotten() == 0 && same < known.size() && same + 1 < chat->tokens.size() &&
           known[same] == chat->tokens[same])
      ++same;
    generator_.rewind(same);
    read_ = chat->tokens.size() - same;
    written_ = 0;
    auto logits =
        generator_.feed(cpu, {chat->tokens.data() + same, Shape(chat->tokens.size() - same)});
    std::string text;
    while (logits) {
      const auto token = sampler.next(*logits);
      if (!token) return token.error;
      if (model_.ends(*token)) return text;
      const std::string piece = model_.tokenizer.bytes_of(*token);
      text += piece;
      show(std::string_view(piece));
      if (++written_ == most) return text;
      const std::int32_t next = *token;
      logits = generator_.feed(cpu, {&next, Shape(1)});
    }
    return logits.error;
  }
  /// Tokens of the last answer: read before it, and written.
  std::size_t read() const { return read_; }
  std::size_t written() const { return written_; }

 private:
  template <class... Networks>
  static auto as_writer(const std::variant<Networks...>&)
      -> std::variant<decltype(adacc::generator_of(std::declval<const Networks&>()))...>;
  using Writer = decltype(as_writer(std::declval<const Network&>()));

  static Writer writer_of(const Network& network) {
    return std::visit([](const auto& its) { return Writer(adacc::generator_of(its)); }, network);
  }

  const Model& model_;
  Writer writer_;
  const adacc::StoredParameters* stored_;
  adacc::ParameterForm form_;
  adacc::Generator generator_;
  std::size_t read_ = 0, written_ = 0;
};

}  // namespace chat_tune
