// SPDX-License-Identifier: MIT
/// Data parallel training: the bits of one rank on any number of them, memory as predicted, sums hidden
/// behind backward, and errors on all ranks.
#include <doctest/doctest.h>
#include <adacc/layer/dropout.hpp>
#include <adacc/layer/plain/linear.hpp>
#include <adacc/layer/plain/mean_squared_error.hpp>
#include <adacc/layer/plain/tanh.hpp>
#include <adacc/model/repeat.hpp>
#include <adacc/ranks/data_parallel/data_parallel.hpp>
#include <adacc/ranks/thread_group.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "../fallible_codec.hpp"
#include "../train/support.hpp"

namespace data_parallel_test {

using namespace adacc;
using train_test::Folder;

namespace {

using Member = ThreadGroup::Member;
using Fate = ThreadGroup::Fate;
using Parallel = DataParallel<float, Cpu, AdamWWith<Int8Moments, FullMoments>>;
using Options = Parallel::Options;

/// Passes on what it gets, and takes its time on the clock of its rank.
struct Busy {
  static constexpr auto backward_reads = reads::none;
  static thread_local Member* member;
  static thread_local double seconds;

  static void forward(Cpu&, View<const float> x, View<float> y) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[i];
    if (member != nullptr) member->work(seconds);
  }
  static void backward(Cpu&, View<const float> dy, View<float> dx) {
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = dy[i];
    if (member != nullptr) member->work(2 * seconds);
  }
};
thread_local Member* Busy::member = nullptr;
thread_local double Busy::seconds = 0;

using plain::Linear;
using Hidden = Sequential<Layer<plain::Tanh>, Layer<Dropout>, Layer<Linear>, Layer<Busy>>;
using Net =
    Network<Sequential<Layer<Linear>, Repeat<Hidden>, Layer<Linear>>, plain::MeanSquaredError>;
const Shape shape(16, 8), target_shape(16, 1);
const Net net{{{Linear{.out = 32}},
               {6, {{}, {{.rate = 0.25F}}, {Linear{.out = 32}}, {}}},
               {Linear{.out = 1}}},
              {}};

/// Micro-batch `number` of the whole run.
struct Batch {
  std::vector<float> x = std::vector<float>(shape.elems()), y = std::vector<float>(16);
  explicit Batch(std::size_t number) {
    RandomKey key;
    key.seed = 5;
    key.step = static_cast<std::uint32_t>(number);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 2 * unit_float(random_word(key, i)) - 1;
    for (std::size_t r = 0; r < y.size(); ++r) y[r] = x[8 * r] * x[8 * r + 1];
  }
  View<const float> input() const { return {x.data(), shape}; }
  View<const float> targets() const { return {y.data(), target_shape}; }
};

std::size_t retain_bytes() {
  const auto graph = make_graph(net, shape);
  return peak_bytes(*graph, retain_all(*graph));
}

Options options() {
  return {.budget_bytes = retain_bytes() * 6 / 10,
          .seed = 3,
          .clip = 0.05,
          .optimizer = {.weight_decay = 0.1F},
          .model = "busy"};
}

/// What a run comes to: outcomes of its updates, and all parameters.
struct Run {
  std::vector<double> numbers;
  std::vector<float> params;
  std::size_t moments = 0;
  Error error;
};

bool same(const Run& a, const Run& b) {
  return !a.error && !b.error && a.numbers.size() == b.numbers.size() &&
         a.params.size() == b.params.size() && !a.params.empty() &&
         std::memcmp(a.numbers.data(), b.numbers.data(), 8 * a.numbers.size()) == 0 &&
         std::memcmp(a.params.data(), b.params.data(), 4 * a.params.size()) == 0;
}

Error update(Parallel& parallel, std::size_t number, Run& run, bool spoiled = false) {
  const std::size_t micro = static_cast<std::size_t>(parallel.micro_batches());
  const std::size_t mine = static_cast<std::size_t>(parallel.shard_count()) * micro,
                    all = static_cast<std::size_t>(parallel.shards()) * micro;
  for (std::size_t i = 0; i < mine; ++i) {
    const auto shard = static_cast<std::size_t>(parallel.shard(static_cast<int>(i / micro)));
    Batch batch(number * all + shard * micro + i % micro);
    if (spoiled) batch.x[3] = std::numeric_limits<float>::infinity();
    const auto loss = parallel.accumulate(batch.input(), batch.targets());
    if (!loss) return loss.error;
  }
  const auto outcome = parallel.update(1e-2);
  if (!outcome) return outcome.error;
  run.numbers.push_back(outcome->loss);
  run.numbers.push_back(outcome->grad_norm);
  run.numbers.push_back(outcome->finite ? static_cast<double>(outcome->batches) : -1);
  return {};
}

void keep_params(const Parallel& parallel, Run& run) {
  const View<const float> params = parallel.training().params();
  run.params.assign(params.begin(), params.end());
}

constexpr std::size_t updates = 3;

Run train(GroupRef group, const DataParallelOptions& how, const Options& with = options()) {
  Run run;
  auto parallel = Parallel::make(group, net, shape, with, how);
  if (!parallel) return run.error = parallel.error, run;
  for (std::size_t u = 0; u < updates && !run.error; ++u) run.error = update(*parallel, u, run);
  keep_params(*parallel, run);
  run.moments = parallel->memory_use().moments;
  return run;
}

/// body(member) of every rank, in the order of ranks.
template <class Body>
auto on_ranks(ThreadGroup& group, const Body& body) {
  std::vector<decltype(body(std::declval<Member&>()))> made(static_cast<std::size_t>(group.size()));
  run_ranks(group,
            [&](Member& member) { made[static_cast<std::size_t>(member.rank())] = body(member); });
  return made;
}

void check_ranks(int ranks, const DataParallelOptions& how, const Run& expected,
                 const Options& with = options()) {
  ThreadGroup group(ranks, {.rate = 1e9, .hostile = true});
  const auto runs = on_ranks(group, [&](Member& member) { return train(member, how, with); });
  for (const Run& run : runs) {
    CHECK_MESSAGE(!run.error, run.error.text());
    CHECK_MESSAGE(same(run, expected), ranks, " ranks, sharded ", how.sharded_state);
  }
}

}  // namespace

TEST_CASE("2, 4 and 8 ranks have the bits of one, with lossy plans, dropout and 8-bit moments") {
  for (const int micro : {1, 2}) {
    DataParallelOptions how{.shards = 8, .micro_batches = micro};
    how.sums = {.chunk_bytes = 2048, .chunks = 3};
    const Run expected = train({}, how);
    REQUIRE_MESSAGE(!expected.error, expected.error.text());
    CHECK(expected.numbers[2] == 8 * micro);
    for (const bool sharded : {false, true}) {
      how.sharded_state = sharded;
      check_ranks(1, how, expected);
      check_ranks(2, how, expected);
      if (micro == 1) check_ranks(4, how, expected);
      check_ranks(8, how, expected);
    }
  }
}

TEST_CASE("shards may be no power of 2, if every rank has as many as one") {
  const DataParallelOptions how{.shards = 6, .sharded_state = true};
  const Run expected = train({}, how);
  check_ranks(3, how, expected);
  check_ranks(6, how, expected);
  ThreadGroup group(2, {.rate = 1e9});
  const auto runs = on_ranks(group, [&](Member& member) { return train(member, how); });
  for (const Run& run : runs)
    CHECK(std::string(run.error.text()) ==
          "6 shards cannot be dealt to 2 ranks: each takes equally many, 1, 2, 4 or another power "
          "of 2; possible are 1, 3, 6 ranks");
}

TEST_CASE(
    "sharded gradients have the bits of one rank's, on 1, 2, 4 and 8 ranks, and on 3 of 3 shards") {
  for (const int shards : {8, 12, 3}) {
    DataParallelOptions how{.shards = shards};
    how.sums = {.chunk_bytes = 2048, .chunks = 3};
    auto first = Parallel::make({}, net, shape, options(), how);
    REQUIRE(first);
    const Plan plan = first->training().plan();
    how.plan = &plan;
    const Run expected = train({}, how);
    REQUIRE_MESSAGE(!expected.error, expected.error.text());
    how.sharded_gradients = true;
    for (const int ranks : {1, 2, 3, 4, 8})
      if (pairwise_rounds(static_cast<std::size_t>(shards), static_cast<std::size_t>(ranks)))
        check_ranks(ranks, how, expected);
  }
  const auto says = [&](const DataParallelOptions& how, const char* words) {
    ThreadGroup group(3, {.rate = 1e9});
    for (const Run& run : on_ranks(group, [&](Member& member) { return train(member, how); }))
      CHECK_MESSAGE(std::strstr(run.error.text(), words) != nullptr, std::string(run.error.text()));
  };
  says({.shards = 12, .sharded_gradients = true},
       "12 shards cannot be dealt to 3 ranks whose gradients are sharded: these are a power of 2, "
       "or "
       "as many; possible are 1, 2, 4, 12 ranks");
  says({.shards = 3, .micro_batches = 2, .sharded_gradients = true},
       "let each be one micro-batch, and the update have 6 of them instead of 3 of 2");
}

TEST_CASE("one shard on one rank is plain accumulation") {
  Options with = options();
  with.clip = 0;
  auto parallel = Parallel::make({}, net, shape, with, {.shards = 1, .micro_batches = 4});
  REQUIRE_MESSAGE(parallel, parallel.error.text());
  auto program = make_program(*make_graph(net, shape), parallel->training().plan());
  REQUIRE(program);
  auto training = Parallel::Training::make(net, std::move(*program), parallel->training().context(),
                                           0, with.optimizer);
  REQUIRE(training);
  Run run;
  for (std::size_t u = 0; u < updates; ++u) {
    CHECK(!update(*parallel, u, run));
    for (std::size_t i = 0; i < 4; ++i) {
      const Batch batch(4 * u + i);
      REQUIRE(training->accumulate(batch.input(), batch.targets()));
    }
    REQUIRE(training->update(1e-2));
  }
  keep_params(*parallel, run);
  CHECK(std::memcmp(run.params.data(), training->params().data(), 4 * run.params.size()) == 0);
}

TEST_CASE("a run goes on with another number of ranks, bit for bit") {
  const Folder folder;
  const std::string path = folder / "run.ckpt";
  DataParallelOptions how{.shards = 4, .sharded_state = true};
  const Run expected = train({}, how);
  Options other = options();
  other.seed = 9;  // the checkpoint's holds
  const auto part = [&](GroupRef group, std::size_t from, std::size_t to, bool saves) {
    Run run;
    auto parallel = Parallel::make(group, net, shape, from == 0 ? options() : other, how);
    if (!parallel) return run.error = parallel.error, run;
    if (from != 0) run.error = parallel->load(path);
    if (!run.error && from != 0 && parallel->training().data_position != 77)
      run.error = Error::say("another position of the data");
    for (std::size_t u = from; u < to && !run.error; ++u) run.error = update(*parallel, u, run);
    parallel->training().data_position = 77;
    if (saves && !run.error) run.error = parallel->save(path, "notes");
    keep_params(*parallel, run);
    return run;
  };
  for (const bool sharded : {true, false}) {
    how.sharded_state = sharded;
    ThreadGroup four(4, {.rate = 1e9});
    for (const Run& run : on_ranks(four, [&](Member& m) { return part(m, 0, 2, true); }))
      REQUIRE_MESSAGE(!run.error, run.error.text());
    CHECK(read_checkpoint_info(path)->notes == "notes");
    for (const int ranks : {1, 2, 4}) {
      how.sharded_state = ranks != 2;
      how.sharded_gradients = ranks == 4;
      ThreadGroup group(ranks, {.rate = 1e9});
      for (const Run& run : on_ranks(group, [&](Member& m) { return part(m, 2, 3, false); })) {
        CHECK_MESSAGE(!run.error, run.error.text());
        CHECK(run.params == expected.params);
      }
    }
    how.sharded_gradients = false;
    CHECK(part({}, 2, 3, false).params == expected.params);
    how.sharded_state = sharded;
  }
  ThreadGroup group(2, {.rate = 1e9});
  for (const Error& why : on_ranks(group, [&](Member& member) {
         auto parallel = Parallel::make(member, net, shape, options(), how);
         return parallel ? parallel->load(folder / "none.ckpt") : parallel.error;
       }))
    CHECK(std::strstr(why.text(), "none.ckpt") != nullptr);
}

TEST_CASE("a checkpoint that some ranks load, while others train already, is an error on all") {
  const Folder folder;
  const std::string path = folder / "run.ckpt";
  DataParallelOptions how{.shards = 3};
  for (const int before : {0, 1}) {  // updates and loads of all ranks before
    ThreadGroup group(3, {.rate = 1e9});
    const auto runs = on_ranks(group, [&](Member& member) {
      Run run;
      auto parallel = Parallel::make(member, net, shape, options(), how);
      if (!parallel) return run.error = parallel.error, run;
      run.error = parallel->save(path);
      for (int i = 0; i < before && !run.error; ++i) {
        run.error = update(*parallel, 0, run);
        if (!run.error) run.error = parallel->load(path);
      }
      if (run.error) return run;
      if (member.rank() != 1) run.error = parallel->load(path);
      else run.error = update(*parallel, 0, run);
      CHECK(parallel->update(1e-2).error);  // it is over
      return run;
    });
    for (const Run& run : runs)
      CHECK_MESSAGE(
          std::string(run.error.text()) ==
              "the ranks disagree on the call that comes first: rank 0 has load(), rank 1 "
              "accumulate()",
          run.error.text());
  }
}

TEST_CASE("a checkpoint that some ranks load between later updates is an error on all, in words") {
  const Folder folder;
  const std::string path = folder / "run.ckpt";
  int met = 0, joined = 0;
  for (const int stage : {0, 1, 2})  // of ZeRO
    for (const int before : {1, 2, 4})
      for (const int mid : {0, 1})  // micro-batches of the update before load()
        for (const bool all_load : {false, true}) {
          DataParallelOptions how{.shards = 3, .micro_batches = stage == 2 ? 1 : 2};
          how.sharded_state = stage > 0, how.sharded_gradients = stage == 2;
          INFO("stage ", stage, ", updates ", before, ", micro-batches ", mid, ", all ", all_load);
          if (stage == 2 && mid != 0) continue;
          ThreadGroup group(3, {.limit_seconds = 2});
          const auto runs = on_ranks(group, [&](Member& member) {
            Run run;
            auto parallel = Parallel::make(member, net, shape, options(), how);
            if (!parallel) return run.error = parallel.error, run;
            run.error = parallel->save(path);
            for (int i = 0; i < before && !run.error; ++i) run.error = update(*parallel, 0, run);
            if (run.error) return run;
            if (!all_load && member.rank() == 1) {
              run.error = update(*parallel, 0, run);
            } else {
              const Batch batch(0);
              for (int i = 0; i < mid; ++i)
                if (const auto loss = parallel->accumulate(batch.input(), batch.targets()); !loss)
                  return run.error = loss.error, run;
              run.error = parallel->load(path);
            }
            // It is over, or goes on.
            const Error next = update(*parallel, 0, run);
            CHECK(static_cast<bool>(next) == !all_load);
            return run;
          });
          for (const Run& run : runs) {
            const std::string words = run.error.text();
            if (all_load) {
              CHECK_MESSAGE(words.empty(), words);
              continue;
            }
            const bool meets =
                words ==
                "the ranks disagree on the call that comes first: rank 0 has load(), rank 1 "
                "accumulate()";
            const bool joins =
                words == "the ranks disagree on the call: rank 0 has load(), rank 1 update()";
            CHECK_MESSAGE((meets || joins), words);
            met += meets ? 1 : 0, joined += joins ? 1 : 0;
          }
        }
  MESSAGE(met, " ranks met, ", joined, " joined");
  CHECK(joined > 0);
}

TEST_CASE("words of a first call name begin()") {
  ThreadGroup group(2, {.limit_seconds = 2});
  const auto errors = on_ranks(group, [&](Member& member) -> Error {
    auto parallel = Parallel::make(member, net, shape, options(), {.shards = 2});
    if (!parallel) return parallel.error;
    const Batch batch(0);
    return member.rank() == 0 ? parallel->begin(batch.input(), batch.targets())
                              : parallel->load("none.ckpt");
  });
  for (const Error& why : errors)
    CHECK(std::string(why.text()) ==
          "the ranks disagree on the call that comes first: rank 0 has begin(), rank 1 load()");
  // Slices on one rank are no other call than accumulate() on the next.
  ThreadGroup mixed(2, {.limit_seconds = 2});
  for (const Error& why : on_ranks(mixed, [&](Member& member) -> Error {
         auto parallel = Parallel::make(member, net, shape, options(), {.shards = 2});
         if (!parallel) return parallel.error;
         const Batch batch(0);
         return member.rank() == 0 ? parallel->begin(batch.input(), batch.targets())
                                   : parallel->accumulate(batch.input(), batch.targets()).error;
       }))
    CHECK_MESSAGE(!why, why.text());
}

TEST_CASE("every rank holds what was predicted, and a total counts sums and its share of moments") {
  const auto graph = make_graph(net, shape);
  const std::size_t params = graph->parameter_elems * 4;
  Options with = options();
  const std::size_t state = train({}, {.shards = 1}).moments;
  std::size_t totals[3] = {};
  for (const int stage : {0, 1, 2}) {  // of ZeRO
    const bool sharded = stage > 0;
    DataParallelOptions how{.shards = 8, .sharded_state = sharded, .sharded_gradients = stage == 2};
    how.sums = {.chunk_bytes = 4096, .chunks = 2};
    std::size_t total = 0;
    for (const std::size_t most : {std::size_t{0}, std::size_t{1}}) {
      with.budget_bytes = 0;
      with.total_bytes = most == 0 ? 1000 : total;
      ThreadGroup group(4, {.rate = 1e9});
      std::vector<std::size_t> moments(4), peaks(4), gradients(4);
      std::mutex mutex;
      run_ranks(group, [&](Member& member) {
        const auto r = static_cast<std::size_t>(member.rank());
        auto parallel = Parallel::make(member, net, shape, with, how);
        const std::lock_guard lock(mutex);
        if (most == 0) {  // the largest of the least totals is what all can train within
          const char* least = std::strstr(parallel.error.text(), "the least known is");
          REQUIRE(least != nullptr);
          const auto bytes = std::stoull(std::string(std::strchr(least, '(') + 1));
          total = bytes > total ? bytes : total;
          return;
        }
        REQUIRE_MESSAGE(parallel, parallel.error.text());
        const TrainingMemoryUse use = parallel->memory_use();
        CHECK(use.total() <= total);
        std::size_t own = 0, layer = 0;  // of the gradients
        for (std::size_t i = 0; i < graph->parameters.size(); ++i) {
          const std::size_t bytes = 4 * padded_elems(graph->parameters[i].shape, Dtype::f32);
          if (parallel->owner_of(i) == member.rank()) own += bytes;
          layer = std::max(layer, bytes);
        }
        CHECK(use.gradients >= (stage == 2 ? own : params));
        CHECK(use.gradients <= (stage == 2 ? own + layer + 4 * 64 : params));
        // Two shards: one sum is kept.
        CHECK(use.sums == 2 * 4096 + (stage == 2 ? own : params));
        CHECK(parallel->training().gradients().size() * 4 == (stage == 2 ? 0 : params));
        gradients[r] = own;
        moments[r] = use.moments;
        peaks[r] = use.arena;
        CHECK(use.arena == parallel->training().peak_bytes());
      });
      if (most == 0) continue;
      CHECK(moments[0] + moments[1] + moments[2] + moments[3] == state * (sharded ? 1 : 4));
      for (const std::size_t peak : peaks) CHECK(peak == peaks[0]);
      if (sharded) CHECK(moments[0] < state / 3);
      if (sharded) CHECK(gradients[0] + gradients[1] + gradients[2] + gradients[3] == params);
      totals[stage] = total;
    }
  }
  CHECK(totals[1] < totals[0]);
  CHECK(totals[2] < totals[1]);
  // Used bytes are counted in an arena filled with a pattern.
  for (const bool sharded : {false, true}) {
    ThreadGroup group(2, {.rate = 1e9});
    run_ranks(group, [&](Member& member) {
      auto parallel = Parallel::make(member, net, shape, options(),
                                     {.shards = 2, .sharded_gradients = sharded});
      REQUIRE(parallel);
      const Bytes arena = parallel->training().arena();
      std::memset(arena.data(), 0xA5, arena.size());
      Run run;
      CHECK(!update(*parallel, 0, run));
      std::size_t used = arena.size();
      while (used > 0 && arena[used - 1] == std::byte{0xA5}) --used;
      CHECK(div_up(used, alignment) * alignment == parallel->training().peak_bytes());
    });
  }
}

TEST_CASE("most of the time of sums is hidden behind backward") {
  struct Times {
    double sums = 0, work = 0, both = 0;
  };
  bool sharded = false;
  const auto time = [&](double seconds, double rate) {
    ThreadGroup group(4, {.rate = rate, .latency = 1e-7});
    return on_ranks(group, [&](Member& member) {
      DataParallelOptions how{.shards = 4, .sharded_gradients = sharded};
      // Of a layer that is smaller than a chunk all goes at once.
      how.sums = {.chunk_bytes = sharded ? 65536U : 2048U, .chunks = 8};
      auto parallel = Parallel::make(member, net, shape, options(), how);
      REQUIRE_MESSAGE(parallel, parallel.error.text());
      Busy::member = &member;
      Busy::seconds = seconds;
      const double start = member();
      Run run;
      CHECK(!update(*parallel, 0, run));
      Busy::member = nullptr;
      return member() - start;
    })[0];
  };
  // 26 KB of gradients, of which 1.5 times as much goes over each link: 4 ms; and 18 ms of work, 12 of
  // them backward.
  const double rate = 1e7;
  for (const bool by_owner : {false, true}) {
    sharded = by_owner;
    const Times times{time(0, rate), time(1e-3, 1e15), time(1e-3, rate)};
    CHECK(times.sums > 3.5e-3);
    CHECK(times.work == doctest::Approx(18e-3).epsilon(0.02));
    const double hidden = (times.sums + times.work - times.both) / times.sums;
    MESSAGE("hidden: ", 100 * hidden, " % of ", 1e3 * times.sums, " ms");
    // Parameters that others updated come behind all else: half of it, if gradients are sharded.
    CHECK(hidden >= (sharded ? 0.3 : 0.7));
  }
}

TEST_CASE("ranks that do not mean the same hear on what they disagree") {
  const auto first = [](const auto& change) {
    ThreadGroup group(3, {.rate = 1e9});
    const auto errors = on_ranks(group, [&](Member& member) {
      Options with = options();
      DataParallelOptions how{.shards = 6};
      if (member.rank() == 2) change(with, how);
      return std::string(Parallel::make(member, net, shape, with, how).error.text());
    });
    CHECK(errors[0] == errors[1]);
    CHECK(errors[0].find(errors[2]) != std::string::npos);  // "rank 2: ..." to those who are right
    CHECK(!errors[2].empty());
    return errors[0];
  };
  CHECK(first([](Options& with, auto&) { with.seed = 4; }) ==
        "the ranks disagree on the seed: rank 0 has 3, rank 2 4");
  CHECK(first([](Options& with, auto&) { with.model = "other"; }) ==
        "the ranks disagree on the model: rank 0 has busy, rank 2 other");
  CHECK(first([](Options& with, auto&) { with.clip = 1; }).find("clipped to: rank 0 has 0.05") !=
        std::string::npos);
  CHECK(first([](Options& with, auto&) { with.optimizer.beta2 = 0.99F; }) ==
        "the ranks disagree on the beta2 of AdamW: rank 0 has 0.999, rank 2 0.99");
  CHECK(first([](Options& with, auto&) { with.optimizer.epsilon = 1e-6F; }) ==
        "the ranks disagree on the epsilon of AdamW: rank 0 has 1e-08, rank 2 1e-06");
  CHECK(first([](Options&, DataParallelOptions& how) { how.shards = 12; }) ==
        "the ranks disagree on the shards of an update: rank 0 has 6, rank 2 12");
  CHECK(first([](Options&, DataParallelOptions& how) {
          how.micro_batches = 0;
        }).find("6 shards of 0 micro-batches") != std::string::npos);

  ThreadGroup group(2, {.rate = 1e9});
  for (const std::string& text : on_ranks(group, [&](Member& member) {
         auto parallel = Parallel::make(member, net, shape, options(), {.shards = 2});
         REQUIRE(parallel);
         CHECK(!parallel->check_parameters());
         if (member.rank() == 1) parallel->training().params()[5] += 1;
         std::string said = parallel->check_parameters().text();
         CHECK(!parallel->broadcast_parameters());
         CHECK(!parallel->check_parameters());
         return said;
       }))
    CHECK(text.find("disagree on the values of the parameters") != std::string::npos);
}

TEST_CASE(
    "an update that ranks ask for differently is an error on all of them, and the next is made") {
  ThreadGroup group(2, {.rate = 1e9});
  const auto runs = on_ranks(group, [&](Member& member) {
    Run run;
    auto parallel = Parallel::make(member, net, shape, options(), {.shards = 2});
    REQUIRE(parallel);
    keep_params(*parallel, run);
    const bool other = member.rank() == 1;
    const auto asks = [&](double rate) {
      const Batch batch(static_cast<std::size_t>(member.rank()));
      REQUIRE(parallel->accumulate(batch.input(), batch.targets()));
      return std::string(parallel->update(rate).error.text());
    };
    CHECK(asks(other ? 0.02 : 0.01).find("disagree on the learning rate: rank 0 has 0.01") !=
          std::string::npos);
    parallel->training().clip.norm = other ? 1 : 0.5;
    CHECK(asks(0.01) ==
          "the ranks disagree on the norm that gradients are clipped to: rank 0 has "
          "0.5, rank 1 1");
    parallel->training().clip.norm = 0.5;
    if (other) parallel->training().clip.by = ClipBy::previous;
    CHECK(asks(0.01).find("step whose norm that is") != std::string::npos);
    parallel->training().clip.by = ClipBy::this_step;
    parallel->training().optimizer.weight_decay = other ? 0.2F : 0.1F;
    CHECK(asks(0.01) ==
          "the ranks disagree on the weight decay of AdamW: rank 0 has 0.1, rank 1 0.2");
    parallel->training().optimizer.weight_decay = 0.1F;
    const View<const float> params = parallel->training().params();
    CHECK(std::memcmp(run.params.data(), params.data(), 4 * run.params.size()) == 0);
    CHECK(parallel->training().updates() == 0);
    run.error = update(*parallel, 0, run);
    keep_params(*parallel, run);
    return run;
  });
  const Run alone = train({}, {.shards = 2}, [] {
    Options with = options();
    with.clip = 0.5;
    return with;
  }());
  CHECK(same(runs[0], runs[1]));
  REQUIRE(runs[0].numbers.size() == 3);
  CHECK(std::memcmp(runs[0].numbers.data(), alone.numbers.data(), 24) == 0);
}

TEST_CASE("the smallest budget holds, and the costs of the slowest rank") {
  static thread_local double seen = -1;
  const auto graph = make_graph(net, shape);
  const std::size_t retain = retain_bytes();
  ThreadGroup group(3, {.rate = 1e9});
  const auto peaks = on_ranks(group, [&](Member& member) {
    Options with = options();
    with.budget_bytes = retain * (member.rank() == 1 ? 6U : 9U) / 10;
    with.planning.profile = estimated_profile(*graph);
    with.planning.profile.rest = member.rank() == 2 ? 2 : 1;
    with.planning.planner = [](const Graph& of, const CostProfile& profile,
                               const PlanRequest& request) {
      seen = profile.rest;
      return make_plan(of, profile, request);
    };
    auto parallel = Parallel::make(member, net, shape, with, {});
    REQUIRE_MESSAGE(parallel, parallel.error.text());
    CHECK(seen == (member.rank() == 0 ? 2 : -1));
    return parallel->training().peak_bytes();
  });
  for (const std::size_t peak : peaks) CHECK(peak == peaks[0]);
  CHECK(peaks[0] <= retain * 6 / 10);
}

TEST_CASE("what is not finite on one rank updates none, and training goes on") {
  for (const int stage : {0, 1, 2}) {
    ThreadGroup group(4, {.rate = 1e9});
    const auto runs = on_ranks(group, [&](Member& member) {
      Run run;
      auto parallel = Parallel::make(
          member, net, shape, options(),
          {.shards = 8, .sharded_state = stage > 0, .sharded_gradients = stage == 2});
      REQUIRE(parallel);
      run.error = update(*parallel, 0, run);
      Run before;
      keep_params(*parallel, before);
      if (!run.error) run.error = update(*parallel, 1, run, member.rank() == 2);
      keep_params(*parallel, run);
      CHECK(run.params == before.params);
      CHECK(run.numbers.back() == -1);
      if (!run.error) run.error = update(*parallel, 2, run);
      CHECK(run.numbers.back() == 8);
      CHECK(!parallel->check_parameters());
      return run;
    });
    for (const Run& run : runs) CHECK_MESSAGE(!run.error, run.error.text());
  }
}

TEST_CASE("a step that fails on one rank fails the update on all, and training goes on") {
  const Network failing{
      Sequential<Layer<Linear>, Layer<plain::Tanh, Compress<Fallible>>, Layer<Linear>>{
          {Linear{.out = 32}}, {}, {Linear{.out = 1}}},
      plain::MeanSquaredError{}};
  // `failing_batch`: of update 1, on rank 1.
  bool sharded = false;
  const auto run_with = [&](std::size_t failing_batch) {
    ThreadGroup group(2, {.rate = 1e9});
    return on_ranks(group, [&](Member& member) {
      Run run;
      auto parallel = Parallel::make(member, failing, shape, {.seed = 3},
                                     {.shards = 8, .sharded_gradients = sharded});
      REQUIRE_MESSAGE(parallel, parallel.error.text());
      for (std::size_t u : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
        if (u == 1 && failing_batch == 9) continue;
        for (std::size_t i = 0; i < 4; ++i) {
          const Batch batch(u * 8 + static_cast<std::size_t>(parallel->shard(static_cast<int>(i))));
          Fallible::fails = u == 1 && i == failing_batch && member.rank() == 1;
          const auto loss = parallel->accumulate(batch.input(), batch.targets());
          CHECK(static_cast<bool>(loss.error) == Fallible::fails);
        }
        Fallible::fails = false;
        const auto outcome = parallel->update(1e-2);
        const char* expected = member.rank() == 1 ? "this codec was told to fail"
                                                  : "rank 1: this codec was told to fail";
        CHECK(std::string(outcome.error.text()) == (u == 1 ? expected : ""));
      }
      CHECK(parallel->training().updates() == 2);
      CHECK(!parallel->check_parameters());
      keep_params(*parallel, run);
      return run;
    });
  };
  const auto clean = run_with(9);
  for (const bool by_owner : {false, true}) {
    sharded = by_owner;
    for (const std::size_t batch : {std::size_t{0}, std::size_t{2}, std::size_t{3}})
      CHECK(run_with(batch)[0].params == clean[0].params);
  }
}

TEST_CASE("a rank that dies or hangs is an error on all others, at set-up and in the middle") {
  for (const Fate fate : {Fate::dies, Fate::hangs})
    for (const std::uint64_t at : {0U, 3U, 30U, 140U, 170U, 200U}) {
      ThreadGroup group(4, {.limit_seconds = 60, .rate = 1e8});
      group.set_fate(3, fate, at);
      const auto runs = on_ranks(group, [&](Member& member) {
        Run run;
        auto parallel = Parallel::make(member, net, shape, options(),
                                       {.shards = 4,
                                        .sharded_state = at % 20 == 0,
                                        .sharded_gradients = at % 40 == 0 || at == 170});
        if (!parallel) return run.error = parallel.error, run;
        for (std::size_t u = 0; u < 40 && !run.error; ++u) run.error = update(*parallel, u, run);
        if (run.error) CHECK(std::string(update(*parallel, 9, run).text()) == run.error.text());
        return run;
      });
      for (const Run& run : runs) CHECK(static_cast<bool>(run.error));
    }
}

}  // namespace data_parallel_test
