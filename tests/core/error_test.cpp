// SPDX-License-Identifier: MIT
/// The text of errors, and results.
#include <doctest/doctest.h>
#include <adacc/core/error.hpp>

#if !defined(_WIN32) && !defined(__EMSCRIPTEN__)
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <climits>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <string>

namespace error_test { namespace {

using namespace adacc;

template <class... Pieces>
std::string text(const Pieces&... pieces) {
  return Error::say(pieces...).text();
}

static_assert(!Error());
static_assert(!Error::say(""));
static_assert(Error::say("no"));
static_assert(Error::say(7).text()[0] == '7');

TEST_CASE("numbers") {
  CHECK(text("a ", 0, " b ", -12, " c") == "a 0 b -12 c");
  CHECK(text(LLONG_MIN) == std::to_string(LLONG_MIN));
  CHECK(text(LLONG_MAX) == std::to_string(LLONG_MAX));
  CHECK(text(ULLONG_MAX) == std::to_string(ULLONG_MAX));
  CHECK(text(static_cast<std::size_t>(-1)) == std::to_string(static_cast<std::size_t>(-1)));
  CHECK(text(3U, " ", 4L, " ", 5UL) == "3 4 5");
}

TEST_CASE("byte counts") {
  CHECK(text(shown(0)) == "0 bytes");
  CHECK(text(shown(1023)) == "1023 bytes");
  CHECK(text(shown(1024)) == "1.0 KiB (1024 bytes)");
  CHECK(text(shown(96 * MiB)) == "96.0 MiB (100663296 bytes)");
  CHECK(text(shown(GiB + GiB / 2)) == "1.5 GiB (1610612736 bytes)");
  CHECK(text(shown(2 * KiB - 1)) == "1.9 KiB (2047 bytes)");
}

TEST_CASE("what does not fit is cut, and the text still ends") {
  const std::string word(100, 'x');
  Error error;
  for (int i = 0; i < 5; ++i) error.append(word.c_str());
  CHECK(error);
  CHECK(std::strlen(error.text()) == Error::capacity - 1);
  error.append(123);
  error.append(shown(5 * MiB));
  CHECK(std::strlen(error.text()) == Error::capacity - 1);
}

constexpr Result<int> half(int number) {
  if (number % 2 != 0) return Error::say(number, " is odd; even numbers have halves");
  return number / 2;
}
static_assert(half(8) && *half(8) == 4);
static_assert(!half(7));

TEST_CASE("a result is a value or an error") {
  CHECK(*half(10) == 5);
  CHECK(!half(10).error);
  CHECK(std::string(half(3).error.text()) == "3 is odd; even numbers have halves");

  struct Pair {
    int a = 0, b = 0;
  };
  Result<Pair> pair = Pair{1, 2};
  pair->a = 5;
  CHECK((*pair).a == 5);
  const Result<Pair>& constant = pair;
  CHECK(constant->b == 2);
}

#if !defined(_WIN32) && !defined(__EMSCRIPTEN__)
/// How a process ends that runs `function`: the signal, or the exit status, negated.
template <class Function>
int signal_of(const Function& function) {
  const pid_t child = fork();
  if (child == 0) {
    for (const int caught : {SIGILL, SIGTRAP, SIGABRT}) std::signal(caught, SIG_DFL);
    _exit(function() ? 1 : 0);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return -1;
  return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

TEST_CASE("nobody goes on with the value of a result that has none") {
  const Result<int> failed = half(7);
  CHECK(signal_of([] { return *half(8) != 4; }) == 0);
  CHECK(signal_of([&] { return *failed != 3; }) > 0);
  CHECK(signal_of([] { return *half(7) != 3; }) > 0);
  CHECK(signal_of([] { return Result<Shape>(Error::say("no shape"))->rank() != 3; }) > 0);
}
#endif

}}  // namespace error_test
