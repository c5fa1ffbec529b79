// SPDX-License-Identifier: MIT
/// A thread with too small a stack is told so when a training or a pass is made, instead of overflowing in a step.
#include <doctest/doctest.h>

#include <adacc/layer/plain/linear.hpp>
#include <adacc/layer/plain/mean_squared_error.hpp>
#include <adacc/train/forward_only.hpp>
#include <adacc/train/inference.hpp>
#include <adacc/train/make.hpp>

#include <string>

#if defined(__linux__)
#include <pthread.h>

namespace stack_test { namespace {

using namespace adacc;

constexpr Network net{Sequential{layer(plain::Linear{.out = 3})}, plain::MeanSquaredError{}};

/// Makes a trainer on another thread, whose stack has so many bytes; returns the error.
template <class Trainer>
std::string made_on_stack(std::size_t bytes) {
  Error error;
  pthread_attr_t attributes;
  pthread_t thread = 0;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, bytes) == 0);
  const auto make = [](void* to) -> void* {
    *static_cast<Error*>(to) = Trainer::make(net, Shape(4, 2)).error;
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, make, &error) == 0);
  REQUIRE(pthread_join(thread, nullptr) == 0);
  REQUIRE(pthread_attr_destroy(&attributes) == 0);
  return error.text();
}

template <class Trainer>
void check_stacks() {
  const std::string words = made_on_stack<Trainer>(48 * 1024);
  CHECK(words.find("this thread's stack has ") == 0);
  CHECK(words.find(" bytes, and a step needs 65536: give the thread") != std::string::npos);
  CHECK(made_on_stack<Trainer>(8 * 1024 * 1024).empty());
}

// The thread sanitizer makes stacks larger than asked for.
TEST_CASE("no trainer is made on a small stack" * doctest::test_suite("one_thread")) {
  check_stacks<Training<>>();
  check_stacks<ForwardOnly<>>();
  check_stacks<Inference<>>();
}

}}  // namespace stack_test

#endif
