// SPDX-License-Identifier: MIT
/// Reads a file, or all files in a folder and below, as bytes: a vocabulary of 256.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>

#include "../core/no_memory.hpp"
#include "tokens.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// The regular files at `path`: the file itself, or all files below the folder, ordered byte by byte of their names.
/// Links to files count as files; folders behind links are not entered.
inline Error list_text_files(const std::string& path, std::set<std::string>& files) {
  namespace fs = std::filesystem;
  std::error_code problem;
  if (!fs::is_directory(path, problem)) {
    files.insert(path);  // errors come when opened
    return {};
  }
  fs::recursive_directory_iterator entry(path, problem);
  while (!problem && entry != fs::recursive_directory_iterator()) {
    std::error_code unknown;  // a link to nowhere is no regular file
    if (entry->is_regular_file(unknown)) files.insert(entry->path().string());
    entry.increment(problem);
  }
  if (problem)
    return Error::say(one_line(path).c_str(), ": the folder cannot be listed (",
                      problem.message().c_str(), "); expected text");
  if (files.empty())
    return Error::say(one_line(path).c_str(), ": the folder holds no files; expected text");
  return {};
}

}  // namespace detail

/// The bytes of a file, or of the regular files in a folder (recursively, in the order of their
/// paths, one after the other). No bytes at all is an error.
inline Result<Tokens> read_text(const std::string& path) {
  return detail::or_no_memory("to read text", [&]() -> Result<Tokens> {
    std::set<std::string> files;
    if (Error error = detail::list_text_files(path, files)) return error;
    std::size_t total = 0;
    for (const std::string& name : files) {
      Result<InputFile> file = InputFile::open(name, "text");
      if (!file) return file.error;
      if (total + file->size() < total) return file->fault("is too large");
      total += file->size();
    }
    if (total == 0)
      return Error::say(one_line(path).c_str(),
                        files.size() == 1 ? ": is empty"
                                          : ": all files in it "
                                            "are empty",
                        "; expected text");
    Result<Block<std::uint16_t>> ids = Block<std::uint16_t>::make(total, one_line(path).c_str());
    if (!ids) return ids.error;
    std::size_t at = 0;
    for (const std::string& name : files) {
      Result<InputFile> file = InputFile::open(name, "text");
      if (!file) return file.error;
      if (file->size() > total - at) return file->fault("grew while it was read");
      unsigned char buffer[16384];
      for (std::size_t left = file->size(); left > 0;) {
        const std::size_t count = left < sizeof buffer ? left : sizeof buffer;
        if (Error error = file->read(buffer, count)) return error;
        for (std::size_t i = 0; i < count; ++i) (*ids)[at + i] = buffer[i];
        at += count;
        left -= count;
      }
    }
    if (at != total)
      return Error::say(one_line(path).c_str(), ": shrank while it was read; expected text");
    return Tokens(path, static_cast<Block<std::uint16_t>&&>(*ids));
  });
}

}}  // namespace adacc::v0_1
