// SPDX-License-Identifier: MIT
/// The tokenizer beside a model's weights.
#pragma once

#include <adacc/core/read_number.hpp>
#include <adacc/io/tokenizer/gguf_tokenizer.hpp>
#include <adacc/io/tokenizer/read_tokenizer.hpp>
#include <adacc/io/weights/json_reader.hpp>
#include <adacc/io/weights/pretrained.hpp>

#include <cstdint>
#include <limits>
#include <string>

#include "weights.hpp"

namespace chat_tune {

/// The token that a member of config.json names, or the first one of its list; -1: none.
inline std::int32_t token_of(const adacc::ModelConfig& config, const char* name) {
  const std::string text = config.raw(name);
  adacc::JsonReader json(text);
  std::uint64_t first = 0;
  bool found = false;
  const auto number = [&] {
    std::uint64_t next = 0;
    if (!json.whole_number(next)) return false;
    if (!found) first = next;
    return found = true;
  };
  const bool good = text.starts_with('[') ? json.array(number) : number();
  return good && found && first <= std::numeric_limits<std::int32_t>::max()
             ? static_cast<std::int32_t>(first)
             : -1;
}

inline adacc::Result<adacc::Tokenizer> tokenizer_of(const Weights& weights) {
  using namespace adacc;
  const std::string& folder = weights.folder();
  if (folder.empty())
    return weights.visit([](const auto& mapped) -> Result<Tokenizer> {
      if constexpr (is_in_gguf<decltype(mapped)>) return read_gguf_tokenizer(mapped.file());
      else return Error::misuse("safetensors have no tokenizer");
    });
  const auto config = ModelConfig::open(folder);
  if (!config) return config.error;
  const TextEnds ends{token_of(*config, "bos_token_id"), token_of(*config, "eos_token_id")};
  if (is_there(folder + "/tokenizer.json")) return read_tokenizer(folder, ends);
  if (weights.sizes().family != "gpt2")
    return Error::say(
        one_line(folder, 80).c_str(),
        ": vocab.json and merges.txt do not say how words are cut, and those of GPT-2 "
        "alone are known: a tokenizer.json is needed");
  return read_vocabulary(folder, PreTokenizer::gpt2, {"<|endoftext|>"}, ends);
}

}  // namespace chat_tune
