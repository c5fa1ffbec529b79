// SPDX-License-Identifier: MIT
/// A file as read-only memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "../core/error.hpp"
#include "../core/system_file.hpp"
#include "../core/view.hpp"
#include "../model/stored_parameter.hpp"
#include "file.hpp"

namespace adacc { inline namespace v0_1 {

/// A regular file, mapped whole. Pages come from the disk when touched, and the kernel may drop them again, so a
/// large file costs memory only for the part being read. If another process shortens the file meanwhile, touching the
/// lost part ends the process (SIGBUS).
class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept
      : file_(static_cast<InputFile&&>(other.file_)), data_(other.data_) {
    other.data_ = nullptr;
  }
  MappedFile& operator=(MappedFile&& other) noexcept {
    if (this == &other) return *this;
    unmap();
    file_ = static_cast<InputFile&&>(other.file_);
    data_ = other.data_;
    other.data_ = nullptr;
    return *this;
  }
  ~MappedFile() { unmap(); }

  /// `expected` names, for messages, the right contents.
  static Result<MappedFile> open(const std::string& path, const char* expected) {
    Result<InputFile> file = InputFile::open(path, expected);
    if (!file) return file.error;
    if (file->size() == 0) return file->fault("is empty");
    const void* data = nullptr;
    if (const int reason = detail::system::map(file->fd_.get(), file->size(), data))
      return file->fault("cannot be mapped (", detail::system::reason_words(reason).c_str(), ")");
    file->fd_.close();  // the mapping stays
    MappedFile mapped;
    mapped.file_ = static_cast<InputFile&&>(*file);
    mapped.data_ = data;
    return static_cast<MappedFile&&>(mapped);  // nvcc would copy it
  }

  ConstBytes bytes() const {
    return {static_cast<const std::byte*>(data_), Shape(data_ == nullptr ? 0 : file_.size())};
  }
  const std::string& path() const { return file_.path(); }

  /// Bytes of a mapped file, already read and not needed soon: pages wholly inside leave the
  /// process until they are touched again. So reading a model tensor by tensor into other memory takes no more than
  /// this memory.
  static void forget(ConstBytes bytes) {
    const std::size_t page = detail::system::page_bytes();
    const std::size_t past = reinterpret_cast<std::uintptr_t>(bytes.data()) % page;
    const std::size_t before = past == 0 ? 0 : page - past;  // the next page
    if (bytes.size() < before + page) return;
    const std::size_t whole = (bytes.size() - before) / page * page;
    // The mapping is read-only, and stays so.
    detail::system::forget_pages(bytes.data() + before, whole);
  }

  /// Takes the pages of `part` out of the process until they are touched again, along with all others of `mapping`, the
  /// bytes of a mapped file, that the system may have mapped with them (most_fault_bytes).
  static void release(ConstBytes mapping, ConstBytes part) {
    constexpr std::size_t most_page_bytes = 65536;
    const auto first = static_cast<std::size_t>(part.data() - mapping.data());
    const std::size_t past = first + part.size();
    const std::size_t from = first < most_fault_bytes
                                 ? 0
                                 : (first - most_fault_bytes) / most_page_bytes * most_page_bytes;
    const std::size_t left = mapping.size() - from, wanted = past + most_fault_bytes - from;
    detail::system::forget_pages(mapping.data() + from, wanted < left ? wanted : left);
  }

  /// "PATH: pieces…; expected EXPECTED".
  template <class... Pieces>
  Error fault(const Pieces&... pieces) const {
    return file_.fault(pieces...);
  }

 private:
  void unmap() {
    if (data_ != nullptr) detail::system::unmap(data_, file_.size());
    data_ = nullptr;
  }

  InputFile file_;  ///< closed; kept for name and size
  const void* data_ = nullptr;
};

}}  // namespace adacc::v0_1
