// SPDX-License-Identifier: MIT
// Frozen weights that stay in a GGUF file: steps have the bits of steps on decoded weights, inside an exact peak.
#include "adacc/io/weights/gguf_stored.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "../step/step_run.hpp"
#include "../train/support.hpp"
#include "adacc/io/file.hpp"
#include "adacc/io/weights/gguf_llama.hpp"
#include "adacc/io/weights/llama_mapped.hpp"
#include "adacc/io/weights/weight_forms.hpp"
#include "adacc/layer/mean_squared_error.hpp"
#include "adacc/layer/plain/linear.hpp"
#include "adacc/model/trained_by_name.hpp"
#include "adacc/train.hpp"
#include "adacc/train/save.hpp"
#include "llama_file.hpp"
#include "stored_run.hpp"

namespace gguf_stored_test {
namespace {

using namespace adacc;
using gguf_test::GgufBytes;
using llama_file::Batch;
using llama_file::config;
using llama_file::model_file;
using stored_run::Ran;
using stored_run::same_bits;
using stored_run::train;
using train_test::Folder;
using train_test::write_file;

bool says(const Error& error, const char* piece) { return train_test::says(error.text(), piece); }

std::string put(const Folder& folder, const GgufBytes& file) {
  write_file(folder / "model.gguf", file.file());
  return folder / "model.gguf";
}

}  // namespace

TEST_CASE("adapters above weights in a file learn with the bits of decoded weights") {
  const Folder folder;
  for (const bool tied : {false, true}) {
    // The first type of each: another one for every tensor of the network.
    for (const std::size_t first : {std::size_t{0}, std::size_t{4}}) {
      const std::string path = put(folder, model_file(config(tied), first));
      const auto model = llama::MappedModel::open(path);
      REQUIRE_MESSAGE(model, model.error.text());
      const Lora lora{.rank = 4};
      const Ran full = train<float>(*model, lora, false, nullptr);
      const Ran stored = train<float>(*model, lora, true, nullptr);
      CHECK(same_bits(stored, full));
      CHECK(same_bits(train<float>(*model, lora, true, nullptr, 3), full));
      // The block has adapters alone, and the file's bytes are counted.
      CHECK(stored.use.parameters == stored.trained.size() * sizeof(float));
      std::size_t bytes = 0;
      for (const GgufTensor& tensor : model->file()) bytes += tensor.bytes.size();
      CHECK(stored.use.mapped == bytes);
      CHECK(full.use.mapped == 0);
      const auto graph = make_graph(llama::make_lora(model->config(), lora), Shape(2, 8),
                                    {.stored = &model->stored()});
      REQUIRE(graph);
      CHECK(memory_beside_arena(*graph, AdamW{})->mapped == bytes);
      if (first != 0) continue;
      CHECK(same_bits(train<float>(*model, lora, true, nullptr, 2, 3),
                      train<float>(*model, lora, false, nullptr, 1, 3)));
      CHECK(same_bits(train<bfloat16>(*model, lora, true, nullptr, 2),
                      train<bfloat16>(*model, lora, false, nullptr)));
    }
  }
}

TEST_CASE(
    "weights that are encoded when they are read train adapters with the bits of decoded ones") {
  const Folder folder;
  const std::string path = put(folder, model_file(config(true), 0, 3));  // F32, F16, BF16
  const auto plain = llama::MappedModel::open(path);
  REQUIRE(plain);
  const Ran as_stored = train<float>(*plain, {.rank = 4}, true, nullptr);
  for (const WeightForm form : {WeightForm::int8, WeightForm::nf4}) {
    const auto model = llama::MappedModel::open(path, nullptr, form);
    REQUIRE_MESSAGE(model, model.error.text());
    const Ran stored = train<float>(*model, {.rank = 4}, true, nullptr);
    CHECK(same_bits(stored, train<float>(*model, {.rank = 4}, false, nullptr)));
    CHECK(same_bits(train<float>(*model, {.rank = 4}, true, nullptr, 3), stored));
    CHECK(std::abs(stored.losses[0] - as_stored.losses[0]) < 0.1);
    CHECK(stored.losses[0] != as_stored.losses[0]);
    // Matrices of 1024 and 256 columns: a scale of 4 bytes for 64 bytes, or with 4 more for 128 bytes of 256 numbers.
    std::size_t elems = 0, vectors = 0;
    for (const GgufTensor& tensor : model->file()) {
      elems += tensor.shape.size() == 2 ? tensor.elems() : 0;
      vectors += tensor.shape.size() == 2 ? 0 : tensor.bytes.size();
    }
    const std::size_t bytes = form == WeightForm::int8 ? elems / 64 * 68 : elems / 256 * 136;
    CHECK(model->encoded_bytes() == bytes);
    CHECK(stored.use.mapped == bytes + vectors);
  }
}

TEST_CASE(
    "weights stay in safetensors, or are encoded, and adapters learn with the bits of decoded "
    "ones") {
  const Folder folder;
  const auto gguf = llama::MappedModel::open(put(folder, model_file(config(false), 0, 3)));
  REQUIRE(gguf);
  const auto graph = make_graph(llama::make(gguf->config()), Shape(1, 2));
  REQUIRE(graph);
  std::vector<float> numbers(graph->parameter_elems);
  REQUIRE(!gguf->read(*graph, View<float>(numbers.data(), Shape(numbers.size()))));
  const auto write = [&] {
    return write_pretrained<float>(folder / "model.safetensors", *graph,
                                   View<const float>(numbers.data(), Shape(numbers.size())),
                                   llama::Naming(gguf->config()));
  };
  REQUIRE(!write());
  write_file(folder / "config.json",
             R"({"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4,
                 "num_key_value_heads": 2, "hidden_size": 256, "intermediate_size": 1024,
                 "max_position_embeddings": 16, "vocab_size": 2100, "rms_norm_eps": 1e-5})");
  const Ran of_gguf = train<float>(*gguf, {.rank = 4}, true, nullptr);
  for (const WeightForm form : {WeightForm::as_stored, WeightForm::nf4}) {
    const auto model = llama::MappedFolder::open(folder / "", nullptr, form);
    REQUIRE_MESSAGE(model, model.error.text());
    const Ran stored = train<float>(*model, {.rank = 4}, true, nullptr);
    CHECK(same_bits(stored, train<float>(*model, {.rank = 4}, false, nullptr)));
    CHECK(same_bits(stored, of_gguf) == (form == WeightForm::as_stored));
    if (form == WeightForm::as_stored) CHECK(stored.use.mapped == numbers.size() * sizeof(float));
  }
  numbers[7] = std::numeric_limits<float>::infinity();
  REQUIRE(!write());
  CHECK(says(llama::MappedFolder::open(folder / "").error, "has NaN or an infinity at element 7"));
}

namespace {

/// A number of an encoded row by the definition of its form.
float by_definition(WeightForm form, std::size_t groups, const std::byte* row, std::size_t i) {
  const std::size_t elems = form == WeightForm::int8 ? 64 : 64 * groups, inside = i % elems;
  const std::size_t bytes = form == WeightForm::int8 ? 68 : 4 + 33 * groups;
  const std::byte* const block = row + i / elems * bytes;
  float scale = 0;
  std::memcpy(&scale, block, sizeof scale);
  if (form == WeightForm::int8)
    return scale * static_cast<float>(static_cast<signed char>(block[4 + inside]));
  const std::size_t group = inside / 64, at = inside % 64;
  const auto code = static_cast<unsigned>(block[4 + groups + group * 32 + at % 32]);
  const unsigned level = at < 32 ? code & 15 : code >> 4;
  return detail::nf4_levels[level] *
         (static_cast<float>(static_cast<unsigned>(block[4 + group])) * scale);
}

}  // namespace

TEST_CASE("encoded weights are near their numbers, and decode by the definition of their form") {
  for (const std::size_t cols : {64U, 96U, 128U, 192U, 576U, 512U}) {
    const std::size_t rows = 3, groups = cols % 256 == 0 ? 4 : cols % 192 == 0 ? 3 : cols / 64;
    std::vector<float> numbers(rows * cols);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = i / cols == 1 ? 0  // a row of zeros
                                 : unit_float(random_word({.seed = 4}, i)) - 0.6F;
    numbers[1] = 40;  // far from its group
    StoredParameters plain;
    StoredParameter parameter;
    parameter.shape = Shape(rows, cols);
    parameter.count = 1;
    parameter.pieces[0] = {&block_format(GgufType::f32),
                           static_cast<const std::byte*>(static_cast<const void*>(numbers.data())),
                           rows};
    plain.add({0, 0, 0}, parameter);
    for (const WeightForm form : {WeightForm::int8, WeightForm::nf4}) {
      CAPTURE(cols);
      CAPTURE(static_cast<int>(form));
      const auto encoded = EncodedWeights::make(plain, form);
      REQUIRE(encoded);
      const StoredParameter& found = *encoded->stored().find({0, 0, 0});
      std::vector<float> decoded(cols);
      if (cols % 64 != 0) {  // no whole groups: they stay in fp32
        found.decode(2, 0, cols, decoded.data());
        CHECK(encoded->bytes() == 0);
        CHECK(std::memcmp(decoded.data(), &numbers[2 * cols], cols * sizeof(float)) == 0);
        continue;
      }
      CHECK(encoded->bytes() == found.bytes());
      for (std::size_t r = 0; r < rows; ++r) {
        found.decode(r, 0, cols, decoded.data());
        const std::byte* const row = found.pieces[0].data + r * found.bytes() / rows;
        std::size_t wrong = 0, far = 0;
        for (std::size_t i = 0; i < cols; ++i) {
          wrong += decoded[i] != by_definition(form, groups, row, i);
          float most = 0;
          for (std::size_t k = i / 64 * 64; k < i / 64 * 64 + 64; ++k)
            most = std::max(most, std::abs(numbers[r * cols + k]));
          // Half of the distance of levels; a group's scale is at most 1/255 of the largest number too large.
          const float share =
              form == WeightForm::int8 ? 0.5F / 127 : 0.152F * (most + 40.0F / 255) / most;
          far += std::abs(decoded[i] - numbers[r * cols + i]) > 1.001F * share * most;
        }
        CHECK(wrong == 0);
        CHECK(far == 0);
      }
    }
  }
}

TEST_CASE("norms are trained from the numbers in the file, and a fixed A stays in the block") {
  const Folder folder;
  const auto model = llama::MappedModel::open(put(folder, model_file(config(true), 2)));
  REQUIRE_MESSAGE(model, model.error.text());
  const Lora fixed{.rank = 4, .train_a = false};
  const Ran full = train<float>(*model, fixed, false, "*norm*,*lora_b");
  const Ran stored = train<float>(*model, fixed, true, "*norm*,*lora_b");
  CHECK(same_bits(stored, full));
  CHECK(stored.use.parameters > stored.trained.size() * sizeof(float));
  CHECK(stored.use.parameters < full.use.parameters / 2);
}

TEST_CASE("a run above weights in a file goes on from its checkpoint, which has none of them") {
  const Folder folder;
  const auto model = llama::MappedModel::open(put(folder, model_file(config(true), 2)));
  REQUIRE_MESSAGE(model, model.error.text());
  const auto net = llama::make_lora(model->config(), {.rank = 4, .train_a = false});
  const Batch batch(model->config().vocab);
  TrainingOptions<Cpu, AdamW> options;
  options.graph.stored = &model->stored();
  options.seed = 5;
  auto run = Training<float>::make(net, batch.shape, options);
  REQUIRE_MESSAGE(run, run.error.text());
  options.seed = 6;
  auto resumed = Training<float>::make(net, batch.shape, options);
  REQUIRE(resumed);
  REQUIRE(run->step(batch.input(), batch.targets(), 1e-2));
  const std::string path = folder / "run";
  REQUIRE(!run->save(path));
  CHECK(run->memory_use().mapped > 1000000);
  const auto file = InputFile::open(path, "a checkpoint");
  REQUIRE(file);
  CHECK(file->size() < run->memory_use().mapped / 4);
  const auto info = resumed->load(path);
  REQUIRE_MESSAGE(info, info.error.text());
  const auto next = run->step(batch.input(), batch.targets(), 1e-2);
  const auto same = resumed->step(batch.input(), batch.targets(), 1e-2);
  REQUIRE(next);
  REQUIRE(same);
  CHECK(next->loss == same->loss);
  const auto block = [](const auto& training) {
    const auto params = training->params();
    return std::vector<float>(params.data(), params.data() + params.size());
  };
  CHECK(block(run) == block(resumed));
}

TEST_CASE("a step above weights in a file uses its peak, and no byte more") {
  const Folder folder;
  const auto model = llama::MappedModel::open(put(folder, model_file(config(true), 6)));
  REQUIRE_MESSAGE(model, model.error.text());
  const auto net = llama::make_lora(model->config(), {.rank = 4});
  const Batch batch(model->config().vocab);
  const auto in_block = make_graph(net, batch.shape);
  REQUIRE(in_block);
  const double seconds = estimated_profile(*in_block).nodes[2].forward;
  for (const int workers : {1, 2}) {
    const auto graph =
        make_graph(net, batch.shape, {.workers = workers, .stored = &model->stored()});
    REQUIRE_MESSAGE(graph, graph.error.text());
    CHECK(estimated_profile(*graph).nodes[2].forward > seconds);  // decoding takes time
    const auto program = make_program(*graph, retain_all(*graph));
    REQUIRE(program);
    auto step = Step<>::make(net, *program);
    REQUIRE(step);
    constexpr std::size_t guard = 4096;
    const std::size_t bytes = step->arena_bytes();
    step_run::Aligned arena(bytes + guard), params(graph->parameter_elems * sizeof(float)),
        gradients(graph->gradient_elems * sizeof(float));
    std::memset(arena.data, 0x01, bytes + guard);
    std::memset(params.data, 0, params.size);
    std::memset(gradients.data, 0, gradients.size);
    const Error bound =
        step->bind({arena.data, Shape(bytes)},
                   {reinterpret_cast<float*>(params.data), Shape(graph->parameter_elems)},
                   {reinterpret_cast<float*>(gradients.data), Shape(graph->gradient_elems)});
    REQUIRE_MESSAGE(!bound, bound.text());
    step_run::Backwards executor{workers};
    Cpu cpu{ExecutorRef(executor)};
    REQUIRE(step->run(cpu, batch.input(), batch.targets()));
    std::size_t used = 0;
    for (std::size_t i = 0; i < bytes + guard; ++i)
      if (arena.data[i] != std::byte{0x01}) used = i + 1;
    CHECK(used <= bytes);
    CHECK(align_up(used) == align_up(bytes));
  }
}

TEST_CASE("a layer that knows nothing of files gets decoded copies, and others copies of vectors") {
  std::vector<float> weight(6 * 5), bias{1, 2, 3, 4, 5, 6};
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = 0.1F * static_cast<float>(i) - 1;
  const auto rows = [&](const std::vector<float>& from, std::size_t count) {
    const void* const data = from.data();
    return StoredRows{&block_format(GgufType::f32), static_cast<const std::byte*>(data), count, 0};
  };
  StoredParameters stored;
  stored.add({0, 0, 0}, {Shape(6, 5), {rows(weight, 6)}, 1});
  stored.add({0, 0, 1}, {Shape(6), {rows(bias, 1)}, 1});
  const std::vector<float> x{1, 2, 3, 4, 5, 5, 4, 3, 2, 1}, y(6, 0.5F);
  const auto loss_of = [&](const auto& first, const StoredParameters* in_file) {
    const Network net{Sequential{frozen(layer(first)), layer(plain::Linear{.out = 3})},
                      MeanSquaredError{}};
    TrainingOptions<Cpu, AdamW> options;
    options.graph.stored = in_file;
    auto training = Training<float>::make(net, Shape(2, 5), options);
    if (!training) return Result<double>(training.error);
    for (const Parameter& parameter : training->compiled_step().graph().parameters)
      if (parameter.frozen && parameter.owner)
        std::memcpy(training->params().data() + parameter.offset,
                    parameter.shape.rank() == 1 ? bias.data() : weight.data(),
                    parameter.shape.elems() * sizeof(float));
    const auto outcome = training->step(View<const float>(x.data(), Shape(2, 5)),
                                        View<const float>(y.data(), Shape(2, 3)), 0.1);
    REQUIRE_MESSAGE(outcome, outcome.error.text());
    return Result<double>(outcome->loss);
  };
  const auto check = [&](const auto& first) {
    const auto full = loss_of(first, nullptr), same = loss_of(first, &stored);
    REQUIRE_MESSAGE(full, full.error.text());
    REQUIRE_MESSAGE(same, same.error.text());
    CHECK(*full == *same);
  };
  check(plain::Linear{.out = 6});
  check(Linear{.out = 6});
  StoredParameters other;
  other.add({0, 0, 0}, {Shape(5, 6), {rows(weight, 5)}, 1});
  CHECK(says(loss_of(Linear{.out = 6}, &other).error,
             "its parameter 'weight' is (6, 5), and the stored one is (5, 6)"));
}

TEST_CASE("weights in a file are refused where nothing reads them there, and if they are none") {
  const Folder folder;
  GgufBytes file = model_file(config(true), 0);
  const std::string path = put(folder, file);
  const auto model = llama::MappedModel::open(path);
  REQUIRE_MESSAGE(model, model.error.text());
  const auto net = llama::make_lora(model->config(), {.rank = 4});
  TrainingOptions<Cpu, AdamW> options;
  options.graph.stored = &model->stored();
  options.graph.parameters = ParameterForm::bf16;
  CHECK(says(Training<float>::make(net, Shape(2, 8), options).error,
             "the others are held in full, and not in bf16"));

  const std::string whole = file.file();
  write_file(path + "2", whole.substr(0, whole.size() - 1));
  CHECK(says(llama::MappedModel::open(path + "2").error, "is truncated"));
  std::string broken = whole;
  const std::uint32_t infinity = 0x7F800000;
  std::memcpy(broken.data() + broken.size() - file.data.size(), &infinity, sizeof infinity);
  write_file(path + "3", broken);
  CHECK(says(llama::MappedModel::open(path + "3").error, "has NaN or an infinity at element 0"));
}

}  // namespace gguf_stored_test
