// SPDX-License-Identifier: MIT
/// Files of the operating system: the few calls that io/ and store/ make, alike on POSIX systems and Windows.
///
/// A file is a FileHandle. A call that may fail returns a reason: 0, or a number for reason_words(); among these
/// numbers, errno's mean the same on all systems. Names are UTF-8 on Windows. Only bytes are read and written, at a
/// place that each call names. <windows.h> is not included: its macros would reach every program.
#pragma once

#include "file_handle.hpp"
#include "posix_file.hpp"
#include "windows_file.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Reads until `bytes` bytes are there or the file ends; `got` says how many were read.
inline int read_all_at(NativeFile file, std::uint64_t place, void* to, std::size_t bytes,
                       std::size_t& got) {
  for (got = 0; got < bytes;) {
    std::size_t moved = 0;
    const int reason =
        system::read_at(file, place + got, static_cast<char*>(to) + got, bytes - got, moved);
    if (reason != 0) return reason;
    if (moved == 0) return 0;
    got += moved;
  }
  return 0;
}

inline int write_all_at(NativeFile file, std::uint64_t place, const void* from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes;) {
    std::size_t moved = 0;
    const int reason =
        system::write_at(file, place + at, static_cast<const char*>(from) + at, bytes - at, moved);
    if (reason != 0) return reason;
    if (moved == 0) return ENOSPC;
    at += moved;
  }
  return 0;
}

}}}  // namespace adacc::v0_1::detail
