// SPDX-License-Identifier: MIT
// A thread with too small a stack is told so when a step is made, instead of overflowing in the middle of it.
#include <doctest/doctest.h>

#include "step_run.hpp"

#if defined(__linux__)
#include <pthread.h>

namespace stack_test { namespace {

using namespace adacc;
using namespace step_run;

/// A program, and what came of making its step on another thread.
struct Making {
  random_model::Network net = random_model::draw(3, false);
  Program program;
  Error error;

  static void* make(void* self) {
    auto& making = *static_cast<Making*>(self);
    making.error = Step<>::make(making.net, making.program).error;
    return nullptr;
  }

  /// Makes the step on a thread with a stack of so many bytes. False if the system has no such threads.
  bool on_stack(std::size_t bytes) {
    pthread_attr_t attributes;
    pthread_t thread = 0;
    REQUIRE(pthread_attr_init(&attributes) == 0);
    if (pthread_attr_setstacksize(&attributes, bytes) != 0) return false;
    REQUIRE(pthread_create(&thread, &attributes, make, this) == 0);
    REQUIRE(pthread_join(thread, nullptr) == 0);
    REQUIRE(pthread_attr_destroy(&attributes) == 0);
    return true;
  }
};

TEST_CASE("a step is not made on a small stack") {
  Making making;
  auto program = make_program(making.net, Shape(4, 4));
  REQUIRE(program);
  making.program = *program;
  if (making.on_stack(48 * 1024)) {  // AArch64 has none below 128 KiB
    const std::string words = making.error.text();
    CHECK(words.find("this thread's stack has ") == 0);
    CHECK(words.find(" bytes, and a step needs 65536: give the thread") != std::string::npos);
  }
  REQUIRE(making.on_stack(1024 * 1024));
  CHECK(std::string(making.error.text()).empty());
}

}}  // namespace stack_test

#endif
