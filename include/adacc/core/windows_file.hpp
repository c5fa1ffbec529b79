// SPDX-License-Identifier: MIT
/// The calls of system_file.hpp on Windows.
///
/// A file being saved is open for nobody else's writing, which keeps two savers apart, and may be renamed while open. A
/// mapped file, or a file opened by another program without FILE_SHARE_DELETE, cannot be replaced: then saving
/// fails, the old file stays, and the error says so.
#pragma once

#if defined(_WIN32)

#include "file_handle.hpp"
#include "windows_functions.hpp"

namespace adacc { inline namespace v0_1 { namespace detail { namespace system {

/// The few codes of Windows with words in errno; the others are kept, negative.
inline int reason_of(unsigned long code) {
  switch (code) {
    case 2:
    case 3:
    case 53:
    case 67:
    case 123: return ENOENT;
    case 4: return EMFILE;
    case 5:
    case 19: return EACCES;
    case 8:
    case 14: return ENOMEM;
    case 32:
    case 33: return EBUSY;
    case 39:
    case 112: return ENOSPC;
    case 206: return ENAMETOOLONG;
    case 223: return EFBIG;
    default: return -static_cast<int>(code);
  }
}
inline int last_reason() { return reason_of(::GetLastError()); }

inline std::string reason_words(int reason) {
  if (reason >= 0) return std::strerror(reason);
  if (reason == -1224) return "Windows error 1224: another program has the file mapped";
  char digits[16];
  std::size_t at = sizeof digits;
  for (digits[--at] = '\0'; reason < 0; reason /= 10)
    digits[--at] = static_cast<char>('0' - reason % 10);
  return std::string("Windows error ") + (digits + at);
}

inline std::wstring wide(const std::string& path) {
  constexpr unsigned utf8 = 65001;
  const int size = static_cast<int>(path.size());
  const int count = ::MultiByteToWideChar(utf8, 0, path.data(), size, nullptr, 0);
  std::wstring name(static_cast<std::size_t>(count > 0 ? count : 0), L'\0');
  if (count > 0) ::MultiByteToWideChar(utf8, 0, path.data(), size, name.data(), count);
  return name;
}

inline constexpr unsigned long read_access = 0x80000000UL, write_access = 0x40000000UL,
                               delete_access = 0x10000UL;
inline constexpr unsigned long share_read = 1, share_write = 2, share_delete = 4;
inline constexpr unsigned long open_existing = 3, open_always = 4;
inline constexpr unsigned long folders_too = 0x02000000UL, attribute_folder = 0x10,
                               attribute_link = 0x400;
inline constexpr unsigned long no_attributes = 0xFFFFFFFFUL;

/// Opens a file; no_file after a failure.
inline FileHandle open(const std::string& path, unsigned long access, unsigned long shared,
                       unsigned long creation, unsigned long flags) {
  void* const file =
      ::CreateFileW(wide(path).c_str(), access, shared, nullptr, creation, flags, nullptr);
  return FileHandle(file == reinterpret_cast<void*>(~std::uintptr_t{0}) ? no_file : file);
}

inline FileStatus nothing_found(int reason) {
  FileStatus status;
  status.reason = reason;
  return status;
}

inline FileStatus examine(NativeFile file) {
  struct Information {  // BY_HANDLE_FILE_INFORMATION
    unsigned long attributes, times[6], volume, bytes_high, bytes_low, links, node_high, node_low;
  } found{};
  FileStatus status;
  if (::GetFileType(file) != 1) {  // no file on a disk
    status.kind = FileKind::other;
    return status;
  }
  if (::GetFileInformationByHandle(file, reinterpret_cast<_BY_HANDLE_FILE_INFORMATION*>(&found)) ==
      0)
    return nothing_found(last_reason());
  status.kind = (found.attributes & attribute_folder) != 0 ? FileKind::folder : FileKind::file;
  status.bytes = std::uint64_t{found.bytes_high} << 32 | found.bytes_low;
  status.volume = found.volume;
  status.node = std::uint64_t{found.node_high} << 32 | found.node_low;
  return status;
}

/// Follows links.
inline FileStatus examine(const std::string& path) {
  const FileHandle file =
      open(path, 0, share_read | share_write | share_delete, open_existing, folders_too);
  return file.is_open() ? examine(file.get()) : nothing_found(last_reason());
}

/// Replaces the name of a link by the name of the target.
inline int follow_link(std::string& path) {
  const unsigned long attributes = ::GetFileAttributesW(wide(path).c_str());
  if (attributes == no_attributes || (attributes & attribute_link) == 0) return 0;
  const FileHandle file =
      open(path, 0, share_read | share_write | share_delete, open_existing, folders_too);
  if (!file.is_open()) return last_reason();
  wchar_t name[1024];
  const unsigned long size = ::GetFinalPathNameByHandleW(file.get(), name, 1024, 0);
  if (size == 0 || size >= 1024) return size == 0 ? last_reason() : ENAMETOOLONG;
  char target[4096];
  const int count =
      ::WideCharToMultiByte(65001, 0, name, static_cast<int>(size), target, 4096, nullptr, nullptr);
  if (count <= 0) return last_reason();
  path.assign(target, static_cast<std::size_t>(count));
  return 0;
}

inline int open_to_read(const std::string& path, FileHandle& file) {
  file =
      open(path, read_access, share_read | share_write | share_delete, open_existing, folders_too);
  return file.is_open() ? 0 : last_reason();
}

/// Makes the file, or empties the one of a killed process; EBUSY while another saver has the file.
inline int open_to_save(const std::string& path, FileHandle& file) {
  file = open(path, read_access | write_access | delete_access, share_read | share_delete,
              open_always, 0x80);
  if (!file.is_open()) return last_reason();
  return ::SetEndOfFile(file.get()) != 0 ? 0 : last_reason();
}

/// A file has the rights given by the folder.
inline int set_mode(NativeFile, unsigned) { return 0; }

struct Overlapped {  // OVERLAPPED
  std::uintptr_t internal[2] = {};
  unsigned long place_low = 0, place_high = 0;
  void* event = nullptr;
};
inline Overlapped overlapped(std::uint64_t place) {
  Overlapped at;
  at.place_low = static_cast<unsigned long>(place & 0xFFFFFFFFU);
  at.place_high = static_cast<unsigned long>(place >> 32);
  return at;
}
inline unsigned long bytes_at_once(std::size_t bytes) {
  constexpr unsigned long most = 1UL << 30;
  return bytes < most ? static_cast<unsigned long>(bytes) : most;
}

/// Reads some bytes, none at the end of the file.
inline int read_at(NativeFile file, std::uint64_t place, void* to, std::size_t bytes,
                   std::size_t& moved) {
  constexpr unsigned long end_of_file = 38;
  Overlapped at = overlapped(place);
  unsigned long got = 0;
  const int good =
      ::ReadFile(file, to, bytes_at_once(bytes), &got, reinterpret_cast<_OVERLAPPED*>(&at));
  moved = got;
  return good != 0 || ::GetLastError() == end_of_file ? 0 : last_reason();
}

/// Writes some bytes.
inline int write_at(NativeFile file, std::uint64_t place, const void* from, std::size_t bytes,
                    std::size_t& moved) {
  Overlapped at = overlapped(place);
  unsigned long put = 0;
  const int good =
      ::WriteFile(file, from, bytes_at_once(bytes), &put, reinterpret_cast<_OVERLAPPED*>(&at));
  moved = put;
  return good != 0 ? 0 : last_reason();
}

/// Returns when the file's bytes are on the disk.
inline int flush(NativeFile file) { return ::FlushFileBuffers(file) != 0 ? 0 : last_reason(); }

/// Windows flushes no folders; replace() waits for the disk.
inline int flush_folder(const std::string&) { return 0; }

/// Gives the file `from`, which may be open, the name `to`, in place of an older file of this name.
inline int replace(const std::string& from, const std::string& to) {
  constexpr unsigned long replace_existing = 1, write_through = 8;
  return ::MoveFileExW(wide(from).c_str(), wide(to).c_str(), replace_existing | write_through) != 0
             ? 0
             : last_reason();
}

inline void remove(const std::string& path) { ::DeleteFileW(wide(path).c_str()); }

/// The whole file as read-only memory, which stays after the file is closed; `bytes` is its size.
inline int map(NativeFile file, std::size_t bytes, const void*& memory) {
  constexpr unsigned long page_read_only = 2, map_read = 4;
  const FileHandle mapping(::CreateFileMappingW(file, nullptr, page_read_only, 0, 0, nullptr));
  if (!mapping.is_open()) return last_reason();
  memory = ::MapViewOfFile(mapping.get(), map_read, 0, 0, bytes);
  return memory != nullptr ? 0 : last_reason();
}

inline void unmap(const void* memory, std::size_t) { ::UnmapViewOfFile(memory); }

inline std::size_t page_bytes() { return 4096; }

/// Pages of mapped memory leave the process until they are touched again. A call that unlocks pages which are not locked
/// takes them out of the working set, and fails.
inline void forget_pages(const void* memory, std::size_t bytes) {
  static_cast<void>(::VirtualUnlock(const_cast<void*>(memory), bytes));
}

}}}}  // namespace adacc::v0_1::detail::system

#endif
