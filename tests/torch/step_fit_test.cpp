// SPDX-License-Identifier: MIT
/// Records of three sizes give that of a fourth. Without libtorch.
#include <optional>
#include <string>
#include <vector>

#include <adacc/adapter/torch/step_fit.hpp>
#include <adacc/codec/int8_outlier.hpp>

#include <doctest/doctest.h>

namespace torch_step_fit_test {

namespace guest = adacc::torch;

/// A step on sequences of `length`: an activation, scores, and gradients of parameters.
guest::StepRecord step_of(std::ptrdiff_t length) {
  guest::StepRecord record;
  const std::ptrdiff_t activation = 512 * length, scores = 4 * length * length, parameters = 10000;
  record.events = {{0, 0, -1, 0, 0},
                   {activation, activation, -1, 0, 0},
                   {activation + scores, activation + scores, 1, 0, 0},
                   {activation + 3 * scores, activation, 0, 0, 0},
                   {2 * activation + parameters, parameters, -1, 0, 0}};
  for (const std::ptrdiff_t bytes : {activation, scores}) {
    guest::StepStorage storage;
    storage.name = "mm";
    storage.bytes = static_cast<std::size_t>(bytes);
    storage.released = 1;
    storage.freed = 4;
    storage.readings = {{2, 3}};
    storage.forms = {{&adacc::codec_info<adacc::Int8Outlier>, storage.bytes / 4, 0, 0}};
    record.storages.push_back(storage);
  }
  return record;
}

TEST_CASE("a step of another length, longer or in between, is known to the byte") {
  std::vector<guest::StepRecord> all;
  for (const std::ptrdiff_t length : {64, 96, 160, 32}) all.push_back(step_of(length));
  std::vector<const guest::StepRecord*> known;
  for (const guest::StepRecord& one : all) known.push_back(&one);
  for (const std::ptrdiff_t length : {128, 160, 1024, 16}) {
    CAPTURE(length);
    const guest::StepRecord right = step_of(length);
    const std::optional<guest::StepRecord> fit = guest::fitted(known, 0, right.storages[0].bytes);
    REQUIRE(fit);
    CHECK(guest::same_course(*fit, right));
    CHECK(fit->peak() == right.peak());
    for (std::size_t e = 0; e < right.events.size(); ++e) {
      CHECK(fit->events[e].peak == right.events[e].peak);
      CHECK(fit->events[e].live == right.events[e].live);
    }
    for (std::size_t id = 0; id < right.storages.size(); ++id) {
      CHECK(fit->storages[id].bytes == right.storages[id].bytes);
      CHECK(fit->storages[id].forms[0].bytes == right.storages[id].forms[0].bytes);
    }
  }
}

TEST_CASE("two sizes, the same size three times, and other courses say nothing") {
  const guest::StepRecord a = step_of(64), b = step_of(96), again = step_of(96);
  guest::StepRecord other = step_of(128);
  CHECK_FALSE(guest::fitted({&a, &b}, 0, 1000));
  CHECK_FALSE(guest::fitted({&a, &b, &again}, 0, 1000));
  other.storages[0].readings.push_back({3, 4});
  CHECK_FALSE(guest::same_course(a, other));
  CHECK_FALSE(guest::fitted({&a, &b, &other}, 0, 1000));
  other = step_of(128);
  other.storages[1].forms.clear();
  CHECK_FALSE(guest::fitted({&a, &b, &other}, 0, 1000));
  other = step_of(128);
  CHECK(guest::fitted({&a, &b, &other}, 0, 1000));
}

TEST_CASE("what is between two events that stay belongs to the later one") {
  guest::StepRecord record = step_of(64);
  const std::size_t peak = record.peak();
  guest::take_out(record, {3});
  CHECK(record.events.size() == 4);
  CHECK(record.peak() == peak);
  CHECK(record.events[3].peak == static_cast<std::ptrdiff_t>(peak));
  CHECK(record.storages[0].readings[0].first == 2);
  CHECK(record.storages[0].readings[0].last == 3);
  CHECK(record.storages[0].freed == 3);
  CHECK(record.storages[0].released == 1);
}

}  // namespace torch_step_fit_test
