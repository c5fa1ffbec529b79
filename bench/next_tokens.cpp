// SPDX-License-Identifier: MIT
/// Logits of a language model in a GGUF file, with its adapters in another one, and its likeliest next tokens; for
/// bench/peers/smollm_llama_cpp.py, which compares them with llama.cpp's.
///
///     next_tokens MODEL.gguf --tokens 32 --logits logits.f32 < texts.json
///
/// Read is a list of texts; written is a line for each, {"tokens": [...], "answer": [...]}. --logits gets rows of float, one behind
/// each token of each text.
#include <CLI/CLI.hpp>

#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/core/block.hpp>
#include <adacc/io/tokenizer/gguf_tokenizer.hpp>
#include <adacc/io/weights/gguf_llama.hpp>
#include <adacc/io/weights/gguf_model_write.hpp>
#include <adacc/io/weights/gpt_mapped.hpp>
#include <adacc/model/graph_builder.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/models/llama.hpp>
#include <adacc/train/generate.hpp>
#include <adacc/train/sampler.hpp>
#include <support/command_line.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace adacc;

struct Options {
  std::string model, lora, logits;
  std::size_t context = 512, tokens = 32;
  int threads = 1;
};

Error answer_texts(const Options& options, Generator& generator, const Tokenizer& tokenizer,
                   Cpu& cpu) {
  const auto texts = nlohmann::json::parse(std::cin).get<std::vector<std::string>>();
  std::ofstream file(options.logits, std::ios::binary);
  for (const std::string& text : texts) {
    const std::vector<std::int32_t> tokens = tokenizer.with_ends(tokenizer.encode(text));
    generator.rewind(0);
    Sampler greedy;
    std::vector<std::int32_t> answer;
    for (std::size_t i = 0; i < tokens.size() + options.tokens; ++i) {
      const std::int32_t token = i < tokens.size() ? tokens[i] : answer.back();
      const auto logits = generator.feed(cpu, {&token, Shape(1)});
      if (!logits) return logits.error;
      if (i < tokens.size()) {
        const void* const bytes = logits->data();
        file.write(static_cast<const char*>(bytes),
                   static_cast<std::streamsize>(logits->size() * sizeof(float)));
      }
      if (i + 1 < tokens.size()) continue;
      const auto next = greedy.next(*logits);
      if (!next) return next.error;
      answer.push_back(*next);
    }
    if (!answer.empty()) answer.pop_back();
    std::printf("%s\n", nlohmann::json{{"tokens", tokens}, {"answer", answer}}.dump().c_str());
  }
  return file ? Error() : Error::say(options.logits.c_str(), ": cannot be written");
}

template <class Model, class Network>
Error run(const Options& options, const Model& model, const Network& network) {
  auto graph = make_graph(network, Shape(1, 2), {.stored = &model.stored()});
  if (!graph) return graph.error;
  auto params = Block<float>::make(graph->parameter_elems, "weights");
  if (!params) return params.error;
  const View<float> view = params->view();
  if (const Error why = model.read(without_adapters(*graph), view)) return why;
  if (!options.lora.empty())
    if (const Error why = read_gguf_adapters(options.lora, model.config(), *graph, view))
      return why;
  const auto tokenizer = read_gguf_tokenizer(model.file());
  if (!tokenizer) return tokenizer.error;
  const auto writer = generator_of(network);
  auto generator = Generator::make(
      writer, {.context = options.context, .workers = options.threads, .stored = &model.stored()});
  if (!generator) return generator.error;
  if (const Error why = generator->take_memory()) return why;
  if (const Error why = generator->bind(view)) return why;
  EigenPool pool(options.threads);
  Cpu cpu{ExecutorRef(pool)};
  return answer_texts(options, *generator, *tokenizer, cpu);
}

template <class Model, class MakePlain, class MakeLora>
Error run_with(const Options& options, const MakePlain& plain, const MakeLora& adapted) {
  const auto model = Model::open(options.model);
  if (!model) return model.error;
  if (options.lora.empty()) return run(options, *model, plain(model->config()));
  const auto shape = read_gguf_adapter_shape(options.lora);
  if (!shape) return shape.error;
  return run(options, *model,
             adapted(model->config(), Lora{.rank = shape->rank, .alpha = shape->alpha}));
}

Error run(const Options& options) {
  const auto file = Gguf::open(options.model);
  if (!file) return file.error;
  if (file->architecture() == "gpt2")
    return run_with<gpt::MappedModel>(
        options, [](const gpt::Config& config) { return gpt::make<gpt::PlannedSet>(config); },
        [](const gpt::Config& config, const Lora& lora) {
          return gpt::make_lora<gpt::PlannedSet>(config, lora);
        });
  return run_with<llama::MappedModel>(
      options, [](const llama::Config& config) { return llama::make(config); },
      [](const llama::Config& config, const Lora& lora) { return llama::make_lora(config, lora); });
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Logits and likeliest next tokens of a language model.", "next_tokens");
  app.add_option("model", options.model, "GGUF file")->required();
  app.add_option("--lora", options.lora, "adapters as GGUF");
  app.add_option("--logits", options.logits, "file for rows of float")->required();
  app.add_option("--tokens", options.tokens, "of an answer");
  app.add_option("--context", options.context, "most tokens of a text and its answer");
  app.add_option("--threads", options.threads, "threads")->check(CLI::Range(1, 256));
  if (const auto status = support::parse(app, argc, argv)) return *status;
  const Error why = run(options);
  if (why) std::fprintf(stderr, "next_tokens: %s\n", why.text());
  return why ? 2 : 0;
}
