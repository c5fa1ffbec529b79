// SPDX-License-Identifier: MIT
/// Plans that evolve on several ranks: the same changes before the same updates on all of them, whatever
/// their number, from clocks that are made up.
#include <doctest/doctest.h>
#include <adacc/model/repeat.hpp>

#include <cstring>
#include <string>
#include <vector>

#include "../test_size.hpp"
#include "../train/growing_net.hpp"
#include "../train/support.hpp"
#include "../train/uneven_net.hpp"
#include "slow_network.hpp"

namespace ranked_plan_test {

using namespace slow_network;
using plain::Linear;
using train_test::Folder;

namespace {

using Fate = ThreadGroup::Fate;

constexpr std::size_t slowed_at = 10, updates = 20;

/// The first kind of layer gets slow on the last rank; by then so much time has passed that measuring is
/// a trifle.
void get_slow(const Parallel& parallel, std::size_t u) {
  if (u == slowed_at) now += 1e6;
  if (u == slowed_at && parallel.group().rank() == parallel.group().size() - 1) takes[0] = 8e-3;
}

Run drift(GroupRef group, const DataParallelOptions& how, const Options& with = options(),
          std::size_t to = updates, const std::string& save = {}, const std::string& from = {}) {
  Run run;
  auto parallel = Parallel::make(group, net, shape, with, how);
  if (!parallel) return run.error = parallel.error, run;
  if (!from.empty()) run.error = parallel->load(from);
  for (std::size_t u = parallel->training().updates(); u < to && !run.error; ++u) {
    get_slow(*parallel, u);
    update(*parallel, u, run);
  }
  if (!run.error && !save.empty()) run.error = parallel->save(save);
  CHECK(!(run.error ? Error() : parallel->check_parameters()));
  return run;
}

}  // namespace

TEST_CASE(
    "times that drift on one rank change the plan of all before the same update, and no bit") {
  DataParallelOptions how{.shards = 4};
  Options fixed = options();
  fixed.planning.evolving = false;
  fixed.clock = {};
  ThreadGroup one(1);
  const Run plain = on_ranks(one, [&](Member& m) { return drift(m, how, fixed); })[0];
  REQUIRE_MESSAGE(!plain.error, std::string(plain.error.text()));
  CHECK(plain.measured == 0);
  for (const int stage : {0, 1, 2}) {  // of ZeRO
    how.sharded_state = stage == 1;
    how.sharded_gradients = stage == 2;
    Run expected;
    for (const int ranks : {1, 2, 4}) {
      if (stage > 0 && ranks == 1) continue;
      CAPTURE(stage);
      CAPTURE(ranks);
      ThreadGroup group(ranks, {.hostile = true});
      const auto runs =
          on_ranks(group, [&](Member& member) { return drift(member, how, options(stage == 2)); });
      if (expected.params.empty()) expected = runs[0];
      for (const Run& run : runs) {
        REQUIRE_MESSAGE(!run.error, std::string(run.error.text()));
        CHECK(same_bits(run, plain));
        CHECK(run.refused.empty());
        CHECK(run.measured == 1);  // at the start
        CHECK(run.plans == expected.plans);
        CHECK(run.changes == expected.changes);
        CHECK(run.plans.front() != run.plans.back());
      }
      std::size_t changed = 0;
      for (std::size_t u = 0; u < updates; ++u) {
        if (runs[0].changes[u].empty()) continue;
        changed = u;
        REQUIRE(runs[0].changes[u].size() == 2);
        for (const PlanChange& change : runs[0].changes[u]) {
          const bool first = change.activation == first_slow;
          CHECK((first || change.activation == second_slow));
          CHECK(change.reason == ChangeReason::times_drifted);
          CHECK(change.step == u);
          CHECK(change.from == (first ? recompute() : retain()));
          CHECK(change.to == (first ? retain() : recompute()));
        }
      }
      CHECK(changed > slowed_at);
      CHECK(changed % 4 == 1);  // where ranks meet
    }
  }
  // Who does not watch times keeps its plan.
  how = {.shards = 4};
  Options unwatched = options();
  unwatched.planning.watch_times = false;
  ThreadGroup group(2);
  for (const Run& run :
       on_ranks(group, [&](Member& member) { return drift(member, how, unwatched); })) {
    CHECK(same_bits(run, plain));
    CHECK(run.measured == 1);
    CHECK(run.plans.front() == run.plans.back());
  }
}

namespace {

/// A rank whose messages take this rank's time.
struct Waiting {
  Member& member;
  double seconds = 0;  ///< each
  int rank() const { return member.rank(); }
  int size() const { return member.size(); }
  Error prepare(int tickets) { return member.prepare(tickets); }
  void begin(int ticket, const GroupMessage& what) { member.begin(ticket, what); }
  bool done(int ticket) { return member.done(ticket); }
  Error wait(int ticket) {
    now += seconds;
    return member.wait(ticket);
  }
};

}  // namespace

TEST_CASE("what a step waits for other ranks is no drift of its time") {
  for (const bool slowed : {false, true}) {
    ThreadGroup group(2);
    for (const Run& run : on_ranks(group, [&](Member& member) {
           Waiting waiting{member};
           Run run;
           auto parallel = Parallel::make(waiting, net, shape, options(true),
                                          {.shards = 2, .sharded_gradients = true});
           REQUIRE_MESSAGE(parallel, std::string(parallel.error.text()));
           for (std::size_t u = 0; u < updates && !run.error; ++u) {
             if (u == slowed_at) {
               now += 1e6;
               waiting.seconds = 1e-2;
               if (slowed) takes[0] = 8e-3;
             }
             update(*parallel, u, run);
           }
           return run;
         })) {
      CHECK_MESSAGE(!run.error, std::string(run.error.text()));
      CHECK(run.looked == (slowed ? 2 : 1));
    }
  }
}

namespace {

/// From update 8 on some channels of shard 2 grow, and no others: a codec with a scale for each row fails.
struct Growing {
  static constexpr auto backward_reads = reads::none;
  static float factor(const Cpu& cpu, std::size_t channel) {
    if (channel % 9 != 4 || cpu.key.step < 8 || cpu.key.micro_step != 2) return 1;
    return 1 + 6 * static_cast<float>(cpu.key.step - 8);
  }
  static void forward(Cpu& cpu, View<const float> x, View<float> y) {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * factor(cpu, i % x.cols());
  }
  static void backward(Cpu& cpu, View<const float> dy, View<float> dx) {
    for (std::size_t i = 0; i < dy.size(); ++i) dx[i] = dy[i] * factor(cpu, i % dy.cols());
  }
};

}  // namespace

TEST_CASE("a codec that fails in one shard is left by all ranks, as many as there are") {
  using growing_net::victim;
  const Network<Sequential<Layer<growing_net::Dense>, Layer<growing_net::Dense>, Layer<Growing>,
                           Repeat<Layer<growing_net::Dense>>>,
                random_model::HalfSquare>
      growing{{{}, {}, {}, Repeat<Layer<growing_net::Dense>>{3, {}}}, {}};
  const Shape large(128, 64);
  const Graph graph = *make_graph(growing, large);
  const Options with{
      .budget_bytes = peak_bytes(graph, retain_all(graph)) * 7 / 10,
      .seed = 3,
      .planning = {.evolution = {.check_every = 1}, .profile = growing_net::profile(graph)}};
  Run expected;
  for (const int ranks : {1, 2, 4}) {
    CAPTURE(ranks);
    ThreadGroup group(ranks);
    const auto runs = on_ranks(group, [&](Member& member) {
      Run run;
      auto parallel = Parallel::make(member, growing, large, with, {.shards = 4});
      if (!parallel) return run.error = parallel.error, run;
      CHECK(parallel->training().plan()[victim].codec() == &codec_info<growing_net::RowInt8>);
      for (std::size_t u = 0; u < 20 && !run.error; ++u) update(*parallel, u, run);
      CHECK(!parallel->check_parameters());
      return run;
    });
    if (expected.params.empty()) expected = runs[0];
    for (const Run& run : runs) {
      REQUIRE_MESSAGE(!run.error, std::string(run.error.text()));
      CHECK(same_bits(run, expected));
      CHECK(run.plans == expected.plans);
      CHECK(run.changes == expected.changes);
    }
  }
  bool left = false;
  for (std::size_t u = 0; u < expected.changes.size(); ++u)
    for (const PlanChange& change : expected.changes[u]) {
      CHECK(u > 8);
      left = left || (change.activation == victim && change.reason == ChangeReason::codec_failed);
    }
  CHECK(left);
}

TEST_CASE("rows that are lost in some shards are counted by all ranks, and all leave the codec") {
  const Shape& large = uneven_net::shape;
  const Graph graph = *make_graph(uneven_net::net<>, large);
  const Options with{
      .budget_bytes = peak_bytes(graph, retain_all(graph)) * 7 / 10,
      .seed = 3,
      .planning = {.evolution = {.check_every = 1}, .profile = uneven_net::profile(graph)}};
  struct Counted : Run {
    std::vector<DeclinedCounts> declined;
    int left = 0;
  };
  Counted expected;
  for (const int ranks : {1, 2, 4}) {
    CAPTURE(ranks);
    ThreadGroup group(ranks);
    const auto runs = on_ranks(group, [&](Member& member) {
      Counted run;
      auto parallel = Parallel::make(member, uneven_net::net<>, large, with, {.shards = 4});
      if (!parallel) return run.error = parallel.error, run;
      const int before = uneven_net::roughly_kept(parallel->training().plan());
      for (std::size_t u = 0; u < 8 && !run.error; ++u) {
        for (int i = 0; i < parallel->shard_count(); ++i) {
          // Every other row of two shards is small, from the fourth update on.
          Batch batch(u * 4 + static_cast<std::size_t>(parallel->shard(i)), large, large);
          std::vector<float> x(batch.input().data(), batch.input().data() + large.elems());
          for (std::size_t e = 0; e < x.size() && u > 2 && parallel->shard(i) % 2 == 1; ++e)
            if (e / large.cols() % 2 == 1) x[e] *= 1e-3F;
          const auto loss =
              parallel->accumulate(View<const float>(x.data(), large), batch.targets());
          if (!loss) return run.error = loss.error, run;
        }
        const auto outcome = parallel->update(1e-4);
        if (!outcome) return run.error = outcome.error, run;
        run.declined.push_back(outcome->declined);
        run.numbers.push_back(outcome->loss);
        for (const PlanChange& change : parallel->training().boundary().update.changes)
          run.left += change.reason == ChangeReason::codec_failed ? 1 : 0;
      }
      CHECK(uneven_net::roughly_kept(parallel->training().plan()) < before);
      CHECK(!parallel->check_parameters());
      const auto params = parallel->training().params();
      run.params.assign(params.begin(), params.end());
      return run;
    });
    if (expected.params.empty()) expected = runs[0];
    for (const Counted& run : runs) {
      REQUIRE_MESSAGE(!run.error, std::string(run.error.text()));
      CHECK(same_bits(run, expected));
      CHECK(run.declined == expected.declined);
      CHECK(run.left == expected.left);
      CHECK(run.left > 0);
    }
  }
  CHECK(expected.declined[2].total() == 0);
  CHECK(expected.declined[3].total() > 0);
  CHECK(expected.declined[4].total() > 0);
  CHECK(expected.declined[5].total() == 0);  // left before it
}

TEST_CASE("a run whose plan has changed goes on from its checkpoint on any number of ranks") {
  const Folder folder;
  const std::string path = folder / "run.ckpt";
  const DataParallelOptions how{.shards = 4}, sharded{.shards = 4, .sharded_state = true};
  ThreadGroup four(4), two(2), one(1);
  const auto whole = on_ranks(four, [&](Member& m) { return drift(m, how); });
  REQUIRE_MESSAGE(!whole[0].error, std::string(whole[0].error.text()));
  const std::size_t half = updates - 2;
  const auto first =
      on_ranks(two, [&](Member& m) { return drift(m, sharded, options(), half, path); });
  REQUIRE_MESSAGE(!first[0].error, std::string(first[0].error.text()));
  CHECK(first[0].plans.back() == whole[0].plans.back());
  CHECK(first[0].plans.front() != whole[0].plans.back());
  CHECK(read_checkpoint_info(path)->plan == whole[0].plans.back());
  for (const int ranks : {1, 2, 4}) {
    ThreadGroup group(ranks, {.hostile = true});
    const auto runs = on_ranks(group, [&](Member& member) {
      return drift(member, ranks == 2 ? how : sharded, options(), updates, {}, path);
    });
    for (const Run& run : runs) {
      REQUIRE_MESSAGE(!run.error, std::string(run.error.text()));
      CHECK(run.plans.front() == whole[0].plans.back());
      CHECK(run.params == whole[0].params);
      CHECK(run.measured == 0);  // the costs are those of the checkpoint
    }
  }
  // So does one rank alone, without any group.
  auto alone = Training<>::make(net, shape, options());
  REQUIRE(alone);
  CHECK(alone->load(path));
  // Another budget than the run had holds, and the plan of a fixed one stays where it is.
  Options more = options();
  more.budget_bytes = 0;
  for (const Run& run :
       on_ranks(one, [&](Member& member) { return drift(member, how, more, updates, {}, path); })) {
    CHECK(run.plans.front().find("recompute") == std::string::npos);
    REQUIRE(!run.changes.empty());
    CHECK(run.changes[0].size() == 1);
  }
  const Plan retaining = retain_all(*make_graph(net, shape));
  ThreadGroup others(2);
  for (const std::string& plan : on_ranks(others, [&](Member& member) {
         auto fixed = Parallel::make(member, net, shape, more, {.shards = 4, .plan = &retaining});
         REQUIRE(fixed);
         CHECK(std::string(fixed->set_budget(1).text()).find("the plan is the caller's") == 0);
         CHECK(!fixed->save(folder / "fixed.ckpt"));
         auto evolving = Parallel::make(member, net, shape, options(), how);
         REQUIRE(evolving);
         CHECK(!evolving->load(folder / "fixed.ckpt"));
         return plan_text(evolving->training().compiled_step().graph(),
                          evolving->training().plan());
       }))
    CHECK(plan.find("recompute") != std::string::npos);
}

TEST_CASE("a new budget is the smallest that a rank asks for, from the next update on") {
  const DataParallelOptions how{.shards = 4};
  Options roomy = options();
  roomy.budget_bytes = 0;
  const std::size_t tight = options().budget_bytes;
  const auto train = [&](GroupRef group, bool changes) {
    Run run;
    auto parallel = Parallel::make(group, net, shape, roomy, how);
    if (!parallel) return run.error = parallel.error, run;
    const std::size_t most = parallel->training().peak_bytes();
    for (std::size_t u = 0; u < 6 && !run.error; ++u) {
      if (changes && u == 2) {
        CHECK(!parallel->set_budget(group.rank() == 1 ? tight : most));
        CHECK(parallel->training().peak_bytes() <= tight);
      }
      if (changes && u == 3) {
        const Error why = parallel->set_budget(group.rank() == 1 ? 100 : most);
        CHECK(std::string(why.text())
                  .find("a budget of 100 bytes, the smallest, which rank 1 has: ") == 0);
        CHECK(std::string(why.text()).find("can be met is") != std::string::npos);
        run.refused = why.text();
        CHECK(parallel->training().peak_bytes() <= tight);
      }
      if (changes && u == 4) CHECK(!parallel->set_budget(most));
      update(*parallel, u, run);
      CHECK(run.changes.back().size() == (changes && (u == 2 || u == 4) ? 1 : 0));
      for (const PlanChange& change : run.changes.back()) {
        CHECK(change.reason == ChangeReason::budget_changed);
        CHECK(change.to == (u == 2 ? recompute() : retain()));
      }
      CHECK(parallel->training().peak_bytes() == (changes && (u == 2 || u == 3) ? tight : most));
    }
    const Batch batch(0, shape, target_shape);
    CHECK(parallel->accumulate(batch.input(), batch.targets()));
    CHECK(std::string(parallel->set_budget(tight).text()) == "set_budget() comes between updates");
    return run;
  };
  ThreadGroup one(1), two(2);
  const Run plain = on_ranks(one, [&](Member& member) { return train(member, false); })[0];
  const auto runs = on_ranks(two, [&](Member& member) { return train(member, true); });
  for (const Run& run : runs) {
    CHECK(same_bits(run, plain));
    CHECK(run.refused == runs[0].refused);
    CHECK(run.plans == runs[0].plans);
  }
}

/// Takes a place of its own for each worker.
struct Roomy {
  static constexpr auto backward_reads = reads::none;
  static constexpr LayerNeeds needs(Shape, NeedsQuery query) {
    return {.workspace = static_cast<std::size_t>(query.workers) * 512};
  }

  static void forward(Cpu&, const ForwardCall<float>& call) {
    for (std::size_t i = 0; i < call.y.size(); ++i) call.y[i] = call.x[i];
  }
  static void backward(Cpu&, const BackwardCall<float>& call) {
    for (std::size_t i = 0; i < call.dx.size(); ++i) call.dx[i] = call.dy[i];
  }
};

TEST_CASE("nobody switches to a plan that one rank cannot hold") {
  const Network<Sequential<Dense, Bend, Layer<Slow<0>>, Dense, Bend, Layer<Slow<1>>, Dense,
                           Layer<Roomy, Retain>, Dense>,
                plain::MeanSquaredError>
      larger{{{hidden}, {}, {}, {hidden}, {}, {}, {hidden}, {}, {Linear{.out = 1}}}, {}};
  const Graph narrow = *make_graph(larger, shape);
  const std::size_t retain = peak_bytes(narrow, retain_all(narrow));
  ThreadGroup group(2);
  const auto said = on_ranks(group, [&](Member& member) {
    Options with = options();
    with.budget_bytes = 0;
    with.graph.workers = member.rank() == 1 ? 40 : 1;
    auto parallel = Parallel::make(member, larger, shape, with, {.shards = 2});
    REQUIRE_MESSAGE(parallel, std::string(parallel.error.text()));
    Run run;
    update(*parallel, 0, run);
    const std::string plan = run.plans.back();
    const std::size_t peak = parallel->training().peak_bytes();
    const Error why = parallel->set_budget(retain - 64);
    CHECK(parallel->training().peak_bytes() == peak);
    CHECK(parallel->training().arena().size() == peak);
    update(*parallel, 1, run);
    CHECK(!run.error);
    CHECK(run.plans.back() == plan);
    CHECK(run.changes.back().empty());
    return std::string(why.text());
  });
  CHECK(said[0] == said[1]);
  CHECK_MESSAGE(said[0].find("under the plan would take") != std::string::npos, said[0]);
}

TEST_CASE("a rank that tries a batch again does not meet the others again") {
  const auto train = [&](bool again) {
    ThreadGroup two(2);
    return on_ranks(two, [&](Member& member) {
      Run run;
      auto parallel = Parallel::make(member, net, shape, options(), {.shards = 2});
      if (!parallel) return run.error = parallel.error, run;
      const Batch other(0, Shape(16, 9), target_shape);
      for (std::size_t u = 0; u < 6 && !run.error; ++u) {
        if (again && member.rank() == 1 && u > 0)
          CHECK(parallel->accumulate(other.input(), other.targets()).error);
        update(*parallel, u, run);
      }
      return run;
    });
  };
  const auto plain = train(false), again = train(true);
  CHECK_MESSAGE(same_bits(again[1], plain[1]), std::string(again[1].error.text()));
  CHECK(again[1].measured == plain[1].measured);
  CHECK(plain[1].measured == 1);
}

TEST_CASE("a rank whose plan is another one is an error on all of them") {
  ThreadGroup group(2);
  for (const std::string& said : on_ranks(group, [&](Member& member) {
         auto parallel = Parallel::make(member, net, shape, options(), {.shards = 2});
         REQUIRE(parallel);
         Run run;
         update(*parallel, 0, run);
         const Graph graph = parallel->training().compiled_step().graph();
         if (member.rank() == 1)
           CHECK(!parallel->training().switch_to(*make_program(graph, retain_all(graph))));
         const Batch batch(7, shape, target_shape);
         CHECK(parallel->accumulate(batch.input(), batch.targets()));
         return std::string(parallel->update(1e-2).error.text());
       }))
    CHECK(said ==
          "the ranks disagree on the plan that they train under: rank 1 has another one than rank "
          "0");
  // So are ranks that would not meet before the same updates.
  ThreadGroup others(2);
  for (const std::string& said : on_ranks(others, [&](Member& member) {
         Options with = options();
         if (member.rank() == 1) with.clock = {};
         return std::string(Parallel::make(member, net, shape, with, {.shards = 2}).error.text());
       }))
    CHECK(said == "the ranks disagree on the clock: rank 0 has lent, rank 1 not lent");
}

TEST_CASE("a rank that dies or hangs while ranks meet is an error on all others") {
  // So many messages does rank 2 begin up to the first update, and up to the last.
  std::uint64_t begun = 0, first = 0;
  const auto train = [&](ThreadGroup& group) {
    return on_ranks(group, [&](Member& member) {
      Run run;
      auto parallel = Parallel::make(member, net, shape, options(), {.shards = 3});
      if (!parallel) return run.error = parallel.error, run;
      if (member.rank() == 2) first = member.begun();
      for (std::size_t u = 0; u < updates && !run.error; ++u) {
        get_slow(*parallel, u);
        if (member.rank() == 2) begun = member.begun();
        if (u == 3) run.error = parallel->set_budget(options().budget_bytes + 64);
        if (!run.error) update(*parallel, u, run);
      }
      if (!run.error) return run;
      const Batch batch(7, shape, target_shape);
      CHECK(std::string(parallel->update(1e-2).error.text()) == run.error.text());
      CHECK(std::string(parallel->accumulate(batch.input(), batch.targets()).error.text()) ==
            run.error.text());
      return run;
    });
  };
  ThreadGroup lives(3, {.limit_seconds = 600, .rate = 1e12});
  for (const Run& run : train(lives)) REQUIRE_MESSAGE(!run.error, std::string(run.error.text()));
  const std::uint64_t last = begun;
  REQUIRE(first < last);
  const std::uint64_t apart = test_sanitized ? 4 : 1;
  for (const Fate fate : {Fate::dies, Fate::hangs})
    for (std::uint64_t at = first; at < last; at += apart * (fate == Fate::dies ? 3U : 7U)) {
      CAPTURE(at);
      ThreadGroup group(3, {.limit_seconds = 600, .rate = 1e12});
      group.set_fate(2, fate, at);
      for (const Run& run : train(group)) CHECK(static_cast<bool>(run.error));
    }
}

}  // namespace ranked_plan_test
