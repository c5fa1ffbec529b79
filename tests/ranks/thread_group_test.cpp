// SPDX-License-Identifier: MIT
/// The group of threads: contract, made-up time, and ranks that die, hang or send something else.
#include <doctest/doctest.h>
#include <adacc/ranks/thread_group.hpp>
#include <adacc/testing/group_check.hpp>

#include <string>
#include <vector>

namespace thread_group_test { namespace {

using namespace adacc;
using Member = ThreadGroup::Member;
using Fate = ThreadGroup::Fate;

/// What every rank's body returned.
template <class Value, class Body>
std::vector<Value> on_ranks(ThreadGroup& group, const Body& body) {
  std::vector<Value> made(static_cast<std::size_t>(group.size()));
  run_ranks(group,
            [&](Member& member) { made[static_cast<std::size_t>(member.rank())] = body(member); });
  return made;
}

Bytes bytes_of_numbers(std::vector<float>& numbers) {
  return {reinterpret_cast<std::byte*>(numbers.data()), Shape(numbers.size() * sizeof(float))};
}

TEST_CASE("a group of threads keeps the contract, in real and in made-up time") {
  for (const int size : {1, 2, 3, 5})
    for (const double rate : {0.0, 1e6}) {
      ThreadGroup group(size, {.rate = rate, .hostile = true});
      const auto errors =
          on_ranks<Error>(group, [](Member& member) { return testing::check_group(member); });
      for (const Error& why : errors) CHECK_MESSAGE(!why, why.text());
    }
}

TEST_CASE("messages take their time, one after the other, while a rank works") {
  for (int repetition = 0; repetition < 20; ++repetition) {
    ThreadGroup group(2, {.rate = 1000, .latency = 0.5});
    struct Seen {
      double asked = 0, first = 0, second = 0;
      bool early = true, late = false;
    };
    const auto seen = on_ranks<Seen>(group, [](Member& member) {
      std::vector<float> a(1000), b(250);
      Seen times;
      if (member.prepare(2)) return times;
      const GroupRef ref(member);
      const int peer = 1 - member.rank();
      if (member.rank() == 0) {
        ref.send(0, peer, 0, bytes_of_numbers(a));  // leaves the link at 4, arrives at 4.5
        member.work(1);
        ref.send(1, peer, 0, bytes_of_numbers(b));  // behind it: 5 and 5.5
      } else {
        ref.receive(0, peer, 0, bytes_of_numbers(a));
        ref.receive(1, peer, 0, bytes_of_numbers(b));
      }
      member.work(2);
      times.early = ref.done(0);
      times.asked = member();
      member.work(3);
      times.late = ref.done(0);
      const Error first = ref.wait(0);
      times.first = first ? -1 : member();
      const Error second = ref.wait(1);
      times.second = second ? -1 : member();
      return times;
    });
    CHECK(!seen[0].early);
    CHECK(!seen[1].early);
    CHECK(seen[0].asked == doctest::Approx(3.005));
    CHECK(seen[1].asked == doctest::Approx(2.005));
    CHECK(seen[0].late);
    CHECK(seen[0].first == doctest::Approx(6.005));
    CHECK(seen[0].second == doctest::Approx(6.005));
    CHECK(seen[1].late);
    CHECK(seen[1].first == doctest::Approx(5.005));
    CHECK(seen[1].second == doctest::Approx(5.5));
  }
}

TEST_CASE("who waits too long, in made-up time, waits no longer in real time") {
  ThreadGroup group(3, {.limit_seconds = 3600, .rate = 1e9});
  group.set_fate(1, Fate::hangs);
  const auto errors = on_ranks<Error>(group, [](Member& member) {
    std::vector<float> numbers(4);
    if (const Error why = member.prepare(1)) return why;
    const GroupRef ref(member);
    const int peer = member.rank() == 0 ? 1 : 0;
    if (member.rank() == 1) ref.send(0, peer, 0, bytes_of_numbers(numbers));
    else ref.receive(0, peer, 0, bytes_of_numbers(numbers));
    Error why = ref.wait(0);
    const Error again = ref.wait(0);
    CHECK(std::string(again.text()) == why.text());
    CHECK(ref.done(0));
    return why;
  });
  CHECK(std::string(errors[0].text()) ==
        "rank 0 waited 3600000 ms to receive from rank 1, which was not heard of");
  CHECK(std::string(errors[1].text()) == "rank 1 hung, as it was told to");
  CHECK(std::string(errors[2].text())
            .find("cannot receive from rank 0, which has gone: rank 0 waited") !=
        std::string::npos);
}

TEST_CASE("a rank that dies, hangs or goes its own way is an error on all others") {
  for (const double rate : {0.0, 1e8})
    for (const Fate fate : {Fate::dies, Fate::hangs})
      for (const std::uint64_t at : {0U, 5U, 100U}) {
        ThreadGroup group(4, {.limit_seconds = 0.05, .rate = rate});
        group.set_fate(2, fate, at);
        const auto errors = on_ranks<Error>(group, [](Member& member) {
          return testing::check_group(member, {.most_bytes = 100});
        });
        for (const Error& why : errors) CHECK(static_cast<bool>(why));
      }
}

TEST_CASE("the two sides of a message agree on its size, and tickets and peers are checked") {
  ThreadGroup group(2, {.rate = 1e9});
  const auto errors = on_ranks<Error>(group, [](Member& member) {
    std::vector<float> numbers(static_cast<std::size_t>(4 + member.rank()));
    if (const Error why = member.prepare(1)) return why;
    const GroupRef ref(member);
    if (member.rank() == 0) ref.send(0, 1, 0, bytes_of_numbers(numbers));
    else ref.receive(0, 0, 0, bytes_of_numbers(numbers));
    return ref.wait(0);
  });
  for (const Error& why : errors)
    CHECK(std::string(why.text()) == "rank 0 sends 16 bytes to rank 1, which wants 20");

  ThreadGroup alone(2);
  Member member(alone, 0);
  CHECK(!member.prepare(1));
  std::vector<float> numbers(4);
  GroupRef(member).send(0, 0, 0, bytes_of_numbers(numbers));
  CHECK(std::string(member.wait(0).text()) == "rank 0 of 2 has no peer 0");
}

}}  // namespace thread_group_test
