// SPDX-License-Identifier: MIT
/// Writes tensors in the safetensors format, for PyTorch and other readers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../core/bfloat16.hpp"
#include "../../core/error.hpp"
#include "../../core/view.hpp"
#include "../file.hpp"
#include "../json_string.hpp"
#include "stored_type.hpp"

namespace adacc { inline namespace v0_1 {

/// A tensor to write; the viewed memory must live until then.
struct NamedTensor {
  template <class T>
  NamedTensor(std::string tensor_name, View<T> view)
      : name(static_cast<std::string&&>(tensor_name)), shape(view.shape()), data(view.data()) {
    using Element = std::remove_const_t<T>;
    static_assert(std::is_same_v<Element, float> || std::is_same_v<Element, double> ||
                      std::is_same_v<Element, bfloat16> || std::is_same_v<Element, std::int32_t> ||
                      std::is_same_v<Element, std::int8_t>,
                  "adacc: tensors of float, double, bfloat16, int32_t and int8_t can be written");
    type = std::is_same_v<Element, float>         ? StoredType::f32
           : std::is_same_v<Element, double>      ? StoredType::f64
           : std::is_same_v<Element, bfloat16>    ? StoredType::bf16
           : std::is_same_v<Element, std::int8_t> ? StoredType::i8
                                                  : StoredType::i32;
  }

  std::size_t bytes() const { return shape.elems() * bits_of(type) / 8; }

  std::string name;  ///< in UTF-8
  StoredType type;
  Shape shape;
  const void* data;
};

/// Writes a file with these tensors, beside the old one first, which stays if anything fails. Larger elements come
/// first, so each tensor is aligned to its elements; among equals, names decide.
inline Error write_safetensors(const std::string& path, std::vector<NamedTensor> tensors,
                               const std::map<std::string, std::string>& metadata = {}) {
  std::sort(tensors.begin(), tensors.end(), [](const NamedTensor& a, const NamedTensor& b) {
    const std::size_t x = bits_of(a.type), y = bits_of(b.type);
    return x != y ? x > y : a.name < b.name;
  });
  std::string header = "{";
  const auto member = [&](const std::string& key) {
    header += (header.size() > 1 ? "," : "") + detail::json_string(key) + ":";
  };
  if (!metadata.empty()) {
    member("__metadata__");
    std::string list;
    for (const auto& [key, value] : metadata)
      list +=
          (list.empty() ? "" : ",") + detail::json_string(key) + ":" + detail::json_string(value);
    header += "{" + list + "}";
  }
  std::map<std::string, bool> names;
  std::size_t at = 0;
  for (const NamedTensor& tensor : tensors) {
    if (tensor.name == "__metadata__" || !names.emplace(tensor.name, true).second)
      return Error::misuse(one_line(path).c_str(), ": a tensor cannot be called \"",
                           one_line(tensor.name, 60).c_str(),
                           "\": another one is, or the format has that name for itself");
    member(tensor.name);
    header += "{\"dtype\":\"" + std::string(name_of(tensor.type)) + "\",\"shape\":[";
    for (int i = 0; i < tensor.shape.rank(); ++i)
      header.append(i > 0 ? "," : "").append(std::to_string(tensor.shape[i]));
    header.append("],\"data_offsets\":[").append(std::to_string(at)).append(",");
    at += tensor.bytes();
    header.append(std::to_string(at)).append("]}");
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');  // aligns the tensors

  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file) return file.error;
  const std::uint64_t length = header.size();
  if (Error why = file->write(&length, sizeof length)) return why;
  if (Error why = file->write(header.data(), header.size())) return why;
  for (const NamedTensor& tensor : tensors)
    if (Error why = file->write(tensor.data, tensor.bytes())) return why;
  return file->commit();
}

}}  // namespace adacc::v0_1
