// SPDX-License-Identifier: MIT
/// A file as memory that may only be read.
#pragma once

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "../core/error.hpp"
#include "../core/view.hpp"
#include "file.hpp"

namespace adacc { inline namespace v0_1 {

/// A regular file, mapped whole. Its pages come from the disk as they are touched, and the kernel may
/// drop them again, so a large file costs memory only for what is being read. If somebody else
/// shortens the file in the meantime, touching what is gone ends the process (SIGBUS).
class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept
      : path_(static_cast<std::string&&>(other.path_)), expected_(other.expected_),
        data_(other.data_), size_(other.size_) {
    other.data_ = nullptr;
    other.size_ = 0;
  }
  MappedFile& operator=(MappedFile&& other) noexcept {
    if (this == &other) return *this;
    unmap();
    path_ = static_cast<std::string&&>(other.path_);
    expected_ = other.expected_;
    data_ = other.data_;
    size_ = other.size_;
    other.data_ = nullptr;
    other.size_ = 0;
    return *this;
  }
  ~MappedFile() { unmap(); }

  /// `expected` says in a message what the file should have been.
  static Result<MappedFile> open(const std::string& path, const char* expected) {
    MappedFile file;
    file.path_ = path;
    file.expected_ = expected;
    const detail::FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd.is_open()) return file.fault("cannot be opened (", std::strerror(errno), ")");
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0)
      return file.fault("cannot be examined (", std::strerror(errno), ")");
    if (S_ISDIR(status.st_mode)) return file.fault("is a folder");
    if (!S_ISREG(status.st_mode)) return file.fault("is not a regular file");
    if (status.st_size == 0) return file.fault("is empty");
    const auto size = static_cast<std::size_t>(status.st_size);
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (data == MAP_FAILED) return file.fault("cannot be mapped (", std::strerror(errno), ")");
    file.data_ = data;
    file.size_ = size;
    return file;
  }

  ConstBytes bytes() const { return {static_cast<const std::byte*>(data_), Shape(size_)}; }
  const std::string& path() const { return path_; }

  /// "PATH: pieces…; expected EXPECTED".
  template <class... Pieces>
  Error fault(const Pieces&... pieces) const {
    return Error::say(one_line(path_).c_str(), ": ", pieces..., "; expected ", expected_);
  }

 private:
  void unmap() {
    if (data_ != nullptr) ::munmap(data_, size_);
    data_ = nullptr;
  }

  std::string path_;
  const char* expected_ = "";
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}}  // namespace adacc::v0_1
