// SPDX-License-Identifier: MIT
/// A model whose frozen weights stay in a mapped file, or are encoded when it is opened.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "gguf_stored.hpp"
#include "pretrained.hpp"
#include "weight_forms.hpp"

namespace adacc { inline namespace v0_1 {

/// llama::MappedModel (gguf_llama.hpp), llama::MappedFolder (llama_mapped.hpp), or those of gpt:: (gpt_mapped.hpp), by a `Source`:
///
/// - File, Config: the classes of the file and of the network's sizes;
/// - read_config, read: the readers of both;
/// - outline(config), naming(config, file): the network's parameters, and their tensors;
/// - turns(config, name): StoredRows::turns of a tensor; is_turned(place): whether a parameter's tensor lies transposed.
///
/// read() reads the parameters that the file has and the network trains: norms, or biases, chosen by
/// GraphOptions::trained. The model outlives all that runs its network. With a WeightForm matrices that the file has in 16
/// or 32 bits are encoded when it is opened, and take memory in place of the file's pages; all that reads weights gets the
/// encoded ones. WeightPages::streamed lets a training, or a talk, hold in memory no more of the file than the layer that
/// runs reads; it needs a matrix that stays there.
template <class Source>
class Mapped {
 public:
  using File = typename Source::File;
  using Config = typename Source::Config;

  /// Errors and `problems` as of the reader of the configuration. Numbers that are not finite are refused, too.
  static Result<Mapped> open(const std::string& path, std::vector<std::string>* problems = nullptr,
                             WeightForm form = WeightForm::as_stored,
                             WeightPages pages = WeightPages::resident) {
    Result<File> file = File::open(path);
    if (!file) return file.error;
    return open(path, static_cast<File&&>(*file), problems, form, pages);
  }
  /// The same of the file at `path`, which is open already.
  static Result<Mapped> open(const std::string& path, File file, std::vector<std::string>* problems,
                             WeightForm form, WeightPages pages = WeightPages::resident) {
    return detail::or_no_memory("to map a model", [&]() -> Result<Mapped> {
      const auto config = Source::read_config(path, file, problems);
      if (!config) return config.error;
      Result<StoredParameters> stored = stored_parameters(
          file, path, Source::outline(*config), Source::naming(*config, file),
          [&](const std::string& name) { return Source::turns(*config, name); }, pages);
      if (!stored) return stored.error;
      Mapped made;
      made.path_ = path;
      made.config_ = *config;
      made.file_ = static_cast<File&&>(file);
      auto weights = EncodedWeights::make(*stored, form, Source::is_turned);
      if (!weights) return weights.error;
      made.weights_ = static_cast<EncodedWeights&&>(*weights);
      if (made.weights_.bytes() != 0) made.file_.forget_pages();
      if (pages == WeightPages::streamed && !has_streamed_matrix(made.stored()))
        return Error::say(one_line(path, 80).c_str(),
                          ": weights cannot be streamed from the file, as all matrices are ",
                          form == WeightForm::as_stored ? "copies" : "encoded", " in memory");
      return static_cast<Mapped&&>(made);  // nvcc would copy it
    });
  }

  const Config& config() const { return config_; }
  const File& file() const { return file_; }
  const StoredParameters& stored() const { return weights_.stored(); }
  /// Bytes of memory that encoded weights take.
  std::size_t encoded_bytes() const { return weights_.encoded_bytes(); }

  /// Reads the model's parameters that `params`, the block of `graph`, has.
  template <class Graph, class T>
  Error read(const Graph& graph, View<T> params) const {
    if (const Error why = Source::read(path_, config_, graph, params)) return why;
    if (encoded_bytes() != 0) weights_.read(graph, params);
    return {};
  }

 private:
  static bool has_streamed_matrix(const StoredParameters& stored) {
    for (std::size_t i = 0; i < stored.size(); ++i)
      if (stored.parameter(i).shape.rank() == 2 && stored.parameter(i).streams()) return true;
    return false;
  }

  std::string path_;
  Config config_;
  File file_;
  EncodedWeights weights_;
};

}}  // namespace adacc::v0_1
