// SPDX-License-Identifier: MIT
/// The parameters that --model names, of a checkpoint, of an llm.c checkpoint, or of a GPT-2 of Hugging
/// Face; and those that --export and --merge write.
#pragma once

#include <adacc/core/error.hpp>
#include <adacc/io/checkpoint.hpp>
#include <adacc/io/weights/adapters.hpp>
#include <adacc/io/weights/gpt2.hpp>
#include <adacc/io/weights/int8_tensors.hpp>
#include <adacc/io/weights/llmc.hpp>
#include <adacc/io/weights/weights_header.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/train/file_order.hpp>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "options.hpp"

/// Of a model of which several things are wrong, a line for each; a single one is in the error itself.
inline void print_problems(const std::vector<std::string>& problems) {
  if (problems.size() < 2) return;
  for (const std::string& problem : problems)
    std::fprintf(stderr, "train_gpt: %s\n", problem.c_str());
}

/// The shape of what --model names, which is no checkpoint of ours. `speaks`: problems are printed.
inline adacc::Result<adacc::LlmcHeader> read_model_shape(const Options& options, bool speaks) {
  if (!adacc::is_gpt2_safetensors(options.model)) return adacc::read_llmc_header(options.model);
  std::vector<std::string> problems;
  auto header = adacc::read_gpt2_config(options.model, &problems);
  if (speaks) print_problems(problems);
  if (header)  // its tensors were compared with it, if there are any
    if (const auto tensors = adacc::SafeTensors::open(options.model); !tensors)
      return tensors.error;
  return header;
}

/// What is wrong with the network that a checkpoint says it is of: nothing is made of a few words that the
/// file's numbers do not bear out.
inline adacc::Error check_described(const adacc::gpt::Config& c,
                                    const adacc::CheckpointInfo& info) {
  const auto layers = static_cast<std::size_t>(c.layers);
  const bool sensible = c.layers > 0 && layers <= adacc::most_model_layers && c.heads > 0 &&
                        c.channels > 0 && c.channels < INT_MAX && c.vocab > 0 && c.context > 0;
  std::size_t bytes = 0;
  if (sensible &&
      adacc::detail::llmc_file_bytes({c.context, c.vocab, layers, c.heads, c.channels, c.vocab},
                                     bytes) &&
      (bytes - adacc::llmc_header_bytes) / sizeof(float) <= info.parameter_elems)
    return {};
  return adacc::Error::say("is of \"", adacc::one_line(info.model, 100).c_str(),
                           "\", which is more than its ", info.parameter_elems, " parameters");
}

/// Of the same model without adapters, all of it trained: as checkpoints have it.
inline adacc::Result<adacc::Graph> plain_graph(const Options& options) {
  return adacc::gpt::graph(options.network, options.batch, options.seq, options.workers());
}

/// The parameters of the checkpoint --model, to where `graph` has them.
inline adacc::Error read_checkpoint_parameters(const Options& options, const adacc::Graph& graph,
                                               adacc::View<float> params) {
  using namespace adacc;
  const Result<Graph> plain = plain_graph(options);
  if (!plain) return plain.error;
  auto file = CheckpointFile::open(options.model);
  if (!file) return file.error;
  if (file->info().layout != adacc::detail::layout_of(*plain) ||
      file->info().parameter_elems != plain->parameter_elems)
    return Error::say(one_line(options.model, 80).c_str(),
                      ": holds other parameters than its description says");
  std::vector<float> block(plain->parameter_elems);
  if (const Error why = file->read_parameters(View<float>(block.data(), Shape(block.size()))))
    return why;
  adacc::detail::each_parameter(*plain, graph,
                                [&](std::size_t in_file, std::size_t at, std::size_t elems) {
                                  std::copy_n(block.data() + in_file, elems, params.data() + at);
                                });
  return {};
}

/// What --model names, to where `graph` has it, whose block is `params`; its adapters stay as they are.
/// Tensors that are missing or of another shape are all printed.
inline adacc::Error read_model(const Options& options, const adacc::Graph& graph,
                               adacc::View<float> params) {
  const adacc::Graph plain = adacc::without_adapters(graph);
  if (adacc::is_checkpoint(options.model))
    return read_checkpoint_parameters(options, plain, params);
  if (!adacc::is_gpt2_safetensors(options.model))
    return adacc::read_llmc_parameters(options.model, plain, params);
  std::vector<std::string> problems;
  const adacc::Error why = adacc::read_gpt2_parameters(
      options.model, plain, static_cast<std::size_t>(options.network.layers), params, &problems);
  print_problems(problems);
  return why;
}

/// Writes the model whose parameters are `params`, as `graph` has them, any adapters merged, to --export.
inline adacc::Error write_model(const Options& options, const adacc::Graph& graph,
                                adacc::View<const float> params) {
  const adacc::gpt::Config& c = options.network;
  const adacc::LlmcHeader shape{c.context, c.vocab,    static_cast<std::size_t>(c.layers),
                                c.heads,   c.channels, c.vocab};
  const adacc::Graph plain = adacc::without_adapters(graph);
  if (exports_header(options.export_to)) {
    const std::vector<adacc::NamedTensor> tensors = adacc::named_parameters(plain, params);
    if (!options.export_int8) return adacc::write_weights_header(options.export_to, tensors);
    const auto int8 = adacc::Int8Tensors::make(tensors);
    if (!int8) return int8.error;
    return adacc::write_weights_header(options.export_to, int8->tensors());
  }
  return adacc::write_gpt2<adacc::Graph, float>(options.export_to, shape, plain, params);
}

/// Writes a checkpoint of these parameters alone to --merge. They are `updates` updates old.
inline adacc::Error write_merged(const Options& options, const adacc::Graph& graph,
                                 adacc::View<const float> params, std::uint64_t updates) {
  using namespace adacc;
  const Graph held = without_adapters(graph);
  const Result<Graph> plain = plain_graph(options);
  if (!plain) return plain.error;
  std::vector<float> block(plain->parameter_elems);
  adacc::detail::each_parameter(*plain, held,
                                [&](std::size_t in_file, std::size_t at, std::size_t elems) {
                                  std::copy_n(params.data() + at, elems, block.data() + in_file);
                                });
  CheckpointInfo info;
  info.model = gpt::describe(options.network);
  info.optimizer = "none";
  info.updates = updates;
  info.key.seed = options.seed;
  info.layout = adacc::detail::layout_of(*plain);
  info.graph = plain->fingerprint;
  return save_checkpoint<float>(options.merge, info,
                                View<const float>(block.data(), Shape(block.size())), {});
}
