// SPDX-License-Identifier: MIT
/// Writes small GGUF files for tests, good ones and others.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "adacc/io/weights/gguf_value.hpp"

namespace gguf_test {

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
inline std::string raw_text(std::string_view text) {
  return raw<std::uint64_t>(text.size()) + std::string(text);
}

/// A file piece by piece; what its counts say can be changed.
struct GgufBytes {
  std::string values, tensors, data;
  std::uint64_t value_count = 0, tensor_count = 0;
  std::uint32_t version = 3;
  std::size_t alignment = 32;

  void value(std::string_view key, adacc::GgufKind kind, const std::string& bytes) {
    values += raw_text(key) + raw(kind) + bytes;
    ++value_count;
  }
  void number(std::string_view key, std::uint32_t n) { value(key, adacc::GgufKind::u32, raw(n)); }
  void real(std::string_view key, float x) { value(key, adacc::GgufKind::f32, raw(x)); }
  void truth(std::string_view key, bool is) {
    value(key, adacc::GgufKind::boolean, raw<std::uint8_t>(is ? 1 : 0));
  }
  void text(std::string_view key, std::string_view is) {
    value(key, adacc::GgufKind::string, raw_text(is));
  }
  void array(std::string_view key, adacc::GgufKind kind, std::uint64_t count,
             const std::string& bytes) {
    value(key, adacc::GgufKind::array, raw(kind) + raw(count) + bytes);
  }
  void texts(std::string_view key, const std::vector<std::string>& all) {
    std::string bytes;
    for (const std::string& one : all) bytes += raw_text(one);
    array(key, adacc::GgufKind::string, all.size(), bytes);
  }

  /// `shape` begins with the outermost extent, unlike the file's.
  void tensor(std::string_view name, const std::vector<std::uint64_t>& shape, std::uint32_t type,
              const std::string& bytes) {
    data.resize((data.size() + alignment - 1) / alignment * alignment);
    place(name, shape, type, data.size());
    data += bytes;
  }
  void place(std::string_view name, const std::vector<std::uint64_t>& shape, std::uint32_t type,
             std::uint64_t at) {
    tensors += raw_text(name) + raw(static_cast<std::uint32_t>(shape.size()));
    for (std::size_t i = shape.size(); i-- > 0;) tensors += raw(shape[i]);
    tensors += raw(type) + raw(at);
    ++tensor_count;
  }
  void floats(std::string_view name, const std::vector<std::uint64_t>& shape,
              const std::vector<float>& numbers) {
    std::string bytes;
    for (const float x : numbers) bytes += raw(x);
    tensor(name, shape, 0, bytes);
  }

  std::string file() const {
    std::string all =
        "GGUF" + raw(version) + raw(tensor_count) + raw(value_count) + values + tensors;
    all.resize((all.size() + alignment - 1) / alignment * alignment);
    return all + data;
  }
};

}  // namespace gguf_test
