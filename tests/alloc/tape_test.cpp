// SPDX-License-Identifier: MIT
/// A tape allocates nothing in a step of a size that it has seen, neither with the next step's size.
#include <doctest/doctest.h>

#include <support/count_allocations.hpp>

#include "../stash/tape_chain.hpp"

using namespace tape_chain;

TEST_CASE("a step of a tape allocates nothing, of whatever size seen before") {
  for (const Softsign how : {Softsign::in_place, Softsign::copied}) {
    Chain chain(32, how, TapeOutputs::per_item);
    REQUIRE(!chain.start({.percent = 60, .items = 32}));
    chain.items = 24;
    REQUIRE(chain.step());
    const long before = allocations;
    bool fine = true;
    for (const int items : {32, 24, 32}) {
      fine = fine && !chain.tape.begin(chain.cpu, items) && !chain.tape.run();
      for (int k = chain.tape.kernels() - 1; k >= 0; --k) fine = fine && !chain.tape.backward(k);
      fine = fine && chain.tape.take(chain.y[0]).data() == nullptr;  // backward 0 reads none
      fine = fine && chain.tape.end();
    }
    CHECK(allocations == before);
    CHECK(fine);
  }
}
