// SPDX-License-Identifier: MIT
/// The calls of system_file.hpp on POSIX systems.
#pragma once

#if !defined(_WIN32)

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "file_handle.hpp"

namespace adacc { inline namespace v0_1 { namespace detail { namespace system {

inline std::string reason_words(int reason) { return std::strerror(reason); }

inline FileStatus status_of(const struct stat& found) {
  FileStatus status;
  status.kind = S_ISREG(found.st_mode)   ? FileKind::file
                : S_ISDIR(found.st_mode) ? FileKind::folder
                                         : FileKind::other;
  status.bytes = static_cast<std::uint64_t>(found.st_size);
  status.mode = static_cast<unsigned>(found.st_mode) & 07777U;
  status.volume = static_cast<std::uint64_t>(found.st_dev);
  status.node = static_cast<std::uint64_t>(found.st_ino);
  return status;
}

inline FileStatus nothing_found(int reason) {
  FileStatus status;
  status.reason = reason;
  return status;
}

/// Follows links.
inline FileStatus examine(const std::string& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0 ? status_of(found) : nothing_found(errno);
}

inline FileStatus examine(NativeFile file) {
  struct stat found {};
  return ::fstat(file, &found) == 0 ? status_of(found) : nothing_found(errno);
}

/// Replaces a name that is a link by the name of its target.
inline int follow_link(std::string& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0 || !S_ISLNK(found.st_mode)) return 0;
  char* const target = ::realpath(path.c_str(), nullptr);
  if (target == nullptr) return errno;
  path = target;
  std::free(target);
  return 0;
}

/// A pipe without a writer must not hang the open; for regular files nothing changes.
inline int open_to_read(const std::string& path, FileHandle& file) {
  file = FileHandle(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  return file.is_open() ? 0 : errno;
}

/// Makes the file, or empties the one of a killed process; EBUSY while another saver has it.
inline int open_to_save(const std::string& path, FileHandle& file) {
  for (;;) {
    file = FileHandle(
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
    if (!file.is_open()) return errno;
    // If the file system has no locks, two savers at once are the user's own affair.
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return EBUSY;
    // Between open and lock another saver may have renamed or removed the opened file.
    const FileStatus opened = examine(file.get());
    if (opened.kind == FileKind::nothing) return opened.reason;
    if (same_place(opened, examine(path))) return ::ftruncate(file.get(), 0) == 0 ? 0 : errno;
  }
}

/// Some file systems have no modes.
inline int set_mode(NativeFile file, unsigned mode) {
  return ::fchmod(file, static_cast<mode_t>(mode)) == 0 || errno == EPERM || errno == ENOTSUP
             ? 0
             : errno;
}

/// Whether the system counts places as far as `place`.
inline bool place_fits(std::uint64_t place) {
  const auto offset = static_cast<off_t>(place);
  return offset >= 0 && static_cast<std::uint64_t>(offset) == place;
}

/// Reads some bytes, none at the end of the file.
inline int read_at(NativeFile file, std::uint64_t place, void* to, std::size_t bytes,
                   std::size_t& moved) {
  if (!place_fits(place)) return EOVERFLOW;
  for (;;) {
    const ssize_t got = ::pread(file, to, bytes, static_cast<off_t>(place));
    if (got < 0 && errno == EINTR) continue;
    moved = got < 0 ? 0 : static_cast<std::size_t>(got);
    return got < 0 ? errno : 0;
  }
}

/// Writes some bytes.
inline int write_at(NativeFile file, std::uint64_t place, const void* from, std::size_t bytes,
                    std::size_t& moved) {
  if (!place_fits(place)) return EOVERFLOW;
  for (;;) {
    const ssize_t put = ::pwrite(file, from, bytes, static_cast<off_t>(place));
    if (put < 0 && errno == EINTR) continue;
    moved = put < 0 ? 0 : static_cast<std::size_t>(put);
    return put < 0 ? errno : 0;
  }
}

/// Returns when the file's bytes are on the disk.
inline int flush(NativeFile file) { return ::fsync(file) != 0 ? errno : 0; }

/// Returns when a new name in the folder is on the disk. Some file systems cannot flush a folder and say EINVAL: then
/// renaming must suffice.
inline int flush_folder(const std::string& folder) {
  const FileHandle held(::open(folder.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY));
  return held.is_open() && ::fsync(held.get()) != 0 && errno != EINVAL && errno != ENOTSUP ? errno
                                                                                           : 0;
}

/// Gives the file `from`, which may be open, the name `to`, in place of an older file of this name.
inline int replace(const std::string& from, const std::string& to) {
  return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

inline void remove(const std::string& path) { ::unlink(path.c_str()); }

/// The whole file as read-only memory, which stays after the file is closed; `bytes` is its size.
inline int map(NativeFile file, std::size_t bytes, const void*& memory) {
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
  if (mapped == MAP_FAILED) return errno;
  memory = mapped;
  return 0;
}

inline void unmap(const void* memory, std::size_t bytes) {
  ::munmap(const_cast<void*>(memory), bytes);
}

inline std::size_t page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

/// Whole pages of mapped memory leave the process until they are touched again: a wish, which the system may refuse.
inline void forget_pages(const void* memory, std::size_t bytes) {
  static_cast<void>(::madvise(const_cast<void*>(memory), bytes, MADV_DONTNEED));
}

}}}}  // namespace adacc::v0_1::detail::system

#endif
