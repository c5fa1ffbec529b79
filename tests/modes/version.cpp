// SPDX-License-Identifier: MIT
/// One of two libraries in a program that are built with different versions of adacc: what this
/// one's errors hold, which the versions disagree about. Compiled against single headers.
#include <adacc/adacc.hpp>

#include <cstring>

extern "C" std::size_t LIBRARY_error_bytes() {
  char text[1000];
  std::memset(text, 'x', sizeof text);
  text[sizeof text - 1] = '\0';
  return std::strlen(adacc::Error::say(&text[0]).text());
}
