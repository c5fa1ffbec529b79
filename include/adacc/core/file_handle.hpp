// SPDX-License-Identifier: MIT
/// An open file of the operating system, and the findings about a name.
#pragma once

#if !defined(_WIN32)
#include <unistd.h>
#endif

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "windows_functions.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

#if defined(_WIN32)
using NativeFile = void*;  // a HANDLE
inline const NativeFile no_file = nullptr;
#else
using NativeFile = int;
inline constexpr NativeFile no_file = -1;
#endif

/// An open file, closed by the destructor.
class FileHandle {
 public:
  FileHandle() = default;
  explicit FileHandle(NativeFile file) : file_(file) {}
  FileHandle(FileHandle&& other) noexcept : file_(other.file_) { other.file_ = no_file; }
  FileHandle& operator=(FileHandle&& other) noexcept {
    const NativeFile file = file_;
    file_ = other.file_;
    other.file_ = file;
    return *this;
  }
  ~FileHandle() { close(); }

  bool is_open() const { return file_ != no_file; }
  NativeFile get() const { return file_; }

  /// Closes the file; 0, or the reason: a full disk may show only here.
  int close() {
    const NativeFile file = file_;
    file_ = no_file;
    if (file == no_file) return 0;
#if defined(_WIN32)
    return ::CloseHandle(file) != 0 ? 0 : EIO;
#else
    return ::close(file) == 0 ? 0 : errno;
#endif
  }

 private:
  NativeFile file_ = no_file;
};

enum class FileKind : unsigned char { nothing, file, folder, other };

/// The findings about a name, or about an open file.
struct FileStatus {
  FileKind kind = FileKind::nothing;
  int reason = 0;  ///< why nothing was found
  std::uint64_t bytes = 0;
  unsigned mode = 0;                   ///< who may do what, on POSIX systems
  std::uint64_t volume = 0, node = 0;  ///< equal pairs: one file
};

inline bool same_place(const FileStatus& a, const FileStatus& b) {
  return a.kind != FileKind::nothing && b.kind != FileKind::nothing && a.volume == b.volume &&
         a.node == b.node;
}

}}}  // namespace adacc::v0_1::detail
