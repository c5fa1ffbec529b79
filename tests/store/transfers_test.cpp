// SPDX-License-Identifier: MIT
/// A scratch file by its thread, on every system that has one.
#include <doctest/doctest.h>
#include <adacc/store/scratch_file.hpp>
#include <adacc/testing/store_check.hpp>

#include <cstring>

#include "on_disk.hpp"

namespace transfers_test { namespace {

using namespace adacc;

TEST_CASE("a scratch file keeps the contract by a thread, on every system") {
  if (!sample::scratch_files_possible()) return;
  for (const std::uint64_t seed : {1U, 2U}) {
    auto file = ScratchFile::make(".", 8 << 20, FileEngine::thread);
    REQUIRE_MESSAGE(file, file.error.text());
    CHECK(std::strcmp(file->engine(), "a thread") == 0);
    const Error why = testing::check_store(*file, {.transfers = 100, .tickets = 4, .seed = seed});
    CHECK_MESSAGE(!why, why.text());
  }
}

TEST_CASE("what no scratch file can be is refused in words") {
  if (!sample::scratch_files_possible()) return;
  const auto says = [](const Error& error, const char* words) {
    return std::strstr(error.text(), words) != nullptr;
  };
  CHECK(says(ScratchFile::make("no/such/folder", 1 << 20).error, "No such file or directory"));
  CHECK(says(ScratchFile::make(".", static_cast<std::size_t>(-1) >> 8).error, "are free"));
  CHECK(says(ScratchFile::make(".", static_cast<std::size_t>(-1)).error, "larger than any"));
}

}}  // namespace transfers_test
