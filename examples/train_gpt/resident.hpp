// SPDX-License-Identifier: MIT
/// What this process holds in memory, as Linux counts it: pages that are resident.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstring>

#include <malloc.h>

/// Peak resident bytes over what they were when it was made: in set-up, which plans and measures, and in what
/// comes behind it. 0 if the system does not say.
class ResidentPeak {
 public:
  ResidentPeak() {
    start_anew();
    before_ = field("VmRSS:");
    code_before_ = field("RssFile:");
  }

  void set_up_ended() {
    in_set_up_ = bytes();
    start_anew();
  }

  /// What was freed goes back to the system: a planner's tables, say, which may have been larger than all else.
  static void give_back() { ::malloc_trim(0); }

  std::size_t in_set_up() const { return in_set_up_; }
  std::size_t bytes() const { return over(field("VmHWM:"), before_); }
  /// The peak of the process, with all that was resident before.
  static std::size_t of_process() { return field("VmHWM:"); }
  /// Pages of the program's files that were read since: the system drops them if it needs the memory.
  std::size_t code() const { return over(field("RssFile:"), code_before_); }

 private:
  static std::size_t over(std::size_t now, std::size_t before) {
    return before == 0 || now < before ? 0 : now - before;
  }

  static void start_anew() {
    // What was freed by now is no part of what comes.
    give_back();
    if (std::FILE* file = std::fopen("/proc/self/clear_refs", "w")) {
      std::fputs("5", file);
      std::fclose(file);
    }
  }

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

  std::size_t before_ = 0, code_before_ = 0, in_set_up_ = 0;
};
