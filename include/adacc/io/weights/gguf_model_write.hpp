// SPDX-License-Identifier: MIT
/// A tuned Llama or GPT-2 (models/) as GGUF files for llama.cpp: its adapters alone, for `--lora`, or the whole model with
/// adapters merged into its weights.
///
/// Beside the class of a network's sizes are gguf_architecture(config), gguf_naming(config), and turns_of(config, name).
///
/// A Llama here has one adapter for queries, keys and values, and one for gate and gated values. In a file each of
/// their tensors has an adapter of its own: all of one layer have the same A, and B is cut by rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "../../codec/float_bits.hpp"
#include "../../core/error.hpp"
#include "../../core/no_memory.hpp"
#include "../../model/graph.hpp"
#include "adapters.hpp"
#include "gguf.hpp"
#include "mapped.hpp"
#include "pretrained.hpp"
#include "write_gguf.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Some rows of a parameter, which a file has as a tensor, and the adapter beside the parameter.
struct TensorRows {
  std::string name;
  std::size_t parameter = 0, first = 0, rows = 0, cols = 0;
  StoredRows order{};  ///< of rows in the file
  const Parameter *a = nullptr, *b = nullptr;

  std::size_t row_at(std::size_t place) const { return first + order.row_at(place); }
};

template <class Config>
std::vector<TensorRows> tensors_of(const Graph& graph, const Config& config) {
  std::vector<TensorRows> all;
  each_piece(graph, gguf_naming(config),
             [&](std::size_t i, const std::string& name, std::size_t first, Shape shape) {
               const bool vector = shape.rank() == 1;  // one row, from its element `first` on
               // A head that is the token table is no tensor of its own.
               if (graph.parameters[i].node < 0 && graph.parameters[i].tied != nullptr) return;
               TensorRows rows{name, i, first, vector ? 1 : shape[0], shape.cols()};
               rows.order.turns = turns_of(config, name);
               const Parameter* const own = &graph.parameters[i];
               for (std::size_t k = i + 1; !vector && k < graph.parameters.size(); ++k) {
                 const Parameter& other = graph.parameters[k];
                 if (other.node != own->node) break;
                 if (std::strcmp(other.name, "lora_a") == 0) rows.a = &other;
                 if (std::strcmp(other.name, "lora_b") == 0) rows.b = &other;
               }
               all.push_back(rows);
             });
  return all;
}

}  // namespace detail

/// Writes the adapters among the parameters of `graph`, a make_lora(config, …), as llama.cpp's `--lora` takes them: in
/// F32, or F16.
template <class Config, class T>
Error write_gguf_adapters(const std::string& path, const Config& config, const Graph& graph,
                          View<const T> params, const AdapterShape& shape,
                          GgufType type = GgufType::f32) {
  return detail::or_no_memory("to write adapters", [&]() -> Error {
    GgufWriter file;
    file.text("general.type", "adapter");
    file.text("general.architecture", gguf_architecture(config));
    file.text("adapter.type", "lora");
    file.real("adapter.lora.alpha", shape.alpha);
    std::vector<detail::TensorRows> adapted;
    for (const detail::TensorRows& tensor : detail::tensors_of(graph, config)) {
      if (tensor.a == nullptr) continue;
      file.tensor(tensor.name + ".lora_a", type, {shape.rank, tensor.a->shape.cols()});
      file.tensor(tensor.name + ".lora_b", type, {tensor.rows, shape.rank});
      adapted.push_back(tensor);
    }
    if (adapted.empty()) return Error::misuse("the network has no adapters to write");
    if (const Error why = file.begin(path)) return why;
    std::vector<float> row;
    const auto write = [&](const Parameter& from, std::size_t r) {
      const T* const numbers = params.data() + from.offset + r * from.shape.cols();
      row.assign(numbers, numbers + from.shape.cols());
      return file.row({row.data(), Shape(row.size())});
    };
    for (const detail::TensorRows& tensor : adapted) {
      for (std::size_t r = 0; r < shape.rank; ++r)
        if (const Error why = write(*tensor.a, r)) return why;
      for (std::size_t place = 0; place < tensor.rows; ++place)
        if (const Error why = write(*tensor.b, tensor.row_at(place))) return why;
    }
    return file.end();
  });
}

/// Writes the model with the parameters of `graph`, whose block is `params`: adapters are merged into the weights they stand
/// beside, with the same alpha for all. `file` has the metadata, for example by add_gguf_config() and add_gguf_tokenizer().
/// Matrices become numbers of `type` (F32, F16, BF16, Q8_0, Q4_0 or Q4_1), or F16 if their rows are no whole blocks.
template <class Config, class T>
Error write_gguf(const std::string& path, GgufWriter file, const Config& config, const Graph& graph,
                 View<const T> params, const AdapterShape& shape, GgufType type) {
  return detail::or_no_memory("to write a model", [&]() -> Error {
    if (!is_written(type))
      return Error::say("a model cannot be written in ", name_of(type),
                        ": F32, F16, BF16, Q8_0, Q4_0 and Q4_1 are possible");
    const std::map<GgufType, std::uint32_t> kinds = {{GgufType::f32, 0},   {GgufType::f16, 1},
                                                     {GgufType::bf16, 32}, {GgufType::q8_0, 7},
                                                     {GgufType::q4_0, 2},  {GgufType::q4_1, 3}};
    file.number("general.file_type", kinds.at(type));
    const std::vector<detail::TensorRows> written = detail::tensors_of(graph, config);
    for (const detail::TensorRows& tensor : written) {
      const bool vector = graph.parameters[tensor.parameter].shape.rank() == 1;
      const bool whole = tensor.cols % detail::facts_of(type).block_elems == 0;
      if (vector) file.tensor(tensor.name, GgufType::f32, {tensor.cols});
      else file.tensor(tensor.name, whole ? type : GgufType::f16, {tensor.rows, tensor.cols});
    }
    if (const Error why = file.begin(path)) return why;
    std::vector<float> row;
    for (const detail::TensorRows& tensor : written) {
      const Parameter& parameter = graph.parameters[tensor.parameter];
      const std::size_t cols = tensor.cols, step = parameter.shape.rank() == 1 ? 1 : cols;
      row.resize(cols);
      for (std::size_t place = 0; place < tensor.rows; ++place) {
        const std::size_t r = tensor.row_at(place);
        if (parameter.stored != nullptr) {
          parameter.stored->decode(r, 0, cols, row.data());
        } else {
          const T* const numbers = params.data() + parameter.offset + r * step;
          for (std::size_t i = 0; i < cols; ++i) row[i] = detail::to_number(numbers[i]);
        }
        if (tensor.a != nullptr) {
          const T* const b = params.data() + tensor.b->offset + r * shape.rank;
          for (std::size_t k = 0; k < shape.rank; ++k) {
            const float share =
                shape.alpha / static_cast<float>(shape.rank) * detail::to_number(b[k]);
            const T* const a = params.data() + tensor.a->offset + k * cols;
            for (std::size_t i = 0; i < cols; ++i) row[i] += share * detail::to_number(a[i]);
          }
        }
        if (const Error why = file.row({row.data(), Shape(cols)})) return why;
      }
    }
    return file.end();
  });
}

/// The same over the file that `model` is mapped from: metadata, the tokenizer among it, are this file's. `path` has to name
/// another file.
template <class Source, class T>
Error write_gguf(const std::string& path, const Mapped<Source>& model, const Graph& graph,
                 View<const T> params, const AdapterShape& shape, GgufType type) {
  return detail::or_no_memory("to write a model", [&]() -> Error {
    if (same_file(path, model.file().path()))
      return Error::say(one_line(path, 80).c_str(),
                        ": is the file that the model is read from, and has to be another");
    GgufWriter file;
    for (const auto& [key, value] : model.file().metadata())
      if (key != "general.file_type" && key != "general.alignment") file.value(key, value);
    return write_gguf(path, static_cast<GgufWriter&&>(file), model.config(), graph, params, shape,
                      type);
  });
}

/// Of the models that are read and written.
inline constexpr const char* gguf_architectures[] = {"llama", "qwen2", "qwen3", "gpt2"};

/// The rank and alpha of the adapters in a GGUF file: enough to build their network.
inline Result<AdapterShape> read_gguf_adapter_shape(const std::string& path) {
  return detail::or_no_memory("to read adapters", [&]() -> Result<AdapterShape> {
    const auto file = Gguf::open(path);
    if (!file) return file.error;
    const auto is = [&](const char* key, const char* wanted) {
      std::string_view found;
      const GgufValue* const value = file->value(key);
      return value != nullptr && value->text(found) && found == wanted;
    };
    if (!is("general.type", "adapter") || !is("adapter.type", "lora") ||
        std::none_of(
            std::begin(gguf_architectures), std::end(gguf_architectures),
            [&](const char* architecture) { return file->architecture() == architecture; }))
      return file->fault(
          "is no adapter (general.type, adapter.type lora) of a llama, qwen2, qwen3 or gpt2");
    AdapterShape shape;
    const GgufValue* const alpha = file->value("adapter.lora.alpha");
    const auto take = [&](double value) {
      shape.alpha = static_cast<float>(value);
      return true;
    };
    for (const GgufTensor& tensor : *file)
      if (tensor.name.ends_with(".lora_a")) shape.rank = tensor.shape[0];
    if (alpha == nullptr || alpha->array || !alpha->each_number(take) || !(shape.alpha > 0) ||
        !std::isfinite(shape.alpha) || shape.rank == 0)
      return file->fault("has no adapter.lora.alpha above 0, or no tensors of an adapter");
    return shape;
  });
}

/// Reads adapters from a GGUF file into the parameters of `graph`, a make_lora(config, …): those written here, or by
/// llama.cpp's converters, if all tensors of a layer have one A, and no other tensors are adapted. Otherwise nothing is
/// read, and the error names the first tensor.
template <class Config, class T>
Error read_gguf_adapters(const std::string& path, const Config& config, const Graph& graph,
                         View<T> params) {
  return detail::or_no_memory("to read adapters", [&]() -> Error {
    const auto file = Gguf::open(path);
    if (!file) return file.error;
    if (file->architecture() != gguf_architecture(config))
      return file->fault("has adapters of a ", std::string(file->architecture()).c_str(),
                         ", and the network is a ", gguf_architecture(config));
    std::vector<std::vector<float>> numbers;
    std::vector<detail::TensorRows> adapted;
    const auto read = [&](const std::string& name, Shape shape) -> Error {
      if (const Error why =
              error_of(problems_of(*file, std::vector{ExpectedTensor{name, shape}}), 1))
        return file->fault(why.text());
      numbers.emplace_back(shape.elems());
      return load_pretrained(
          *file, std::vector{WantedTensor<float>{name, View<float>(numbers.back().data(), shape)}});
    };
    for (const detail::TensorRows& tensor : detail::tensors_of(graph, config)) {
      if (tensor.a == nullptr) continue;
      const std::size_t rank = tensor.a->shape.rows();
      if (const Error why = read(tensor.name + ".lora_a", tensor.a->shape)) return why;
      if (const Error why = read(tensor.name + ".lora_b", Shape(tensor.rows, rank))) return why;
      const bool again = !adapted.empty() && adapted.back().a == tensor.a;
      if (again && numbers[numbers.size() - 2] != numbers[numbers.size() - 4])
        return file->fault("\"", tensor.name.c_str(), ".lora_a\" differs from that of \"",
                           adapted.back().name.c_str(), "\", and the network has one A for both");
      adapted.push_back(tensor);
    }
    if (2 * adapted.size() != file->size())
      return file->fault("has ", file->size(), " tensors, and the network has places for ",
                         2 * adapted.size());
    for (std::size_t i = 0; i < adapted.size(); ++i) {
      const detail::TensorRows& tensor = adapted[i];
      const std::vector<float>&a = numbers[2 * i], &b = numbers[2 * i + 1];
      const std::size_t rank = tensor.a->shape.rows();
      for (std::size_t k = 0; k < a.size(); ++k)
        params[tensor.a->offset + k] = static_cast<T>(a[k]);
      for (std::size_t k = 0; k < b.size(); ++k)
        params[tensor.b->offset + tensor.row_at(k / rank) * rank + k % rank] = static_cast<T>(b[k]);
    }
    return {};
  });
}

}}  // namespace adacc::v0_1
