// SPDX-License-Identifier: MIT
/// What this process holds in memory, as Linux counts it: pages that are resident.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstring>

#include <malloc.h>

/// Peak resident bytes over what they were when it was made.
class ResidentPeak {
 public:
  ResidentPeak() {
    // What was freed by now is no part of what comes.
    ::malloc_trim(0);
    if (std::FILE* file = std::fopen("/proc/self/clear_refs", "w")) {
      std::fputs("5", file);  // the peak starts anew
      std::fclose(file);
    }
    before_ = field("VmRSS:");
  }

  /// 0 if the system does not say.
  std::size_t bytes() const {
    const std::size_t peak = field("VmHWM:");
    return before_ == 0 || peak < before_ ? 0 : peak - before_;
  }

 private:
  static std::size_t field(const char* name) {
    std::FILE* file = std::fopen("/proc/self/status", "r");
    if (file == nullptr) return 0;
    char line[256], key[64];
    std::size_t kilobytes = 0, found = 0;
    while (found == 0 && std::fgets(line, sizeof line, file) != nullptr)
      if (std::sscanf(line, "%63s %zu", key, &kilobytes) == 2 && std::strcmp(key, name) == 0)
        found = kilobytes * 1024;
    std::fclose(file);
    return found;
  }

  std::size_t before_ = 0;
};
