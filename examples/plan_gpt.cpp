// SPDX-License-Identifier: MIT
/// Plans a GPT's training step without training it: what would it hold in memory, and how fast
/// would it be, under a budget?
///
/// Also for models far larger than this machine: nothing is allocated but the plan. Costs come from
/// a profile that train_gpt measured (--profile), or from two numbers that describe a machine.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <adacc/core/steady_clock.hpp>
#include <adacc/cost/estimate.hpp>
#include <adacc/io/file.hpp>
#include <adacc/io/profile_text.hpp>
#include <adacc/model/trained_by_name.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/optimizer/stored_moments_time.hpp>
#include <adacc/plan/make_plan.hpp>
#include <adacc/train/total.hpp>
#include <support/command_line.hpp>
#include <support/draw/lanes.hpp>
#include <support/draw/memory.hpp>
#include <support/draw/plan.hpp>
#include <support/loop_use.hpp>
#include <support/optimizer.hpp>
#include <support/solver.hpp>

#include "plan_gpt/moments.hpp"
#include "plan_gpt/totals.hpp"

#include <cstdio>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "plan_gpt/pipeline.hpp"

namespace {

namespace gpt = adacc::gpt;

struct Options {
  gpt::Config network{12, 12, 768, 0, 50257};
  std::size_t batch = 8, seq = 1024;
  int threads = 1, parts = 1;
  std::string train;
  gpt::Lora lora;
  adacc::Budget budget{0, 0.5};
  adacc::Budget total;
  std::string total_text, parameters = "fp32", optimizer = "adamw", moments = "fp32";
  bool fused = false;
  bool moments_store = false, choose_moments = false;
  adacc::Budget moments_window;
  std::string moments_window_text;
  double tolerance = 1e-2;
  double gap = 2e-3;
  int most_runs = 1;
  double deadline = 10;
  std::string solver = "auto";
  std::string profile;
  double gflops = 100, gbps = 20;
  double link_gbps = 0;
  bool json = false;
  std::string svg, total_picture;
  plan_gpt::PipelineOptions pipeline;
};

int fail(const adacc::Error& why) {
  std::fprintf(stderr, "plan_gpt: %s\n", why.text());
  return 2;
}

double mebi(std::size_t bytes) { return static_cast<double>(bytes) / adacc::MiB; }

void print_json(const Options& options, std::size_t budget, std::size_t smallest,
                const adacc::PlanOutcome& found, const support::LoopUse& loops,
                const adacc::TrainingMemoryUse& memory) {
  nlohmann::ordered_json straight;  // null if the plan does not fit without loops
  if (loops.straight_peak_bytes > 0) straight = loops.straight_peak_bytes;
  const nlohmann::ordered_json out = {{"precision", options.pipeline.precision},
                                      {"budget_bytes", budget},
                                      {"peak_bytes", found.peak_bytes},
                                      {"retain_peak_bytes", found.retain_peak_bytes},
                                      {"smallest_peak_bytes", smallest},
                                      {"loops", loops.loops},
                                      {"loop_instructions", loops.instructions},
                                      {"part_buffers", loops.tiles},
                                      {"packing_calls", loops.packing},
                                      {"packed_once", loops.packed},
                                      {"peak_without_loops_bytes", straight},
                                      {"parameter_bytes", memory.parameters},
                                      {"gradient_bytes", memory.gradients},
                                      {"moments", options.moments},
                                      {"moment_bytes", memory.moments},
                                      {"stored_moment_bytes", memory.stored},
                                      {"total_bytes", memory.total()},
                                      {"predicted_ms", 1e3 * found.seconds},
                                      {"retain_ms", 1e3 * found.retain_seconds},
                                      {"offload_written_bytes", found.written_bytes},
                                      {"offload_stall_ms", 1e3 * found.stall_seconds},
                                      {"gap", found.gap},
                                      {"solve_ms", 1e3 * found.solve_seconds},
                                      {"solver", found.solver},
                                      {"bound_by", found.bound_by},
                                      {"policies", draw::policy_counts(found.plan)}};
  std::printf("%s\n", out.dump(2).c_str());
}

template <class Share>
void print_loops(const adacc::Program& program, const Share& share) {
  const support::LoopUse use = support::LoopUse::of(program);
  if (use.straight_peak_bytes > 0)
    std::printf("%-26s %12.1f MiB  %5.1f %%\n", "... without loops", mebi(use.straight_peak_bytes),
                share(use.straight_peak_bytes));
  else std::printf("%-26s %12s\n", "... without loops", "does not fit");
  std::printf("%-26s %12zu      of %zu calls in parts; the others pack them in each part\n",
              "weights packed once", use.packed, use.packing);
  if (use.loops == 0) {
    std::printf("%-26s %12s\n", "loops over rows", "none");
    return;
  }
  std::printf(
      "%-26s %12zu      of %s parts: %zu of %zu instructions, %zu of %zu buffers hold one part\n",
      "loops over rows", use.loops, support::parts_text(program.schedule).c_str(), use.instructions,
      program.schedule.instructions.size(), use.tiles, program.schedule.buffers.size());
}

void print_table(const Options& options, std::size_t budget, std::size_t smallest,
                 const adacc::PlanOutcome& found, const adacc::Program& program,
                 const adacc::TrainingMemoryUse& memory) {
  const auto share = [&](std::size_t bytes) {
    return 100 * static_cast<double>(bytes) / static_cast<double>(found.retain_peak_bytes);
  };
  std::printf("%s; %zu x %zu tokens%s\n", gpt::describe(options.network).c_str(), options.batch,
              options.seq, options.pipeline.precision == "bf16" ? ", activations in bf16" : "");
  std::printf("%-26s %12.1f MiB\n", "retain needs", mebi(found.retain_peak_bytes));
  std::printf("%-26s %12.1f MiB  %5.1f %%\n", "budget", mebi(budget), share(budget));
  std::printf("%-26s %12.1f MiB  %5.1f %%\n", "peak of the plan", mebi(found.peak_bytes),
              share(found.peak_bytes));
  if (options.parts > 1) print_loops(program, share);
  std::printf("%-26s %12.1f MiB  %5.1f %%\n",
              found.timed_out ? "smallest budget known" : "smallest budget of any plan",
              mebi(smallest), share(smallest));
  std::printf("%-26s %12.1f MiB  and %.1f MiB for the moments of %s in %s\n",
              options.parameters == "bf16"
                  ? options.fused ? "parameters in bf16" : "bf16 parameters, gradients"
              : options.fused ? "parameters"
                              : "parameters and gradients",
              mebi(memory.parameters + memory.gradients), mebi(memory.moments),
              options.optimizer.c_str(), options.moments.c_str());
  if (options.moments_store)
    std::printf("%-26s %12.1f MiB  through the window of %.1f MiB, in and out again by each step\n",
                "moments in the store", mebi(memory.stored), mebi(memory.moments));
  std::printf("%-26s %12.1f MiB\n", "in all", mebi(memory.total()));
  std::printf("%-26s %12.2f ms   %5.3f of retain's\n", "predicted step", 1e3 * found.seconds,
              found.seconds / found.retain_seconds);
  std::printf("%-26s %12.2f %%    proven by %s\n", "gap to the best possible", 100 * found.gap,
              found.bound_by);
  std::printf("%-26s %12.2e     of %.0e\n", "gradient error", found.error, options.tolerance);
  std::printf("%-26s %12.3f ms   per MiB\n", "price of a byte",
              1e3 * found.seconds_per_byte * adacc::MiB);
  if (options.link_gbps > 0)
    std::printf("%-26s %12.1f MiB  out and back a step, %.2f ms of waiting\n", "offloaded",
                mebi(found.written_bytes), 1e3 * found.stall_seconds);
  std::printf("%-26s %12.1f ms   %s%s\n", "planned in", 1e3 * found.solve_seconds, found.solver,
              found.timed_out ? ", stopped by the deadline" : "");
  if (found.note) std::printf("note: %s\n", found.note.text());
  std::printf("policies:");
  for (const auto& [name, count] : draw::policy_counts(found.plan))
    std::printf("  %s %d", name.c_str(), count);
  std::printf("\n");
}

adacc::Error draw_plan(const Options& options, const adacc::Program& program,
                       const adacc::CostProfile& profile, const adacc::PlanRequest& request) {
  const std::size_t budget = request.budget_bytes;
  const draw::PlanPicture plan = draw::plan_picture(program.graph, program.plan, 10, 40, 920);
  const auto extras = draw::MemoryExtras::of(program.schedule);
  const double height = plan.height + (extras.store ? 480 : 340);
  std::string svg = draw::open_svg(940, height);
  svg += draw::print(
      "<text x='10' y='24' font-size='14'>A plan for a GPT of %d layers, %zu "
      "channels, on %zu x %zu tokens in %s</text>\n",
      options.network.layers, options.network.channels, options.batch, options.seq,
      draw::shown_bytes(static_cast<double>(budget)).c_str());
  svg += plan.svg + draw::memory_legend(20, plan.height + 60, extras);
  const double most = std::max(static_cast<double>(budget), draw::most_shown_bytes(program));
  svg += draw::memory_panel(program, {20, plan.height + 90, 800, 220}, 1.03 * most,
                            static_cast<double>(budget));
  if (extras.store)
    svg += draw::lanes_legend(20, plan.height + 336) +
           draw::lanes_panel(program, profile, request.link, {20, plan.height + 360, 800, 100});
  svg += "</svg>\n";
  return adacc::write_file(options.svg, svg);
}

/// The time of a step that updates through a window, on the same link as what is offloaded.
adacc::Error add_time_of_moments(const adacc::Graph& graph, const adacc::CostProfile& profile,
                                 const adacc::LinkCost& link, const adacc::AnyOptimizer& optimizer,
                                 adacc::MomentWindow window, adacc::PlanOutcome& found) {
  using namespace adacc;
  const auto table = UpdateTable::make(optimizer, graph.parameters, graph.scalar);
  if (!table) return table.error;
  const auto turns = MomentTurns::make(optimizer, *table, graph, window);
  if (!turns) return turns.error;
  const PlanCost cost =
      evaluate(graph, profile, found.plan, schedule_of(graph, found.plan), link, *turns);
  found.seconds = cost.seconds;
  found.stall_seconds = cost.stall_seconds;
  return {};
}

int run(Options options) {
  using namespace adacc;
  options.network.context = options.seq;
  options.lora.alpha = 2 * static_cast<float>(options.lora.rank);  // as train_gpt's
  if (options.network.channels % options.network.heads != 0)
    return fail(Error::say("--heads ", options.network.heads, " does not divide --channels ",
                           options.network.channels));
  const EstimateRates rates{.bytes_per_second = 1e9 * options.gbps,
                            .operations_per_second = 1e9 * options.gflops,
                            .bf16_operations_per_second = 1e9 * options.gflops};
  if (!options.total_picture.empty()) {
    const Error why = plan_gpt::draw_totals(
        {options.network, options.batch, options.seq, options.threads, rates, options.tolerance},
        options.total_picture);
    return why ? fail(why) : 0;
  }
  const auto lower = [&](int parts, const gpt::Tuning& tuning) {
    return gpt::graph<gpt::PlannedSet>(options.network, options.batch, options.seq, options.threads,
                                       parts, tuning);
  };
  gpt::Tuning tuning{options.lora};
  const bool half = options.pipeline.precision == "bf16";
  if (half) tuning.scalar = Dtype::bf16;
  TrainedSet trained;
  if (!options.train.empty()) {
    const auto all = lower(1, tuning);
    if (!all) return fail(all.error);
    auto named = trained_by_name(*all, options.train);
    if (!named) return fail(Error::say("--train: ", named.error.text()));
    trained = std::move(*named);
    tuning.trained = &trained;
  }
  auto graph = lower(options.parts, tuning);
  if (!graph) return fail(graph.error);
  const CostProfile full_profile = estimated_profile(*graph, rates);
  const auto fp32 = memory_beside_arena(*graph, AdamW{});
  const ParameterForm form = support::parameter_form(options.parameters);
  set_parameters(*graph, form);
  CostProfile profile = estimated_profile(*graph, rates);
  if (!options.profile.empty()) {
    std::string model = gpt::describe(options.network, options.lora);
    if (options.parts > 1) model += ", in " + std::to_string(options.parts) + " parts";
    if (form == ParameterForm::bf16) model += ", parameters in bf16";
    if (half) model += ", activations in bf16";
    auto loaded = load_profile(options.profile, *graph, {machine_name(), model, options.threads});
    if (!loaded) return fail(loaded.error);
    profile = std::move(*loaded);
  }
  PlanRequest request;
  request.tolerance = options.tolerance;
  request.gap = options.gap;
  request.most_runs = options.most_runs;
  request.link.write_rate = request.link.read_rate = 1e9 * options.link_gbps;
  request.clock = steady_seconds;
  request.deadline_seconds = options.deadline;
  request.prices = support::planner_of(options.solver).prices();
  auto whole = lower(1, tuning);
  if (!whole) return fail(whole.error);
  const std::size_t separate =
      peak_bytes(*whole, retain_all(*whole));  // layers whole, without loops
  set_parameters(*whole, form);
  if (options.fused)
    for (Graph* one : {&*graph, &*whole}) set_updates(*one, Updates::fused);
  const std::size_t retain = peak_bytes(*whole, retain_all(*whole));
  request.budget_bytes = options.budget.of(retain);
  if (!fp32) return fail(fp32.error);
  // All that is planned ends by one deadline.
  const Deadline deadline(request.clock, request.deadline_seconds);
  const auto plan_with =
      [&](const plan_gpt::MomentChoice& moments) -> Result<plan_gpt::PlannedTraining> {
    const auto optimizer = support::make_optimizer(options.optimizer, moments.form, 0);
    if (!optimizer) return optimizer.error;
    auto memory = moments.store ? memory_beside_arena(*graph, *optimizer, moments.window)
                                : memory_beside_arena(*graph, *optimizer);
    if (!memory) return memory.error;
    PlanRequest asked = request;
    asked.deadline_seconds = deadline.left();
    if (!options.total_text.empty()) {
      const auto left =
          arena_budget(options.total.of(fp32->total() + separate), *memory, *graph, profile, asked);
      if (!left) return left.error;
      asked.budget_bytes = *left;
      asked.deadline_seconds = deadline.left();
    }
    auto found = make_plan(*graph, profile, asked);
    if (!found) return found.error;
    found->retain_peak_bytes = retain;
    // Estimates are compared with retaining under parameters in full.
    if (options.profile.empty())
      found->retain_seconds = evaluate(*graph, full_profile, retain_all(*graph)).seconds;
    memory->arena = found->peak_bytes;
    if (moments.store)
      if (const Error why =
              add_time_of_moments(*graph, profile, asked.link, *optimizer, moments.window, *found))
        return why;
    return plan_gpt::PlannedTraining{*memory, std::move(*found), asked.budget_bytes};
  };
  plan_gpt::MomentChoice moments{
      options.moments,
      options.moments_store,
      {options.moments_window_text.empty() ? 0 : options.moments_window.of(fp32->moments)}};
  Result<plan_gpt::PlannedTraining> planned{plan_gpt::PlannedTraining{}};
  if (options.choose_moments) {
    auto fastest = plan_gpt::fastest_moments(options.optimizer, options.link_gbps > 0, options.json,
                                             plan_with);
    if (!fastest) return fail(fastest.error);
    moments = fastest->choice;
    options.moments = moments.form;
    options.moments_store = moments.store;
    planned = std::move(fastest->planned);
  } else {
    planned = plan_with(moments);
  }
  if (!planned) return fail(planned.error);
  request.budget_bytes = planned->budget_bytes;
  PlanOutcome* const found = &planned->found;
  const TrainingMemoryUse* const memory = &planned->memory;
  request.deadline_seconds = deadline.left();
  const auto smallest = smallest_peak(*graph, profile, request);
  if (!smallest) return fail(smallest.error);
  found->solve_seconds = deadline.elapsed();
  found->timed_out = found->timed_out || deadline.passed();
  const auto program = make_program(std::move(*graph), found->plan);
  if (!program) return fail(program.error);
  if (options.json)
    print_json(options, request.budget_bytes, *smallest, *found, support::LoopUse::of(*program),
               *memory);
  else print_table(options, request.budget_bytes, *smallest, *found, *program, *memory);
  if (options.svg.empty()) return 0;
  if (Error why = draw_plan(options, *program, profile, request)) return fail(why);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Plans a GPT's training step under a memory budget, without training it.",
               "plan_gpt");
  app.option_defaults()->always_capture_default()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);
  const CLI::Range size(1, 1 << 20);
  app.add_option("--layers", options.network.layers, "transformer blocks")
      ->check(CLI::Range(1, 4096));
  app.add_option("--heads", options.network.heads, "attention heads; must divide the channels")
      ->check(size);
  app.add_option("--channels", options.network.channels, "width of the residual stream")
      ->check(size);
  app.add_option("--vocab", options.network.vocab, "size of the vocabulary")->check(size);
  app.add_option("--batch", options.batch, "sequences per step")->check(size);
  app.add_option("--seq", options.seq, "tokens per sequence")->check(size);
  app.add_option("--threads", options.threads, "workers that workspaces are sized for")
      ->check(CLI::Range(1, 256));
  app.add_option(
         "--parts", options.parts,
         "that layers are cut into, so that loops over rows need less memory; best so that a "
         "part has about 256 rows, and as many parts as sequences")
      ->check(CLI::Range(1, 1 << 16));
  auto* train = app.add_option(
      "--train", options.train,
      "these parameters alone are trained: names with commas between them, such as 'block.5,head' "
      "or '*.bias,*layer_norm*'");
  auto* lora = app.add_option("--lora", options.lora.rank,
                              "adapters of this rank beside the linear layers alone are trained")
                   ->check(size)
                   ->excludes(train)
                   ->default_str("");
  app.add_flag("--lora-fa{false}", options.lora.train_a,
               "of each adapter the second matrix alone is trained (LoRA-FA)")
      ->needs(lora);
  support::add_budget(
      app, options.budget,
      "bytes of activations, gradients and workspaces: a number with B, KiB, MiB, GiB, "
      "or % of what retain needs",
      "50%");
  support::add_bytes(
      app, "--total", options.total,
      "instead of --budget: bytes of parameters, gradients and moments as well, or % of "
      "what retain with AdamW in fp32 needs",
      "", &options.total_text)
      ->excludes("--budget");
  support::add_optimizer(app, options.optimizer, options.moments, "whose moments are held",
                         "the form that they are held in");
  support::add_parameters(app, options.parameters, "the form that parameters are held in");
  app.add_flag("--fused", options.fused,
               "updates in the step: gradients of parameters are buffers of it");
  auto* store = app.add_flag("--moments-store", options.moments_store,
                             "moments in a store behind --link, which pass through a window of "
                             "memory for each update");
  support::add_bytes(
      app, "--moments-window", options.moments_window,
      "... of so many bytes, or % of what they take in fp32 [default: a sixteenth of "
      "them, at most 32MiB]",
      "", &options.moments_window_text)
      ->needs(store);
  app.add_flag(
         "--choose-moments", options.choose_moments,
         "the form of moments that is predicted to be fastest within the budget, in memory or, "
         "with --link, in a store, and the window that they pass through there")
      ->excludes("--moments")
      ->excludes(store);
  app.add_option("--tolerance", options.tolerance, "largest relative squared error of the gradient")
      ->check(support::between(0, 1e3));
  app.add_option("--gap", options.gap, "stop at plans within this share of the best step time")
      ->check(support::between(0, 1));
  app.add_option(
         "--most-runs", options.most_runs,
         "how often an activation may be recomputed if no other plan fits: less memory, more time")
      ->check(CLI::Range(1, adacc::most_runs))
      ->excludes("--parts");
  app.add_option("--deadline", options.deadline, "seconds of planning")
      ->check(support::between(0, 1e6));
  app.add_option("--solver", options.solver, "where prices of bytes and error come from")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(support::solver_names),
                                                     std::end(support::solver_names))));
  auto* profile = app.add_option("--profile", options.profile, "costs that train_gpt measured");
  app.add_option("--gflops", options.gflops, "rate of matrix products, without --profile")
      ->check(support::between(1e-3, 1e9))
      ->excludes(profile);
  app.add_option("--gbps", options.gbps, "bandwidth of memory in GB/s, without --profile")
      ->check(support::between(1e-3, 1e9))
      ->excludes(profile);
  app.add_option("--link", options.link_gbps,
                 "GB/s to and from a store that activations may be offloaded to, and that has the "
                 "moments with --moments-store; 0: there is none. "
                 "With --stages: between the ranks, 25 if it is not given")
      ->check(support::between(0, 1e9));
  app.add_flag("--json", options.json, "print one JSON object");
  app.add_option("--svg", options.svg, "draw the plan and its memory into this file");
  plan_gpt::add_options(app, options.pipeline);
  app.add_option(
         "--total-picture", options.total_picture,
         "print a table of all that a training holds, for several ways to train the model, and "
         "draw it into this file; costs are estimated")
      ->excludes(train)
      ->excludes(lora)
      ->excludes(profile)
      ->excludes("--parts")
      ->excludes("--budget")
      ->excludes("--total")
      ->excludes("--parameters")
      ->excludes("--optimizer")
      ->excludes("--moments")
      ->excludes("--moments-store")
      ->excludes("--precision")
      ->excludes("--svg")
      ->excludes("--json");
  if (const auto status = support::parse(app, argc, argv)) return *status;
  if (options.pipeline.precision.empty())
    options.pipeline.precision = options.pipeline.stages == 0 ? "fp32" : "bf16";
  if (options.moments_store && options.link_gbps == 0)
    return fail(adacc::Error::say("--moments-store: say how fast the store is, with --link"));
  if (options.most_runs > 1 && options.link_gbps > 0)
    return fail(adacc::Error::say(
        "--most-runs: beside a --link no activation is recomputed more than once"));
  if (options.pipeline.stages == 0) return run(options);
  for (const char* other : {"--threads", "--parts", "--train", "--lora", "--budget", "--total",
                            "--optimizer", "--parameters", "--moments", "--moments-store",
                            "--solver", "--profile", "--gflops", "--gbps", "--svg", "--most-runs"})
    if (app.count(other) > 0)
      return fail(
          adacc::Error::say(other, " says nothing with --stages, which has options of its own"));
  if (app.count("--link") > 0) options.pipeline.link_gbps = options.link_gbps;
  if (options.pipeline.model.empty() && options.network.channels % options.network.heads != 0)
    return fail(adacc::Error::say("--heads ", options.network.heads, " does not divide --channels ",
                                  options.network.channels));
  const bool one = app.count("--batch") == 0 && !options.pipeline.model.empty();
  return plan_gpt::run_pipeline(options.pipeline, options.network, one ? 1 : options.batch,
                                options.seq, app.count("--seq") > 0, options.tolerance, options.gap,
                                options.json);
}
