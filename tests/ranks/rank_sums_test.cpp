// SPDX-License-Identifier: MIT
/// Sums over ranks: one order of additions whatever the number of ranks, blocks of any cut, and time
/// hidden behind work. What set-up exchanges.
#include <doctest/doctest.h>
#include <adacc/core/random.hpp>
#include <adacc/ranks/asked.hpp>
#include <adacc/ranks/collectives.hpp>
#include <adacc/ranks/data_parallel/rank_sums.hpp>
#include <adacc/ranks/thread_group.hpp>

#include <cstring>
#include <string>
#include <vector>

namespace rank_sums_test { namespace {

using namespace adacc;
using Member = ThreadGroup::Member;

std::vector<float> numbers(std::size_t elems, std::uint32_t item) {
  std::vector<float> made(elems);
  RandomKey key;
  key.activation = item;
  for (std::size_t e = 0; e < elems; ++e)
    made[e] = (unit_float(random_word(key, e)) - 0.5F) * static_cast<float>(1 << (e % 20));
  return made;
}

std::vector<float> sum_of(const std::vector<std::vector<float>>& items) {
  std::vector<const float*> from;
  for (const auto& item : items) from.push_back(item.data());
  std::vector<float> sum(items[0].size());
  pairwise_sum(sum.data(), from.data(), from.size(), sum.size());
  return sum;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_CASE("items are added in pairs of pairs") {
  const auto term = [](double value) { return std::vector<float>{static_cast<float>(value)}; };
  // 1 is lost beside 2^24, and two of them are not.
  CHECK(sum_of({term(16777216), term(1), term(1), term(1)})[0] == 16777218.0F);
  CHECK(sum_of({term(16777216), term(1), term(1)})[0] == 16777216.0F);
  CHECK(sum_of({term(1), term(1), term(16777216)})[0] == 16777218.0F);
  CHECK(sum_of({term(1), term(1), term(0), term(0), term(16777216), term(1)})[0] == 16777218.0F);
  CHECK(pairwise_levels(1) == 0);
  CHECK(pairwise_levels(2) == 1);
  CHECK(pairwise_levels(5) == 3);
  CHECK(pairwise_divides(12, 3));
  CHECK(!pairwise_divides(12, 4));
  CHECK(!pairwise_divides(12, 5));
  CHECK(pairwise_divides(12, 1));
}

TEST_CASE("who adds runs of 2^k items first has the same bits") {
  for (std::size_t count = 1; count < 20; ++count) {
    std::vector<std::vector<float>> items;
    for (std::size_t i = 0; i < count; ++i)
      items.push_back(numbers(300, static_cast<std::uint32_t>(i)));
    const std::vector<float> whole = sum_of(items);
    for (std::size_t run = 2; run <= count; run *= 2) {
      if (count % run != 0) continue;
      std::vector<std::vector<float>> sums;
      for (std::size_t i = 0; i < count; i += run)
        sums.push_back(sum_of({items.begin() + static_cast<std::ptrdiff_t>(i),
                               items.begin() + static_cast<std::ptrdiff_t>(i + run)}));
      CHECK(same(sum_of(sums), whole));
    }
  }
}

TEST_CASE("blocks of any cut are summed on all ranks, on their owners, and spread") {
  const std::size_t cuts[] = {1, 0, 700, 16, 5000, 3, 64, 20000, 90, 90};
  for (const int size : {1, 2, 3, 4, 7})
    for (const std::size_t chunk_bytes : {std::size_t{1024}, std::size_t{40000}}) {
      std::size_t elems = 0;
      for (const std::size_t cut : cuts) elems += cut;
      std::vector<std::vector<float>> items;
      for (int r = 0; r < size; ++r) items.push_back(numbers(elems, static_cast<std::uint32_t>(r)));
      const std::vector<float> expected = sum_of(items);
      ThreadGroup group(size, {.rate = 1e9, .hostile = true});
      run_ranks(group, [&](Member& member) {
        const GroupRef ref(member);
        auto sums = RankSums<float>::make(ref, 10, {.chunk_bytes = chunk_bytes, .chunks = 3});
        REQUIRE_MESSAGE(sums, sums.error.text());
        // From the end to the start, as backward goes.
        const auto each = [&](const auto& body) {
          std::size_t end = elems;
          for (std::size_t i = 10; i-- > 0; end -= cuts[i]) body(end - cuts[i], cuts[i], i);
        };
        std::vector<float> mine = items[static_cast<std::size_t>(member.rank())];
        each([&](std::size_t at, std::size_t n, std::size_t) {
          sums->sum({mine.data() + at, Shape(n)});
        });
        Error why = sums->finish();
        CHECK_MESSAGE(!why, why.text());
        CHECK(sums->idle());
        CHECK(same(mine, expected));

        mine = items[static_cast<std::size_t>(member.rank())];
        const auto owner = [&](std::size_t i) { return static_cast<int>(i) / 2 % size; };
        each([&](std::size_t at, std::size_t n, std::size_t i) {
          sums->sum({mine.data() + at, Shape(n)}, owner(i));
        });
        why = sums->finish();
        CHECK_MESSAGE(!why, why.text());
        each([&](std::size_t at, std::size_t n, std::size_t i) {
          if (owner(i) == member.rank())
            CHECK(std::memcmp(&mine[at], &expected[at], n * sizeof(float)) == 0);
          sums->spread({mine.data() + at, Shape(n)}, owner(i));
        });
        why = sums->finish();
        CHECK_MESSAGE(!why, why.text());
        CHECK(same(mine, expected));
      });
    }
}

TEST_CASE("sums are under way while a rank works, and take the time that their bytes need") {
  // 4 MB at 100 MB/s: of 2 (R - 1) / R times that every rank's link sends, as much as 60 ms.
  ThreadGroup group(4, {.rate = 1e8, .latency = 1e-5});
  run_ranks(group, [&](Member& member) {
    auto sums = RankSums<float>::make(GroupRef(member), 40, {.chunk_bytes = 1 << 16, .chunks = 4});
    REQUIRE(sums);
    std::vector<float> block(1 << 20);
    const double start = member();
    for (std::size_t part = 0; part < 32; ++part) {
      member.work(2e-3);
      sums->sum({block.data() + (part << 15), Shape(std::size_t{1} << 15)});
    }
    const double worked = member() - start;
    const Error why = sums->finish();
    CHECK_MESSAGE(!why, why.text());
    const double all = member() - start, transfer = 1.5 * 4 * (1 << 20) / 1e8;
    CHECK(worked == doctest::Approx(0.064).epsilon(0.01));
    CHECK(all > transfer);
    CHECK(all - worked < 0.3 * transfer);
  });
}

TEST_CASE("a rank that dies or hangs in the middle of a sum is an error on all others") {
  for (const auto fate : {ThreadGroup::Fate::dies, ThreadGroup::Fate::hangs})
    for (const std::uint64_t at : {0U, 7U, 40U}) {
      ThreadGroup group(4, {.limit_seconds = 30, .rate = 1e8});
      group.set_fate(1, fate, at);
      std::vector<Error> errors(4);
      run_ranks(group, [&](Member& member) {
        auto sums = RankSums<float>::make(GroupRef(member), 4, {.chunk_bytes = 4096, .chunks = 2});
        REQUIRE(sums);
        std::vector<float> block(1 << 16);
        Error& mine = errors[static_cast<std::size_t>(member.rank())];
        for (int i = 0; i < 4 && !mine; ++i) {
          sums->sum({block.data(), Shape(block.size())});
          mine = sums->finish();
        }
        CHECK(std::string(sums->finish().text()) == mine.text());
      });
      for (const Error& why : errors) CHECK(static_cast<bool>(why));
    }
}

TEST_CASE("bytes and texts are broadcast and gathered, and an error is everybody's") {
  for (const int size : {1, 2, 3, 5, 8}) {
    ThreadGroup group(size, {.rate = 1e9, .hostile = true});
    run_ranks(group, [&](Member& member) {
      const GroupRef ref(member);
      for (int root = 0; root < size; ++root) {
        std::string text = member.rank() == root ? "from " + std::to_string(root) : "mine";
        CHECK(!broadcast(ref, text, root));
        CHECK(text == "from " + std::to_string(root));
      }
      std::vector<std::string> all;
      const std::string mine(static_cast<std::size_t>(member.rank()), 'x');
      CHECK(!all_gather(ref, mine, all));
      REQUIRE(all.size() == static_cast<std::size_t>(size));
      for (std::size_t r = 0; r < all.size(); ++r) CHECK(all[r] == std::string(r, 'x'));
      CHECK(!share_error(ref, {}));
      const Error shared =
          share_error(ref, member.rank() + 1 == size ? Error::say("no disk") : Error());
      const std::string expected = "rank " + std::to_string(size - 1) + ": no disk";
      CHECK(std::string(shared.text()) == (member.rank() + 1 == size ? "no disk" : expected));
    });
  }
}

TEST_CASE("ranks that disagree hear on what, and which") {
  ThreadGroup group(5, {.rate = 1e9});
  run_ranks(group, [&](Member& member) {
    const auto check = [&](const char* a, std::uint64_t b, const char* c) {
      Agreement agreement;
      agreement.add("model", a);
      agreement.add("seed", b);
      agreement.add("plan", c);
      return std::string(agreement.examine(GroupRef(member)).text());
    };
    CHECK(check("gpt", 1, "1 2") == "");
    const bool odd = member.rank() % 2 == 1;
    CHECK(check("gpt", odd ? 12 : 1, member.rank() == 2 ? "x" : "1 2") ==
          "the ranks disagree on the seed: rank 0 has 1, rank 1, 3 12");
    CHECK(check("gpt", 1, member.rank() == 4 ? "1 2\n3" : "1 2") ==
          "the ranks disagree on the plan: rank 0 has 1 2, rank 4 1 2;3");
  });
}

TEST_CASE("ranks compare the instruction levels that change bits") {
  using enum InstructionLevel;
  const auto words = [](Dtype scalar, InstructionLevel products, InstructionLevel vectors) {
    std::string found;
    ThreadGroup group(2, {.rate = 1e9});
    run_ranks(group, [&](Member& member) {
      const bool other = member.rank() == 1;
      Agreement agreement;
      detail::agree_on_level(agreement, scalar, other ? products : avx512_bf16,
                             other ? vectors : avx512);
      const Error why = agreement.examine(GroupRef(member));
      if (!other) found = why.text();
    });
    return found;
  };
  CHECK(words(Dtype::bf16, amx, avx512) ==
        "the ranks disagree on the instruction level (ADACC_INSTRUCTION_LEVEL chooses one that all "
        "have): rank 0 has avx512, rank 1 amx");
  CHECK(words(Dtype::f32, amx, avx512) == "");
  CHECK(words(Dtype::bf16, avx512, avx512) == "");
  if (detail::build_level < avx512) {  // else the build has these instructions on all ranks
    CHECK(words(Dtype::f32, avx2, avx2).find("rank 0 has avx512, rank 1 avx2") !=
          std::string::npos);
    CHECK(words(Dtype::bf16, plain, plain) != "");
  }
}

}}  // namespace rank_sums_test
