/// A training step allocates nothing after set-up, under every policy and on several threads.
///
/// The C allocation functions are interposed, because Eigen bypasses operator new.
#include <doctest/doctest.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

#include "../../examples/train_gpt/trainer.hpp"

namespace {
std::atomic<long> allocations{0};
}  // namespace

// glibc's own entry points behind the public names.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t size) {
  ++allocations;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  ++allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* block, std::size_t size) {
  ++allocations;
  return __libc_realloc(block, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  ++allocations;
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** block, std::size_t alignment, std::size_t size) {
  ++allocations;
  *block = __libc_memalign(alignment, size);
  return *block == nullptr ? ENOMEM : 0;
}
}

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
      Trainer trainer(options);
      const adacc::Error why = trainer.set_up(policy, "");
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
