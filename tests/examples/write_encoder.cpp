// SPDX-License-Identifier: MIT
// Writes a tiny BERT as Hugging Face has it, for tests of what reads one: write_encoder FOLDER VOCABULARY.
#include <adacc/core/random.hpp>
#include <adacc/io/weights/write_safetensors.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr std::size_t channels = 16, hidden = 32, context = 32, layers = 2;

struct Weights {
  std::vector<std::vector<float>> values;
  std::vector<adacc::NamedTensor> tensors;

  void add(const std::string& name, adacc::Shape shape, float middle, float width) {
    std::vector<float>& numbers = values.emplace_back(shape.elems());
    const adacc::RandomKey key{1, 0, 0, static_cast<std::uint32_t>(values.size())};
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = middle + width * (adacc::unit_float(adacc::random_word(key, i)) - 0.5F);
    tensors.push_back({name, adacc::View<const float>(numbers.data(), shape)});
  }
  void linear(const std::string& name, std::size_t out, std::size_t in) {
    add(name + ".weight", adacc::Shape(out, in), 0, 0.5F);
    add(name + ".bias", adacc::Shape(out), 0, 0.1F);
  }
  void norm(const std::string& name) {
    add(name + ".weight", adacc::Shape(channels), 1, 0.1F);
    add(name + ".bias", adacc::Shape(channels), 0, 0.1F);
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string folder = argv[1];
  const auto vocabulary = static_cast<std::size_t>(std::atoi(argv[2]));
  Weights weights;
  weights.add("embeddings.word_embeddings.weight", adacc::Shape(vocabulary, channels), 0, 1);
  weights.add("embeddings.position_embeddings.weight", adacc::Shape(context, channels), 0, 0.2F);
  weights.add("embeddings.token_type_embeddings.weight", adacc::Shape(2, channels), 0, 0.2F);
  weights.norm("embeddings.LayerNorm");
  for (std::size_t l = 0; l < layers; ++l) {
    const std::string block = "encoder.layer." + std::to_string(l) + ".";
    for (const char* what : {"query", "key", "value"})
      weights.linear(block + "attention.self." + what, channels, channels);
    weights.linear(block + "attention.output.dense", channels, channels);
    weights.norm(block + "attention.output.LayerNorm");
    weights.linear(block + "intermediate.dense", hidden, channels);
    weights.linear(block + "output.dense", channels, hidden);
    weights.norm(block + "output.LayerNorm");
  }
  adacc::Error why = adacc::write_safetensors(folder + "/model.safetensors", weights.tensors);
  if (!why)
    why = adacc::write_file(
        folder + "/config.json",
        "{\"model_type\": \"bert\", \"hidden_act\": \"gelu\", \"hidden_size\": " +
            std::to_string(channels) + ", \"intermediate_size\": " + std::to_string(hidden) +
            ", \"num_hidden_layers\": " + std::to_string(layers) +
            ", \"num_attention_heads\": 2, \"max_position_embeddings\": " +
            std::to_string(context) + ", \"vocab_size\": " + std::to_string(vocabulary) + "}\n");
  if (why) std::fprintf(stderr, "%s\n", why.text());
  return why ? 1 : 0;
}
