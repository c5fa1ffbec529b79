// SPDX-License-Identifier: MIT
/// GPT-2 from GGUF files.
///
/// Linear layers are (out, in) there, as ours. Many files have the token table a second time as output head:
/// one that has other bytes is refused, since the network has one table for both.
#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "gguf.hpp"
#include "gguf_config.hpp"
#include "gpt2.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

inline constexpr Gpt2Names gguf_gpt2_names = {"blk.",
                                              {{"token_embd.weight", false},
                                               {"position_embd.weight", false},
                                               {"attn_norm.weight", false},
                                               {"attn_norm.bias", false},
                                               {"attn_qkv.weight", false},
                                               {"attn_qkv.bias", false},
                                               {"attn_output.weight", false},
                                               {"attn_output.bias", false},
                                               {"ffn_norm.weight", false},
                                               {"ffn_norm.bias", false},
                                               {"ffn_up.weight", false},
                                               {"ffn_up.bias", false},
                                               {"ffn_down.weight", false},
                                               {"ffn_down.bias", false},
                                               {"output_norm.weight", false},
                                               {"output_norm.bias", false}}};

/// Whether two tensors have the same numbers in the same blocks.
inline bool same_tensor(const GgufTensor& a, const GgufTensor& b) {
  return a.type == b.type && a.shape == b.shape && a.bytes.size() == b.bytes.size() &&
         std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0;
}

}  // namespace detail

/// The shape of the model in a GGUF file of architecture "gpt2", whose tensors are compared with it; errors
/// say what is not as it should be, and `problems`, if given, gets a line for each such thing.
inline Result<LlmcHeader> read_gguf_gpt2_config(const Gguf& file,
                                                std::vector<std::string>* problems = nullptr) {
  return detail::or_no_memory("to read a GGUF file", [&]() -> Result<LlmcHeader> {
    ModelConfig from = gguf_config(file, {"gpt2"});
    if (const Error why = from.error(problems)) return why;  // the other keys are not there
    LlmcHeader header;
    header.layers = from.layers("gpt2.block_count");
    header.heads = from.size("gpt2.attention.head_count");
    header.channels = from.size("gpt2.embedding_length");
    header.max_seq_len = from.size("gpt2.context_length");
    header.vocab_size = header.padded_vocab_size =
        from.size("gpt2.vocab_size", gguf_vocabulary(file));
    from.expect("gpt2.feed_forward_length", {std::to_string(4 * header.channels).c_str()});
    detail::expect_gpt2(from, header, "gpt2.attention.layer_norm_epsilon",
                        "gpt2.attention.head_count", "gpt2.embedding_length");
    const GgufTensor* const head = file.find("output.weight");
    const GgufTensor* const table = file.find("token_embd.weight");
    const bool twice = head != nullptr && table != nullptr && detail::same_tensor(*head, *table);
    if (head != nullptr && !twice)
      from.complain("output.weight is another than token_embd.weight, and has to be the same");
    if (const Error why = from.error(problems)) return why;
    const auto expected = [&](const Gguf&) {
      std::vector<ExpectedTensor> tensors =
          detail::gpt2_tensors(header, detail::gguf_gpt2_names, "");
      if (twice)
        tensors.push_back({"output.weight", Shape(header.vocab_size, header.channels), false});
      return tensors;
    };
    if (const Error why =
            compare_with_gguf(file, "gpt2.block_count", header.layers, expected, problems))
      return why;
    return header;
  });
}
inline Result<LlmcHeader> read_gguf_gpt2_config(const std::string& path,
                                                std::vector<std::string>* problems = nullptr) {
  const auto file = Gguf::open(path);
  if (!file) return file.error;
  return read_gguf_gpt2_config(*file, problems);
}

/// Reads the GGUF file at `path` into `params`, the block of a model with this graph, of `layers` layers.
/// Errors and `problems` as in load_pretrained().
template <class Graph, class T>
Error read_gguf_gpt2_parameters(const std::string& path, const Graph& graph, std::size_t layers,
                                View<T> params, std::vector<std::string>* problems = nullptr) {
  return detail::read_gpt2<Gguf>(
      path, graph, layers, params, detail::gguf_gpt2_names, [](const Gguf&) { return ""; },
      problems);
}

}}  // namespace adacc::v0_1
