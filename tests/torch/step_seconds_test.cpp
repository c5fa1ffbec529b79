// SPDX-License-Identifier: MIT
/// Seconds by several measurements. Without libtorch.
#include <adacc/adapter/torch/step_seconds.hpp>

#include <doctest/doctest.h>

namespace torch_step_seconds_test {

namespace guest = adacc::torch;

guest::StepRecord step_of(double seconds, double first, double second) {
  guest::StepRecord record;
  record.seconds = seconds;
  record.blocks.resize(2);
  record.blocks[0].seconds = first;
  record.blocks[1].seconds = second;
  return record;
}

TEST_CASE("of several records, the least of each time counts") {
  guest::StepSeconds least;
  guest::StepRecord record = step_of(9, 3, 2);
  least.add(record);
  least.put_into(record);
  CHECK(record.seconds == 9);
  CHECK(record.blocks[0].seconds == 3);
  record = step_of(7, 4, 1);
  least.add(record);
  least.put_into(record);
  CHECK(record.seconds == 7);
  CHECK(record.blocks[0].seconds == 3);
  CHECK(record.blocks[1].seconds == 1);
}

TEST_CASE("two measurements tell the part that does not grow") {
  const auto seconds = [](double fixed, double each, std::size_t n) {
    return fixed + each * static_cast<double>(n);
  };
  for (const std::size_t count : {400U, 1000U, 20000U})
    CHECK(guest::extended(seconds(5, 0.01, 100), 100, seconds(5, 0.01, 400), 400, count) ==
          doctest::Approx(seconds(5, 0.01, count)));
  // One measurement, or two that make no sense together: as many elements, as much time.
  CHECK(guest::extended(0, 0, 4, 400, 4000) == doctest::Approx(40));
  CHECK(guest::extended(0.1, 100, 4, 400, 4000) == doctest::Approx(40));
  CHECK(guest::extended(9, 100, 4, 400, 4000) ==
        doctest::Approx(13));  // at least a quarter of that
}

}  // namespace torch_step_seconds_test
