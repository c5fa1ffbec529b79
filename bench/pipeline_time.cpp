// SPDX-License-Identifier: MIT
/// A pipeline's predicted step against the measured one, and planned stages against stages that
/// recompute every block.
///
/// Ranks are threads, and the time of a step is made up from measured pieces: what a rank computes counts
/// as the processor time that it took, and messages take what the link says (ranks/thread_group.hpp). So
/// a machine with fewer cores than ranks, or a busy one, measures what a rank on a core of its own would
/// do. Costs are measured in processor time, too, right before each run. Contestants take turns; what is
/// printed are medians. The last ones are planned by the ranks themselves, each of which measures its stage
/// and its link (ranks/pipeline/plan.hpp), and their steps end with an update.
///
///     pipeline_time --layers 12 --stages 2 --micro 8
#include <CLI/CLI.hpp>

#include <adacc/cost/estimate.hpp>
#include <adacc/cost/measure.hpp>
#include <adacc/cost/measuring_plans.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/plan/pipeline/planner.hpp>
#include <adacc/ranks/pipeline/pipeline.hpp>
#include <adacc/ranks/pipeline/plan.hpp>
#include <adacc/ranks/thread_group.hpp>
#include <support/command_line.hpp>

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using namespace adacc;

struct Options {
  gpt::Config network{12, 6, 384, 0, 512, false};
  std::size_t batch = 1, seq = 256;
  int stages = 2, micro = 8, rounds = 5;
  double link_gbps = 10, latency_us = 5, tolerance = 0;
};

/// Seconds that the processor worked for this thread.
double processor_now() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// A member of a group with a link, whose clock moves on by what its thread computes in between.
class Timed {
  /// What the group itself does takes none of the rank's time.
  template <class Call>
  auto outside(const Call& call) -> decltype(call()) {
    member_.work(processor_now() - last_);
    auto result = call();
    last_ = processor_now();
    return result;
  }

 public:
  explicit Timed(ThreadGroup::Member& member) : member_(member), last_(processor_now()) {}

  int rank() const { return member_.rank(); }
  int size() const { return member_.size(); }
  Error prepare(int tickets) {
    return outside([&] { return member_.prepare(tickets); });
  }
  void begin(int ticket, const GroupMessage& what) {
    outside([&] { return member_.begin(ticket, what), 0; });
  }
  bool done(int) { return false; }  // nothing moves along by asking, and asking holds the thread
  Error wait(int ticket) {
    return outside([&] { return member_.wait(ticket); });
  }
  double now() {
    return outside([&] { return member_(); });
  }

 private:
  ThreadGroup::Member& member_;
  double last_;
};

struct Data {
  Data(const Options& options, int batches) : shape(options.batch, options.seq) {
    for (int b = 0; b < batches; ++b) {
      std::vector<std::int32_t> tokens(options.batch * options.seq);
      for (std::size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = static_cast<std::int32_t>(
            random_word({.seed = 9, .step = static_cast<std::uint32_t>(b)}, i) %
            options.network.vocab);
      all.push_back(std::move(tokens));
    }
  }
  AnyView operator()(int b) const {
    return View<const std::int32_t>(all[static_cast<std::size_t>(b)].data(), shape);
  }
  Shape shape;
  std::vector<std::vector<std::int32_t>> all;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Contestant {
  const char* name;
  PipelineOutcome plan;
  std::vector<double> seconds, predicted, ratios;  ///< by round

  /// Steps that ended on each rank at these times; the first is not counted.
  void note(const std::vector<std::vector<double>>& ends) {
    const auto end = [&](std::size_t step) {
      double latest = 0;
      for (const auto& of_rank : ends) latest = std::max(latest, of_rank[step]);
      return latest;
    };
    for (std::size_t step = 1; step < ends[0].size(); ++step)
      seconds.push_back(end(step) - end(step - 1));
  }
};

int fail(const Error& why) {
  std::fprintf(stderr, "pipeline_time: %s\n", why.text());
  return 2;
}

template <class Network>
Result<CostProfile> measured(const Network& network, const Graph& graph, const Data& data) {
  auto arena = Block<std::byte>::make(measuring_bytes(graph), "arena");
  auto params = Block<float>::make(graph.parameter_elems, "parameters");
  auto gradients = Block<float>::make(graph.gradient_elems, "gradients");
  for (const Error& why : {arena.error, params.error, gradients.error})
    if (why) return why;
  Cpu cpu;
  initialize_parameters(cpu, graph.parameters, params->view(), 1);
  auto profile = measure(cpu, make_dispatch<float, Cpu>(network), graph,
                         {arena->data(), Shape(arena->size())}, params->view(), gradients->view(),
                         data(0), data(0), processor_now, {.warm_up = 1, .steps = 5});
  if (profile) estimate_errors(graph, *profile);
  return profile;
}

/// A step of the contestant's plans with other costs: machines drift.
Result<double> predicted(const Options& options, const Graph& graph, const CostProfile& profile,
                         const Contestant& the) {
  Array<StageTime> times = the.plan.times();
  for (std::size_t s = 0; s < times.size(); ++s) {
    const StageOutcome& stage = the.plan.stages[s];
    const auto cut = stage_of(graph, stage.first, stage.last);
    if (!cut) return cut.error;
    const StageTime now = stage_time(profile_of_stage(graph, profile, *cut), stage.plan,
                                     schedule_of(*cut, stage.plan));
    times[s].forward = now.forward, times[s].backward = now.backward;
  }
  return simulate_pipeline(times, options.micro).seconds;
}

/// Steps of one contestant. `ready(timed)` is a rank's pipeline, and `step` runs one of it.
template <class Ready, class Step>
Error run_ranks_of(const Options& options, Contestant& the, const Ready& ready, const Step& step) {
  const auto ranks = static_cast<std::size_t>(options.stages);
  constexpr int steps = 3;
  std::vector<Error> errors(ranks);
  std::vector<std::vector<double>> ends(ranks);
  ThreadGroup group(options.stages, {.limit_seconds = 120,
                                     .rate = 1e9 * options.link_gbps,
                                     .latency = 1e-6 * options.latency_us});
  run_ranks(group, [&](ThreadGroup::Member& member) {
    Timed timed(member);
    const auto mine = static_cast<std::size_t>(member.rank());
    auto pipeline = ready(timed);
    errors[mine] = pipeline.error;
    for (int i = 0; i < steps && !errors[mine]; ++i) {
      errors[mine] = step(*pipeline);
      ends[mine].push_back(timed.now());
    }
  });
  for (const Error& why : errors)
    if (why) return why;
  the.note(ends);
  return {};
}

/// Under a plan that was made before.
template <class Network>
Error run(const Options& options, const Network& network, const Graph& graph, const Data& data,
          Contestant& the) {
  return run_ranks_of(
      options, the,
      [&](Timed& timed) {
        return Pipeline<>::make(network, graph, the.plan, options.micro, Cpu{}, timed);
      },
      [&](Pipeline<>& pipeline) { return pipeline.run(data, data).error; });
}

/// Under one that the ranks make themselves, from what they measure.
template <class Network>
Error run_together(const Options& options, const Network& network, const Graph& graph,
                   const Data& data, std::size_t memory, Contestant& the) {
  const auto ready = [&](Timed& timed) -> Result<Pipeline<>> {
    const auto clock = [&] { return timed.now(); };
    const auto mine = static_cast<std::size_t>(timed.rank());
    PipelineRequest request;
    request.micro_batches = options.micro;
    request.tolerance = options.tolerance;
    request.stages.resize(static_cast<std::size_t>(options.stages));
    request.stages[mine].memory_bytes = memory;
    auto planned = plan_pipeline(timed, make_dispatch<float, Cpu>(network), graph, request, Cpu{},
                                 AdamW{}, {clock, data(0), data(0), {.warm_up = 1, .steps = 5}});
    if (!planned) return planned.error;
    if (mine == 0) the.plan = planned->plan;
    return Pipeline<>::make(network, graph, planned->plan, options.micro, Cpu{}, timed);
  };
  if (const Error why = run_ranks_of(options, the, ready, [&](Pipeline<>& pipeline) {
        return pipeline.step(data, data, 1e-4).error;
      }))
    return why;
  the.predicted.push_back(the.plan.time.seconds);
  the.ratios.push_back(the.plan.time.seconds / the.seconds.back());
  return {};
}

int compare(Options options) {
  options.network.context = options.seq;
  const auto network = gpt::make<gpt::PlannedSet>(options.network);
  const auto graph = make_graph(network, Shape(options.batch, options.seq));
  if (!graph) return fail(graph.error);
  const Data data(options, options.micro);
  const auto profile = measured(network, *graph, data);
  if (!profile) return fail(profile.error);
  PipelineRequest request;
  request.micro_batches = options.micro;
  request.tolerance = options.tolerance;
  for (int s = 0; s < options.stages; ++s)
    request.stages.push_back({64 * GiB, 1, 1e9 * options.link_gbps, 1e-6 * options.latency_us});
  std::vector<Contestant> contestants;
  const auto add = [&](const char* name, const PipelineRequest& asked) {
    auto plan = plan_pipeline(*graph, *profile, asked);
    if (!plan) std::printf("%-34s %s\n", name, plan.error.text());
    else contestants.push_back({name, std::move(*plan), {}, {}, {}});
    return static_cast<bool>(plan);
  };
  add("planned, all that it wants", request);
  PipelineRequest other = request;
  other.recomputation = Recomputation::full;
  if (add("full recomputation", other)) {
    const PipelineOutcome full = contestants.back().plan;
    std::size_t largest = 0;
    for (const StageOutcome& stage : full.stages) largest = std::max(largest, stage.peak_bytes);
    other = request;
    for (StageMachine& machine : other.stages) machine.memory_bytes = largest;
    add("planned, in full's largest peak", other);
    for (std::size_t s = 0; s < other.stages.size(); ++s)
      other.stages[s].memory_bytes = full.stages[s].peak_bytes;
    add("planned, in full's peaks", other);
  }
  Contestant together{"by the ranks, all they want", {}, {}, {}, {}};
  Contestant tight{"by the ranks, with half the arenas", {}, {}, {}, {}};
  for (int round = 0; round < options.rounds; ++round) {
    if (const Error why = run_together(options, network, *graph, data, 64 * GiB, together))
      return fail(why);
    std::size_t wanted = 0;
    for (const StageOutcome& stage : together.plan.stages)
      wanted = std::max(wanted, stage.peak_bytes - stage.arena_bytes() / 2);
    // Where the first plan had its cuts elsewhere, half of its arenas may be too little.
    if (const Error why = run_together(options, network, *graph, data, wanted, tight))
      std::printf("%-34s %s\n", tight.name, why.text());
    for (Contestant& each : contestants) {
      const auto now = measured(network, *graph, data);
      if (!now) return fail(now.error);
      const auto seconds = predicted(options, *graph, *now, each);
      if (!seconds) return fail(seconds.error);
      if (const Error why = run(options, network, *graph, data, each)) return fail(why);
      each.predicted.push_back(*seconds);
      each.ratios.push_back(*seconds / each.seconds.back());
    }
  }
  contestants.push_back(std::move(together));
  if (!tight.seconds.empty()) contestants.push_back(std::move(tight));
  std::printf("%d stages, %d micro-batches, %d blocks of %zu channels, %zu x %zu tokens\n",
              options.stages, options.micro, options.network.layers, options.network.channels,
              options.batch, options.seq);
  std::printf("%-34s %12s %12s %9s  %s\n", "", "predicted", "measured", "ratio",
              "arenas and all, MiB, by stage");
  for (const Contestant& each : contestants) {
    std::printf("%-34s %9.1f ms %9.1f ms %9.3f ", each.name, 1e3 * median(each.predicted),
                1e3 * median(each.seconds), median(each.ratios));
    for (const StageOutcome& stage : each.plan.stages)
      std::printf(" %.1f/%.1f", static_cast<double>(stage.arena_bytes()) / MiB,
                  static_cast<double>(stage.peak_bytes) / MiB);
    std::printf("\n");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Compares pipelines as predicted and as measured.", "pipeline_time");
  app.option_defaults()->always_capture_default();
  app.add_option("--layers", options.network.layers, "transformer blocks");
  app.add_option("--heads", options.network.heads, "attention heads");
  app.add_option("--channels", options.network.channels, "width of the residual stream");
  app.add_option("--vocab", options.network.vocab, "size of the vocabulary");
  app.add_option("--batch", options.batch, "sequences of a micro-batch");
  app.add_option("--seq", options.seq, "tokens of a sequence");
  app.add_option("--stages", options.stages, "of the pipeline")->check(CLI::Range(1, 64));
  app.add_option("--micro", options.micro, "micro-batches of a step")->check(CLI::Range(1, 4096));
  app.add_option("--rounds", options.rounds, "of all contestants")->check(CLI::Range(1, 1000));
  app.add_option("--link", options.link_gbps, "GB/s of a rank's link");
  app.add_option("--latency", options.latency_us, "microseconds of a message");
  app.add_option("--tolerance", options.tolerance, "of the gradient's error");
  if (const auto status = support::parse(app, argc, argv)) return *status;
  return compare(options);
}
