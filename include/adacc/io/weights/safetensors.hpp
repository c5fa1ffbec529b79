// SPDX-License-Identifier: MIT
/// Reads models in the safetensors format of the Hugging Face Hub.
///
/// A file is eight bytes with the length of a header, the header (JSON: type, shape and position of the bytes of each
/// tensor), and the tensors' bytes, without gaps and overlaps. A model of several files has an index, which says
/// which file has which tensor.
///
/// Nothing in such a file is trusted: each size is checked before use, and inconsistent files are refused in words.
/// Files are mapped, so a model takes memory only while it is copied.
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
#include "../../core/no_memory.hpp"
#include "../../core/view.hpp"
#include "../file.hpp"
#include "../mapped_file.hpp"
#include "json_reader.hpp"
#include "stored_type.hpp"
#include "wanted_tensors.hpp"

namespace adacc { inline namespace v0_1 {

/// A tensor in a file. The name is unchanged, in UTF-8; one_line() makes it safe to print.
struct StoredTensor {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::size_t> shape;  ///< empty: a single element
  ConstBytes bytes;                ///< not aligned

  std::size_t elems() const { return bytes.size() * 8 / bits_of(type); }
  /// `count` elements from `first` on; they are whole bytes.
  StoredTensor part(std::size_t first, std::size_t count) const {
    const std::size_t bits = bits_of(type);
    return {name, type, {count}, {bytes.data() + first * bits / 8, Shape(count * bits / 8)}};
  }
  /// Why it is not copied, to stand behind its name; empty if it is.
  std::string obstacle() const {
    if (is_number(type)) return {};
    return std::string("is of type ") + name_of(type) +
           ", whose elements are complex numbers: none is a single number";
  }
};

/// All tensors of a model, in the order of their names' bytes, as long as this lives.
class SafeTensors {
 public:
  /// `path` is a file, an index (its name ends with ".json"), or a folder with "model.safetensors" or
  /// "model.safetensors.index.json".
  static Result<SafeTensors> open(const std::string& path) {
    return detail::or_no_memory("to read a safetensors file", [&]() -> Result<SafeTensors> {
      const std::string place = is_folder(path) ? place_of(path) : path;
      if (place.empty())
        return Error::say(one_line(path).c_str(),
                          ": the folder has neither model.safetensors nor an index of that name");
      SafeTensors model;
      const Error why =
          place.ends_with(".json") ? model.read_index(place) : model.read_file(place, nullptr);
      if (why) return why;
      return static_cast<SafeTensors&&>(model);  // nvcc would copy it
    });
  }

  std::size_t size() const { return tensors_.size(); }
  const StoredTensor& operator[](std::size_t i) const { return tensors_[i]; }
  const StoredTensor* begin() const { return tensors_.data(); }
  const StoredTensor* end() const { return tensors_.data() + tensors_.size(); }
  /// The bytes of the mapped file that has the tensor.
  ConstBytes file_of(const StoredTensor& tensor) const {
    const auto at = reinterpret_cast<std::uintptr_t>(tensor.bytes.data());
    for (const MappedFile& file : files_) {
      const auto begin = reinterpret_cast<std::uintptr_t>(file.bytes().data());
      if (at >= begin && at - begin <= file.bytes().size()) return file.bytes();
    }
    return tensor.bytes;
  }
  /// All pages of the files leave the process until they are touched again.
  void forget_pages() const {
    for (const MappedFile& file : files_) MappedFile::release(file.bytes(), file.bytes());
  }

  /// Null if there is no tensor of this name. A tensor with several names is saved under one of them and also found
  /// under the others, which are in the metadata ("transformer.wte.weight" is "lm_head.weight").
  const StoredTensor* find(std::string_view name) const {
    const StoredTensor* const found = named(name);
    if (found != nullptr) return found;
    const auto alias = metadata_.find(std::string(name));
    return alias == metadata_.end() ? nullptr : named(alias->second);
  }

  /// Metadata of the files: "format" is "pt" if PyTorch wrote them.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// The file or index with the tensors of the model at `path` (its folder, or a file in it); empty if there is none.
  static std::string place_of(const std::string& path) {
    const bool config = path.ends_with("config.json");
    if (!config && !is_folder(path) && is_there(path)) return path;
    const std::string whole = folder_of(path) + "model.safetensors";
    for (const std::string& place : {whole, whole + ".index.json"})
      if (is_there(place)) return place;
    return {};
  }

 private:
  static constexpr const char* expected = "a safetensors file";

  const StoredTensor* named(std::string_view name) const {
    const auto at = std::lower_bound(
        tensors_.begin(), tensors_.end(), name,
        [](const StoredTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
    return at != tensors_.end() && at->name == name ? &*at : nullptr;
  }
  static constexpr std::size_t most_header_bytes = 100'000'000;  // the format's own limit

  /// Reads the tensors of one file; if there is `wanted`, only those named there.
  Error read_file(const std::string& path, const std::map<std::string, std::string>* wanted) {
    Result<MappedFile> opened = MappedFile::open(path, expected);
    if (!opened) return opened.error;
    const MappedFile& file = *opened;
    const ConstBytes bytes = file.bytes();
    if (bytes.size() < 8) return file.fault("is truncated: it has ", shown(bytes.size()));
    const auto header = detail::load_unaligned<std::uint64_t>(bytes.data());
    if (header > most_header_bytes)
      return file.fault("says that its header has ", header, " bytes, of at most ",
                        most_header_bytes);
    const auto header_bytes = static_cast<std::size_t>(header);
    if (header_bytes > bytes.size() - 8)
      return file.fault("is truncated: it has ", shown(bytes.size()), ", its header alone ",
                        shown(header_bytes));
    const void* text = bytes.data() + 8;
    std::vector<Place> places;
    JsonReader json(std::string_view(static_cast<const char*>(text), header_bytes));
    const auto member = [&](const std::string& name) {
      if (name == "__metadata__") return read_metadata(json);
      places.push_back({});
      places.back().tensor.name = name;
      return read_place(json, places.back());
    };
    if (!json.object(member) || !json.end()) {
      if (!problem_.empty()) return file.fault(problem_.c_str());
      return file.fault(json.fault().text());
    }
    const ConstBytes data(bytes.data() + 8 + header_bytes, Shape(bytes.size() - 8 - header_bytes));
    if (Error why = check_places(file, places, data.size())) return why;
    for (Place& place : places) {
      if (wanted != nullptr && wanted->count(place.tensor.name) == 0) continue;
      place.tensor.bytes = {data.data() + place.begin, Shape(place.end - place.begin)};
      tensors_.push_back(static_cast<StoredTensor&&>(place.tensor));
    }
    files_.push_back(static_cast<MappedFile&&>(*opened));
    return sort_tensors();
  }

  struct Place {
    StoredTensor tensor;
    std::size_t begin = 0, end = 0;
    bool has_type = false, has_shape = false, has_offsets = false;
  };

  bool read_metadata(JsonReader& json) {
    return json.object([&](const std::string& key) {
      std::string value;
      if (!json.string(value)) return false;
      metadata_[key] = value;
      return true;
    });
  }

  bool read_place(JsonReader& json, Place& place) {
    const auto complain = [&](const std::string& why) {
      problem_ = "says of tensor \"" + one_line(place.tensor.name, 60) + "\" " + why;
      return false;
    };
    const auto member = [&](const std::string& key) {
      std::uint64_t number = 0;
      if (key == "dtype") {
        std::string name;
        if (!json.string(name)) return false;
        place.has_type = stored_type_of(name, place.tensor.type);
        if (!place.has_type)
          return complain("that it is of type " + one_line(name, 20) +
                          ", which this program does not know");
      } else if (key == "shape") {
        place.has_shape = true;
        place.tensor.shape.clear();
        return json.array([&] {
          if (!json.whole_number(number)) return false;
          place.tensor.shape.push_back(detail::counted(number));
          return true;
        });
      } else if (key == "data_offsets") {
        std::vector<std::uint64_t> offsets;
        if (!json.array([&] {
              if (!json.whole_number(number)) return false;
              offsets.push_back(number);
              return offsets.size() <= 2;
            }))
          return false;
        place.has_offsets = offsets.size() == 2 && offsets[0] <= offsets[1];
        if (!place.has_offsets) return complain("no two data_offsets that begin before they end");
        place.begin = detail::counted(offsets[0]);
        place.end = detail::counted(offsets[1]);
      } else {
        return json.skip();
      }
      return true;
    };
    if (!json.object(member)) return false;
    if (!place.has_type || !place.has_shape || !place.has_offsets)
      return complain("less than its dtype, shape and data_offsets");
    std::size_t bits = bits_of(place.tensor.type);
    for (const std::size_t extent : place.tensor.shape)
      if (!multiply(bits, extent, bits)) return complain("a shape that is too large to address");
    if (bits % 8 != 0)
      return complain("that it is " + text_of(place.tensor.shape) + " of " +
                      name_of(place.tensor.type) + ", which are " + std::to_string(bits) +
                      " bits; the format has whole bytes only");
    const std::size_t bytes = bits / 8;
    if (bytes != place.end - place.begin)
      return complain("that " + text_of(place.tensor.shape) + " of " + name_of(place.tensor.type) +
                      " have " + std::to_string(place.end - place.begin) + " bytes; they have " +
                      std::to_string(bytes));
    return true;
  }

  /// Tensors lie one behind the other, from the first byte to the last.
  static Error check_places(const MappedFile& file, std::vector<Place>& places, std::size_t bytes) {
    std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    });
    std::size_t at = 0;
    for (const Place& place : places) {
      if (place.begin != at)
        return file.fault("has tensor \"", one_line(place.tensor.name, 60).c_str(), "\" at byte ",
                          place.begin, ", ", place.begin < at ? "inside" : "with a gap behind",
                          " the one that ends at ", at);
      at = place.end;
    }
    if (at != bytes)
      return file.fault(at > bytes ? "is truncated: " : "is too long: ", "its tensors have ",
                        shown(at), ", and ", shown(bytes), " are there");
    return {};
  }

  Error sort_tensors() {
    std::sort(tensors_.begin(), tensors_.end(),
              [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
    for (std::size_t i = 1; i < tensors_.size(); ++i)
      if (tensors_[i].name == tensors_[i - 1].name)
        return files_.back().fault("has tensor \"", one_line(tensors_[i].name, 60).c_str(),
                                   "\" a second time");
    return {};
  }

  /// {"weight_map": {"tensor": "file beside the index", …}}
  Error read_index(const std::string& path) {
    constexpr const char* index = "an index of safetensors files";
    Result<MappedFile> file = MappedFile::open(path, index);
    if (!file) return file.error;
    const ConstBytes bytes = file->bytes();
    const void* text = bytes.data();
    JsonReader json(std::string_view(static_cast<const char*>(text), bytes.size()));
    std::map<std::string, std::map<std::string, std::string>> by_file;
    bool mapped = false;
    const auto entry = [&](const std::string& tensor) {
      std::string name;
      if (!json.string(name)) return false;
      if (name.empty() || name[0] == '.' ||
          name.find_first_of(std::string_view("/\\\0", 3)) != name.npos) {
        problem_ = "sends to \"" + one_line(name, 60) + "\", which is no name of a file beside it";
        return false;
      }
      by_file[name][tensor] = name;
      return true;
    };
    const auto member = [&](const std::string& key) {
      if (key != "weight_map") return json.skip();
      mapped = true;
      return json.object(entry);
    };
    if (!json.object(member) || !json.end()) {
      if (!problem_.empty()) return file->fault(problem_.c_str());
      return file->fault(json.fault().text());
    }
    if (!mapped) return file->fault("has no \"weight_map\"");
    const std::string folder = folder_of(path);
    for (const auto& [name, wanted] : by_file) {
      if (Error why = read_file(folder + name, &wanted)) return why;
      for (const auto& [tensor, unused] : wanted)
        if (named(tensor) == nullptr)
          return file->fault("looks for tensor \"", one_line(tensor, 60).c_str(), "\" in ",
                             one_line(name, 60).c_str(), ", which has none of that name");
    }
    return {};
  }

  std::vector<MappedFile> files_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
  std::string problem_;  // while reading: a problem other than of JSON
};

/// Copies a tensor into `to`, element by element converted to T: float, double or bfloat16, rounded to
/// the nearest (bfloat16 by way of float). `to` has as many elements; its shape is not looked at.
/// With `transposed`, the file has (cols, rows) where `to` has (rows, cols). An error, and nothing is
/// copied, if the file's elements are complex numbers.
template <class T>
Error copy_stored(const StoredTensor& from, View<T> to, bool transposed = false) {
  const std::size_t rows = to.rows(), cols = to.cols();
  const bool numbers = detail::with_reader(from.type, [&](const auto& read) {
    const std::byte* data = from.bytes.data();
    if (!transposed) {
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = detail::rounded<T>(read(data, i));
      return;
    }
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t c = 0; c < cols; ++c)
        to[r * cols + c] = detail::rounded<T>(read(data, c * rows + r));
  });
  if (numbers) return {};
  return Error::say("\"", one_line(from.name, 80).c_str(), "\" ", from.obstacle().c_str());
}

}}  // namespace adacc::v0_1
