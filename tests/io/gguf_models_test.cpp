// SPDX-License-Identifier: MIT
// Models from GGUF files: parameters have the bits that were put into the file, in the order of the networks
// here. A real file is read where the environment variable ADACC_GGUF_FILE names one.
#include "adacc/io/weights/gguf_gpt2.hpp"
#include "adacc/io/weights/gguf_llama.hpp"
#include "adacc/io/weights/llama_mapped.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "../train/support.hpp"
#include "adacc/core/random.hpp"
#include "adacc/io/weights/adapters.hpp"
#include "adacc/model/graph_builder.hpp"
#include "adacc/train/generate.hpp"
#include "adacc/train/merge_adapters.hpp"
#include "gguf_bytes.hpp"
#include "llmc_graph.hpp"

namespace gguf_models_test {
namespace {

using namespace adacc;
using gguf_test::GgufBytes;
using train_test::Folder;
using train_test::StubGraph;
using train_test::write_file;

bool says(const Error& error, const char* piece) { return train_test::says(error.text(), piece); }

const llama::Config config{2, 4, 2, 32, 48, 16, 50, 1e-5F, 5e5, false};

/// Metadata of the network above, but for keys that `without` names.
GgufBytes llama_values(const std::string& without = "") {
  GgufBytes file;
  file.text("general.architecture", "llama");
  const auto number = [&](const std::string& key, std::uint32_t n) {
    if (key != without) file.number("llama." + key, n);
  };
  number("block_count", 2);
  number("attention.head_count", 4);
  number("attention.head_count_kv", 2);
  number("embedding_length", 32);
  number("feed_forward_length", 48);
  number("context_length", 16);
  number("vocab_size", 50);
  file.real("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  file.real("llama.rope.freq_base", 5e5F);
  return file;
}

/// Row r of a head of 8 in a file is this one here: the converter turns (2, 4) rows into (4, 2).
std::size_t row_here(std::size_t r) { return r / 8 * 8 + r % 2 * 4 + r % 8 / 2; }

template <class Graph>
void add_tensors(GgufBytes& file, const Graph& graph, const std::vector<float>& params,
                 const llama::Config& of) {
  each_stored(
      graph, llama::Naming(of, llama::gguf_names),
      [&](const std::string& name, std::size_t offset, Shape shape) {
        const bool turns = name.ends_with("attn_q.weight") || name.ends_with("attn_k.weight");
        std::vector<float> numbers;
        for (std::size_t r = 0; r < shape.rows(); ++r)
          for (std::size_t c = 0; c < shape.cols(); ++c)
            numbers.push_back(params[offset + (turns ? row_here(r) : r) * shape.cols() + c]);
        if (shape.rank() == 1) file.floats(name, {shape[0]}, numbers);
        else file.floats(name, {shape[0], shape[1]}, numbers);
      });
}

std::vector<float> counted(std::size_t elems) {
  std::vector<float> numbers(elems);
  for (std::size_t i = 0; i < elems; ++i) numbers[i] = static_cast<float>(i + 1);
  return numbers;
}

std::string put(const Folder& folder, const GgufBytes& file) {
  write_file(folder / "model.gguf", file.file());
  return folder / "model.gguf";
}

}  // namespace

TEST_CASE("a Llama of a GGUF file has its queries and keys in the order of the network") {
  for (const bool tied : {false, true}) {
    llama::Config mine = config;
    mine.tied_head = tied;
    const auto graph = make_graph(llama::make(mine), Shape(1, 4));
    REQUIRE(graph);
    const std::vector<float> params = counted(graph->parameter_elems);
    const Folder folder;
    GgufBytes file = llama_values();
    file.number("llama.rope.dimension_count", 8);
    add_tensors(file, *graph, params, mine);
    const std::string path = put(folder, file);
    std::vector<std::string> problems;
    const auto found = llama::read_gguf_config(path, &problems);
    REQUIRE_MESSAGE(found, found.error.text());
    CHECK(problems.empty());
    CHECK(found->layers == 2);
    CHECK(found->heads == 4);
    CHECK(found->kv_heads == 2);
    CHECK(found->channels == 32);
    CHECK(found->hidden == 48);
    CHECK(found->context == 16);
    CHECK(found->vocab == 50);
    CHECK(found->epsilon == 1e-5F);
    CHECK(found->base == 5e5);
    CHECK(found->tied_head == tied);
    std::vector<float> read(params.size());
    const Error why = llama::read_gguf_parameters(path, *found, *graph,
                                                  View<float>(read.data(), Shape(read.size())));
    REQUIRE_MESSAGE(!why, why.text());
    CHECK(read == params);
    std::vector<bfloat16> small(params.size());
    REQUIRE(!llama::read_gguf_parameters(path, *found, *graph,
                                         View<bfloat16>(small.data(), Shape(small.size()))));
    for (std::size_t i = 0; i < small.size(); ++i)
      CHECK(to_float(small[i]) == to_float(to_bfloat16(params[i])));
  }
}

TEST_CASE("numbers that are none, and files without some, are found by their key") {
  const Folder folder;
  const auto refusal = [&](const GgufBytes& file) {
    return llama::read_gguf_config(put(folder, file)).error;
  };
  CHECK(says(refusal(llama_values("block_count")), "llama.block_count is missing"));
  CHECK(says(refusal(llama_values("context_length")), "llama.context_length is missing"));
  // Without tensors or a vocabulary's size nothing says how many tokens there are.
  CHECK(says(refusal(llama_values("vocab_size")), "llama.vocab_size is missing"));
  GgufBytes file = llama_values("attention.head_count");
  file.array("llama.attention.head_count", GgufKind::u32, 2,
             gguf_test::raw<std::uint32_t>(4) + gguf_test::raw<std::uint32_t>(4));
  CHECK(says(refusal(file), "llama.attention.head_count is [2 values]"));
  file = llama_values("block_count");
  file.number("llama.block_count", 4000);
  CHECK(says(refusal(file), "llama.block_count is 4000, and the file has no more than 0 tensors"));
}

TEST_CASE("a network that would compute something else refuses a GGUF file in words") {
  const auto graph = make_graph(llama::make(config), Shape(1, 4));
  REQUIRE(graph);
  const std::vector<float> params = counted(graph->parameter_elems);
  const Folder folder;
  const auto refusal = [&](const auto& change) {
    GgufBytes file = llama_values();
    add_tensors(file, *graph, params, config);
    change(file);
    return llama::read_gguf_config(put(folder, file)).error;
  };
  CHECK_FALSE(refusal([](GgufBytes&) {}));
  CHECK(says(refusal([](GgufBytes& file) { file.number("llama.rope.dimension_count", 4); }),
             "llama.rope.dimension_count is 4, and has to be 8"));
  CHECK(says(refusal([](GgufBytes& file) { file.number("llama.attention.key_length", 16); }),
             "llama.attention.key_length is 16"));
  CHECK(says(refusal([](GgufBytes& file) { file.text("llama.rope.scaling.type", "linear"); }),
             "llama.rope.scaling.type is \"linear\", and has to be \"none\""));
  CHECK(says(refusal([](GgufBytes& file) { file.number("llama.expert_count", 8); }),
             "llama.expert_count is 8"));
  CHECK(says(refusal([](GgufBytes& file) {
               file.floats("rope_freqs.weight", {4}, {1, 2, 3, 4});
             }),
             "\"rope_freqs.weight\" has no place in this network"));
  CHECK(says(refusal([](GgufBytes& file) { file.floats("blk.0.attn_q.bias", {1}, {1}); }),
             "\"blk.0.attn_q.bias\" has no place"));
  for (const char* const other : {"qwen3moe", "gemma"}) {
    GgufBytes file;
    file.text("general.architecture", other);
    const std::string path = put(folder, file);
    const std::string named = std::string("is \"") + other + "\", and has to be";
    CHECK(says(llama::read_gguf_config(path).error, named.c_str()));
    CHECK(says(read_gguf_gpt2_config(path).error, named.c_str()));
  }
  CHECK(says(llama::read_gguf_config(put(folder, {})).error, "general.architecture is missing"));
}

namespace {

/// A decoder by its equations: plain loops in double over the tensors of a file, by their names there.
struct PlainDecoder {
  const Gguf& file;
  const llama::Config& of;

  using Numbers = std::vector<double>;

  Numbers tensor(const std::string& name) const {
    const GgufTensor* const found = file.find(name);
    REQUIRE_MESSAGE(found != nullptr, name);
    std::vector<float> numbers(found->elems());
    decode_blocks(found->type, found->bytes.data(), {numbers.data(), Shape(numbers.size())});
    return {numbers.begin(), numbers.end()};
  }
  static Numbers product(const Numbers& matrix, const Numbers& x) {
    Numbers y(matrix.size() / x.size());
    for (std::size_t o = 0; o < y.size(); ++o)
      for (std::size_t i = 0; i < x.size(); ++i) y[o] += matrix[o * x.size() + i] * x[i];
    return y;
  }
  /// Normalizes each head, if the file has a norm for them.
  void norm_heads(Numbers& heads, const std::string& name) const {
    if (file.find(name) == nullptr) return;
    const auto size = static_cast<std::ptrdiff_t>(of.head_size());
    for (auto head = heads.begin(); head != heads.end(); head += size) {
      const Numbers y = norm(Numbers(head, head + size), name);
      std::copy(y.begin(), y.end(), head);
    }
  }
  Numbers norm(const Numbers& x, const std::string& name) const {
    const Numbers weight = tensor(name);
    double sum = 0;
    for (const double number : x) sum += number * number;
    Numbers y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      y[i] = x[i] / std::sqrt(sum / static_cast<double>(x.size()) + of.epsilon) * weight[i];
    return y;
  }
  /// Queries, keys or values of one position.
  Numbers projected(const std::string& name, const Numbers& x) const {
    Numbers y = product(tensor(name + ".weight"), x);
    if (file.find(name + ".bias") == nullptr) return y;
    const Numbers bias = tensor(name + ".bias");
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias[i];
    return y;
  }
  /// Turns each head by its position; halves are pairs.
  void turn(Numbers& heads, std::size_t position) const {
    const std::size_t size = of.head_size();
    for (std::size_t first = 0; first < heads.size(); first += size)
      for (std::size_t i = 0; i < size / 2; ++i) {
        const double angle =
            static_cast<double>(position) *
            std::pow(of.base, -2.0 * static_cast<double>(i) / static_cast<double>(size));
        const double a = heads[first + i], b = heads[first + i + size / 2];
        heads[first + i] = a * std::cos(angle) - b * std::sin(angle);
        heads[first + i + size / 2] = b * std::cos(angle) + a * std::sin(angle);
      }
  }
  Numbers attention(const std::vector<Numbers>& q, const std::vector<Numbers>& k,
                    const std::vector<Numbers>& v, std::size_t t) const {
    const std::size_t size = of.head_size(), share = of.heads / of.kv_heads;
    Numbers y(of.heads * size);
    for (std::size_t head = 0; head < of.heads; ++head) {
      const std::size_t from = head * size, other = head / share * size;
      Numbers weight(t + 1);
      double sum = 0;
      for (std::size_t s = 0; s <= t; ++s) {
        double score = 0;
        for (std::size_t i = 0; i < size; ++i) score += q[t][from + i] * k[s][other + i];
        sum += weight[s] = std::exp(score / std::sqrt(static_cast<double>(size)));
      }
      for (std::size_t s = 0; s <= t; ++s)
        for (std::size_t i = 0; i < size; ++i) y[from + i] += weight[s] / sum * v[s][other + i];
    }
    return y;
  }
  /// Of the token behind the last one.
  Numbers logits(const std::vector<std::int32_t>& tokens) const {
    const Numbers table = tensor("token_embd.weight");
    std::vector<Numbers> x;
    for (const std::int32_t token : tokens) {
      const auto row = table.begin() + token * static_cast<std::ptrdiff_t>(of.channels);
      x.emplace_back(row, row + static_cast<std::ptrdiff_t>(of.channels));
    }
    const auto add = [](Numbers& to, const Numbers& more) {
      for (std::size_t i = 0; i < to.size(); ++i) to[i] += more[i];
    };
    for (int l = 0; l < of.layers; ++l) {
      const std::string block = "blk." + std::to_string(l) + ".";
      std::vector<Numbers> q, k, v;
      for (std::size_t t = 0; t < x.size(); ++t) {
        const Numbers h = norm(x[t], block + "attn_norm.weight");
        q.push_back(projected(block + "attn_q", h));
        k.push_back(projected(block + "attn_k", h));
        v.push_back(projected(block + "attn_v", h));
        norm_heads(q[t], block + "attn_q_norm.weight");
        norm_heads(k[t], block + "attn_k_norm.weight");
        turn(q[t], t);
        turn(k[t], t);
      }
      for (std::size_t t = 0; t < x.size(); ++t) {
        add(x[t], projected(block + "attn_output", attention(q, k, v, t)));
        const Numbers h = norm(x[t], block + "ffn_norm.weight");
        Numbers gate = projected(block + "ffn_gate", h);
        const Numbers up = projected(block + "ffn_up", h);
        for (std::size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
        add(x[t], projected(block + "ffn_down", gate));
      }
    }
    const bool tied = file.find("output.weight") == nullptr;
    return product(tied ? table : tensor("output.weight"), norm(x.back(), "output_norm.weight"));
  }
};

/// A file of a family's network, with numbers of chance.
GgufBytes decoder_file(const llama::Config& of) {
  const std::string name = llama::name_of(of.family);
  GgufBytes file;
  file.text("general.architecture", name);
  const auto number = [&](const char* key, std::size_t n) {
    file.number(name + "." + key, static_cast<std::uint32_t>(n));
  };
  number("block_count", static_cast<std::size_t>(of.layers));
  number("attention.head_count", of.heads);
  number("attention.head_count_kv", of.kv_heads);
  number("embedding_length", of.channels);
  number("feed_forward_length", of.hidden);
  number("context_length", of.context);
  number("attention.key_length", of.head_size());
  number("attention.value_length", of.head_size());
  file.real(name + ".attention.layer_norm_rms_epsilon", of.epsilon);
  file.real(name + ".rope.freq_base", static_cast<float>(of.base));
  std::uint32_t tensor = 0;
  for (const ExpectedTensor& expected :
       expected_tensors(llama::outline_of(of), llama::Naming(of, llama::gguf_names))) {
    const Shape& shape = expected.extents;
    std::vector<float> numbers(shape.elems());
    ++tensor;
    const bool norm = expected.name.find("norm") != std::string::npos;
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = (norm ? 1.0F : 0.0F) +
                   0.8F * (unit_float(random_word({.seed = 9, .activation = tensor}, i)) - 0.5F);
    if (shape.rank() == 1) file.floats(expected.name, {shape[0]}, numbers);
    else file.floats(expected.name, {shape[0], shape[1]}, numbers);
  }
  return file;
}

}  // namespace

namespace {

/// Logits of the token behind the last one; weights are in the block, or in the model's file.
template <class Model>
std::vector<float> logits_of(const Model& model, bool stored,
                             const std::vector<std::int32_t>& tokens) {
  const auto net = llama::make_lora(model.config(), {.rank = 2});
  const auto graph = make_graph(net, Shape(1, 2), {.stored = stored ? &model.stored() : nullptr});
  REQUIRE_MESSAGE(graph, graph.error.text());
  const auto network = generator_of(net);
  auto writer =
      Generator::make(network, {.context = 8, .stored = stored ? &model.stored() : nullptr});
  REQUIRE_MESSAGE(writer, writer.error.text());
  auto params = Block<float>::make(graph->parameter_elems, "parameters");
  REQUIRE(params);
  std::memset(params->data(), 0, params->size() * sizeof(float));
  const Error why = model.read(without_adapters(*graph), params->view());
  REQUIRE_MESSAGE(!why, why.text());
  REQUIRE(!writer->take_memory());
  REQUIRE(!writer->bind(std::as_const(*params).view()));
  Cpu cpu;
  const auto logits = writer->feed(cpu, {tokens.data(), Shape(tokens.size())});
  REQUIRE_MESSAGE(logits, logits.error.text());
  return {logits->begin(), logits->end()};
}

/// The same network as a folder of the Hub.
void write_folder(const Folder& folder, const llama::MappedModel& model) {
  const llama::Config& of = model.config();
  const auto graph = make_graph(llama::make(of), Shape(1, 2));
  REQUIRE_MESSAGE(graph, graph.error.text());
  std::vector<float> params(graph->parameter_elems);
  const View<float> view(params.data(), Shape(params.size()));
  REQUIRE(!model.read(*graph, view));
  REQUIRE(!write_pretrained<float>(folder / "model.safetensors", *graph, view, llama::Naming(of)));
  const auto number = [](const char* key, std::size_t n) {
    return std::string(", \"") + key + "\": " + std::to_string(n);
  };
  write_file(
      folder / "config.json",
      std::string("{\"model_type\": \"") + llama::name_of(of.family) + "\"" +
          number("num_hidden_layers", static_cast<std::size_t>(of.layers)) +
          number("num_attention_heads", of.heads) + number("num_key_value_heads", of.kv_heads) +
          number("head_dim", of.head_size()) + number("hidden_size", of.channels) +
          number("intermediate_size", of.hidden) + number("max_position_embeddings", of.context) +
          number("vocab_size", of.vocab) +
          R"(, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "use_sliding_window": false,)" +
          R"( "sliding_window": 8, "layer_types": ["full_attention", "full_attention"],)" +
          " \"tie_word_embeddings\": " + (of.tied_head ? "true" : "false") + "}");
}

/// Compares logits of a network whose weights are in the block, in the file, or in a folder, with those of the equations.
void check_logits(const llama::Config& mine) {
  const Folder folder;
  const std::string path = put(folder, decoder_file(mine));
  const auto file = Gguf::open(path);
  REQUIRE_MESSAGE(file, file.error.text());
  const auto model = llama::MappedModel::open(path);
  REQUIRE_MESSAGE(model, model.error.text());
  CHECK(model->config().head_size() == mine.head_size());
  const std::vector<std::int32_t> tokens{3, 41, 7, 7, 19, 0, 49};
  const std::vector<double> want = PlainDecoder{*file, mine}.logits(tokens);
  const std::vector<float> logits = logits_of(*model, false, tokens);
  REQUIRE(logits.size() == want.size());
  double worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i)
    worst = std::max(worst, std::abs(want[i] - static_cast<double>(logits[i])));
  CHECK(worst < 2e-5);
  write_folder(folder, *model);
  const auto in_folder = llama::MappedFolder::open(folder / "");
  REQUIRE_MESSAGE(in_folder, in_folder.error.text());
  const std::size_t bytes = logits.size() * sizeof(float);
  CHECK(std::memcmp(logits.data(), logits_of(*model, true, tokens).data(), bytes) == 0);
  CHECK(std::memcmp(logits.data(), logits_of(*in_folder, true, tokens).data(), bytes) == 0);
  CHECK(std::memcmp(logits.data(), logits_of(*in_folder, false, tokens).data(), bytes) == 0);
}

}  // namespace

TEST_CASE("a decoder of a GGUF file or of a folder has the logits of its equations") {
  for (const llama::Family family : {llama::Family::qwen2, llama::Family::qwen3})
    for (const bool tied : {false, true}) {
      CAPTURE(llama::name_of(family));
      CAPTURE(tied);
      llama::Config mine = config;
      mine.family = family;
      mine.tied_head = tied;
      // Heads of Qwen3 have a size of their own.
      if (family == llama::Family::qwen3) mine.head_channels = tied ? 12 : 8;
      check_logits(mine);
    }
}

TEST_CASE("a GPT-2 of a GGUF file has the parameters that were put in") {
  const StubGraph graph(5, 3, 2, 4);
  std::vector<float> params(graph.parameter_elems);
  float next = 1;
  for (const Parameter& parameter : graph.parameters)
    if (parameter.owner)
      for (std::size_t i = 0; i < parameter.shape.elems(); ++i)
        params[parameter.offset + i] = next++;
  const auto file_with = [&](float head) {
    GgufBytes file;
    file.text("general.architecture", "gpt2");
    file.number("gpt2.block_count", 2);
    file.number("gpt2.attention.head_count", 2);
    file.number("gpt2.embedding_length", 4);
    file.number("gpt2.feed_forward_length", 16);
    file.number("gpt2.context_length", 3);
    file.real("gpt2.attention.layer_norm_epsilon", 1e-5F);
    const auto add = [&](const std::string& name, const Parameter& parameter, bool transposed) {
      CHECK_FALSE(transposed);
      const float* const from = params.data() + parameter.offset;
      const std::vector<float> numbers(from, from + parameter.shape.elems());
      if (parameter.shape.rank() == 1) file.floats(name, {numbers.size()}, numbers);
      else file.floats(name, {parameter.shape[0], parameter.shape[1]}, numbers);
    };
    REQUIRE(detail::each_gpt2_parameter(graph, 2, add, detail::gguf_gpt2_names));
    std::vector<float> table(params.begin(), params.begin() + 20);
    table[3] += head;
    file.floats("output.weight", {5, 4}, table);
    return file;
  };
  const Folder folder;
  const std::string path = put(folder, file_with(0));
  const auto header = read_gguf_gpt2_config(path);
  REQUIRE_MESSAGE(header, header.error.text());
  CHECK(header->layers == 2);
  CHECK(header->heads == 2);
  CHECK(header->channels == 4);
  CHECK(header->vocab_size == 5);
  CHECK(header->max_seq_len == 3);
  std::vector<float> read(params.size());
  REQUIRE(!read_gguf_gpt2_parameters(path, graph, 2, View<float>(read.data(), Shape(read.size()))));
  CHECK(read == params);
  CHECK(says(read_gguf_gpt2_config(put(folder, file_with(1))).error, "output.weight is another"));
}

TEST_CASE("a real GGUF file is read whole") {
  const char* const path = std::getenv("ADACC_GGUF_FILE");
  if (path == nullptr || *path == '\0') {
    MESSAGE("skipped: ADACC_GGUF_FILE names no file");
    return;
  }
  const auto found = llama::read_gguf_config(path);
  REQUIRE_MESSAGE(found, found.error.text());
  const auto graph = make_graph(llama::make(*found), Shape(1, 4));
  REQUIRE(graph);
  std::vector<bfloat16> params(graph->parameter_elems);
  const Error why = llama::read_gguf_parameters(
      path, *found, *graph, View<bfloat16>(params.data(), Shape(params.size())));
  CHECK_MESSAGE(!why, why.text());
}

}  // namespace gguf_models_test
