// SPDX-License-Identifier: MIT
/// Reads models in the GGUF format, as llama.cpp has them.
///
/// A file is a magic number, a version, metadata (keys and values), a list of tensors (name, shape, type,
/// place), and their bytes. Quantized tensors are blocks, and stay so: a tensor is a place in the mapped
/// file, decoded (gguf_blocks.hpp) where it is copied.
///
/// Nothing in such a file is trusted: counts and sizes are compared with the file before anything is made of
/// them, and whatever does not add up is refused in words. Format: ggml's docs/gguf.md, versions 2 and 3.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../../core/bytes.hpp"
#include "../../core/error.hpp"
#include "../../core/extremes.hpp"
#include "../../core/no_memory.hpp"
#include "../../core/view.hpp"
#include "../file.hpp"
#include "../file_format.hpp"
#include "../mapped_file.hpp"
#include "gguf_blocks.hpp"
#include "gguf_type.hpp"
#include "gguf_value.hpp"
#include "wanted_tensors.hpp"

namespace adacc { inline namespace v0_1 {

/// A tensor in a file. The last extent is the number of elements in a row, which is whole blocks.
struct GgufTensor {
  std::string name;
  GgufType type = GgufType::f32;
  std::vector<std::size_t> shape;
  ConstBytes bytes;

  std::size_t elems() const {
    const detail::GgufTypeFacts& facts = detail::facts_of(type);
    return bytes.size() / facts.block_bytes * facts.block_elems;
  }
  /// `count` elements from `first` on; they are whole blocks.
  GgufTensor part(std::size_t first, std::size_t count) const {
    const detail::GgufTypeFacts& facts = detail::facts_of(type);
    const std::byte* const from = bytes.data() + first / facts.block_elems * facts.block_bytes;
    return {name, type, {count}, {from, Shape(count / facts.block_elems * facts.block_bytes)}};
  }
  /// Why it is not copied: all that are read are numbers.
  std::string obstacle() const { return {}; }
};

/// All tensors of a file, in the order of their names' bytes, and its metadata, as long as this lives.
class Gguf {
 public:
  static Result<Gguf> open(const std::string& path) {
    return detail::or_no_memory("to read a GGUF file", [&]() -> Result<Gguf> {
      Result<MappedFile> file = MappedFile::open(path, expected);
      if (!file) return file.error;
      Gguf made;
      made.file_ = static_cast<MappedFile&&>(*file);
      if (Error why = made.read()) return why;
      return static_cast<Gguf&&>(made);  // nvcc would copy it
    });
  }

  std::size_t size() const { return tensors_.size(); }
  const GgufTensor& operator[](std::size_t i) const { return tensors_[i]; }
  const GgufTensor* begin() const { return tensors_.data(); }
  const GgufTensor* end() const { return tensors_.data() + tensors_.size(); }
  const std::string& path() const { return file_.path(); }
  /// The bytes of the mapped file that has the tensor.
  ConstBytes file_of(const GgufTensor&) const { return file_.bytes(); }
  /// All pages of the file leave the process until they are touched again.
  void forget_pages() const { MappedFile::release(file_.bytes(), file_.bytes()); }

  /// Null if there is none of that name.
  const GgufTensor* find(std::string_view name) const {
    const auto at = std::lower_bound(
        tensors_.begin(), tensors_.end(), name,
        [](const GgufTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
    return at != tensors_.end() && at->name == name ? &*at : nullptr;
  }

  /// By key: "general.architecture".
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  /// Null if there is none of that key.
  const GgufValue* value(std::string_view key) const {
    const auto found = metadata_.find(key);
    return found == metadata_.end() ? nullptr : &found->second;
  }
  /// Empty if the file does not say.
  std::string_view architecture() const {
    std::string_view name;
    const GgufValue* const found = value("general.architecture");
    if (found != nullptr) static_cast<void>(found->text(name));
    return name;
  }

  /// "PATH: pieces…; expected a GGUF file…".
  template <class... Pieces>
  Error fault(const Pieces&... pieces) const {
    return file_.fault(pieces...);
  }

 private:
  static constexpr const char* expected = "a GGUF file of version 2 or 3";

  static std::string quoted(std::string_view name) {
    return '"' + one_line(std::string(name.substr(0, 200)), 60) + '"';
  }
  Error truncated(const char* where) const {
    return fault("is truncated: its ", shown(file_.bytes().size()), " end in ", where);
  }

  Error read() {
    const ConstBytes bytes = file_.bytes();
    if (bytes.size() < 24) return fault("is truncated: it has ", shown(bytes.size()));
    if (std::memcmp(bytes.data(), "GGUF", 4) != 0)
      return fault("is ", detail::kind_of_file(bytes.data()));
    detail::GgufCursor cursor(bytes);
    std::uint32_t version = 0;
    std::uint64_t tensors = 0, values = 0;
    static_cast<void>(cursor.skip(4) && cursor.take(version) && cursor.take(tensors) &&
                      cursor.take(values));
    if ((version & 0xFFFF) == 0 && version != 0) return fault("is big-endian");
    if (version != 2 && version != 3) return fault("is of version ", version);
    // A key of one letter with a value of one byte; a tensor without a name, with one extent.
    constexpr std::size_t least_value = 8 + 1 + 4 + 1, least_tensor = 8 + 4 + 8 + 4 + 8;
    if (values > cursor.left() / least_value)
      return fault("says that it has ", values, " values of metadata, and has no room for them in ",
                   shown(bytes.size()));
    if (tensors > cursor.left() / least_tensor)
      return fault("says that it has ", tensors, " tensors, and has no room for them in ",
                   shown(bytes.size()));
    for (std::uint64_t i = 0; i < values; ++i)
      if (Error why = read_value(cursor)) return why;
    if (Error why = check_split()) return why;
    std::vector<Place> places;
    for (std::uint64_t i = 0; i < tensors; ++i) {
      places.emplace_back();
      if (Error why = read_place(cursor, places.back())) return why;
    }
    return place_tensors(cursor.at(), places);
  }

  Error read_value(detail::GgufCursor& cursor) {
    std::string_view key;
    if (!cursor.take(key)) return truncated("a key of the metadata");
    std::uint32_t kind = 0;
    const auto is_known = [&] { return kind < static_cast<std::uint32_t>(GgufKind::kinds); };
    const auto unknown = [&] {
      return fault("has a value of the unknown type ", kind, " under ", quoted(key).c_str());
    };
    const auto cut = [&] { return truncated(("the value of " + quoted(key)).c_str()); };
    if (!cursor.take(kind)) return cut();
    if (!is_known()) return unknown();
    GgufValue value;
    value.array = static_cast<GgufKind>(kind) == GgufKind::array;
    std::uint64_t count = 1;
    if (value.array) {
      if (!cursor.take(kind) || !cursor.take(count)) return cut();
      if (!is_known()) return unknown();
      if (static_cast<GgufKind>(kind) == GgufKind::array)
        return fault("has arrays in an array under ", quoted(key).c_str());
    }
    value.kind = static_cast<GgufKind>(kind);
    const std::size_t size = GgufValue::size_of(value.kind);
    // A string has a length of eight bytes.
    if (count > cursor.left() / (size == 0 ? 8 : size)) {
      if (!value.array) return cut();
      return fault("says that ", quoted(key).c_str(), " is an array of ", count,
                   " values, and is truncated before their end");
    }
    value.count = static_cast<std::size_t>(count);
    const std::size_t begin = cursor.at();
    if (size != 0) {
      static_cast<void>(cursor.skip(value.count * size));
    } else {
      std::string_view text;
      for (std::size_t i = 0; i < value.count; ++i)
        if (!cursor.take(text)) return cut();
    }
    value.bytes = {file_.bytes().data() + begin, Shape(cursor.at() - begin)};
    if (!metadata_.emplace(key, value).second)
      return fault("has the key ", quoted(key).c_str(), " a second time");
    return {};
  }

  /// A model of several files has each tensor in one of them.
  Error check_split() const {
    std::uint64_t files = 0;
    const GgufValue* const split = value("split.count");
    if (split == nullptr || (split->whole_number(files) && files <= 1)) return {};
    return fault("is one of ", files, " files of a model, which have to be merged before");
  }

  struct Place {
    GgufTensor tensor;
    std::size_t begin = 0, bytes = 0;  ///< behind the list of tensors
  };

  Error read_place(detail::GgufCursor& cursor, Place& place) const {
    std::string_view name;
    std::uint32_t rank = 0, type = 0;
    std::uint64_t begin = 0;
    if (!cursor.take(name)) return truncated("the name of a tensor");
    place.tensor.name = std::string(name);
    const std::string tensor = "says of tensor " + quoted(name) + " that ";
    const auto cut = [&] { return truncated(("the place of tensor " + quoted(name)).c_str()); };
    if (!cursor.take(rank)) return cut();
    constexpr std::uint32_t most_extents = 4;
    if (rank == 0 || rank > most_extents)
      return fault(tensor.c_str(), "it has ", rank, " extents, of 1 to ", most_extents);
    for (std::uint32_t i = 0; i < rank; ++i) {
      std::uint64_t extent = 0;
      if (!cursor.take(extent)) return cut();
      place.tensor.shape.push_back(detail::counted(extent));
    }
    if (!cursor.take(type) || !cursor.take(begin)) return cut();
    const detail::GgufTypeFacts* const facts = detail::gguf_type_facts(type);
    if (facts == nullptr) {
      const char* const unread = detail::unread_gguf_type(type);
      const std::string called = unread != nullptr ? unread : "the unknown type";
      return fault(tensor.c_str(), "it is of ", called.c_str(), " (", type, "); those read are ",
                   detail::read_gguf_types().c_str());
    }
    place.tensor.type = facts->type;
    std::vector<std::size_t>& shape = place.tensor.shape;
    if (shape[0] % facts->block_elems != 0)
      return fault(tensor.c_str(), "it has rows of ", shape[0], " in ", facts->name,
                   ", whose blocks have ", facts->block_elems);
    std::size_t bytes = shape[0] / facts->block_elems;
    bool fits = multiply(bytes, facts->block_bytes, bytes);
    for (std::size_t i = 1; i < shape.size(); ++i) fits = fits && multiply(bytes, shape[i], bytes);
    std::reverse(shape.begin(), shape.end());
    if (!fits || bytes > file_.bytes().size())
      return fault(tensor.c_str(), "it is ", text_of(shape).c_str(), " of ", facts->name,
                   "; the file is truncated, or was never as large: it has ",
                   shown(file_.bytes().size()));
    place.begin = detail::counted(begin);
    place.bytes = bytes;
    return {};
  }

  Error place_tensors(std::size_t header, std::vector<Place>& places) {
    std::uint64_t multiple = 32;
    const GgufValue* const said = value("general.alignment");
    if (said != nullptr && (!said->whole_number(multiple) || multiple == 0 ||
                            (multiple & (multiple - 1)) != 0 || multiple > 1U << 30))
      return fault("has general.alignment ", one_line(said->json(), 40).c_str(),
                   ", which is no power of two");
    const std::size_t whole = file_.bytes().size(), step = static_cast<std::size_t>(multiple);
    const std::size_t first = (header + step - 1) / step * step;
    const std::size_t room = first < whole ? whole - first : 0;
    std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.bytes < b.bytes;
    });
    std::size_t end = 0;
    for (Place& place : places) {
      const std::string tensor = "has tensor " + quoted(place.tensor.name);
      if (place.begin % step != 0)
        return fault(tensor.c_str(), " at byte ", place.begin, ", which is no multiple of ", step);
      if (place.begin < end)
        return fault(tensor.c_str(), " at byte ", place.begin, ", inside the one that ends at ",
                     end);
      if (place.begin > room || place.bytes > room - place.begin)
        return fault("is truncated: ", tensor.c_str() + 4, " has ", shown(place.bytes), " at byte ",
                     place.begin, " of ", room, " that are there");
      end = place.begin + place.bytes;
      if (place.bytes != 0)
        place.tensor.bytes = {file_.bytes().data() + first + place.begin, Shape(place.bytes)};
      tensors_.push_back(static_cast<GgufTensor&&>(place.tensor));
    }
    std::sort(tensors_.begin(), tensors_.end(),
              [](const GgufTensor& a, const GgufTensor& b) { return a.name < b.name; });
    for (std::size_t i = 1; i < tensors_.size(); ++i)
      if (tensors_[i].name == tensors_[i - 1].name)
        return fault("has tensor ", quoted(tensors_[i].name).c_str(), " a second time");
    return {};
  }

  MappedFile file_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
};

/// Copies a tensor into `to`, element by element: as float, converted to T (float, double or bfloat16, rounded
/// to the nearest). `to` has as many elements; its shape is not looked at. With `transposed`, the file has
/// (cols, rows) where `to` has (rows, cols).
template <class T>
Error copy_stored(const GgufTensor& from, View<T> to, bool transposed = false) {
  constexpr std::size_t at_once = 1024;  // whole blocks of every type
  const std::size_t rows = to.rows(), cols = to.cols();
  float buffer[at_once];
  for (std::size_t first = 0; first < to.size(); first += at_once) {
    const std::size_t count = detail::smaller(at_once, to.size() - first);
    decode_blocks(from.type, from.part(first, count).bytes.data(), {buffer, Shape(count)});
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = first + i;
      to[transposed ? at % rows * cols + at / rows : at] = detail::rounded<T>(buffer[i]);
    }
  }
  return {};
}

}}  // namespace adacc::v0_1
