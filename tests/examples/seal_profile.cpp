// SPDX-License-Identifier: MIT
/// Reads a cost profile that was edited by hand from standard input and writes it with the checksum
/// that its lines now have.
#include <adacc/io/profile_text.hpp>

#include <iostream>
#include <iterator>
#include <string>

int main() {
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  const std::size_t at = text.rfind("\nchecksum ");
  if (at == std::string::npos) return 1;
  const std::string lines = text.substr(0, at + 1);
  std::cout << lines << adacc::detail::checksum_line(lines);
  return 0;
}
