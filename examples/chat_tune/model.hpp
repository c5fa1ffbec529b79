// SPDX-License-Identifier: MIT
/// A language model of a GGUF file: its sizes, its tokenizer, its network.
#pragma once

#include <adacc/io/tokenizer/chat.hpp>
#include <adacc/io/tokenizer/gguf_tokenizer.hpp>
#include <adacc/io/weights/adapters.hpp>
#include <adacc/io/weights/gguf_encode.hpp>
#include <adacc/io/weights/gguf_llama.hpp>
#include <adacc/model/graph_builder.hpp>
#include <adacc/models/llama.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace chat_tune {

/// Weights with adapters, which alone are trained, or weights that are all trained.
using Network =
    std::variant<decltype(adacc::llama::make_lora({}, {})), decltype(adacc::llama::make({}))>;

inline adacc::Result<adacc::Graph> graph_of(const Network& network, adacc::Shape input,
                                            const adacc::GraphOptions& options) {
  return std::visit([&](const auto& its) { return adacc::make_graph(its, input, options); },
                    network);
}

/// The names of types of matrices in GGUF files that are written.
inline std::vector<std::string> written_types() {
  std::vector<std::string> names;
  for (const auto& type : adacc::detail::gguf_types)
    if (adacc::is_written(type.type)) names.emplace_back(type.name);
  return names;
}
/// The type of a name among written_types().
inline adacc::GgufType written_type(const std::string& name) {
  return std::find_if(std::begin(adacc::detail::gguf_types), std::end(adacc::detail::gguf_types),
                      [&](const auto& type) { return name == type.name; })
      ->type;
}

/// What is asked of the model; the same for all that the program does.
struct ModelOptions {
  std::string model{};      ///< a GGUF file
  std::string form{};       ///< of conversations; empty: by the tokenizer
  std::size_t context = 0;  ///< tokens of a sequence, or of a talk
  int threads = 1;
  adacc::WeightForm weights = adacc::WeightForm::as_stored;
};

struct Model {
  adacc::llama::MappedModel mapped;  ///< weights in the file, in its form
  adacc::llama::Config config;
  adacc::Tokenizer tokenizer;
  adacc::ChatTemplate form = adacc::ChatTemplate::plain;

  /// The file's, with problems of its tensors printed a line each.
  static adacc::Result<Model> open(const ModelOptions& options) {
    using namespace adacc;
    Model model;
    std::vector<std::string> problems;
    auto mapped = llama::MappedModel::open(options.model, &problems, options.weights);
    if (!mapped) {
      for (const std::string& problem : problems)
        std::fprintf(stderr, "chat_tune: %s\n", problem.c_str());
      return mapped.error;
    }
    model.mapped = std::move(*mapped);
    model.config = model.mapped.config();
    if (options.weights != WeightForm::as_stored && model.mapped.encoded_bytes() == 0)
      return Error::say("--weights: ", one_line(options.model, 80).c_str(),
                        " has no matrix in 16 or 32 bits whose rows are multiples of 64 numbers");
    auto tokenizer = read_gguf_tokenizer(model.mapped.file());
    if (!tokenizer) return tokenizer.error;
    model.tokenizer = std::move(*tokenizer);
    if (model.tokenizer.size() > model.config.vocab)
      return Error::say(one_line(options.model, 80).c_str(), ": its tokenizer has ",
                        model.tokenizer.size(), " tokens, and its network ", model.config.vocab);
    const std::string name = !options.form.empty()                          ? options.form
                             : model.tokenizer.special("<|im_start|>") >= 0 ? "chatml"
                             : model.tokenizer.special("<|eot_id|>") >= 0   ? "llama3"
                                                                            : "plain";
    const auto form = chat_template(name);
    if (!form) return Error::say("--template: ", form.error.text());
    model.form = *form;
    if (options.context > model.config.context)
      return Error::say("sequences of ", options.context, " tokens exceed the model's context of ",
                        model.config.context);
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
  return adacc::llama::make_lora(
      model.config, {.rank = adapters.rank, .alpha = adapters.alpha, .train_a = train_a});
}
/// The network without.
inline Network network_of(const Model& model) { return adacc::llama::make(model.config); }

}  // namespace chat_tune
