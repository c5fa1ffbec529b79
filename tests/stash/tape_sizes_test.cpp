// SPDX-License-Identifier: MIT
// Batches of changing size on one tape: a plan for each size, in one budget.
#include <doctest/doctest.h>

#include "tape_chain.hpp"

namespace tape_sizes_test {

using namespace tape_chain;

struct Lines {
  int count = 0;
  std::string last;
  static void add(void* user, const char* line) {
    Lines& lines = *static_cast<Lines*>(user);
    ++lines.count;
    lines.last = line;
  }
};

std::size_t recomputed(const Tape<>& tape) {
  std::size_t count = 0;
  for (const Policy& policy : tape.stash().plan().policies) count += policy.recomputes();
  return count;
}

TEST_CASE("a step of fewer items has a plan of its own, made once, within the budget") {
  for (const Softsign how : {Softsign::apart, Softsign::in_place}) {
    Chain chain(32, how, TapeOutputs::per_item);
    Lines lines;
    const Error why = chain.start(
        {.percent = 50, .check = true, .items = 32, .log = &Lines::add, .user = &lines});
    REQUIRE_MESSAGE(!why, std::string(why.text()));
    const std::size_t budget = chain.tape.stash().budget_bytes();
    const int at_first = lines.count;
    CHECK(recomputed(chain.tape) > 0);
    int seen = 0;
    for (const int items : {32, 16, 24, 1, 16, 32, 24, 16}) {
      chain.items = items;
      REQUIRE(chain.step());
      CHECK(chain.right());
      CHECK(chain.tape.arena_bytes() <= budget);
      if (items <= 16) CHECK(recomputed(chain.tape) == 0);  // all fits
      ++seen;
      CHECK(lines.count - at_first == (seen < 2 ? 0 : seen < 4 ? seen - 1 : 3));
    }
    CHECK(lines.last.find("for 1 of 32 items, tape: ") == 0);
    // Plans of sizes follow the budget.
    REQUIRE(!chain.tape.set_budget(chain.tape.outcome().retain_peak_bytes * 2));
    for (const int items : {24, 32}) {
      chain.items = items;
      REQUIRE(chain.step());
      CHECK(chain.right());
      CHECK(recomputed(chain.tape) == 0);
    }
    REQUIRE(!chain.tape.set_budget(budget));
    chain.items = 24;
    REQUIRE(chain.step());
    CHECK(chain.right());
    CHECK(chain.tape.arena_bytes() <= budget);
  }
}

TEST_CASE("items that the tape does not have are refused, and the next step runs") {
  Chain chain(32, Softsign::apart, TapeOutputs::per_item);
  CHECK(says(chain.start({.percent = 50, .items = 5}),
             "output x of kernel 0 (input) is per item, and its 32 rows are"));
  chain.items = 16;  // two rows an item
  REQUIRE(!chain.start({.percent = 50, .items = 16}));
  for (const int items : {17, -1}) {
    const Error why = chain.tape.begin(chain.cpu, items);
    CHECK_MESSAGE(says(why, "items begins, and the tape has 1 to 16"), std::string(why.text()));
    CHECK(chain.tape.run());
    static_cast<void>(chain.tape.end());
  }
  REQUIRE(!chain.tape.begin(chain.cpu, 8));
  REQUIRE(!chain.tape.run(0, 2));
  CHECK(chain.tape.value(chain.z[0]).shape() == Shape(16, Chain::channels));
  REQUIRE(!chain.tape.end());
  Chain other(32, Softsign::apart);
  const Error why = other.start({.percent = 100, .check = false});
  CHECK_MESSAGE(!why, std::string(why.text()));
  CHECK(says(other.tape.begin(other.cpu, 16),
             "a step of 16 items begins, and start() of the tape was told none"));
}

}  // namespace tape_sizes_test
