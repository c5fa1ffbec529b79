// SPDX-License-Identifier: MIT
#include "adacc/io/declined_text.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "../train/uneven_net.hpp"

namespace declined_text_test { namespace {

using namespace adacc;

TEST_CASE("what became of activations that were declined is said of each, and in sum") {
  using namespace uneven_net;
  Program program = *make_program(net<Compress<Rough>>, shape);
  CHECK(declined_text(program).empty());
  REQUIRE(program.declinables.size() == 5);
  const RowErrors errors{64, 32, 1};
  program.declinables[0].now = {.errors = {64, 0, 0}};
  program.declinables[1].now = {.kept = KeptAs::exactly, .errors = errors};
  program.declinables[2].now = {
      .kept = KeptAs::milder, .errors = errors, .codec = &codec_info<Bf16>};
  program.declinables[3].now = {.kept = KeptAs::over_bound, .errors = errors};
  CHECK(
      declined_text(program) ==
      "activation 2 (uneven): 32 of 64 rows are over the bound of rough: kept exactly\n"
      "activation 3 (tolerant): 32 of 64 rows are over the bound of rough: kept by a milder codec, "
      "bf16\n"
      "activation 4 (tolerant): 32 of 64 rows are over the bound of rough: left with rows over the "
      "bound\n");
  const DeclinedCounts counts = counts_of(program.declinables);
  CHECK(counts == DeclinedCounts{1, 1, 1});
  CHECK(declined_text(counts) ==
        "1 kept exactly, 1 kept by a milder codec, 1 left with rows over the bound");
  CHECK(declined_text(DeclinedCounts{12, 0, 3}) ==
        "12 kept exactly, 3 left with rows over the bound");
  CHECK(declined_text(DeclinedCounts{}).empty());
}

}}  // namespace declined_text_test
