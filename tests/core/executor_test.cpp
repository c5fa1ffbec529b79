// SPDX-License-Identifier: MIT
/// Executors: none, the caller's own, the default one on Eigen's pool, and threads for one call.
#include <doctest/doctest.h>
#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/core/cpu.hpp>
#include <adacc/core/executor.hpp>
#include <adacc/core/host_threads.hpp>

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace executor_test { namespace {

using namespace adacc;

/// Runs tiles backwards and says it has three workers.
struct Backwards {
  mutable int runs = 0;
  int workers() const { return 3; }
  void run(std::size_t tiles, TileFn tile) const {
    ++runs;
    for (std::size_t i = tiles; i-- > 0;) tile(i, static_cast<int>(i % 3));
  }
};

TEST_CASE("without an executor tiles run in order, as worker 0") {
  const Cpu cpu;
  CHECK(cpu.workers() == 1);
  std::vector<std::size_t> seen;
  bool only_worker_0 = true;
  cpu.parallel(5, [&](std::size_t i, int worker) {
    seen.push_back(i);
    only_worker_0 = only_worker_0 && worker == 0;
  });
  CHECK(seen == std::vector<std::size_t>{0, 1, 2, 3, 4});
  CHECK(only_worker_0);
  cpu.parallel(0, [&](std::size_t, int) { seen.clear(); });
  CHECK(seen.size() == 5);
}

TEST_CASE("an executor of one's own, const or not, is referred to") {
  Backwards mine;
  const Backwards constant;
  const auto check = [](const Cpu& cpu) {
    CHECK(cpu.workers() == 3);
    std::vector<std::size_t> seen;
    cpu.parallel(3, [&](std::size_t i, int worker) {
      CHECK(worker == static_cast<int>(i));
      seen.push_back(i);
    });
    CHECK(seen == std::vector<std::size_t>{2, 1, 0});
  };
  check(Cpu(mine));
  check(Cpu(constant));
  CHECK(mine.runs == 1);
  CHECK(constant.runs == 1);

  ExecutorRef first(mine);
  ExecutorRef second(first);  // refers to the executor, not to the reference
  first = ExecutorRef();
  CHECK(second.workers() == 3);
  CHECK(first.workers() == 1);
}

TEST_CASE("a single tile needs nobody else") {
  Backwards mine;
  const Cpu cpu(mine);
  int worker = -1;
  cpu.parallel(1, [&](std::size_t, int w) { worker = w; });
  CHECK(worker == 0);
  CHECK(mine.runs == 0);
}

TEST_CASE("EigenPool: every tile once, no worker twice at a time, nothing after run") {
  for (const int threads : {1, 2, 3, 5}) {
    CAPTURE(threads);
    EigenPool pool(threads);
    const Cpu cpu(pool);
    CHECK(cpu.workers() == threads);
    std::atomic<int> wrong{0}, inside{0};
    std::vector<std::atomic<int>> busy(static_cast<std::size_t>(threads));
    for (std::size_t run = 0; run < 2000; ++run) {
      const std::size_t tiles = run % 37;
      std::vector<int> times(tiles, 0);  // unsynchronized: one writer each
      std::size_t work = 0;
      cpu.parallel(tiles, [&](std::size_t i, int worker) {
        ++inside;
        if (worker < 0 || worker >= threads) {
          ++wrong;
          return;
        }
        std::atomic<int>& mine = busy[static_cast<std::size_t>(worker)];
        if (mine.fetch_add(1) != 0) ++wrong;
        ++times[i];
        for (std::size_t k = 0; k < run % 11 * 10; ++k) (void)wrong.load();  // takes a while
        mine.fetch_sub(1);
        --inside;
      });
      if (inside != 0) ++wrong;
      for (const int count : times) work += static_cast<std::size_t>(count);
      if (work != tiles) ++wrong;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("EigenPool: threads share the tiles") {
  EigenPool pool(2);
  std::atomic<int> helped{0};
  // The first tile waits for the second, which therefore somebody else has to run.
  const auto tile = [&](std::size_t i, int worker) {
    if (i == 1) helped = worker == 1 ? 1 : 2;
    while (i == 0 && helped == 0) std::this_thread::yield();
  };
  for (int run = 0; run < 20; ++run) {
    helped = 0;
    pool.run(2, TileFn(tile));
    CHECK(helped != 0);
  }
}

TEST_CASE("EigenPool: results are there when run returns") {
  EigenPool pool(3);
  const Cpu cpu(pool);
  for (int run = 0; run < 500; ++run) {
    std::size_t squares[64] = {};
    cpu.parallel(64, [&](std::size_t i, int) { squares[i] = i * i; });
    for (std::size_t i = 0; i < 64; ++i) REQUIRE(squares[i] == i * i);
  }
}

TEST_CASE("EigenPool: fewer threads than one are one, and unused pools end") {
  CHECK(EigenPool(0).workers() == 1);
  CHECK(EigenPool(-3).workers() == 1);
  for (int i = 0; i < 50; ++i) {
    EigenPool pool(3);
    const auto nothing = [](std::size_t, int) {};
    if (i % 2 == 0) pool.run(5, TileFn(nothing));  // calls may still be queued at the end
  }
}

TEST_CASE("HostThreads: each tile once, by workers that are there, and several of them") {
  CHECK(HostThreads().workers() >= 1);
  for (const unsigned threads : {1U, 2U, 5U}) {
    HostThreads made(threads);
    REQUIRE(made.workers() == static_cast<int>(threads));
    const Cpu cpu{ExecutorRef(made)};
    std::vector<std::atomic<int>> runs(97);
    std::atomic<unsigned> seen = 0;  // bits of workers
    cpu.parallel(runs.size(), [&](std::size_t i, int worker) {
      ++runs[i];
      seen |= 1U << worker;
      // The first tile lasts until a second thread has come.
      while (i == 0 && threads > 1 && (seen & (seen - 1)) == 0) std::this_thread::yield();
    });
    for (const std::atomic<int>& each : runs) CHECK(each == 1);
    CHECK(seen < 1U << threads);
    CHECK(((seen & (seen - 1)) != 0) == (threads > 1));
    cpu.parallel(0, [&](std::size_t, int) { ++runs[0]; });
    CHECK(runs[0] == 1);
  }
}

}}  // namespace executor_test
