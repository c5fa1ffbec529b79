// SPDX-License-Identifier: MIT
// Frozen weights whose pages leave the process behind each layer: the bits of resident ones, and an empty mapping.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "../train/support.hpp"
#include "adacc/core/block.hpp"
#include "adacc/io/weights/adapters.hpp"
#include "adacc/io/weights/gpt2.hpp"
#include "adacc/io/weights/gpt_mapped.hpp"
#include "adacc/io/weights/llama_mapped.hpp"
#include "adacc/train.hpp"
#include "adacc/train/generate.hpp"
#include "llama_file.hpp"
#include "stored_run.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace streamed_weights_test {
namespace {

using namespace adacc;
using llama_file::Batch;
using llama_file::config;
using llama_file::model_file;
using stored_run::Ran;
using stored_run::same_bits;
using stored_run::train;
using train_test::Folder;
using train_test::says;
using train_test::write_file;

std::string put(const Folder& folder, const llama_file::GgufBytes& file) {
  write_file(folder / "model.gguf", file.file());
  return folder / "model.gguf";
}

llama::MappedModel opened(const std::string& path, WeightPages pages) {
  auto model = llama::MappedModel::open(path, nullptr, WeightForm::as_stored, pages);
  REQUIRE_MESSAGE(model, model.error.text());
  return static_cast<llama::MappedModel&&>(*model);
}

ConstBytes mapping_of(const llama::MappedModel& model) {
  return model.file().file_of(model.file()[0]);
}

#if defined(__linux__)
/// Bytes of a mapping that are in the process.
std::size_t resident(ConstBytes mapping) {
  std::ifstream maps("/proc/self/smaps");
  const auto begin = reinterpret_cast<std::uintptr_t>(mapping.data());
  std::string line;
  bool inside = false;
  while (std::getline(maps, line)) {
    unsigned long long from = 0, to = 0, kib = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &from, &to) == 2) inside = from == begin;
    if (inside && std::sscanf(line.c_str(), "Rss: %llu kB", &kib) == 1)
      return static_cast<std::size_t>(kib) * 1024;
  }
  FAIL("/proc/self/smaps lacks the mapping");
  return 0;
}
#endif

}  // namespace

TEST_CASE("streamed weights train adapters with the bits of resident ones") {
  const Folder folder;
  for (const bool tied : {false, true}) {
    const std::string path = put(folder, model_file(config(tied), tied ? 0 : 4));
    const auto model = opened(path, WeightPages::resident);
    const auto streamed = opened(path, WeightPages::streamed);
    const Lora lora{.rank = 4};
    const Ran whole = train<float>(model, lora, true, nullptr);
    const Ran ran = train<float>(streamed, lora, true, nullptr, 3);
    CHECK(same_bits(ran, whole));
    CHECK(same_bits(train<float>(streamed, lora, true, nullptr, 2, 3),
                    train<float>(model, lora, true, nullptr, 1, 3)));
    CHECK(same_bits(train<bfloat16>(streamed, lora, true, nullptr, 2),
                    train<bfloat16>(model, lora, true, nullptr)));
    CHECK(same_bits(train<float>(streamed, lora, true, "*norm*,*lora_*"),
                    train<float>(model, lora, true, "*norm*,*lora_*")));
    // At most a block of 2048 words of the head, gate and gated values of a layer in two tensors one behind the other, or the
    // whole file.
    std::size_t all = 0, most = 0;
    for (std::size_t i = 0; i < streamed.stored().size(); ++i) {
      const StoredParameter& parameter = streamed.stored().parameter(i);
      const std::size_t bytes = parameter.bytes();
      all += bytes;
      most = std::max(most, parameter.shape[0] == 2100 ? bytes / 2100 * 2048 : bytes);
    }
    most = std::min(all, most + 2 * most_fault_bytes);
    CHECK(ran.use.mapped == most);
    CHECK(whole.use.mapped == all);
  }
}

TEST_CASE("a total counts what a layer reads of streamed weights, and not their file") {
  // Nothing reads these numbers.
  static const std::byte nowhere{};
  const auto net =
      llama::make_lora({2, 16, 16, 2048, 5632, 64, 32000, 1e-5F, 1e4, true}, {.rank = 4});
  const auto whole = make_graph(net, Shape(1, 8));
  REQUIRE(whole);
  StoredParameters stored;
  std::size_t all = 0;
  for (const Parameter& parameter : whole->parameters) {
    if (!parameter.frozen || !parameter.owner) continue;
    StoredParameter rows;
    rows.shape = parameter.shape;
    rows.count = 1;
    rows.pieces[0] = {&block_format(GgufType::f32), &nowhere, parameter.shape.rows()};
    rows.pieces[0].release = &MappedFile::release;
    const Node* const node = parameter.node < 0 ? nullptr : &whole->node(parameter.node);
    const auto first = node == nullptr ? whole->loss.parameters.first : node->parameters.first;
    const auto index = static_cast<int>(&parameter - whole->parameters.data() -
                                        static_cast<std::ptrdiff_t>(first));
    stored.add({node == nullptr ? -1 : node->layer, node == nullptr ? 0 : node->copy, index}, rows);
    all += rows.bytes();
  }
  const auto graph = make_graph(net, Shape(1, 8), {.stored = &stored});
  REQUIRE_MESSAGE(graph, graph.error.text());
  CHECK(graph->stored_bytes == all);
  // Gate and gated values. The token table has 262 MB, of which the head reads 17 at a time.
  CHECK(graph->mapped_bytes == 2 * 5632 * 2048 * sizeof(float) + 2 * most_fault_bytes);
}

TEST_CASE("rows are released piece by piece, in whole groups where they take turns") {
  static std::vector<ConstBytes> released;
  released.clear();
  const std::vector<std::byte> bytes(1024);
  const auto note = [](ConstBytes, ConstBytes part) { released.push_back(part); };
  StoredParameter parameter;
  parameter.shape = Shape(16, 4);  // rows of 16 bytes
  parameter.count = 2;
  parameter.pieces[0] = {&block_format(GgufType::f32), bytes.data(), 10, 0, note};
  parameter.pieces[1] = {&block_format(GgufType::f32), bytes.data() + 512, 6, 2, note};
  parameter.release(8, 5);
  REQUIRE(released.size() == 2);
  CHECK(released[0].data() == bytes.data() + 8 * 16);
  CHECK(released[0].size() == 2 * 16);
  CHECK(released[1].data() == bytes.data() + 512);
  CHECK(released[1].size() == 4 * 16);
  parameter.release(13, 1);
  REQUIRE(released.size() == 3);
  CHECK(released[2].data() == bytes.data() + 512 + 2 * 16);
  CHECK(released[2].size() == 2 * 16);
}

TEST_CASE("copies and encoded weights are never streamed") {
  const gpt::Config sizes{2, 2, 64, 16, 70};
  const Folder folder;
  const auto graph = make_graph(gpt::make(sizes), Shape(1, 2));
  REQUIRE(graph);
  std::vector<float> numbers(graph->parameter_elems);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = unit_float(random_word({.seed = 8}, i)) - 0.5F;
  const LlmcHeader header{sizes.context, sizes.vocab, 2, sizes.heads, sizes.channels, sizes.vocab};
  REQUIRE(!write_gpt2<Graph, float>(folder / "", header, *graph,
                                    {numbers.data(), Shape(numbers.size())}));
  // Linear layers are copies, and tables stay in the file.
  const auto losses = [&](const gpt::MappedFolder& model) {
    const auto net = gpt::make_lora(model.config(), {.rank = 4});
    const Batch batch(sizes.vocab);
    TrainingOptions<Cpu, AdamW> options;
    options.seed = 5;
    options.graph.stored = &model.stored();
    auto training = Training<>::make(net, batch.shape, options);
    REQUIRE_MESSAGE(training, training.error.text());
    std::vector<double> all;
    for (int i = 0; i < 3; ++i) {
      const auto outcome = training->step(batch.input(), batch.targets(), 1e-2);
      REQUIRE_MESSAGE(outcome, outcome.error.text());
      all.push_back(outcome->loss);
    }
    CHECK(all[2] < all[0]);
    return all;
  };
  const auto model = gpt::MappedFolder::open(folder / "");
  REQUIRE(model);
  const auto streamed =
      gpt::MappedFolder::open(folder / "", nullptr, WeightForm::as_stored, WeightPages::streamed);
  REQUIRE_MESSAGE(streamed, streamed.error.text());
  CHECK(losses(*streamed) == losses(*model));
  for (std::size_t i = 0; i < streamed->stored().size(); ++i) {
    const StoredParameter& parameter = streamed->stored().parameter(i);
    const bool copied = parameter.pieces[0].data < streamed->file()[0].bytes.data() - 65536 ||
                        parameter.pieces[0].data > streamed->file()[0].bytes.data() + 1000000;
    CHECK(parameter.streams() != copied);
  }
  const auto encoded =
      gpt::MappedFolder::open(folder / "", nullptr, WeightForm::nf4, WeightPages::streamed);
  CHECK(says(encoded.error.text(), "all matrices are encoded in memory"));
}

#if defined(__linux__)
TEST_CASE("nothing of streamed weights stays in the process behind any part of a step") {
  const Folder folder;
  const std::string path = put(folder, model_file(config(false), 0));
  for (const WeightPages pages : {WeightPages::resident, WeightPages::streamed}) {
    const auto model = opened(path, pages);
    const ConstBytes mapping = mapping_of(model);
    const bool streams = pages == WeightPages::streamed;
    CHECK((resident(mapping) < mapping.size() / 2) == streams);  // all numbers were looked at
    const auto net = llama::make_lora(model.config(), {.rank = 4});
    const Batch batch(model.config().vocab);
    TrainingOptions<Cpu, AdamW> options;
    options.graph.stored = &model.stored();
    options.graph.parts = 2;
    auto training = Training<>::make(net, batch.shape, options);
    REQUIRE_MESSAGE(training, training.error.text());
    REQUIRE(!model.read(training->compiled_step().graph(), training->params()));
    MappedFile::release(mapping, mapping);
    CHECK(resident(mapping) == 0);
    REQUIRE(!training->begin(batch.input(), batch.targets()));
    std::size_t most = 0, parts = 0;
    for (bool ended = false; !ended; ++parts) {
      const auto slice = training->cursor().run(training->context(), 1);
      REQUIRE(slice);
      ended = slice->ended;
      const std::size_t now = resident(mapping);
      if (now > most) most = now;
    }
    CHECK(parts > 40);
    CHECK(most == (streams ? 0 : resident(mapping)));
    CHECK((2 * most > mapping.size()) == !streams);

    const auto network = generator_of(net);
    auto writer = Generator::make(network, {.context = 8, .stored = &model.stored()});
    REQUIRE_MESSAGE(writer, writer.error.text());
    const auto graph = make_graph(net, Shape(1, 2), {.stored = &model.stored()});
    REQUIRE(graph);
    auto params = Block<float>::make(graph->parameter_elems, "parameters");
    REQUIRE(params);
    std::memset(params->data(), 0, params->size() * sizeof(float));
    REQUIRE(!writer->take_memory());
    REQUIRE(!writer->bind(std::as_const(*params).view()));
    Cpu cpu;
    for (const std::size_t count : {5U, 1U}) {
      REQUIRE(writer->feed(cpu, {batch.x.data(), Shape(count)}));
      CHECK((resident(mapping) == 0) == streams);
    }
  }
}

TEST_CASE("releasing takes pages of the mapping around the bytes, and nothing outside of it") {
  constexpr std::size_t page = 65536, all = 8 << 20, before = 2 * page;
  void* const memory =
      ::mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  auto* const bytes = static_cast<std::byte*>(memory);
  const auto check = [&](std::size_t begin, std::size_t size, std::size_t from, std::size_t past) {
    std::memset(memory, 1, all);
    const ConstBytes mapping{bytes + before, Shape(all - 2 * before - 100)};
    MappedFile::release(mapping, {mapping.data() + begin, Shape(size)});
    // Memory that no file has is zero when it is back.
    const auto* const first = std::find(bytes, bytes + all, std::byte{});
    const auto* const end =
        std::find(first, static_cast<const std::byte*>(bytes + all), std::byte{1});
    CHECK(first == mapping.data() + from);
    CHECK(end == mapping.data() + past);
    CHECK(std::find(end, static_cast<const std::byte*>(bytes + all), std::byte{}) == bytes + all);
  };
  constexpr std::size_t around = most_fault_bytes, last = all - 2 * before;
  check(3 << 20, 10, (3 << 20) - around, (3 << 20) + around + 4096);  // in the middle
  check(5, 10, 0, around + 4096);                                     // at the beginning
  check(last - 5000, 100, last - page - around, last);  // at the end, whose page is not full
  ::munmap(memory, all);
}
#endif

}  // namespace streamed_weights_test
