// SPDX-License-Identifier: MIT
/// Ranks that end together, alone, and behind a group that broke.
#include <adacc/ranks/farewell.hpp>
#include <adacc/ranks/thread_group.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

namespace test_farewell {

using namespace adacc;
using Fate = ThreadGroup::Fate;

constexpr ThreadGroupOptions made_up_time{.limit_seconds = 3, .rate = 1e9};

TEST_CASE("all ranks hear the status of the first that has one") {
  ThreadGroup group(3);
  std::array<int, 3> heard{};
  std::array<bool, 3> alone{};
  run_ranks(group, [&](ThreadGroup::Member& member) {
    const auto me = static_cast<std::size_t>(member.rank());
    const int mine = member.rank() == 0 ? 0 : 40 + member.rank();
    const Farewell end = say_farewell(member, mine);
    heard[me] = end.status;
    alone[me] = static_cast<bool>(end.alone);
  });
  CHECK(heard == std::array{41, 41, 42});
  CHECK(alone == std::array{false, false, false});
}

TEST_CASE(
    "who ends while another goes on hears that it is alone, and the other that this is the end") {
  ThreadGroup group(2);
  std::array<Error, 2> why;
  run_ranks(group, [&](ThreadGroup::Member& member) {
    std::vector<std::uint64_t> all;
    if (member.rank() == 0) why[0] = say_farewell(member, 0).alone;
    else why[1] = all_gather(GroupRef(member), std::uint64_t{1}, all);
  });
  CHECK(std::strstr(why[0].text(), "which wants") != nullptr);
  CHECK(std::strstr(why[1].text(), "which wants") != nullptr);
}

TEST_CASE("behind a group that broke beside, nobody waits for the limit a second time") {
  ThreadGroup group(2, made_up_time), stages(2, made_up_time);
  for (ThreadGroup* each : {&group, &stages}) each->set_fate(1, Fate::hangs);
  double in_stages = 0, behind = 0;
  Farewell end;
  run_ranks(stages, [&](ThreadGroup::Member& stage) {
    ThreadGroup::Member member(group, stage.rank());
    std::vector<std::uint64_t> all;
    static_cast<void>(all_gather(GroupRef(stage), std::uint64_t{1}, all));
    if (stage.rank() == 1) return static_cast<void>(all_gather(member, std::uint64_t{1}, all));
    in_stages = stage();
    end = say_farewell(member, 2, stage);
    behind = member();
  });
  CHECK(in_stages >= 3);
  CHECK(behind == 0);
  CHECK(end.status == 2);
  CHECK(std::strstr(end.alone.text(), "rank 1, which was not heard of") != nullptr);
}

}  // namespace test_farewell
