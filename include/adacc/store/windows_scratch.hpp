// SPDX-License-Identifier: MIT
/// A scratch file on Windows: deleted when closed, whatever ends the process, and past the cache.
#pragma once

#if defined(_WIN32)

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "../core/number_text.hpp"
#include "no_scratch.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Opens an empty file in `folder`. `alignment` divides addresses, places and sizes of transfers.
inline Error open_scratch(const std::string& folder, FileHandle& file, std::size_t& alignment) {
  constexpr unsigned long new_file = 1, delete_on_close = 0x04000000UL, no_buffering = 0x20000000UL;
  static std::atomic<unsigned> made{0};
  for (int tries = 0; tries < 1000; ++tries) {
    const std::string name = folder + "/adacc-scratch-" +
                             NumberText::hexadecimal(::GetCurrentProcessId()).c_str() + "-" +
                             NumberText::hexadecimal(made++).c_str();
    file = system::open(name, system::read_access | system::write_access | system::delete_access, 0,
                        new_file, delete_on_close | no_buffering);
    constexpr unsigned long file_exists = 80;
    if (file.is_open() || ::GetLastError() != file_exists) break;
  }
  if (!file.is_open())
    return no_scratch(folder, system::reason_words(system::last_reason()).c_str());
  alignment = 4096;  // of the sectors of all usual disks
  return {};
}

/// Takes room for `bytes` bytes on the disk.
inline Error take_scratch_room(const std::string& folder, NativeFile file, std::size_t bytes) {
  std::uint64_t room = 0;
  ::GetDiskFreeSpaceExW(system::wide(folder).c_str(), reinterpret_cast<_ULARGE_INTEGER*>(&room),
                        nullptr, nullptr);
  const std::uint64_t size = bytes;
  auto high = static_cast<long>(size >> 32);
  const auto low = static_cast<long>(size & 0xFFFFFFFFU);
  constexpr unsigned long failed = 0xFFFFFFFFUL;
  int reason = 0;
  if (::SetFilePointer(file, low, &high, 0) == failed) reason = system::last_reason();
  if (reason == 0 && ::SetEndOfFile(file) == 0) reason = system::last_reason();
  if (reason == ENOSPC || (reason != 0 && size > room))
    return no_scratch(folder, "it needs ", shown(bytes), ", and ",
                      shown(static_cast<std::size_t>(room)), " are free (",
                      system::reason_words(reason).c_str(), ")");
  if (reason != 0) return no_scratch(folder, system::reason_words(reason).c_str());
  return {};
}

}}}  // namespace adacc::v0_1::detail

#endif
