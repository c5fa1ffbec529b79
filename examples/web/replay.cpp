// SPDX-License-Identifier: MIT
/// Plays the game of the web page for some hundred frames, learning all the time, and prints hashes: of the game, and of
/// the player's parameters. Platforms with the same arithmetic print the same.
///
///     replay [FRAMES [EXPECTED]]    EXPECTED: the line that is to be printed
#include "page.cpp"

#include <adacc/core/number_text.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

/// FNV-1a.
class Hash {
 public:
  void add(const float* values, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      state_ = (state_ ^ adacc::detail::bits_as<std::uint32_t>(values[i])) * 0x100000001b3U;
  }
  std::string text() const { return adacc::NumberText::hexadecimal(state_).c_str(); }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325U;
};

int fail() { return std::printf("replay: %s\n", reason()), 1; }

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 640;
  if (!start(1)) return fail();
  Hash seen;
  for (int i = 0; i < count; ++i) {
    if (!frame() || !learn(1e6)) return fail();
    seen.add(courts(), 4 * shown);
  }
  Hash params;
  const auto learned = agent->weights();
  params.add(learned.data(), learned.size());
  char line[160];
  std::snprintf(line, sizeof line, "%d frames, %.0f updates: game %s, parameters %s", count,
                updates(), seen.text().c_str(), params.text().c_str());
  std::puts(line);
  if (argc > 2 && std::strcmp(argv[2], line) != 0)
    return std::printf("replay: expected %s\n", argv[2]), 1;
  return 0;
}
