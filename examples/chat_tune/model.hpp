// SPDX-License-Identifier: MIT
/// A language model of a GGUF file or folder: its weights, its tokenizer, its network.
#pragma once

#include <adacc/io/tokenizer/chat.hpp>
#include <adacc/io/weights/adapters.hpp>
#include <adacc/io/weights/weight_forms.hpp>
#include <adacc/model/graph_builder.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/models/llama.hpp>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "tokenizer_of.hpp"
#include "weights.hpp"

namespace chat_tune {

/// Weights with adapters, which alone are trained, or weights that are all trained; of a Llama, or of a GPT-2.
using Network =
    std::variant<decltype(adacc::llama::make_lora({}, {})), decltype(adacc::llama::make({})),
                 adacc::gpt::LoraGpt<adacc::gpt::PlannedSet>,
                 adacc::gpt::Gpt<adacc::gpt::PlannedSet>>;

template <class Mapped>
inline constexpr bool is_gpt =
    std::is_same_v<typename std::remove_cvref_t<Mapped>::Config, adacc::gpt::Config>;

inline adacc::Result<adacc::Graph> graph_of(const Network& network, adacc::Shape input,
                                            const adacc::GraphOptions& options) {
  return std::visit([&](const auto& its) { return adacc::make_graph(its, input, options); },
                    network);
}

/// What is asked of the model; the same for all that the program does.
struct ModelOptions {
  std::string model{};      ///< a GGUF file, or a folder
  std::string form{};       ///< of conversations; empty: by the tokenizer
  std::size_t context = 0;  ///< tokens of a sequence, or of a talk
  int threads = 1;
  adacc::WeightForm weights = adacc::WeightForm::as_stored;
  std::optional<adacc::WeightPages> pages{};  ///< as the command has it; without it resident
};

struct Model {
  Weights weights;
  adacc::Tokenizer tokenizer;
  adacc::ChatTemplate form = adacc::ChatTemplate::plain;

  /// The file's or folder's, with problems of its settings and tensors printed a line each.
  static adacc::Result<Model> open(const ModelOptions& options) {
    using namespace adacc;
    Model model;
    std::vector<std::string> problems;
    const WeightPages pages = options.pages.value_or(WeightPages::resident);
    auto weights = Weights::open(options.model, options.weights, pages, problems);
    if (!weights) {
      for (const std::string& problem : problems)
        std::fprintf(stderr, "chat_tune: %s\n", problem.c_str());
      return weights.error;
    }
    model.weights = std::move(*weights);
    const Sizes sizes = model.weights.sizes();
    if (options.weights != WeightForm::as_stored && model.weights.encoded_bytes() == 0)
      return Error::say("--weights: ", one_line(options.model, 80).c_str(),
                        " has no matrix in 16 or 32 bits whose rows are multiples of 64 numbers");
    auto tokenizer = tokenizer_of(model.weights);
    if (!tokenizer) return tokenizer.error;
    model.tokenizer = std::move(*tokenizer);
    if (model.tokenizer.size() > sizes.vocab)
      return Error::say(one_line(options.model, 80).c_str(), ": its tokenizer has ",
                        model.tokenizer.size(), " tokens, and its network ", sizes.vocab);
    const std::string name = !options.form.empty()                          ? options.form
                             : model.tokenizer.special("<|im_start|>") >= 0 ? "chatml"
                             : model.tokenizer.special("<|eot_id|>") >= 0   ? "llama3"
                                                                            : "plain";
    const auto form = chat_template(name);
    if (!form) return Error::say("--template: ", form.error.text());
    model.form = *form;
    if (model.form == ChatTemplate::plain && model.tokenizer.eos() < 0)
      return Error::say(one_line(options.model, 80).c_str(),
                        ": there is no token for the end of a text (eos_token_id), which a plain "
                        "conversation needs; --template has other forms");
    if (options.context > sizes.context)
      return Error::say("sequences of ", options.context, " tokens exceed the model's context of ",
                        sizes.context);
    if (pages == WeightPages::streamed) model.weights.forget_pages();
    return model;
  }

  /// The token behind an answer.
  std::int32_t end_of_answer() const {
    return form == adacc::ChatTemplate::chatml   ? tokenizer.special("<|im_end|>")
           : form == adacc::ChatTemplate::llama3 ? tokenizer.special("<|eot_id|>")
                                                 : tokenizer.eos();
  }
  bool ends(std::int32_t token) const {
    return token == end_of_answer() || token == tokenizer.eos();
  }
};

/// The network with adapters.
inline Network network_of(const Model& model, const adacc::AdapterShape& adapters,
                          bool train_a = true) {
  const adacc::Lora lora{.rank = adapters.rank, .alpha = adapters.alpha, .train_a = train_a};
  return model.weights.visit([&](const auto& mapped) -> Network {
    if constexpr (is_gpt<decltype(mapped)>)
      return adacc::gpt::make_lora<adacc::gpt::PlannedSet>(mapped.config(), lora);
    else return adacc::llama::make_lora(mapped.config(), lora);
  });
}
/// The network without.
inline Network network_of(const Model& model) {
  return model.weights.visit([&](const auto& mapped) -> Network {
    if constexpr (is_gpt<decltype(mapped)>)
      return adacc::gpt::make<adacc::gpt::PlannedSet>(mapped.config());
    else return adacc::llama::make(mapped.config());
  });
}

}  // namespace chat_tune
