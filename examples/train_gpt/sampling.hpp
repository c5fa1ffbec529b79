// SPDX-License-Identifier: MIT
/// Text that a GPT writes, byte by byte, on the CPU.
#pragma once

#include <adacc/core/block.hpp>
#include <adacc/core/cpu.hpp>
#include <adacc/core/random.hpp>
#include <adacc/core/view.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/train/inference.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

/// An index drawn from softmax(logits) by the random word.
inline std::size_t drawn_index(const float* logits, std::size_t count, std::uint32_t word) {
  double largest = logits[0], sum = 0;
  for (std::size_t i = 1; i < count; ++i) largest = std::max<double>(largest, logits[i]);
  for (std::size_t i = 0; i < count; ++i) sum += std::exp(logits[i] - largest);
  double left = sum * static_cast<double>(adacc::unit_float(word));
  for (std::size_t i = 0; i < count; ++i) {
    left -= std::exp(logits[i] - largest);
    if (left < 0) return i;
  }
  return count - 1;
}

/// `count` bytes behind a newline. `inference` is of one sequence, and bound; `weights`
/// are all parameters of its graph, with a vocabulary of `vocab`. Numbers are drawn by the context's seed.
template <class T>
adacc::Result<std::string> sampled_text(const adacc::gpt::Gpt<adacc::gpt::RetainSet>& network,
                                        adacc::Cpu& cpu, adacc::Inference<T>& inference,
                                        const float* weights, std::size_t vocab,
                                        std::size_t count) {
  using namespace adacc;
  const Graph& graph = inference.graph();
  const std::size_t context = graph.input.elems();
  const std::size_t c = graph.output().elems() / context;
  auto tokens = Block<std::int32_t>::make(context, "tokens");
  auto logits = Block<float>::make(vocab, "logits");
  auto scratch = Block<std::byte>::make(
      network.loss.logits_workspace_bytes(Shape(1, c), dtype_of<T>, cpu.workers()), "scratch");
  if (!tokens) return tokens.error;
  if (!logits) return logits.error;
  if (!scratch) return scratch.error;
  const RandomKey key = cpu.key.with_purpose(Purpose::sampling);
  std::string text = "\n";
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t seen = std::min(text.size(), context);
    for (std::size_t t = 0; t < context; ++t)
      tokens->data()[t] = t < seen ? static_cast<unsigned char>(text[text.size() - seen + t]) : 0;
    const View<const std::int32_t> window(tokens->data(), Shape(1, context));
    const auto last = inference.infer(cpu, window);
    if (!last) return last.error;
    network.loss.template logits<T>(
        cpu, {weights, graph.parameters.data() + graph.loss.parameters.first, 1},
        View<const T>(last->data() + (seen - 1) * c, Shape(1, c)),
        View<float>(logits->data(), Shape(1, vocab)), {scratch->data(), Shape(scratch->size())});
    text += static_cast<char>(drawn_index(logits->data(), vocab, random_word(key, i)));
  }
  return text.substr(1);
}
