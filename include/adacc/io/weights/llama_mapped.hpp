// SPDX-License-Identifier: MIT
/// A decoder of the Hugging Face Hub whose frozen weights stay in mapped safetensors, or are encoded when it is opened.
#pragma once

#include <string>
#include <vector>

#include "gguf_stored.hpp"
#include "llama.hpp"
#include "weight_forms.hpp"

namespace adacc { inline namespace v0_1 { namespace llama {

/// As MappedModel (gguf_llama.hpp), of a folder with config.json and safetensors:
///
///     const auto model = llama::MappedFolder::open("TinyLlama", nullptr, WeightForm::nf4);
///     auto training = Training<>::make(net, Shape(4, 512), {.graph = {.stored = &model->stored()}});
class MappedFolder {
 public:
  /// Errors and `problems` as of read_config(). Numbers that are not finite are refused, and matrices in other types than
  /// F32, F16 and BF16.
  static Result<MappedFolder> open(const std::string& path,
                                   std::vector<std::string>* problems = nullptr,
                                   WeightForm form = WeightForm::as_stored) {
    return adacc::detail::or_no_memory("to map a model", [&]() -> Result<MappedFolder> {
      const auto config = read_config(path, problems);
      if (!config) return config.error;
      Result<SafeTensors> file = SafeTensors::open(path);
      if (!file) return file.error;
      Result<StoredParameters> stored =
          stored_parameters(*file, path, outline_of(*config), Naming(*config),
                            [](const std::string&) { return std::size_t{0}; });
      if (!stored) return stored.error;
      MappedFolder made;
      made.path_ = path;
      made.config_ = *config;
      made.file_ = static_cast<SafeTensors&&>(*file);
      auto weights = EncodedWeights::make(*stored, form);
      if (!weights) return weights.error;
      made.weights_ = static_cast<EncodedWeights&&>(*weights);
      for (const auto& tensor : made.file_)
        if (made.encoded_bytes() != 0) MappedFile::forget(tensor.bytes);
      return made;
    });
  }

  const Config& config() const { return config_; }
  const SafeTensors& file() const { return file_; }
  const StoredParameters& stored() const { return weights_.stored(); }
  /// Bytes of memory that encoded weights take.
  std::size_t encoded_bytes() const { return weights_.bytes(); }

  /// Reads the model's parameters that `params`, the block of `graph`, has.
  template <class Graph, class T>
  Error read(const Graph& graph, View<T> params) const {
    if (const Error why = read_parameters(path_, config_, graph, params)) return why;
    if (encoded_bytes() != 0) weights_.read(graph, params);
    return {};
  }

 private:
  std::string path_;
  Config config_;
  SafeTensors file_;
  EncodedWeights weights_;
};

}}}  // namespace adacc::v0_1::llama
