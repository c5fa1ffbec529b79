// SPDX-License-Identifier: MIT
// GPT-2 above weights in a GGUF file or in safetensors, whose matrices lie transposed: the bits of decoded weights.
#include "adacc/io/weights/gpt_mapped.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "../train/support.hpp"
#include "adacc/core/random.hpp"
#include "adacc/io/weights/adapters.hpp"
#include "adacc/io/weights/gguf_model_write.hpp"
#include "adacc/train.hpp"
#include "adacc/train/generate.hpp"
#include "gguf_bytes.hpp"
#include "llama_file.hpp"

namespace gpt_mapped_test {
namespace {

using namespace adacc;
using train_test::Folder;
using train_test::write_file;

const gpt::Config config{2, 2, 64, 16, 70};

/// The same numbers as a folder, and as a GGUF file whose head is the token table a second time.
struct Files {
  Folder folder;
  Graph graph;
  std::vector<float> numbers;

  Files() {
    const auto made = make_graph(gpt::make(config), Shape(1, 2));
    REQUIRE_MESSAGE(made, made.error.text());
    graph = *made;
    numbers.resize(graph.parameter_elems);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = unit_float(random_word({.seed = 8}, i)) - 0.5F;
    write_folder();
    gguf_test::GgufBytes file;
    file.text("general.architecture", "gpt2");
    const auto number = [&](const char* key, std::size_t n) {
      file.number(std::string("gpt2.") + key, static_cast<std::uint32_t>(n));
    };
    number("block_count", 2);
    number("attention.head_count", config.heads);
    number("embedding_length", config.channels);
    number("feed_forward_length", 4 * config.channels);
    number("context_length", config.context);
    each_stored(graph, gpt::Naming(detail::gguf_gpt2_names, "", "output.weight"),
                [&](const std::string& name, std::size_t offset, Shape shape) {
                  const std::vector<float> values(&numbers[offset],
                                                  &numbers[offset] + shape.elems());
                  if (shape.rank() == 1) return file.floats(name, {shape[0]}, values);
                  file.floats(name, {shape[0], shape[1]}, values);
                  if (name == "token_embd.weight")
                    file.floats("output.weight", {shape[0], shape[1]}, values);
                });
    write_file(gguf(), file.file());
  }
  void write_folder() const {
    const LlmcHeader header{config.context, config.vocab,    2,
                            config.heads,   config.channels, config.vocab};
    const Error why = write_gpt2<Graph, float>(folder / "", header, graph,
                                               {numbers.data(), Shape(numbers.size())});
    REQUIRE_MESSAGE(!why, why.text());
  }
  std::string gguf() const { return folder / "model.gguf"; }
};

template <class Model>
Model opened(const std::string& path, WeightForm form = WeightForm::as_stored) {
  auto model = Model::open(path, nullptr, form);
  REQUIRE_MESSAGE(model, model.error.text());
  return static_cast<Model&&>(*model);
}

/// Three losses, adapters behind them, and logits of the text so far: all bits of a run.
template <class Model>
std::vector<float> run(const Model& model, bool stored) {
  const auto net = gpt::make_lora(model.config(), {.rank = 4});
  const llama_file::Batch batch(config.vocab);
  TrainingOptions<Cpu, AdamW> options;
  options.seed = 5;
  if (stored) options.graph.stored = &model.stored();
  auto training = Training<>::make(net, batch.shape, options);
  REQUIRE_MESSAGE(training, training.error.text());
  const Graph& graph = training->compiled_step().graph();
  const Error why = model.read(without_adapters(graph), training->params());
  REQUIRE_MESSAGE(!why, why.text());
  std::vector<float> all;
  for (int i = 0; i < 3; ++i) {
    const auto outcome = training->step(batch.input(), batch.targets(), 1e-2);
    REQUIRE_MESSAGE(outcome, outcome.error.text());
    all.push_back(static_cast<float>(outcome->loss));
  }
  CHECK(all[2] < all[0]);
  const View<float> params = training->params();
  all.insert(all.end(), params.begin(), params.begin() + graph.gradient_elems);
  CHECK(stored == (params.size() == graph.gradient_elems));
  const auto network = generator_of(net);
  auto writer = Generator::make(
      network, {.context = config.context, .stored = stored ? &model.stored() : nullptr});
  REQUIRE_MESSAGE(writer, writer.error.text());
  REQUIRE(!writer->take_memory());
  REQUIRE(!writer->bind(training->parameters()));
  Cpu cpu;
  for (const std::size_t first : {0U, 5U, 6U}) {
    const std::size_t end = first == 0 ? 5 : first + 1;
    const auto logits = writer->feed(cpu, {batch.x.data() + first, Shape(end - first)});
    REQUIRE_MESSAGE(logits, logits.error.text());
    all.insert(all.end(), logits->begin(), logits->end());
  }
  return all;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

bool says(const Error& error, const char* piece) { return train_test::says(error.text(), piece); }

}  // namespace

TEST_CASE(
    "a GPT-2 learns and writes with one set of bits above a file, a folder and decoded weights") {
  const Files files;
  const std::vector<ExpectedTensor> expected = expected_tensors(
      gpt::outline_of(config), gpt::Naming(detail::gguf_gpt2_names, "", "output.weight"));
  CHECK(expected.size() == detail::llmc_parameters(2));
  for (const WeightForm form : {WeightForm::as_stored, WeightForm::int8, WeightForm::nf4}) {
    CAPTURE(static_cast<int>(form));
    const auto in_file = opened<gpt::MappedModel>(files.gguf(), form);
    const auto in_folder = opened<gpt::MappedFolder>(files.folder / "", form);
    const std::vector<float> bits = run(in_file, true);
    CHECK(same_bits(bits, run(in_file, false)));
    CHECK(same_bits(bits, run(in_folder, true)));
    CHECK(same_bits(bits, run(in_folder, false)));
    CHECK(in_file.encoded_bytes() == in_folder.encoded_bytes());
    CHECK((in_file.encoded_bytes() == 0) == (form == WeightForm::as_stored));
  }
}

namespace {

/// Logits of a text by a network whose block is `params`.
template <class Network>
std::vector<float> logits_of(const Network& net, const StoredParameters* stored,
                             const std::vector<float>& params) {
  const auto network = generator_of(net);
  auto writer = Generator::make(network, {.context = config.context, .stored = stored});
  REQUIRE_MESSAGE(writer, writer.error.text());
  REQUIRE(!writer->take_memory());
  auto block = Block<float>::make(params.size(), "parameters");
  REQUIRE(block);
  std::copy(params.begin(), params.end(), block->data());
  REQUIRE(!writer->bind(std::as_const(*block).view()));
  const llama_file::Batch batch(config.vocab);
  Cpu cpu;
  const auto logits = writer->feed(cpu, {batch.x.data(), Shape(8)});
  REQUIRE_MESSAGE(logits, logits.error.text());
  return {logits->begin(), logits->end()};
}

}  // namespace

TEST_CASE("adapters of a GPT-2 go to GGUF files, alone or merged") {
  const Files files;
  const auto model = opened<gpt::MappedModel>(files.gguf());
  const AdapterShape adapter{3, 6};
  const auto net = gpt::make_lora(config, {.rank = 3, .alpha = 6});
  const auto graph = make_graph(net, Shape(1, 2), {.stored = &model.stored()});
  REQUIRE_MESSAGE(graph, graph.error.text());
  std::vector<float> params(graph->parameter_elems);
  for (std::size_t i = 0; i < params.size(); ++i)
    params[i] = unit_float(random_word({.seed = 9}, i)) - 0.5F;
  const View<const float> view(params.data(), Shape(params.size()));
  const std::string alone = files.folder / "adapters.gguf", merged = files.folder / "merged.gguf";
  const Error why = write_gguf_adapters(alone, config, *graph, view, adapter);
  REQUIRE_MESSAGE(!why, why.text());
  const auto shape = read_gguf_adapter_shape(alone);
  REQUIRE_MESSAGE(shape, shape.error.text());
  CHECK(shape->rank == 3);
  std::vector<float> read(params.size());
  REQUIRE(!read_gguf_adapters(alone, config, *graph, View<float>(read.data(), Shape(read.size()))));
  for (const Parameter& parameter : graph->parameters)
    if (is_of_adapter(parameter))
      CHECK(std::memcmp(&read[parameter.offset], &params[parameter.offset],
                        parameter.shape.elems() * sizeof(float)) == 0);
  const Error wrong = write_gguf(merged, model, *graph, view, adapter, GgufType::f32);
  REQUIRE_MESSAGE(!wrong, wrong.text());
  const auto whole = opened<gpt::MappedModel>(merged);
  const auto plain = make_graph(gpt::make(config), Shape(1, 2));
  REQUIRE(plain);
  std::vector<float> numbers(plain->parameter_elems);
  REQUIRE(!whole.read(*plain, View<float>(numbers.data(), Shape(numbers.size()))));
  const std::vector<float> wanted = logits_of(net, &model.stored(), params),
                           found = logits_of(gpt::make(config), nullptr, numbers),
                           before = logits_of(gpt::make(config), nullptr, files.numbers);
  double worst = 0, moved = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    worst = std::max(worst, static_cast<double>(std::abs(found[i] - wanted[i])));
    moved = std::max(moved, static_cast<double>(std::abs(found[i] - before[i])));
  }
  CHECK(worst < 1e-4);
  CHECK(moved > 0.1);
}

TEST_CASE("a GPT-2 whose numbers or sizes are none is refused in words") {
  Files files;
  files.numbers[3] = std::numeric_limits<float>::infinity();
  files.write_folder();
  CHECK(says(gpt::MappedFolder::open(files.folder / "").error,
             "\"wte.weight\" has NaN or an infinity at element 3"));
  std::vector<std::string> problems;
  write_file(files.folder / "config.json", R"({"model_type": "llama", "n_layer": 2})");
  CHECK(gpt::MappedFolder::open(files.folder / "", &problems).error);
  REQUIRE(!problems.empty());
  CHECK(problems[0] == R"(model_type is "llama", and has to be "gpt2")");
  CHECK(says(gpt::MappedModel::open(files.folder / "none.gguf").error, "none.gguf"));
}

}  // namespace gpt_mapped_test
