/// How well does a measured profile predict the time of a step, under plans it was not measured on?
///
/// A profile is measured as training would, and then steps under several plans are timed whole, in
/// turn; both are medians. What is predicted is evaluate()'s sum over the schedule. On a machine
/// with other work, --cpu-time with one thread counts only the time in which the step itself ran.
#include <CLI/CLI.hpp>

#include <adacc/core/eigen_pool.hpp>
#include <adacc/plan/evaluate.hpp>
#include <adacc/step/measure.hpp>
#include <adacc/train/training.hpp>

#include <time.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "../examples/gpt.hpp"

namespace {

bool cpu_time = false;

double now() {
  if (cpu_time) {
    std::timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  using clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(clock::now().time_since_epoch()).count();
}

struct Candidate {
  std::string name;
  adacc::Plan plan;
};

/// The plans to predict: the uniform ones as far as layers tolerate them, and random ones.
std::vector<Candidate> candidates(const adacc::Graph& graph, const gpt::Config& config,
                                  std::size_t batch, std::size_t seq, int random) {
  using namespace adacc;
  std::vector<Candidate> all;
  for (const char* name : gpt::set_names) {
    Plan plan = gpt::named_plan(name, config, batch, seq);
    for (int k = 0; k < graph.node_count(); ++k)
      if (plan[k].codec != nullptr && !may_use(graph, k, plan[k].codec))
        plan.policies[static_cast<std::size_t>(k)] = {PolicyKind::retain, nullptr};
    all.push_back({name, std::move(plan)});
  }
  for (int i = 0; i < random; ++i) {
    Plan plan = retain_all(graph);
    for (int k = 0; k < graph.node_count(); ++k) {
      const auto codecs = graph.candidates_of(graph.node(k));
      const std::uint32_t drawn =
          random_word({.seed = 1 + static_cast<std::uint64_t>(i)}, static_cast<std::uint64_t>(k)) %
          static_cast<std::uint32_t>(2 + codecs.count);
      Policy& policy = plan.policies[static_cast<std::size_t>(k)];
      if (drawn == 1) policy = {PolicyKind::recompute, nullptr};
      if (drawn > 1) policy = {PolicyKind::compress, codecs[drawn - 2]};
    }
    all.push_back({"random " + std::to_string(i), std::move(plan)});
  }
  return all;
}

int fail(const adacc::Error& why) {
  std::fprintf(stderr, "predicted_time: %s\n", why.text());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  gpt::Config config{6, 6, 384, 256, 256};
  std::size_t batch = 4, seq = 256;
  int threads = 2, rounds = 9, random = 4;
  adacc::MeasureOptions options;
  bool details = false;
  CLI::App app("Compares predicted and measured times of steps.", "predicted_time");
  app.option_defaults()->always_capture_default();
  app.add_option("--layers", config.layers)->check(CLI::Range(1, 4096));
  app.add_option("--heads", config.heads)->check(CLI::PositiveNumber);
  app.add_option("--channels", config.channels)->check(CLI::PositiveNumber);
  app.add_option("--seq", seq)->check(CLI::PositiveNumber);
  app.add_option("--batch", batch)->check(CLI::PositiveNumber);
  app.add_option("--threads", threads)->check(CLI::Range(1, 256));
  app.add_option("--steps", options.steps, "steps under each measuring plan");
  app.add_option("--rounds", rounds, "steps under each plan that is predicted");
  app.add_option("--random", random, "random plans among them");
  app.add_flag("--cpu-time", cpu_time, "time the calling thread, not the wall; for --threads 1");
  app.add_flag("--details", details, "print the profile of the layers as well");
  CLI11_PARSE(app, argc, argv);
  config.context = seq;
  if (cpu_time && threads != 1) return fail(adacc::Error::say("--cpu-time needs --threads 1"));

  using namespace adacc;
  EigenPool pool(threads);
  const auto network = gpt::make(config);
  const Shape shape(batch, seq);
  auto program = make_program(network, shape, Dtype::f32, threads);
  if (!program) return fail(program.error);
  const Graph graph = program->graph;
  auto training =
      Training<>::make(network, *program, Cpu{ExecutorRef(pool)}, measuring_bytes(graph));
  if (!training) return fail(training.error);
  std::vector<std::int32_t> tokens(shape.elems());
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] =
        static_cast<std::int32_t>(random_word({.purpose = Purpose::data}, i) % config.vocab);
  const View<const std::int32_t> view(tokens.data(), shape);
  const auto dispatch = make_dispatch<float, Cpu>(network);

  const double start = now();
  const auto profile = measure(training->cpu(), dispatch, graph, training->arena(),
                               training->params(), training->gradients(), view, view, now, options);
  if (!profile) return fail(profile.error);
  std::printf("%s; B %zu, T %zu, %d threads; measured in %.1f s\n", gpt::describe(config).c_str(),
              batch, seq, threads, now() - start);
  if (details)
    for (int k = 0; k < graph.node_count() && k < 12; ++k) {
      std::printf("  %2d %-17s forward %7.2f backward %7.2f add %5.2f %5.2f ms", k,
                  graph.node(k).name, 1e3 * profile->node(k).forward,
                  1e3 * profile->node(k).backward, 1e3 * profile->node(k).add,
                  1e3 * profile->node(k).add_gradient);
      for (std::size_t c = 0; c < profile->codecs.size(); ++c)
        std::printf("  %s %.2f %.2f", profile->codecs[c]->name,
                    1e3 * profile->codec_cost(k, static_cast<int>(c)).encode,
                    1e3 * profile->codec_cost(k, static_cast<int>(c)).decode);
      std::printf("\n");
    }

  std::vector<Candidate> plans = candidates(graph, config, batch, seq, random);
  std::vector<Step<>> steps;
  std::size_t arena_bytes = 0;
  for (const Candidate& candidate : plans) {
    auto made = make_program(graph, candidate.plan);
    if (!made) return fail(made.error);
    auto step = Step<>::make(dispatch, std::move(*made));
    if (!step) return fail(step.error);
    if (step->arena_bytes() > arena_bytes) arena_bytes = step->arena_bytes();
    steps.push_back(std::move(*step));
  }
  auto arena = Block<std::byte>::make(arena_bytes, "arena");
  if (!arena) return fail(arena.error);
  std::vector<Array<double>> times(plans.size());
  std::vector<std::vector<Array<double>>> parts(plans.size());
  for (int round = -1; round < rounds; ++round)
    for (std::size_t i = 0; i < steps.size(); ++i) {
      Step<>& step = steps[i];
      if (Error why = step.bind({arena->data(), Shape(arena->size())}, training->params(),
                                training->gradients()))
        return fail(why);
      if (Error why = step.begin(view, view)) return fail(why);
      parts[i].resize(step.instruction_count());
      const double before = now();
      double then = before;
      for (std::size_t j = 0; j < step.instruction_count(); ++j) {
        step.execute(training->cpu(), j);
        const double after = now();
        if (round >= 0) parts[i][j].push_back(after - then);
        then = after;
      }
      if (round >= 0) times[i].push_back(then - before);
    }
  std::printf("%-12s%14s%14s%14s%28s%14s\n", "plan", "predicted ms", "measured ms", "error %",
              "over retain: p, m, medians", "error %");
  const auto medians = [&](std::size_t i) {
    double sum = 0;
    for (const Array<double>& part : parts[i]) sum += detail::median(part);
    return sum;
  };
  const double retain_predicted = evaluate(graph, *profile, plans[0].plan).seconds;
  const double retain_measured = detail::median(times[0]), retain_medians = medians(0);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const double predicted = evaluate(graph, *profile, plans[i].plan).seconds;
    const double measured = detail::median(times[i]);
    const double p = predicted / retain_predicted, m = medians(i) / retain_medians;
    std::printf("%-12s%14.1f%14.1f%14.1f%11.3f%9.3f%9.3f%13.1f\n", plans[i].name.c_str(),
                1e3 * predicted, 1e3 * measured, 100 * (predicted / measured - 1), p,
                measured / retain_measured, m, 100 * (p / m - 1));
  }
}
