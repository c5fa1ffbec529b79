// SPDX-License-Identifier: MIT
/// Reads the model checkpoints of llm.c, version 3 (float32).
///
/// The file: 256 int32 words (20240326, 3, max_seq_len, vocab_size, num_layers, num_heads, channels,
/// padded_vocab_size, 0…), then float32 parameters, grouped by parameter over all layers, (L, 3C, C) for instance. A
/// model here keeps each layer's parameters together. So the file's order is the model's own storage sorted by
/// (layer, index within the layer, copy).
#pragma once

#include <climits>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "../../core/error.hpp"
#include "../../core/no_memory.hpp"
#include "../../core/view.hpp"
#include "../file.hpp"
#include "../file_format.hpp"

namespace adacc { inline namespace v0_1 {

inline constexpr std::size_t llmc_header_bytes = 256 * 4;

/// The shape of a GPT-2 in llm.c's terms. All sizes are at least 1, heads divides channels, and padded_vocab_size is
/// at least vocab_size.
struct LlmcHeader {
  std::size_t max_seq_len = 0;
  std::size_t vocab_size = 0;
  std::size_t layers = 0;
  std::size_t heads = 0;
  std::size_t channels = 0;
  std::size_t padded_vocab_size = 0;
};

namespace detail {

/// One of the 16 groups of parameters in the file, for one layer: `rows` x `cols`, `layers` times.
struct LlmcGroup {
  const char* name;
  std::size_t rows, cols;
  bool per_layer;
};

inline constexpr std::size_t llmc_groups = 16;

/// Rows are multiplied by at most 4: channels are an int32, which leaves room.
constexpr LlmcGroup llmc_group(const LlmcHeader& h, std::size_t i) {
  const std::size_t c = h.channels;
  const LlmcGroup groups[llmc_groups] = {{"wte", h.padded_vocab_size, c, false},
                                         {"wpe", h.max_seq_len, c, false},
                                         {"ln1w", 1, c, true},
                                         {"ln1b", 1, c, true},
                                         {"qkvw", 3 * c, c, true},
                                         {"qkvb", 1, 3 * c, true},
                                         {"attprojw", c, c, true},
                                         {"attprojb", 1, c, true},
                                         {"ln2w", 1, c, true},
                                         {"ln2b", 1, c, true},
                                         {"fcw", 4 * c, c, true},
                                         {"fcb", 1, 4 * c, true},
                                         {"fcprojw", c, 4 * c, true},
                                         {"fcprojb", 1, c, true},
                                         {"lnfw", 1, c, false},
                                         {"lnfb", 1, c, false}};
  return groups[i];
}

/// The number of parameters of a model of `layers` layers.
constexpr std::size_t llmc_parameters(std::size_t layers) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < llmc_groups; ++i) count += llmc_group({}, i).per_layer ? layers : 1;
  return count;
}

/// The size of a file with this header; false if it does not fit std::size_t.
constexpr bool llmc_file_bytes(const LlmcHeader& header, std::size_t& bytes) {
  bytes = llmc_header_bytes;
  for (std::size_t i = 0; i < llmc_groups; ++i) {
    const LlmcGroup group = llmc_group(header, i);
    std::size_t size = 0;
    if (!multiply(group.rows, group.cols, size) ||
        !multiply(size, group.per_layer ? header.layers : 1, size) ||
        !multiply(size, sizeof(float), size) || !add(bytes, size, bytes))
      return false;
  }
  return true;
}

/// Reads the header's 256 words; refuses another magic or version.
inline Error read_llmc_words(InputFile& file, std::int32_t magic, std::int32_t version,
                             std::int32_t (&words)[256]) {
  if (file.size() == 0) return file.fault("is empty");
  if (file.size() >= 8) {
    if (Error error = file.read(words, 8)) return error;
    if (words[0] != magic)
      return file.fault("starts with ", words[0], ", not ", magic, ": it looks like ",
                        kind_of_file(words));
    if (words[1] != version)
      return file.fault("is of version ", words[1], "; this program reads version ", version);
  }
  if (file.size() < llmc_header_bytes)
    return file.fault("is truncated: it has ", shown(file.size()), ", and its header alone takes ",
                      shown(llmc_header_bytes));
  return file.read(words + 2, llmc_header_bytes - 8);
}

inline Error read_llmc_header(InputFile& file, LlmcHeader& header) {
  std::int32_t words[256] = {};
  if (Error error = read_llmc_words(file, llmc_model_magic, 3, words)) return error;
  const char* names[] = {"max_seq_len", "vocab_size", "num_layers",
                         "num_heads",   "channels",   "padded_vocab_size"};
  std::size_t* sizes[] = {&header.max_seq_len, &header.vocab_size, &header.layers,
                          &header.heads,       &header.channels,   &header.padded_vocab_size};
  for (int i = 0; i < 6; ++i) {
    if (words[2 + i] < 1)
      return file.fault("its header says ", names[i], " ", words[2 + i],
                        ", which must be positive");
    *sizes[i] = static_cast<std::size_t>(words[2 + i]);
  }
  if (header.padded_vocab_size < header.vocab_size)
    return file.fault("its header pads a vocabulary of ", header.vocab_size, " to ",
                      header.padded_vocab_size, ", which is less");
  if (header.channels % header.heads != 0)
    return file.fault("its header has ", header.heads, " heads, which do not divide ",
                      header.channels, " channels");
  std::size_t bytes = 0;
  if (!llmc_file_bytes(header, bytes))
    return file.fault("its header describes a model too large to address");
  if (bytes != file.size())
    return file.fault(bytes > file.size() ? "is truncated: " : "is too long: ", "it has ",
                      shown(file.size()), ", its header describes ", shown(bytes));
  if (header.layers > most_model_layers)
    return file.fault("its header says num_layers ", header.layers, ", of at most ",
                      most_model_layers);
  return {};
}

inline constexpr const char* llmc_model_expected = "an llm.c model checkpoint of version 3";

/// The place of a parameter in the file.
struct LlmcPlace {
  int layer, index, copy;
  std::size_t parameter;
  auto operator<=>(const LlmcPlace&) const = default;
};

/// The places of all owners, in the file's order. Parameters of the loss come after every layer's.
template <class Graph>
std::set<LlmcPlace> llmc_order(const Graph& graph) {
  std::set<LlmcPlace> order;
  int index = 0;
  for (std::size_t i = 0; i < graph.parameters.size(); ++i) {
    const auto& parameter = graph.parameters[i];
    index = i > 0 && graph.parameters[i - 1].node == parameter.node ? index + 1 : 0;
    if (!parameter.owner) continue;
    LlmcPlace place{INT_MAX, index, 0, i};
    if (parameter.node >= 0) {
      const auto& node = graph.nodes[static_cast<std::size_t>(parameter.node)];
      place.layer = node.layer;
      place.copy = node.copy;
    }
    order.insert(place);
  }
  return order;
}

}  // namespace detail

/// The header of an llm.c model file; the file's size must agree with the header to the byte.
inline Result<LlmcHeader> read_llmc_header(const std::string& path) {
  return detail::or_no_memory("to read the model", [&]() -> Result<LlmcHeader> {
    Result<InputFile> file = InputFile::open(path, detail::llmc_model_expected);
    if (!file) return file.error;
    Result<LlmcHeader> header;
    header.error = detail::read_llmc_header(*file, *header);
    return header;
  });
}

/// Reads an llm.c model into `params`, the block of a model with this graph (`parameters`, and `nodes[i].layer`,
/// `.copy`). Each parameter must have the shape in the file, except for rows that pad the vocabulary: they are dropped.
/// NaN and infinities are refused. Padding between parameters stays unchanged. After an error `params` may hold a
/// part of the file.
template <class Graph, class T>
Error read_llmc_parameters(const std::string& path, const Graph& graph, View<T> params) {
  return detail::or_no_memory("to read the model", [&]() -> Error {
    Result<InputFile> file = InputFile::open(path, detail::llmc_model_expected);
    if (!file) return file.error;
    LlmcHeader header;
    if (Error error = detail::read_llmc_header(*file, header)) return error;

    // All shapes are compared before a number is read.
    const std::set<detail::LlmcPlace> order = detail::llmc_order(graph);
    const std::size_t expected = detail::llmc_parameters(header.layers);
    if (order.size() != expected)
      return file->fault("holds ", expected, " parameters, this model has ", order.size());
    auto place = order.begin();
    for (std::size_t g = 0; g < detail::llmc_groups; ++g) {
      const detail::LlmcGroup group = detail::llmc_group(header, g);
      const std::size_t rows = g == 0 ? header.vocab_size : group.rows;
      for (std::size_t l = 0; l < (group.per_layer ? header.layers : 1); ++l, ++place) {
        const auto& parameter = graph.parameters[place->parameter];
        if (parameter.shape.rows() != rows || parameter.shape.cols() != group.cols)
          return file->fault("has ", group.name, " of ", rows, " x ", group.cols,
                             " where this model has \"", parameter.name, "\" of ",
                             parameter.shape.rows(), " x ", parameter.shape.cols());
        if (parameter.offset + parameter.shape.elems() > params.size())
          return Error::say("the block for parameters has ", params.size(),
                            " elements, too few for this model");
      }
    }

    place = order.begin();
    for (std::size_t g = 0; g < detail::llmc_groups; ++g) {
      const detail::LlmcGroup group = detail::llmc_group(header, g);
      for (std::size_t l = 0; l < (group.per_layer ? header.layers : 1); ++l, ++place) {
        const auto& parameter = graph.parameters[place->parameter];
        const std::size_t kept = parameter.shape.elems();
        T* to = params.data() + parameter.offset;
        float buffer[4096];
        for (std::size_t done = 0; done < group.rows * group.cols;) {
          std::size_t count = group.rows * group.cols - done;
          if (count > 4096) count = 4096;
          if (Error error = file->read(buffer, count * sizeof(float))) return error;
          for (std::size_t i = 0; i < count && done + i < kept; ++i) {
            if (!std::isfinite(buffer[i]))
              return file->fault("parameter ", group.name, " of layer ", l, " has ",
                                 std::isnan(buffer[i]) ? "NaN" : "an infinity", " at element ",
                                 done + i);
            to[done + i] = static_cast<T>(buffer[i]);
          }
          done += count;
        }
      }
    }
    return {};
  });
}

}}  // namespace adacc::v0_1
