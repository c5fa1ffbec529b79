// SPDX-License-Identifier: MIT
/// The program's words: an error's line, sizes, beginnings of texts.
#pragma once

#include <adacc/core/bytes.hpp>
#include <adacc/core/error.hpp>
#include <adacc/io/text.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>

namespace chat_tune {

using adacc::Error;

/// Prints an error; the program's exit status.
inline int fail(const Error& why) {
  std::fprintf(stderr, "chat_tune: %s\n", why.text());
  return 2;
}

inline double mebi(std::size_t bytes) { return static_cast<double>(bytes) / adacc::MiB; }

inline std::string shown(const std::string& path) { return adacc::one_line(path, 80); }

/// The first letters of a text, on one line.
inline std::string beginning(std::string text) {
  constexpr std::size_t most = 200;
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.size() > most ? adacc::one_line(text.substr(0, most), most) + "..." : text;
}

}  // namespace chat_tune
