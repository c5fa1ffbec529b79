// SPDX-License-Identifier: MIT
// GGUF files that are written: blocks as the PyPI package gguf encodes them, adapters and merged models for llama.cpp.
#include "adacc/io/weights/write_gguf.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "../train/support.hpp"
#include "adacc/io/weights/gguf_model_write.hpp"
#include "adacc/train.hpp"
#include "llama_file.hpp"

namespace gguf_write_test {
namespace {

using namespace adacc;
using llama_file::Batch;
using train_test::Folder;
using train_test::write_file;

bool says(const Error& error, const char* piece) { return train_test::says(error.text(), piece); }

std::string hex(const std::vector<std::byte>& bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    constexpr const char* digits = "0123456789abcdef";
    text += digits[static_cast<unsigned>(byte) >> 4];
    text += digits[static_cast<unsigned>(byte) & 15];
  }
  return text;
}

std::vector<float> numbers_of(const GgufTensor& tensor) {
  std::vector<float> numbers(tensor.elems());
  decode_blocks(tensor.type, tensor.bytes.data(), {numbers.data(), Shape(numbers.size())});
  return numbers;
}

const Lora lora{.rank = 3, .alpha = 6};
const AdapterShape adapter{3, 6};

/// A network above a file, with adapters of chance and another norm.
struct Tuned {
  Folder folder;
  std::string path;
  llama::MappedModel model;
  decltype(llama::make_lora(llama::Config{}, Lora{})) net;
  Graph graph;
  std::vector<float> params;

  explicit Tuned(bool stored = true)
      : path(folder / "model.gguf"), model(opened(path)),
        net(llama::make_lora(model.config(), lora)) {
    const auto plain = make_graph(net, Batch(2).shape);
    REQUIRE_MESSAGE(plain, plain.error.text());
    const auto trained = trained_by_name(*plain, "*lora_*,*norm*");
    REQUIRE_MESSAGE(trained, trained.error.text());
    auto made = make_graph(net, Batch(2).shape,
                           {.trained = &*trained, .stored = stored ? &model.stored() : nullptr});
    REQUIRE_MESSAGE(made, made.error.text());
    graph = *made;
    params.resize(graph.parameter_elems);
    for (std::size_t i = 0; i < graph.gradient_elems; ++i)
      params[i] = unit_float(random_word({.seed = 9}, i)) - 0.5F;
    REQUIRE(!model.read(graph, view()));
  }
  static llama::MappedModel opened(const std::string& path) {
    write_file(path, llama_file::model_file(llama_file::config(true), 1).file());
    auto model = llama::MappedModel::open(path);
    REQUIRE_MESSAGE(model, model.error.text());
    return static_cast<llama::MappedModel&&>(*model);
  }
  View<float> view() { return {params.data(), Shape(params.size())}; }
  View<const float> view() const { return {params.data(), Shape(params.size())}; }
};

/// The loss of a network whose block is `params`.
template <class Net>
double loss_of(const Net& net, const Graph& graph, const std::vector<float>& params) {
  auto pass = Inference<>::make(make_dispatch<float, Cpu>(net), graph, Mode::evaluate);
  REQUIRE_MESSAGE(pass, pass.error.text());
  REQUIRE(!pass->take_memory());
  REQUIRE(!pass->copy_parameters({params.data(), Shape(params.size())}));
  const Batch batch(2000);
  Cpu cpu;
  const auto loss = pass->evaluate(cpu, batch.input(), batch.targets());
  REQUIRE_MESSAGE(loss, loss.error.text());
  return *loss;
}

}  // namespace

TEST_CASE("numbers are encoded as by the PyPI package gguf") {
  std::vector<float> x(32);
  for (std::size_t i = 0; i < 32; ++i)
    x[i] = static_cast<float>((static_cast<int>(i) * 37 % 64 - 31) / 16.0 *
                              (1 + static_cast<double>(i) / 64));
  const auto encoded = [&](GgufType type) {
    const detail::GgufTypeFacts& facts = detail::facts_of(type);
    std::vector<std::byte> bytes(32 / facts.block_elems * facts.block_bytes);
    encode_blocks(type, x.data(), 32, bytes.data());
    return hex(bytes);
  };
  CHECK(encoded(GgufType::f16) ==
        "c0bf18366abd303cd8b9023f60acc4bf103922bd7e3db0b84e40d0309ebf683bb0bcf63e68b6304190364ebf0a"
        "3d14bc4c4090b119c1b039d4be8a3e9cba3241");
  CHECK(encoded(GgufType::bf16) ==
        "f8bfc33eadbf863f3bbfe03f8cbdf8bf223fa4bfb03f16bf0a401a3ef4bf6d3f96bfdf3fcdbe2640d23eeabfa1"
        "3f82bf0a4032be23c0363fdabfd13f54bf2640");
  CHECK(encoded(GgufType::q8_0) ==
        "3c25a113be33dc56fda11fc143e36907a32dc755ec7f14a73ece69f88323ad50d87f");
  CHECK(encoded(GgufType::q4_0) == "32b5ce379c057ae348be169cf46ad138be05");
  CHECK(encoded(GgufType::q4_1) == "7d3519c142d963fa952db742e9740ba62ec852fa");

  const float edges[] = {0,     -0.0F, 1e-8F, 6e-8F, 5.97e-8F,  -3.1e-5F,    6.1e-5F,
                         65504, 65519, 65520, 1e6F,  0.333333F, -2.0000002F, 1.0004883F};
  const std::uint16_t halves[] = {0,     32768, 0,     1,     1,     33288, 1023,
                                  31743, 31743, 31744, 31744, 13653, 49152, 15360};
  for (std::size_t i = 0; i < std::size(edges); ++i) {
    CAPTURE(edges[i]);
    CHECK(detail::half_bits(edges[i]) == halves[i]);
  }
  // A block of zeros has no largest number.
  x.assign(32, 0);
  for (const GgufType type : {GgufType::q8_0, GgufType::q4_0, GgufType::q4_1}) {
    const detail::GgufTypeFacts& facts = detail::facts_of(type);
    std::vector<std::byte> bytes(facts.block_bytes);
    encode_blocks(type, x.data(), 32, bytes.data());
    std::vector<float> back(32, 1);
    decode_blocks(type, bytes.data(), {back.data(), Shape(32)});
    for (const float number : back) CHECK(number == 0);
  }
}

TEST_CASE("adapters go to a GGUF file by the file's tensors, and come back") {
  const Tuned tuned;
  const std::string path = tuned.folder / "adapters.gguf";
  const Error why =
      write_gguf_adapters(path, tuned.model.config(), tuned.graph, tuned.view(), adapter);
  REQUIRE_MESSAGE(!why, why.text());
  const auto file = Gguf::open(path);
  REQUIRE_MESSAGE(file, file.error.text());
  CHECK(file->size() == 2 * 2 * 7);
  CHECK(file->architecture() == "llama");
  const auto shape = read_gguf_adapter_shape(path);
  REQUIRE_MESSAGE(shape, shape.error.text());
  CHECK(shape->rank == 3);
  CHECK(shape->alpha == 6);
  // The second row of queries in the file is the first of the head's other half.
  const Parameter* b = nullptr;
  for (const Parameter& parameter : tuned.graph.parameters)
    if (std::string(parameter.name) == "lora_b" && b == nullptr) b = &parameter;
  REQUIRE(b != nullptr);
  const GgufTensor* const queries = file->find("blk.0.attn_q.weight.lora_b");
  REQUIRE(queries != nullptr);
  CHECK(queries->shape == std::vector<std::size_t>{256, 3});
  CHECK(numbers_of(*queries)[3] == tuned.params[b->offset + 32 * 3]);

  Tuned fresh;
  const std::vector<float> others = fresh.params;
  for (std::size_t i = 0; i < fresh.graph.gradient_elems; ++i) fresh.params[i] = 0;
  REQUIRE(!fresh.model.read(fresh.graph, fresh.view()));
  const Error read = read_gguf_adapters(path, fresh.model.config(), fresh.graph, fresh.view());
  REQUIRE_MESSAGE(!read, read.text());
  CHECK(fresh.params == others);
  CHECK(fresh.params == tuned.params);

  CHECK(says(read_gguf_adapter_shape(tuned.path).error, "is no adapter"));
  CHECK(says(read_gguf_adapters(tuned.path, fresh.model.config(), fresh.graph, fresh.view()),
             "\"blk.0.attn_q.weight.lora_a\" is missing"));
  const auto other = llama::make_lora(fresh.model.config(), {.rank = 4});
  const auto graph = make_graph(other, Batch(2).shape, {.stored = &fresh.model.stored()});
  REQUIRE(graph);
  CHECK(says(read_gguf_adapters(path, fresh.model.config(), *graph, fresh.view()),
             "\"blk.0.attn_q.weight.lora_a\" is (3, 256), not (4, 256)"));
}

TEST_CASE("a merged model computes what the tuned one does, as well as its numbers can") {
  const Tuned tuned, full(false);
  const double loss = loss_of(tuned.net, tuned.graph, tuned.params);
  const auto merged_loss = [&](const Tuned& from, GgufType type) {
    const std::string path = from.folder / "merged.gguf";
    const Error why = write_gguf(path, from.model, from.graph, from.view(), adapter, type);
    REQUIRE_MESSAGE(!why, why.text());
    const auto config = llama::read_gguf_config(path);
    REQUIRE_MESSAGE(config, config.error.text());
    const auto net = llama::make(*config);
    const auto graph = make_graph(net, Batch(2).shape);
    REQUIRE(graph);
    std::vector<float> params(graph->parameter_elems);
    REQUIRE(!llama::read_gguf_parameters(path, *config, *graph,
                                         View<float>(params.data(), Shape(params.size()))));
    return loss_of(net, *graph, params);
  };
  const double exact = merged_loss(tuned, GgufType::f32);
  CHECK(std::abs(exact - loss) < 1e-4);
  CHECK(merged_loss(full, GgufType::f32) == exact);
  CHECK(std::abs(merged_loss(tuned, GgufType::f16) - loss) < 0.01);
  CHECK(std::abs(merged_loss(tuned, GgufType::bf16) - loss) < 0.05);
  CHECK(std::abs(merged_loss(tuned, GgufType::q8_0) - loss) < 0.1);
  CHECK(std::abs(merged_loss(tuned, GgufType::q4_1) - loss) < 0.5);
  CHECK(std::abs(merged_loss(tuned, GgufType::q4_0) - loss) < 0.5);
}

TEST_CASE("a file that cannot be written is not begun") {
  Tuned tuned;
  const std::string path = tuned.folder / "merged.gguf";
  const auto write = [&](const std::string& to, GgufType type) {
    return write_gguf(to, tuned.model, tuned.graph,
                      View<const float>(tuned.params.data(), Shape(tuned.params.size())), adapter,
                      type);
  };
  CHECK(says(write(path, GgufType::q4_k), "cannot be written in Q4_K: F32, F16, BF16, Q8_0"));
  CHECK(says(write(tuned.path, GgufType::f16), "is the file that the model is read from"));
  CHECK(says(write(tuned.folder / "none/merged.gguf", GgufType::f16), "cannot be written"));
  tuned.params[0] = std::numeric_limits<float>::quiet_NaN();
  CHECK(says(write(path, GgufType::f16), "has NaN or an infinity in row"));
  CHECK(tuned.folder.entries() == 1);

  GgufWriter writer;
  writer.tensor("odd", GgufType::q8_0, {2, 33});
  CHECK(says(writer.begin(path), "\"odd\" has rows of 33, and blocks of Q8_0 have 32"));
  GgufWriter half;
  half.tensor("whole", GgufType::f32, {2, 2});
  REQUIRE(!half.begin(path));
  const float row[] = {1, 2};
  REQUIRE(!half.row({row, Shape(2)}));
  CHECK(says(half.end(), "is not written to its end"));
}

}  // namespace gguf_write_test
