// SPDX-License-Identifier: MIT
/// The group over MPI, on however many ranks the launcher starts: contract, sums, and a rank that does
/// not answer. Prints what failed and exits with 1.
#include <adacc/adapter/mpi.hpp>
#include <adacc/ranks/collectives.hpp>
#include <adacc/ranks/rank_sums.hpp>
#include <adacc/testing/group_check.hpp>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

using namespace adacc;

int failures = 0;

void check(bool holds, const char* what, const Error& why = {}) {
  if (holds) return;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::printf("rank %d: %s %s\n", rank, what, why.text());
  ++failures;
}

std::vector<float> numbers(int rank) {
  std::vector<float> made(70001);
  RandomKey key;
  key.activation = static_cast<std::uint32_t>(rank);
  for (std::size_t e = 0; e < made.size(); ++e)
    made[e] = (unit_float(random_word(key, e)) - 0.5F) * static_cast<float>(1 << (e % 20));
  return made;
}

void sums_have_the_one_order(GroupRef group) {
  std::vector<std::vector<float>> items;
  std::vector<const float*> from;
  for (int r = 0; r < group.size(); ++r) items.push_back(numbers(r));
  for (const auto& item : items) from.push_back(item.data());
  std::vector<float> expected(items[0].size()),
      mine = items[static_cast<std::size_t>(group.rank())];
  pairwise_sum(expected.data(), from.data(), from.size(), expected.size());
  auto sums = RankSums<float>::make(group, 2, {.chunk_bytes = 16384, .chunks = 3});
  check(static_cast<bool>(sums), "sums", sums.error);
  if (!sums) return;
  sums->sum({mine.data() + 30000, Shape(mine.size() - 30000)});
  sums->sum({mine.data(), Shape(std::size_t{30000})});
  const Error why = sums->finish();
  check(!why, "sums", why);
  check(std::memcmp(mine.data(), expected.data(), mine.size() * sizeof(float)) == 0,
        "a sum over MPI has other bits than one rank's");
}

void who_does_not_answer_is_an_error() {
  auto group = MpiGroup::make(MPI_COMM_WORLD, {.limit_seconds = 0.2});
  check(static_cast<bool>(group), "group", group.error);
  if (!group) return;
  if (group->rank() != 0 && group->size() > 1) {
    std::byte byte{};
    check(!group->prepare(1), "prepare");
    group->begin(0, {GroupMessage::Direction::receive, 0, 0, {&byte, Shape(1)}});
    const double start = MPI_Wtime();
    const Error why = group->wait(0);
    check(std::strstr(why.text(), "ms to receive from rank 0, which was not heard of") != nullptr,
          "who waits for a silent rank hears", why);
    check(MPI_Wtime() - start < 20, "a wait was endless");
    check(group->done(0) && std::string(group->wait(0).text()) == why.text(), "stays broken");
    check(static_cast<bool>(group->prepare(1)), "stays broken");
  }
}

}  // namespace

int main(int argc, char** argv) {
  check(!MpiGroup::make(MPI_COMM_WORLD), "a group before MPI_Init");
  MPI_Init(&argc, &argv);
  {
    auto group = MpiGroup::make(MPI_COMM_WORLD);
    check(static_cast<bool>(group), "group", group.error);
    if (group) {
      const GroupRef ref(*group);
      const Error why = testing::check_group(ref, {.rounds = 4, .most_bytes = 60000});
      check(!why, "contract:", why);
      Agreement agreement;
      agreement.add("seed", static_cast<std::uint64_t>(ref.rank()));
      check(ref.size() == 1 || static_cast<bool>(agreement.examine(ref)), "agreement");
      sums_have_the_one_order(ref);
    }
  }
  who_does_not_answer_is_an_error();
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return failures == 0 ? 0 : 1;
}
