// SPDX-License-Identifier: MIT
/// A decoder of the Hugging Face Hub whose frozen weights stay in mapped safetensors, or are encoded when it is opened.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "llama.hpp"
#include "mapped.hpp"
#include "safetensors.hpp"

namespace adacc { inline namespace v0_1 { namespace llama {

namespace detail {

/// A model in a folder, for Mapped.
struct InFolder {
  using File = SafeTensors;
  using Config = llama::Config;
  static auto read_config(const std::string& path, const SafeTensors&,
                          std::vector<std::string>* problems) {
    return llama::read_config(path, problems);
  }
  static ModelOutline outline(const Config& config) { return outline_of(config); }
  static Naming naming(const Config& config, const SafeTensors&) { return Naming(config); }
  static std::size_t turns(const Config&, const std::string&) { return 0; }
  static constexpr bool is_turned(const StoredParameters::Place&) { return false; }
  template <class Graph, class T>
  static Error read(const std::string& path, const Config& config, const Graph& graph,
                    View<T> params) {
    return read_parameters(path, config, graph, params);
  }
};

}  // namespace detail

/// As MappedModel (gguf_llama.hpp), of a folder with config.json and safetensors; matrices in other types than F32, F16
/// and BF16 are refused.
///
///     const auto model = llama::MappedFolder::open("TinyLlama", nullptr, WeightForm::nf4);
///     auto training = Training<>::make(net, Shape(4, 512), {.graph = {.stored = &model->stored()}});
using MappedFolder = Mapped<detail::InFolder>;

}}}  // namespace adacc::v0_1::llama
