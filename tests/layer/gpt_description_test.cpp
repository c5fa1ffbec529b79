// SPDX-License-Identifier: MIT
/// The line that checkpoints of a GPT-2 are matched by.
#include <doctest/doctest.h>

#include <adacc/models/gpt.hpp>

#include <string>

namespace gpt_description_test {

using namespace adacc;

TEST_CASE("a description says all of the network, with a point in numbers, and is read back") {
  const gpt::Config config{2, 3, 12, 16, 40, false};
  const std::string plain =
      "GPT-2, layers 2, heads 3, channels 12, context 16, vocabulary 40, untied head";
  CHECK(gpt::describe(config) == plain);
  CHECK(gpt::describe(config, {4, 0.5F}) == plain + ", LoRA of rank 4, alpha 0.5");
  CHECK(gpt::describe(config, {4, 16}) == plain + ", LoRA of rank 4, alpha 16");
  CHECK(gpt::describe(config, {4, 1e-7F}) == plain + ", LoRA of rank 4, alpha 1e-07");
  const auto read = gpt::parse_description(plain + ", LoRA of rank 4, alpha 0.5");
  REQUIRE(read);
  CHECK(gpt::describe(*read) == plain);
  for (const char* text :
       {"", "GPT-2", "GPT-2, layers x", "GPT-2, layers 2, heads 3, channels 12, context 16"})
    CHECK_FALSE(gpt::parse_description(text));
}

}  // namespace gpt_description_test
