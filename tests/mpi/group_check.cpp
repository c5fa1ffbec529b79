// SPDX-License-Identifier: MIT
/// The group over MPI, on however many ranks the launcher starts: contract, sums, a rank that does not answer,
/// ranks that go different ways, and memory that is given back. Prints what failed and exits with 1.
#include <adacc/adapter/mpi.hpp>
#include <adacc/ranks/collectives.hpp>
#include <adacc/ranks/data_parallel/rank_sums.hpp>
#include <adacc/testing/group_check.hpp>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <sys/mman.h>

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

using Direction = GroupMessage::Direction;

Error move(MpiGroup& group, Direction direction, int peer, std::byte* memory, std::size_t bytes) {
  if (const Error why = group.prepare(1)) return why;
  group.begin(0, {direction, peer, 0, {memory, Shape(bytes)}});
  return group.wait(0);
}

/// Rank 0 gives up a send that nobody receives, and its memory. Only then rank 1 receives it.
void memory_of_a_send_is_given_back() {
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size == 1) return;
  constexpr std::size_t bytes = MiB;  // more than MPI takes in before a receive has begun
  auto group = MpiGroup::make(MPI_COMM_WORLD, {.limit_seconds = rank == 0 ? 0.2 : 60});
  check(static_cast<bool>(group), "group", group.error);
  if (!group) return;
  if (rank == 0) {
    void* const pages =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(pages != MAP_FAILED, "pages");
    std::memset(pages, 7, bytes);
    const Error why = move(*group, Direction::send, 1, static_cast<std::byte*>(pages), bytes);
    check(std::strstr(why.text(), "to send to rank 1, which was not heard of") != nullptr,
          "who sends to a silent rank hears", why);
    munmap(pages, bytes);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1) {
    std::vector<std::byte> memory(bytes);
    const Error why = move(*group, Direction::receive, 0, memory.data(), bytes);
    check(!why && memory.front() == std::byte{7} && memory.back() == std::byte{7},
          "what was sent before its memory went comes:", why);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

/// Rank 0 sends what is longer, or shorter, than rank 1 wants.
void different_ways_are_named(std::size_t sent, const char* words) {
  auto group = MpiGroup::make(MPI_COMM_WORLD);
  check(static_cast<bool>(group), "group", group.error);
  if (!group || group->size() == 1) return;
  std::byte memory[64] = {};
  if (group->rank() == 0) {
    const Error why = move(*group, Direction::send, 1, memory, sent);
    check(!why, "a short message is on its way at once:", why);
  }
  if (group->rank() == 1) {
    const Error why = move(*group, Direction::receive, 0, memory, 32);
    check(std::strstr(why.text(), words) != nullptr, words, why);
  }
  MPI_Barrier(MPI_COMM_WORLD);
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
  memory_of_a_send_is_given_back();
  different_ways_are_named(64, "rank 0 sends more bytes to rank 1 than the 32 that it wants");
  different_ways_are_named(8, "rank 0 sends 8 bytes to rank 1, which wants 32");
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return failures == 0 ? 0 : 1;
}
