/// A training step allocates nothing after set-up, under every policy and on several threads.
///
/// The C allocation functions are interposed, because Eigen bypasses operator new.
#include <doctest/doctest.h>

#include "../../examples/train_gpt/trainer.hpp"
#include "interpose.hpp"

namespace {

adacc::Tokens some_tokens(std::size_t count) {
  auto ids = adacc::Block<std::uint16_t>::make(count, "tokens");
  for (std::size_t i = 0; i < count; ++i) (*ids)[i] = static_cast<std::uint16_t>(i * i % 251);
  return adacc::Tokens("test", std::move(*ids));
}

}  // namespace

TEST_CASE("the interposed functions see Eigen's and our own allocations") {
  const long before = allocations;
  auto block = adacc::Block<float>::make(100, "test");
  CHECK(allocations == before + 1);
  Eigen::MatrixXf matrix = Eigen::MatrixXf::Zero(64, 64);
  CHECK(allocations == before + 2);
}

TEST_CASE("a step allocates nothing, all policies, 1 to 3 threads") {
  Options options;
  options.network = {2, 3, 48, 80, 256};
  options.batch = 3;
  options.seq = 70;
  const adacc::Tokens tokens = some_tokens(3000);
  for (const char* policy : {"retain", "recompute", "int8", "mixed"}) {
    for (options.threads = 1; options.threads <= 3; ++options.threads) {
      CAPTURE(policy);
      CAPTURE(options.threads);
      options.policy = policy;
      Trainer trainer(options);
      const adacc::Error why = trainer.set_up("", tokens);
      REQUIRE_MESSAGE(!why, why.text());
      const adacc::LearningRate rate{.lr = 1e-3};
      long allocated = 0;
      for (int i = 0; i < 3; ++i) {
        const long before = allocations;
        const auto outcome = trainer.step(tokens, rate);
        const auto loss = trainer.evaluate(tokens);
        allocated += allocations - before;
        REQUIRE(outcome);
        REQUIRE(loss);
        CHECK(outcome->finite);
      }
      CHECK(allocated == 0);
    }
  }
}
