// SPDX-License-Identifier: MIT
// Writes a tiny Llama as a GGUF file, with a tokenizer of single letters: write_language_model FILE.
#include <adacc/core/random.hpp>
#include <adacc/io/file.hpp>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "../io/gguf_bytes.hpp"

namespace {

constexpr std::size_t channels = 32, heads = 4, kv_heads = 2, hidden = 48, context = 96;

class Writer {
 public:
  void add(const std::string& name, const std::vector<std::size_t>& shape, float middle,
           float width) {
    std::size_t elems = 1;
    for (const std::size_t extent : shape) elems *= extent;
    std::vector<float> numbers(elems);
    const adacc::RandomKey key{1, 0, 0, ++tensors_};
    for (std::size_t i = 0; i < elems; ++i)
      numbers[i] = middle + width * (adacc::unit_float(adacc::random_word(key, i)) - 0.5F);
    file.floats(name, shape, numbers);
  }

  gguf_test::GgufBytes file;

 private:
  std::uint32_t tensors_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::vector<std::string> tokens{"<|im_start|>", "<|im_end|>", "\xC4\xA0",
                                  "\xC4\x8A"};  // a space, the end of a line
  for (char c = '!'; c <= '~'; ++c) tokens.emplace_back(1, c);
  std::string kinds;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    kinds += gguf_test::raw<std::int32_t>(i < 2 ? 3 : 1);

  Writer model;
  gguf_test::GgufBytes& file = model.file;
  file.text("general.architecture", "llama");
  file.number("llama.block_count", 2);
  file.number("llama.attention.head_count", heads);
  file.number("llama.attention.head_count_kv", kv_heads);
  file.number("llama.embedding_length", channels);
  file.number("llama.feed_forward_length", hidden);
  file.number("llama.context_length", context);
  file.real("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  file.text("tokenizer.ggml.model", "gpt2");
  file.text("tokenizer.ggml.pre", "gpt-2");
  file.texts("tokenizer.ggml.tokens", tokens);
  file.array("tokenizer.ggml.token_type", adacc::GgufKind::i32, tokens.size(), kinds);
  file.texts("tokenizer.ggml.merges", {});
  file.number("tokenizer.ggml.eos_token_id", 1);
  model.add("token_embd.weight", {tokens.size(), channels}, 0, 1);
  model.add("output_norm.weight", {channels}, 1, 0.1F);
  for (int l = 0; l < 2; ++l) {
    const std::string block = "blk." + std::to_string(l) + ".";
    const std::size_t keys = channels / heads * kv_heads;
    model.add(block + "attn_norm.weight", {channels}, 1, 0.1F);
    model.add(block + "attn_q.weight", {channels, channels}, 0, 0.5F);
    model.add(block + "attn_k.weight", {keys, channels}, 0, 0.5F);
    model.add(block + "attn_v.weight", {keys, channels}, 0, 0.5F);
    model.add(block + "attn_output.weight", {channels, channels}, 0, 0.5F);
    model.add(block + "ffn_norm.weight", {channels}, 1, 0.1F);
    model.add(block + "ffn_gate.weight", {hidden, channels}, 0, 0.5F);
    model.add(block + "ffn_up.weight", {hidden, channels}, 0, 0.5F);
    model.add(block + "ffn_down.weight", {channels, hidden}, 0, 0.5F);
  }
  const adacc::Error why = adacc::write_file(argv[1], file.file());
  if (why) std::fprintf(stderr, "%s\n", why.text());
  return why ? 1 : 0;
}
