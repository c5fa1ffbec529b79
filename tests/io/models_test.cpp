// SPDX-License-Identifier: MIT
// Pretrained models: files are written under the names that Hugging Face has, read, and what the
// networks compute is compared with another program's numbers (bench/peers/model_reference.py).
#include <doctest/doctest.h>

#include <adacc/core/block.hpp>
#include <adacc/io/weights/bert.hpp>
#include <adacc/io/weights/gpt2.hpp>
#include <adacc/io/weights/llama.hpp>
#include <adacc/layer/mean_squared_error.hpp>
#include <adacc/layer/pooling.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/step/step.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../train/support.hpp"
#include "models_reference.hpp"

namespace models_test {
namespace {

using namespace adacc;
using train_test::Folder;
using train_test::write_file;

constexpr std::size_t heads = 4, kv_heads = 2, channels = 32, hidden = 48, vocab = 50;
constexpr std::size_t context = 16, types = 2, batch = 2, time = 12;
constexpr int layers = 2;

// The numbers of the reference: drawn from a name.
std::uint64_t word(const std::string& name, std::size_t i) {
  std::uint64_t z = 0xCBF29CE484222325;
  for (const char c : name) z = (z ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  z += (i + 1) * 0x9E3779B97F4A7C15;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
  z = (z ^ z >> 27) * 0x94D049BB133111EB;
  return z ^ z >> 31;
}
double uniform(const std::string& name, std::size_t i) {
  return static_cast<double>(word(name, i) >> 40) / 16777216.0 - 0.5;
}
float weight(const std::string& name, bool vector, std::size_t i) {
  const bool norm = name.find("norm") != std::string::npos ||
                    name.find("ln_") != std::string::npos || name.find("Norm") != std::string::npos;
  const double u = uniform(name, i);
  if (!vector) return static_cast<float>(0.6 * u);
  return static_cast<float>(norm && name.find("bias") == std::string::npos ? 1 + 0.2 * u : 0.2 * u);
}

/// What a model's parameters are called, and where they lie, as the file has them.
struct Tensor {
  std::string name;
  std::size_t offset = 0;
  Shape shape;
  bool transposed = false;

  std::size_t rows() const { return shape.rank() == 1 ? shape[0] : shape[transposed ? 1 : 0]; }
  std::size_t cols() const { return shape.rank() == 1 ? 1 : shape[transposed ? 0 : 1]; }
  /// Where element i of the file's tensor is.
  std::size_t place(std::size_t i) const {
    return offset + (transposed ? i % cols() * rows() + i / cols() : i);
  }
};

template <class Naming>
std::vector<Tensor> tensors_of(const Graph& graph, const Naming& naming) {
  std::vector<Tensor> tensors;
  each_stored(graph, naming, [&](const std::string& name, std::size_t offset, Shape shape) {
    tensors.push_back({name, offset, shape, false});
  });
  return tensors;
}

/// Writes model.safetensors with the reference's weights.
void write_weights(const Folder& folder, const std::vector<Tensor>& tensors,
                   const std::string& prefix = "") {
  std::vector<std::vector<float>> values;
  std::vector<NamedTensor> named;
  for (const Tensor& tensor : tensors) {
    std::vector<float>& numbers = values.emplace_back(tensor.shape.elems());
    const bool vector = tensor.shape.rank() == 1;
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = weight(tensor.name, vector, i);
  }
  for (std::size_t t = 0; t < tensors.size(); ++t)
    named.push_back(
        {prefix + tensors[t].name,
         View<const float>(values[t].data(), tensors[t].shape.rank() == 1
                                                 ? tensors[t].shape
                                                 : Shape(tensors[t].rows(), tensors[t].cols()))});
  const Error why = write_safetensors(folder / "model.safetensors", named);
  REQUIRE_MESSAGE(!why, why.text());
}

std::vector<std::int32_t> drawn_tokens(const std::string& name, std::size_t below = vocab) {
  std::vector<std::int32_t> tokens(batch * time);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(word(name, i) % below);
  return tokens;
}

/// Memory of a step of `network` under `plan`.
template <class T>
struct Run {
  template <class Network>
  Run(const Network& network, Program program) : made(Step<T>::make(network, std::move(program))) {
    REQUIRE_MESSAGE(made, made.error.text());
    const std::size_t elems = made->graph().parameter_elems;
    arena = *Block<std::byte>::make(made->arena_bytes(), "arena");
    params = *Block<T>::make(elems, "parameters");
    gradients = *Block<T>::make(elems, "gradients");
    for (T& g : gradients.view()) g = 0;
    const Error why =
        made->bind({arena.data(), Shape(arena.size())}, params.view(), gradients.view());
    REQUIRE_MESSAGE(!why, why.text());
  }
  Step<T>& step() { return *made; }

  Result<Step<T>> made;
  Block<std::byte> arena;
  Block<T> params, gradients;
};

template <class T>
constexpr double tolerance = sizeof(T) == 8 ? 1e-9 : 1e-4;

/// Of each tensor, the derivatives along the reference's directions.
template <class T>
void compare_slopes(std::span<const models_reference::Slopes> slopes,
                    const std::vector<Tensor>& tensors, View<const T> gradients) {
  std::map<std::string, Tensor> by_name;
  for (const Tensor& tensor : tensors) by_name[tensor.name] = tensor;
  CHECK(by_name.size() == slopes.size());
  for (const auto& [name, along] : slopes) {
    CAPTURE(name);
    REQUIRE(by_name.count(name) == 1);
    const Tensor& tensor = by_name[name];
    for (int k = 0; k < 2; ++k) {
      double sum = 0, squares = 0;
      for (std::size_t i = 0; i < tensor.shape.elems(); ++i) {
        const auto g = static_cast<double>(gradients[tensor.place(i)]);
        const bool up = word(std::string(name) + "/" + std::to_string(k), i) >> 63 != 0;
        sum += up ? g : -g;
        squares += g * g;
      }
      CHECK(std::fabs(sum - along[k]) <= 10 * tolerance<T> * (std::sqrt(squares) + 1e-4));
    }
  }
}

gpt::Config gpt_config() { return {layers, heads, channels, context, vocab}; }
llama::Config llama_config() { return {layers, heads, kv_heads, channels, hidden, context, vocab}; }
bert::Config bert_config() { return {layers, heads, channels, hidden, context, vocab, types}; }
auto bert_network() {
  return Network{Sequential{bert::encoder(bert_config()), layer(MeanOverTime{})},
                 MeanSquaredError{}};
}

std::vector<Tensor> gpt2_tensors(const Graph& graph) {
  std::vector<Tensor> tensors;
  detail::each_gpt2_parameter(
      graph, layers, [&](const std::string& name, const Parameter& parameter, bool transposed) {
        tensors.push_back({name, parameter.offset, parameter.shape, transposed});
      });
  return tensors;
}

struct Reference {
  const char* name;
  std::span<const double> output;
  double loss;
  std::span<const models_reference::Slopes> slopes;
};

/// Loss, gradients and some logits of a decoder whose weights are tensors_of(graph), once they have been
/// written as `prefix` and their names, and read(folder, graph, params) has read them.
template <class T, class Network, class TensorsOf, class Read>
void check_decoder(const Reference& reference, const Network& net, const TensorsOf& all_tensors,
                   const Read& read, const std::string& prefix = "") {
  const Shape shape(batch, time);
  const GraphOptions options{.scalar = dtype_of<T>};
  Run<T> run(net, *make_program(net, shape, options));
  const Graph& graph = run.step().graph();
  const std::vector<Tensor> tensors = all_tensors(graph);
  const Folder folder;
  write_weights(folder, tensors, prefix);
  const Error why = read(folder, graph, run.params.view());
  REQUIRE_MESSAGE(!why, why.text());
  const std::string name = reference.name;
  const auto tokens = drawn_tokens(name), targets = drawn_tokens(name + " targets");
  const View<const std::int32_t> x(tokens.data(), shape), y(targets.data(), shape);
  Cpu cpu;
  const auto loss = run.step().run(cpu, x, y);
  REQUIRE_MESSAGE(loss, loss.error.text());
  CHECK(*loss == doctest::Approx(reference.loss).epsilon(tolerance<T>));
  compare_slopes<T>(reference.slopes, tensors, run.gradients.view());

  Run<T> infer(net, *make_program(net, shape, options, Mode::infer));
  std::copy(run.params.view().begin(), run.params.view().end(), infer.params.view().begin());
  REQUIRE(infer.step().run(cpu, x, y));
  auto scratch = Block<std::byte>::make(
      net.loss.logits_workspace_bytes(Shape(1, channels), dtype_of<T>, cpu.workers()), "scratch");
  REQUIRE(scratch);
  std::vector<T> logits(vocab);
  std::size_t at = 0;
  for (std::size_t b = 0; b < batch; ++b)
    for (const std::size_t t : {0U, 5U, 11U}) {
      net.loss.template logits<T>(
          cpu, {infer.params.data(), graph.parameters.data() + graph.loss.parameters.first, 1},
          View<const T>(infer.step().output().data() + (b * time + t) * channels,
                        Shape(1, channels)),
          View<T>(logits.data(), Shape(1, vocab)), {scratch->data(), Shape(scratch->size())});
      for (std::size_t v = 0; v < 4; ++v, ++at)
        CHECK(std::fabs(static_cast<double>(logits[v]) - reference.output[at]) <= tolerance<T>);
    }
  CHECK(at == reference.output.size());
}

template <class T>
void check_gpt2() {
  using namespace models_reference;
  const auto read = [](const Folder& folder, const Graph& graph, View<T> params) {
    return read_gpt2_parameters(folder / "", graph, layers, params);
  };
  check_decoder<T>({"gpt2", gpt2_output, gpt2_loss, gpt2_slopes}, gpt::make(gpt_config()),
                   gpt2_tensors, read, "transformer.");
}

std::string config_of(const char* type, const char* more) {
  return std::string("{\"model_type\": \"") + type +
         "\", \"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
         "\"intermediate_size\": 48, \"max_position_embeddings\": 16, \"vocab_size\": 50" +
         more + "}";
}

/// The network that a config.json describes, with a head of its own or without.
template <class T>
void check_llama(const Reference& reference, const char* tied) {
  const Folder folder;
  const std::string more =
      R"(, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "tie_word_embeddings": )";
  write_file(folder / "config.json", config_of("llama", (more + tied).c_str()));
  const auto config = llama::read_config(folder / "");
  REQUIRE_MESSAGE(config, config.error.text());
  const auto tensors = [&](const Graph& graph) {
    return tensors_of(graph, llama::Naming(*config));
  };
  const auto read = [&](const Folder& from, const Graph& graph, View<T> params) {
    return llama::read_parameters(from / "", *config, graph, params);
  };
  check_decoder<T>(reference, llama::make(*config), tensors, read);
}

template <class T>
void check_llamas() {
  using namespace models_reference;
  check_llama<T>({"llama", llama_output, llama_loss, llama_slopes}, "false");
  check_llama<T>({"llama_tied", llama_tied_output, llama_tied_loss, llama_tied_slopes}, "true");
}

const std::int32_t lengths[batch] = {12, 7};

/// Words of two types, and what is behind a sequence's end.
std::vector<std::int32_t> bert_tokens() {
  std::vector<std::int32_t> tokens = drawn_tokens("bert");
  const auto kinds = drawn_tokens("types", types);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] += kinds[i] * static_cast<std::int32_t>(vocab);
  for (std::size_t t = 7; t < time; ++t) tokens[time + t] = 1;
  return tokens;
}
template <class T>
std::vector<T> bert_targets() {
  std::vector<T> targets(batch * channels);
  for (std::size_t i = 0; i < targets.size(); ++i)
    targets[i] = static_cast<T>(uniform("targets", i));
  return targets;
}

template <class T>
double run_bert(Run<T>& run) {
  const auto tokens = bert_tokens();
  const auto targets = bert_targets<T>();
  Cpu cpu;
  cpu.lengths = View<const std::int32_t>(lengths, Shape(batch));
  const auto loss = run.step().run(cpu, View<const std::int32_t>(tokens.data(), Shape(batch, time)),
                                   View<const T>(targets.data(), Shape(batch, channels)));
  REQUIRE_MESSAGE(loss, loss.error.text());
  return *loss;
}

template <class T>
void check_bert() {
  const auto net = bert_network();
  const GraphOptions options{.scalar = dtype_of<T>};
  Run<T> run(net, *make_program(net, Shape(batch, time), options));
  const Graph& graph = run.step().graph();
  const auto tensors = tensors_of(graph, bert::Naming(bert_config(), ""));
  const Folder folder;
  for (const char* prefix : {"", "bert."}) {
    write_weights(folder, tensors, prefix);
    const Error why = bert::read_parameters(folder / "", bert_config(), graph, run.params.view());
    REQUIRE_MESSAGE(!why, why.text());
  }
  CHECK(run_bert(run) == doctest::Approx(models_reference::bert_loss).epsilon(tolerance<T>));
  compare_slopes<T>(models_reference::bert_slopes, tensors, run.gradients.view());

  Run<T> infer(net, *make_program(net, Shape(batch, time), options, Mode::infer));
  std::copy(run.params.view().begin(), run.params.view().end(), infer.params.view().begin());
  run_bert(infer);
  const View<const T> output = infer.step().output();
  for (std::size_t b = 0; b < batch; ++b)
    for (std::size_t c = 0; c < 4; ++c)
      CHECK(static_cast<double>(output[b * channels + c]) ==
            doctest::Approx(models_reference::bert_output[4 * b + c]).epsilon(tolerance<T>));
}

}  // namespace

TEST_CASE("GPT-2, a Llama and BERT compute what another program computes, gradients too") {
  check_gpt2<double>();
  check_gpt2<float>();
  check_llamas<double>();
  check_llamas<float>();
  check_bert<double>();
  check_bert<float>();
}

TEST_CASE("an encoder recomputed, and in parts with loops, has the bits of one that is retained") {
  constexpr std::size_t longer = 32;  // parts of so many rows change no bit
  bert::Config config = bert_config();
  config.context = longer;
  const Network net{Sequential{bert::encoder(config), layer(MeanOverTime{})}, MeanSquaredError{}};
  const Shape shape(batch, longer);
  const std::int32_t shorter[batch] = {longer, 20};
  std::vector<std::int32_t> tokens(batch * longer);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(word("longer", i) % (vocab * types));
  const auto targets = bert_targets<float>();
  const auto run = [&](Run<float>& in) {
    for (const Tensor& tensor : tensors_of(in.step().graph(), bert::Naming(config, "")))
      for (std::size_t i = 0; i < tensor.shape.elems(); ++i)
        in.params.view()[tensor.offset + i] = weight(tensor.name, tensor.shape.rank() == 1, i);
    Cpu cpu;
    cpu.lengths = View<const std::int32_t>(shorter, Shape(batch));
    const auto loss = in.step().run(cpu, View<const std::int32_t>(tokens.data(), shape),
                                    View<const float>(targets.data(), Shape(batch, channels)));
    REQUIRE_MESSAGE(loss, loss.error.text());
    return *loss;
  };
  Result<Graph> graph = make_graph(net, shape);
  REQUIRE(graph);
  Run<float> retained(net, *make_program(*graph, retain_all(*graph)));
  const double loss = run(retained);
  std::size_t before = retained.step().arena_bytes();
  for (const int parts : {1, 2}) {
    graph = make_graph(net, shape, {.parts = parts});
    REQUIRE(graph);
    Plan plan = retain_all(*graph);
    for (int k = 0; k < graph->node_count(); ++k)
      if (std::string(graph->node(k).name) != "layer_norm")
        plan.policies[static_cast<std::size_t>(k)] = Recompute::value;
    Run<float> again(net, *make_program(*graph, plan));
    CHECK(again.step().arena_bytes() < before);  // loops need less still
    before = again.step().arena_bytes();
    CHECK(run(again) == loss);
    CHECK(std::memcmp(retained.gradients.data(), again.gradients.data(),
                      again.gradients.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("configurations are read, and everything that is wrong with one is listed") {
  const Folder folder;
  const auto put = [&](const char* type, const char* more) {
    write_file(folder / "config.json", config_of(type, more));
  };
  put("bert", ", \"hidden_act\": \"gelu\", \"layer_norm_eps\": 1e-7, \"type_vocab_size\": 3");
  const auto encoder = bert::read_config(folder / "");
  REQUIRE_MESSAGE(encoder, encoder.error.text());
  CHECK(encoder->layers == 2);
  CHECK(encoder->hidden == 48);
  CHECK(encoder->types == 3);
  CHECK(encoder->epsilon == 1e-7F);
  put("llama", ", \"num_key_value_heads\": 2, \"rope_parameters\": {\"rope_theta\": 5e5}");
  const auto decoder = llama::read_config(folder / "");
  REQUIRE_MESSAGE(decoder, decoder.error.text());
  CHECK(decoder->kv_heads == 2);
  CHECK(decoder->base == 5e5);
  CHECK(!decoder->tied_head);

  std::vector<std::string> problems;
  put("llama",
      ", \"num_key_value_heads\": 3, \"rope_scaling\": {\"type\": \"linear\"}, "
      "\"attention_bias\": true, \"rms_norm_eps\": -1");
  CHECK(llama::read_config(folder / "", &problems).error);
  REQUIRE(problems.size() == 4);
  CHECK(problems[0] == "attention_bias is true, and has to be false");
  CHECK(problems[1].find("rope_scaling is {") == 0);
  CHECK(problems[2] == "rms_norm_eps is -1, and has to be a number above 0");
  CHECK(problems[3].find("do not divide one another") != std::string::npos);
  // What would be computed otherwise than it was trained, and what makes no difference.
  const auto one_problem = [&](const char* type, const std::string& setting) {
    put(type, (", " + setting).c_str());
    const Error why = type == std::string("bert")
                          ? bert::read_config(folder / "", &problems).error
                          : llama::read_config(folder / "", &problems).error;
    REQUIRE_MESSAGE(problems.size() == 1, setting);
    CHECK(train_test::says(why.text(), problems[0].c_str()));
    return problems[0];
  };
  const std::vector<std::pair<std::string, std::string>> refused_by_llama{
      {R"("hidden_act": "gelu")", R"(hidden_act is "gelu", and has to be "silu")"},
      {R"("attention_bias": true)", "attention_bias is true, and has to be false"},
      {R"("is_causal": false)", "is_causal is false, and has to be true"},
      {R"("mlp_bias": true)", "mlp_bias is true, and has to be false"},
      {R"("tie_word_embeddings": 1)", "tie_word_embeddings is 1, and has to be false or true"},
      {R"("partial_rotary_factor": 0.5)", "partial_rotary_factor is 0.5, and has to be 1.0 or 1"},
      {R"("head_dim": 16)", "head_dim is 16, and has to be hidden_size / heads"}};
  for (const auto& [setting, problem] : refused_by_llama)
    CHECK(one_problem("llama", setting) == problem);
  for (const char* scaled :
       {R"("rope_scaling": {"rope_type": "llama3"})",
        R"("rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4})",
        R"("rope_parameters": {"rope_type": "linear", "type": "default"})",
        R"("rope_parameters": {"type": "linear", "factor": 2, "rope_theta": 1e4})",
        R"("rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 1e4})"})
    CHECK(train_test::says(one_problem("llama", scaled).c_str(), "and has to"));
  CHECK(one_problem("qwen2", R"("use_sliding_window": true)") ==
        "use_sliding_window is true, and has to be false");
  CHECK(one_problem("qwen2", R"("head_dim": 16)") ==
        "head_dim is 16, and has to be hidden_size / heads");
  CHECK(one_problem("qwen3", R"("layer_types": ["full_attention", "sliding_attention"])") ==
        R"(layer_types is ["full_attention", "sliding_attention"], and has to be full_attention )"
        "for all layers");
  CHECK(one_problem("mistral", R"("head_dim": 8)") ==
        R"(model_type is "mistral", and has to be "llama" or "qwen2" or "qwen3")");
  put("qwen3", R"(, "head_dim": 12)");
  REQUIRE(llama::read_config(folder / ""));
  CHECK(llama::read_config(folder / "")->head_size() == 12);
  put("qwen3", "");
  CHECK(llama::read_config(folder / "")->head_size() == 128);
  put("qwen2", R"(, "sliding_window": 9, "layer_types": ["full_attention", "full_attention"])");
  REQUIRE(llama::read_config(folder / ""));
  CHECK(llama::read_config(folder / "")->biases());
  const std::vector<std::pair<std::string, std::string>> refused_by_bert{
      {R"("hidden_act": "gelu_new")", R"(hidden_act is "gelu_new", and has to be "gelu")"},
      {R"("position_embedding_type": "relative_key")",
       R"(position_embedding_type is "relative_key", and has to be "absolute")"},
      {R"("is_decoder": true)", "is_decoder is true, and has to be false"},
      {R"("add_cross_attention": true)", "add_cross_attention is true, and has to be false"}};
  for (const auto& [setting, problem] : refused_by_bert)
    CHECK(one_problem("bert", setting) == problem);
  for (const char* type : {"bert", "llama"})
    CHECK(train_test::says(
        one_problem(type, R"("quantization_config": {"quant_method": "fp8"})").c_str(),
        "quantization_config is {"));
  put("bert", R"(, "is_decoder": false, "add_cross_attention": false, "use_cache": true)");
  CHECK(bert::read_config(folder / ""));
  put("llama",
      R"(, "pretraining_tp": 2, "partial_rotary_factor": 1.0, "rope_scaling": null, "head_dim": 8,)"
      R"( "rope_parameters": {"type": "default", "partial_rotary_factor": 1.0, "rope_theta": 1e4})");
  CHECK(llama::read_config(folder / ""));
  // Numbers that no float is.
  put("llama", ", \"rms_norm_eps\": 1e-60, \"rope_parameters\": {\"rope_theta\": 1e400}");
  CHECK(llama::read_config(folder / "", &problems).error);
  REQUIRE(problems.size() == 2);
  CHECK(problems[0] == "rms_norm_eps is 1e-60, and has to be a number above 0");
  CHECK(problems[1].find("a rope_theta above 0") != std::string::npos);
  write_file(folder / "config.json", "{\"model_type\": \"gpt2\", \"vocab_size\": 2.5}");
  CHECK(bert::read_config(folder / "", &problems).error);
  CHECK(problems.size() == 7);
  CHECK(problems[0] == "model_type is \"gpt2\", and has to be \"bert\"");
  write_file(folder / "config.json", "[1]");
  CHECK(bert::read_config(folder / "").error);
}

namespace {

/// Whether the tensors that a configuration alone asks for are those of its network.
bool are_those_of(const std::vector<ExpectedTensor>& expected, const std::vector<Tensor>& tensors) {
  bool same = expected.size() == tensors.size();
  for (std::size_t i = 0; same && i < tensors.size(); ++i)
    same = expected[i].name == tensors[i].name && expected[i].shape() == tensors[i].shape;
  return same;
}

}  // namespace

TEST_CASE("rows of a head's tile on a device are an option of both models") {
  CHECK(gpt::make({.device_tile_rows = 5}).loss.device_tile_rows == 5);
  CHECK(llama::make({.device_tile_rows = 6}).loss.device_tile_rows == 6);
}

TEST_CASE("a configuration is compared with the tensors before anything is made") {
  const Folder folder;
  const llama::Config untied{.heads = 4, .kv_heads = 2, .channels = 32, .hidden = 48, .vocab = 50};
  for (const bool tied : {false, true}) {
    llama::Config config = untied;
    config.tied_head = tied;
    const auto graph = make_graph(llama::make(config), Shape(1, 4));
    REQUIRE_MESSAGE(graph, graph.error.text());
    const auto tensors = tensors_of(*graph, llama::Naming(config));
    CHECK(
        are_those_of(expected_tensors(llama::outline_of(config), llama::Naming(config)), tensors));
  }
  const bert::Config two{.layers = 2,
                         .heads = 4,
                         .channels = 32,
                         .hidden = 48,
                         .context = 16,
                         .vocab = 50,
                         .types = 3};
  const auto graph = make_graph(Network{bert::encoder(two), MeanSquaredError{}}, Shape(1, 4));
  REQUIRE_MESSAGE(graph, graph.error.text());
  const auto tensors = tensors_of(*graph, bert::Naming(two, ""));
  CHECK(are_those_of(expected_tensors(bert::outline_of(two), bert::Naming(two, "")), tensors));

  // Good tensors, and configurations of numbers that are blown up.
  std::vector<std::string> problems;
  const auto blown_up = [&](const char* type, const std::string& text, const char* number) {
    const auto read = [&] {
      return type == std::string("bert") ? bert::read_config(folder / "", &problems).error
                                         : llama::read_config(folder / "", &problems).error;
    };
    write_file(folder / "config.json", text);
    const Error good = read();
    CHECK_MESSAGE(!good, good.text());
    for (const char* const large :
         {"64", "4096", "4097", "20000", "400000", "1048576", "2147483644"}) {
      CAPTURE(std::string(number));
      CAPTURE(std::string(large));
      const std::size_t at = text.find(':', text.find(number)) + 2;
      std::string changed = text;
      changed.replace(at, text.find_first_of(",}", at) - at, large);
      write_file(folder / "config.json", changed);
      const Error why = read();
      CHECK(why);
      CHECK(problems.size() >= 1);
      CHECK(problems.size() < 40);
    }
  };
  const std::string more = ", \"type_vocab_size\": 3";
  for (const char* prefix : {"", "bert."}) {
    write_weights(folder, tensors, prefix);
    for (const char* number : {"hidden_size", "num_hidden_layers", "intermediate_size",
                               "max_position_embeddings", "vocab_size", "type_vocab_size"})
      blown_up("bert", config_of("bert", more.c_str()), number);
  }
  llama::Config config = untied;
  config.layers = 2;
  const auto decoder = make_graph(llama::make(config), Shape(1, 4));
  REQUIRE_MESSAGE(decoder, decoder.error.text());
  write_weights(folder, tensors_of(*decoder, llama::Naming(config)));
  for (const char* number : {"hidden_size", "num_hidden_layers", "num_key_value_heads",
                             "intermediate_size", "vocab_size"})
    blown_up("llama", config_of("llama", ", \"num_key_value_heads\": 2"), number);
  // More layers than tensors are one line, not a line for each that is missing.
  write_file(folder / "config.json", [&] {
    std::string text = config_of("llama", ", \"num_key_value_heads\": 2");
    return text.replace(text.find("layers\": 2") + 9, 1, "4096");
  }());
  CHECK(llama::read_config(folder / "", &problems).error);
  CHECK(problems == std::vector<std::string>{
                        "num_hidden_layers is 4096, and the file has no more than 21 tensors"});
}

TEST_CASE("tensors that are missing or of another shape are all named, and nothing is loaded") {
  const auto net = bert_network();
  Run<float> run(net, *make_program(net, Shape(batch, time)));
  const Graph& graph = run.step().graph();
  auto tensors = tensors_of(graph, bert::Naming(bert_config(), ""));
  tensors.erase(tensors.begin() + 7);
  tensors.erase(tensors.begin() + 1);
  tensors[2].shape = Shape(tensors[2].shape[0], 7);
  const Folder folder;
  write_weights(folder, tensors);
  for (float& value : run.params.view()) value = 42;
  std::vector<std::string> problems;
  const Error why =
      bert::read_parameters(folder / "", bert_config(), graph, run.params.view(), &problems);
  CHECK(train_test::says(why.text(), "3 of 37 tensors"));
  REQUIRE(problems.size() == 3);
  CHECK(problems[0] == "\"embeddings.position_embeddings.weight\" is missing");
  CHECK(problems[1].find("is (32, 7), not (32)") != std::string::npos);
  CHECK(problems[2] == "\"encoder.layer.0.attention.self.value.weight\" is missing");
  for (const float value : run.params.view()) CHECK(value == 42);
}

TEST_CASE("what is written is read with the same bits") {
  const auto net = llama::make(llama_config());
  Run<float> run(net, *make_program(net, Shape(batch, time)));
  const Graph& graph = run.step().graph();
  const llama::Naming naming(llama_config());
  const auto tensors = tensors_of(graph, naming);
  for (float& value : run.params.view()) value = 0;
  for (const Tensor& tensor : tensors)
    for (std::size_t i = 0; i < tensor.shape.elems(); ++i)
      run.params.view()[tensor.offset + i] = static_cast<float>(i) + 0.25F;
  const Folder folder;
  REQUIRE(!write_pretrained<float>(folder / "model.safetensors", graph, run.params.view(), naming));
  const std::vector<float> before(run.params.view().begin(), run.params.view().end());
  for (float& value : run.params.view()) value = 0;
  REQUIRE(!llama::read_parameters(folder / "", llama_config(), graph, run.params.view()));
  CHECK(std::memcmp(before.data(), run.params.data(), before.size() * sizeof(float)) == 0);
}

}  // namespace models_test
