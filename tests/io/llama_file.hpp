// SPDX-License-Identifier: MIT
/// GGUF files of a small Llama for tests, in blocks of all types, and a batch for it.
#pragma once

#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "adacc/core/any_view.hpp"
#include "adacc/core/random.hpp"
#include "adacc/io/weights/gguf_llama.hpp"
#include "gguf_bytes.hpp"

namespace llama_file {

using namespace adacc;
using gguf_test::GgufBytes;

/// Rows of 256, since some blocks have as many, and more words than the head takes at a time.
inline llama::Config config(bool tied) { return {2, 4, 2, 256, 1024, 16, 2100, 1e-5F, 1e4, tied}; }

/// Blocks of chance, with scales that keep numbers small.
inline std::string random_blocks(GgufType type, std::size_t elems, std::uint32_t tensor) {
  const detail::GgufTypeFacts& facts = detail::facts_of(type);
  std::string bytes;
  const auto number = [&](std::size_t i) {
    return 0.2F * (unit_float(random_word({.seed = 3, .activation = tensor}, i)) - 0.5F);
  };
  if (type == GgufType::f32)
    for (std::size_t i = 0; i < elems; ++i) bytes += gguf_test::raw(number(i));
  if (type == GgufType::bf16)
    for (std::size_t i = 0; i < elems; ++i) bytes += gguf_test::raw(to_bfloat16(number(i)).bits);
  if (!bytes.empty()) return bytes;
  bytes.resize(elems / facts.block_elems * facts.block_bytes);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(random_word({.seed = 3, .activation = tensor}, i));
  const auto set_half = [&](std::size_t at, std::uint16_t bits) {
    std::memcpy(bytes.data() + at, &bits, sizeof bits);
  };
  for (std::size_t at = 0; at < bytes.size(); at += facts.block_bytes) {
    const std::uint16_t small = facts.block_elems == 256 ? 0x0100 : 0x1400;  // 1.5e-5, 1e-3
    switch (type) {
      case GgufType::f16: bytes[at + 1] = static_cast<char>(bytes[at + 1] & 0xA7); break;
      case GgufType::q6_k: set_half(at + 208, 0x0040); break;
      case GgufType::q4_0:
      case GgufType::q5_0:
      case GgufType::q8_0: set_half(at, small); break;
      default: set_half(at, small), set_half(at + 2, small);
    }
  }
  return bytes;
}

/// A file of the network, its tensors of the first `types` types in turn from number `first` on.
inline GgufBytes model_file(const llama::Config& of, std::size_t first,
                            std::size_t types = std::size(detail::gguf_types)) {
  GgufBytes file;
  file.text("general.architecture", "llama");
  const auto number = [&](const char* key, std::size_t n) {
    file.number(std::string("llama.") + key, static_cast<std::uint32_t>(n));
  };
  number("block_count", static_cast<std::size_t>(of.layers));
  number("attention.head_count", of.heads);
  number("attention.head_count_kv", of.kv_heads);
  number("embedding_length", of.channels);
  number("feed_forward_length", of.hidden);
  number("context_length", of.context);
  number("vocab_size", of.vocab);
  file.real("llama.attention.layer_norm_rms_epsilon", of.epsilon);
  std::uint32_t tensor = 0;
  const llama::Naming naming(of, llama::gguf_names);
  for (const ExpectedTensor& expected : expected_tensors(llama::outline_of(of), naming)) {
    const Shape& shape = expected.extents;
    if (shape.rank() == 1) {
      file.floats(expected.name, {shape[0]}, std::vector<float>(shape[0], 0.9F));
      continue;
    }
    const auto& facts = detail::gguf_types[(first + tensor) % types];
    file.tensor(expected.name, {shape[0], shape[1]}, static_cast<std::uint32_t>(facts.type),
                random_blocks(facts.type, shape.elems(), ++tensor));
  }
  return file;
}

struct Batch {
  Shape shape{2, 8};
  std::vector<std::int32_t> x, y;
  explicit Batch(std::size_t vocab) {
    for (std::size_t i = 0; i < shape.elems(); ++i) {
      x.push_back(static_cast<std::int32_t>(i * 37 % vocab));
      y.push_back(static_cast<std::int32_t>(i * 53 % vocab));
    }
  }
  AnyView input() const { return View<const std::int32_t>(x.data(), shape); }
  AnyView targets() const { return View<const std::int32_t>(y.data(), shape); }
};

}  // namespace llama_file
