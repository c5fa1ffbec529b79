// SPDX-License-Identifier: MIT
/// A scratch file on Linux: O_TMPFILE, which has no name, and O_DIRECT, past the page cache.
#pragma once

#if defined(__linux__)

#include <fcntl.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "no_scratch.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Opens an empty file in `folder`. `alignment` divides addresses, places and sizes of transfers.
inline Error open_scratch(const std::string& folder, FileHandle& file, std::size_t& alignment) {
  constexpr unsigned dio_align = 0x2000;  // STATX_DIOALIGN, which older headers lack
  file = FileHandle(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600));
  if (!file.is_open()) {
    const int reason = errno;
    if (reason == EISDIR || reason == EOPNOTSUPP || reason == EINVAL)
      return no_scratch(
          folder,
          "its file system has no files without a name, or no direct access to the disk "
          "(O_TMPFILE, O_DIRECT); choose a folder on ext4, xfs or btrfs");
    return no_scratch(folder, std::strerror(reason));
  }
  struct statfs system {};
  constexpr auto tmpfs = 0x01021994, ramfs = static_cast<int>(0x858458f6);
  const bool in_memory =
      ::fstatfs(file.get(), &system) == 0 &&
      (static_cast<int>(system.f_type) == tmpfs || static_cast<int>(system.f_type) == ramfs);
  struct statx status {};
  const bool asked = ::syscall(SYS_statx, file.get(), "", AT_EMPTY_PATH, dio_align, &status) == 0;
  const bool answered = asked && (status.stx_mask & dio_align) != 0;
  if (in_memory || (answered && status.stx_dio_offset_align == 0))
    return no_scratch(
        folder,
        "it lies in memory (tmpfs) or can't be accessed past the page cache: offloading "
        "there takes the memory that it is to save; choose a folder on a disk");
  alignment = 4096;  // older kernels do not tell the alignment: at most a page
  if (answered) {
    const std::size_t memory = status.stx_dio_mem_align, places = status.stx_dio_offset_align;
    alignment = memory > places ? memory : places;
    if (alignment < adacc::alignment) alignment = adacc::alignment;
  }
  return {};
}

/// Takes room for `bytes` bytes on the disk.
inline Error take_scratch_room(const std::string& folder, NativeFile file, std::size_t bytes) {
  if (!system::place_fits(bytes))
    return no_scratch(folder, "a file of ", shown(bytes), " is larger than any can be");
  const auto size = static_cast<off_t>(bytes);
  struct statvfs before {};  // a request that does not fit first takes all room there is
  const bool known = ::fstatvfs(file, &before) == 0;
  int reason = bytes == 0 || ::fallocate(file, 0, 0, size) == 0 ? 0 : errno;
  if (reason == EOPNOTSUPP) reason = ::ftruncate(file, size) == 0 ? 0 : errno;
  if (reason == ENOSPC || reason == EFBIG || reason == EDQUOT) {
    const std::size_t room =
        known ? static_cast<std::size_t>(before.f_bavail) * before.f_frsize : 0;
    return no_scratch(folder, "it needs ", shown(bytes), ", and ", shown(room), " are free (",
                      std::strerror(reason), ")");
  }
  if (reason != 0) return no_scratch(folder, std::strerror(reason));
  return {};
}

}}}  // namespace adacc::v0_1::detail

#endif
