// SPDX-License-Identifier: MIT
/// Whether the folder in which tests run can hold scratch files.
#pragma once

#include <doctest/doctest.h>

#include <adacc/store/scratch_file.hpp>

#include <cstdlib>
#include <string>

namespace sample {

/// False where it cannot (tmpfs, most network file systems), which a message says; tests of scratch files
/// then have nothing to run on. That is a failure where ADACC_TEST_ON_DISK is set, as in CI.
inline bool scratch_files_possible() {
  const auto file = adacc::ScratchFile::make(".", 1 << 20);
  if (file) return true;
  const std::string why =
      std::string("nothing of scratch files is tested here: ") + file.error.text();
  if (std::getenv("ADACC_TEST_ON_DISK") != nullptr) FAIL_CHECK(why);
  else MESSAGE(why);
  return false;
}

}  // namespace sample
