// SPDX-License-Identifier: MIT
/// Tensors of a mapped GGUF or safetensors file as the frozen parameters of a network (model/stored_parameter.hpp): nothing is copied.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "../../core/error.hpp"
#include "../../model/stored_parameter.hpp"
#include "block_products.hpp"
#include "gguf.hpp"
#include "gguf_blocks.hpp"
#include "pretrained.hpp"
#include "safetensors.hpp"

namespace adacc { inline namespace v0_1 {

/// Pages of weights in a mapped file.
enum class WeightPages : std::uint8_t {
  resident,  ///< stay in the process as long as the system has memory
  streamed  ///< leave the process when a layer has read them, and come from the system's page cache, or from the disk
};

namespace detail {

/// Products by rows of this type.
constexpr auto products_of(GgufType type) -> decltype(BlockFormat::add_products) {
  switch (type) {
    case GgufType::f32: return &add_number_products<F32Numbers>;
    case GgufType::f16: return &add_number_products<F16Numbers>;
    case GgufType::bf16: return &add_number_products<Bf16Numbers>;
    case GgufType::q4_0: return &add_block_products<Q40Blocks>;
    case GgufType::q4_1: return &add_block_products<Q41Blocks>;
    case GgufType::q5_0: return &add_block_products<Q5Blocks<2>>;
    case GgufType::q5_1: return &add_block_products<Q5Blocks<4>>;
    case GgufType::q8_0: return &add_block_products<ByteBlocks<2, 32>>;
    case GgufType::q4_k: return &add_block_products<Q4KBlocks>;
    case GgufType::q5_k: return &add_block_products<Q5KBlocks>;
    case GgufType::q6_k: return &add_block_products<Q6KBlocks>;
  }
  return nullptr;
}

template <std::size_t i>
inline constexpr BlockFormat block_format_at{
    gguf_types[i].name, gguf_types[i].block_elems, gguf_types[i].block_bytes,
    &decode_blocks<gguf_types[i].type>, products_of(gguf_types[i].type)};

template <std::size_t... i>
const BlockFormat& block_format_of(GgufType type, std::index_sequence<i...>) {
  static constexpr const BlockFormat* formats[] = {&block_format_at<i>...};
  std::size_t at = 0;
  while (gguf_types[at].type != type) ++at;
  return *formats[at];
}

}  // namespace detail

/// The form of elements of this type.
inline const BlockFormat& block_format(GgufType type) {
  return detail::block_format_of(type, std::make_index_sequence<std::size(detail::gguf_types)>());
}

/// Null: elements of this type stand in no block.
inline const BlockFormat* block_format(StoredType type) {
  switch (type) {
    case StoredType::f32: return &block_format(GgufType::f32);
    case StoredType::f16: return &block_format(GgufType::f16);
    case StoredType::bf16: return &block_format(GgufType::bf16);
    default: return nullptr;
  }
}

namespace detail {

inline const BlockFormat* format_of(const GgufTensor& tensor) { return &block_format(tensor.type); }
inline const BlockFormat* format_of(const StoredTensor& tensor) {
  return block_format(tensor.type);
}

}  // namespace detail

/// The parameters of `outline` where `file`, Gguf or SafeTensors, has them; the tensors are there, in their shapes (expected_tensors()).
/// `turns_of(name)`: StoredRows::turns of a tensor. Numbers that are not finite are refused.
template <class File, class Naming, class TurnsOf>
Result<StoredParameters> stored_parameters(const File& file, const std::string& path,
                                           const ModelOutline& outline, const Naming& naming,
                                           const TurnsOf& turns_of,
                                           WeightPages pages = WeightPages::resident) {
  const bool streams = pages == WeightPages::streamed;
  const std::vector<ExpectedTensor> expected = expected_tensors(outline, naming);
  for (const ExpectedTensor& tensor : expected) {
    const auto& found = *file.find(tensor.name);
    if (detail::format_of(found) == nullptr)
      return Error::say(one_line(path, 80).c_str(), ": \"", tensor.name.c_str(), "\" is of type ",
                        name_of(found.type), ", and weights stay in a file in F32, F16 or BF16");
  }
  struct Found {
    StoredParameters::Place place;
    StoredParameter parameter;
  };
  std::vector<Found> found;
  const auto note_place = [&](const ParameterPlace& at) {
    found.push_back({{at.layer, at.copy, at.index}, StoredParameter{}});
    return naming(at);
  };
  each_piece(outline, note_place,
             [&](std::size_t i, const std::string& name, std::size_t, Shape shape) {
               const auto& tensor = *file.find(name);
               StoredParameter& parameter = found[i].parameter;
               parameter.shape = outline.parameters[i].shape;
               StoredRows& rows = parameter.pieces[parameter.count++];
               rows = {detail::format_of(tensor), tensor.bytes.data(),
                       shape.rank() == 1 ? 1 : shape[0], turns_of(name)};
               if (!streams) return;
               rows.release = &MappedFile::release;
               rows.file = file.file_of(tensor);
             });
  StoredParameters all;
  // A vector is one row, so one of several tensors has its place in the block.
  for (const Found& one : found)
    if (one.parameter.count == 1 || (one.parameter.count != 0 && one.parameter.shape.rank() != 1))
      all.add(one.place, one.parameter);
  std::vector<float> row;
  for (const ExpectedTensor& tensor : expected) {
    const auto& numbers_of = *file.find(tensor.name);
    const BlockFormat& format = *detail::format_of(numbers_of);
    const std::size_t cols = tensor.extents.cols();
    row.resize(cols);
    for (std::size_t first = 0; first < tensor.extents.elems(); first += cols) {
      format.decode(numbers_of.part(first, cols).bytes.data(), cols / format.elems, row.data());
      for (std::size_t i = 0; i < cols; ++i)
        if (!std::isfinite(row[i]))
          return Error::say(one_line(path, 80).c_str(), ": \"", tensor.name.c_str(),
                            "\" has NaN or an infinity at element ", first + i);
    }
    if (streams) MappedFile::release(file.file_of(numbers_of), numbers_of.bytes);
  }
  return all;
}

}}  // namespace adacc::v0_1
