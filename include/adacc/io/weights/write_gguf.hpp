// SPDX-License-Identifier: MIT
/// Writes GGUF files of version 3: metadata, then tensors, whose numbers are given row by row.
///
///     GgufWriter file;
///     file.text("general.architecture", "llama");
///     file.tensor("output.weight", GgufType::q8_0, {vocab, channels});
///     Error why = file.begin(path);
///     // file.row(numbers) for each row of each tensor, or file.stored(bytes) for a whole tensor
///     why = file.end();                        // now the file is there
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../../core/error.hpp"
#include "../../core/view.hpp"
#include "../file.hpp"
#include "gguf_encode.hpp"
#include "gguf_type.hpp"
#include "gguf_value.hpp"

namespace adacc { inline namespace v0_1 {

class GgufWriter {
 public:
  void text(std::string_view key, std::string_view value) {
    begin_value(key, GgufKind::string);
    put_text(values_, value);
  }
  void number(std::string_view key, std::uint32_t value) {
    begin_value(key, GgufKind::u32);
    put(values_, value);
  }
  void real(std::string_view key, float value) {
    begin_value(key, GgufKind::f32);
    put(values_, value);
  }
  void truth(std::string_view key, bool value) {
    begin_value(key, GgufKind::boolean);
    put(values_, static_cast<std::uint8_t>(value ? 1 : 0));
  }
  void texts(std::string_view key, const std::vector<std::string>& all) {
    begin_array(key, GgufKind::string, all.size());
    for (const std::string& one : all) put_text(values_, one);
  }
  void numbers(std::string_view key, const std::vector<std::int32_t>& all) {
    begin_array(key, GgufKind::i32, all.size());
    for (const std::int32_t one : all) put(values_, one);
  }
  void reals(std::string_view key, const std::vector<float>& all) {
    begin_array(key, GgufKind::f32, all.size());
    for (const float one : all) put(values_, one);
  }
  /// A list of bytes.
  void bytes(std::string_view key, std::string_view all) {
    begin_array(key, GgufKind::u8, all.size());
    for (const char c : all) put(values_, static_cast<std::uint8_t>(c));
  }
  /// A value of another file.
  void value(std::string_view key, const GgufValue& value) {
    if (value.array) begin_array(key, value.kind, value.count);
    else begin_value(key, value.kind);
    const void* const bytes = value.bytes.data();
    values_.append(static_cast<const char*>(bytes), value.bytes.size());
  }

  /// The next tensor. `shape` begins with the outermost extent; rows are whole blocks of a type that can be written,
  /// unless the tensor's bytes are given by stored().
  void tensor(std::string name, GgufType type, std::vector<std::size_t> shape) {
    tensors_.push_back(
        {static_cast<std::string&&>(name), type, static_cast<std::vector<std::size_t>&&>(shape)});
  }

  /// Begins the file, beside an old one.
  Error begin(const std::string& path) {
    std::string header = "GGUF";
    put(header, std::uint32_t{3});
    put(header, static_cast<std::uint64_t>(tensors_.size()));
    put(header, value_count_);
    header += values_;
    std::uint64_t at = 0;
    for (const Tensor& tensor : tensors_) {
      const detail::GgufTypeFacts& facts = detail::facts_of(tensor.type);
      if (tensor.cols() % facts.block_elems != 0)
        return Error::say(one_line(path, 80).c_str(), ": \"", tensor.name.c_str(),
                          "\" has rows of ", tensor.cols(), ", and blocks of ", facts.name,
                          " have ", facts.block_elems, " elements");
      put_text(header, tensor.name);
      put(header, static_cast<std::uint32_t>(tensor.shape.size()));
      for (std::size_t i = tensor.shape.size(); i-- > 0;)
        put(header, static_cast<std::uint64_t>(tensor.shape[i]));
      put(header, static_cast<std::uint32_t>(tensor.type));
      put(header, at);
      at += padded(tensor.bytes());
    }
    header.resize(padded(header.size()));
    Result<AtomicFile> file = AtomicFile::create(path);
    if (!file) return file.error;
    file_.emplace(static_cast<AtomicFile&&>(*file));
    return file_->write(header.data(), header.size());
  }

  /// The next row. Numbers that are not finite are refused.
  Error row(View<const float> numbers) {
    if (next_ == tensors_.size()) return beyond();
    const Tensor& tensor = tensors_[next_];
    if (numbers.size() != tensor.cols() || !is_written(tensor.type))
      return Error::misuse("a row of \"", tensor.name.c_str(), "\" has ", tensor.cols(),
                           " numbers of ", name_of(tensor.type), ", and got ", numbers.size(),
                           is_written(tensor.type) ? "" : "; these can only be stored()");
    for (const float number : numbers)
      if (!std::isfinite(number))
        return Error::say("\"", tensor.name.c_str(), "\" has NaN or an infinity in row ",
                          written_ / tensor.row_bytes());
    encoded_.resize(tensor.row_bytes());
    encode_blocks(tensor.type, numbers.data(), numbers.size(), encoded_.data());
    return write(encoded_.data(), encoded_.size());
  }
  /// All bytes of the next tensor, as another file has them.
  Error stored(ConstBytes bytes) {
    if (next_ == tensors_.size() || written_ != 0) return beyond();
    if (bytes.size() != tensors_[next_].bytes())
      return Error::misuse("\"", tensors_[next_].name.c_str(), "\" has ", tensors_[next_].bytes(),
                           " bytes, and got ", bytes.size());
    return write(bytes.data(), bytes.size());
  }

  /// The file takes the place of the old one.
  Error end() {
    if (next_ != tensors_.size())
      return Error::misuse("\"", tensors_[next_].name.c_str(), "\" is not written to its end");
    return file_->commit();
  }

 private:
  static constexpr std::size_t alignment = 32;

  struct Tensor {
    std::string name;
    GgufType type;
    std::vector<std::size_t> shape;

    std::size_t cols() const { return shape.back(); }
    std::size_t row_bytes() const {
      const detail::GgufTypeFacts& facts = detail::facts_of(type);
      return cols() / facts.block_elems * facts.block_bytes;
    }
    std::size_t bytes() const {
      std::size_t all = row_bytes();
      for (std::size_t i = 0; i + 1 < shape.size(); ++i) all *= shape[i];
      return all;
    }
  };

  static std::size_t padded(std::size_t bytes) {
    return (bytes + alignment - 1) / alignment * alignment;
  }
  template <class T>
  static void put(std::string& to, T value) {
    const void* const bytes = &value;
    to.append(static_cast<const char*>(bytes), sizeof value);
  }
  static void put_text(std::string& to, std::string_view text) {
    put(to, static_cast<std::uint64_t>(text.size()));
    to += text;
  }
  void begin_value(std::string_view key, GgufKind kind) {
    put_text(values_, key);
    put(values_, kind);
    ++value_count_;
  }

  void begin_array(std::string_view key, GgufKind kind, std::size_t count) {
    begin_value(key, GgufKind::array);
    put(values_, kind);
    put(values_, static_cast<std::uint64_t>(count));
  }

  static Error beyond() { return Error::misuse("more was given than the announced tensors have"); }

  /// Bytes of the next tensor; behind its end are zeros up to a multiple of the alignment.
  Error write(const void* data, std::size_t bytes) {
    if (const Error why = file_->write(data, bytes)) return why;
    written_ += bytes;
    const std::size_t all = tensors_[next_].bytes();
    if (written_ < all) return {};
    ++next_;
    written_ = 0;
    const char zeros[alignment] = {};
    return file_->write(zeros, padded(all) - all);
  }

  std::string values_;
  std::uint64_t value_count_ = 0;
  std::vector<Tensor> tensors_;
  std::optional<AtomicFile> file_;
  std::size_t next_ = 0, written_ = 0;  ///< the tensor being written, and its bytes so far
  std::vector<std::byte> encoded_;
};

}}  // namespace adacc::v0_1
