// SPDX-License-Identifier: MIT
/// Does a model trained on compressed activations, on activations in bf16, or with moments of fewer bits, end where
/// the same model trained on exact ones ends? A paired comparison.
///
/// Seeds differ by more than codecs do, so runs are compared in pairs that share seed, initial parameters and
/// batches, and differ in the plan, in the type of activations, or in the form of AdamW's moments alone. Compared is the
/// loss over all of the validation file, after the rate has decayed: before, losses of neighbouring steps scatter.
/// Controls are meant to be bad: unless one of them breaks its limit, the comparison shows nothing.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <support/command_line.hpp>
#include <support/draw/plan.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "gpt_run.hpp"

namespace {

namespace gpt = adacc::gpt;

/// What is expected of the gap to retain: that it keeps a limit, or, of a control, that it shows.
enum class Role { reference, judged, control };

struct Policy {
  const char* name;
  const char* what;
  /// Null: planned within --budget, and evolving.
  adacc::Plan (*plan)(const gpt::Config&, std::size_t batch, std::size_t seq, adacc::Dtype scalar);
  study::Statistics statistics;
  Role role;
  const char* limit;                          ///< in words
  bool (*within)(double mean, double error);  ///< both in percent
  adacc::AnyOptimizer optimizer{};            ///< of a plan that is given
  adacc::Dtype scalar = adacc::Dtype::f32;    ///< of activations
};

template <class Set>
adacc::Plan plan(const gpt::Config& config, std::size_t batch, std::size_t seq,
                 adacc::Dtype scalar) {
  return gpt::plan_of<Set>(config, batch, seq, {.scalar = scalar});
}

const Policy policies[] = {
    {"retain", "all activations as they are", plan<gpt::RetainSet>, study::Statistics::again,
     Role::reference, "", [](double, double) { return true; }},
    {"int8", "Int8Outlier everywhere", plan<gpt::Int8Set>, study::Statistics::again, Role::judged,
     "mean at most 0.2 %", [](double mean, double) { return mean <= 0.2; }},
    {"tolerated", "the traits' defaults", plan<gpt::ToleratedSet>, study::Statistics::again,
     Role::judged, "mean + 2 se at most 0.5 %",
     [](double mean, double error) { return mean + 2 * error <= 0.5; }},
    {"auto", "planned within the budget, and evolving", nullptr, study::Statistics::again,
     Role::judged, "mean + 2 se at most 0.5 %",
     [](double mean, double error) { return mean + 2 * error <= 0.5; }},
    {"moments-bf16", "moments in bf16", plan<gpt::RetainSet>, study::Statistics::again,
     Role::judged, "mean at most 0.3 %", [](double mean, double) { return mean <= 0.3; },
     adacc::AdamWWith<adacc::Bf16Moments>{}},
    {"moments-int8", "moments in 8-bit blocks", plan<gpt::RetainSet>, study::Statistics::again,
     Role::judged, "mean at most 0.3 %", [](double mean, double) { return mean <= 0.3; },
     adacc::AdamWWith<adacc::Int8Moments>{}},
    {"bf16",
     "activations in bf16",
     plan<gpt::RetainSet>,
     study::Statistics::again,
     Role::judged,
     "mean at most 0.3 %",
     [](double mean, double) { return mean <= 0.3; },
     {},
     adacc::Dtype::bf16},
    {"int4", "stochastic int4 everywhere, saved log-sum-exp",
     plan<gpt::CompressSet<study::Int4Stochastic>>, study::Statistics::saved, Role::control,
     "mean at most 0.5 %", [](double mean, double) { return mean <= 0.5; }},
    {"coarse", "the same with one symmetric scale per row, and no outliers",
     plan<gpt::CompressSet<study::Int4Coarse>>, study::Statistics::saved, Role::control,
     "mean at most 0.5 %", [](double mean, double) { return mean <= 0.5; }},
};

void print_plan(const char* when, const adacc::Evolution& evolution) {
  std::fprintf(stderr, "auto %s: gradient error %.1e;", when, evolution.outcome().error);
  for (const auto& [name, count] : draw::policy_counts(evolution.plan()))
    std::fprintf(stderr, " %s %d", name.c_str(), count);
  std::fprintf(stderr, "\n");
}

/// The validation loss after training under `policy`; infinite where training diverged.
template <class T>
adacc::Result<double> train(const study::Setting& setting, const Policy& policy, std::uint64_t seed,
                            const adacc::Cpu& cpu, const adacc::Tokens& data,
                            const adacc::Tokens& validation) {
  study::RunOf<T> run(setting, cpu);
  if (adacc::Error why =
          policy.plan == nullptr
              ? run.set_up_planned(seed, data)
              : run.set_up(policy.plan(setting.network, setting.batch, setting.seq, policy.scalar),
                           seed, policy.statistics, policy.optimizer))
    return why;
  if (run.evolution() != nullptr) print_plan("at first", *run.evolution());
  const double start = adacc::steady_seconds();
  for (std::uint64_t step = 0; step < setting.steps; ++step) {
    const auto outcome = run.train(data);
    if (!outcome) return outcome.error;
    if (!outcome->finite) return HUGE_VAL;
    if ((step + 1) % 100 == 0)
      std::fprintf(stderr, "\r%-12s seed %llu  step %5llu of %llu  loss %.4f  %4.0f s ",
                   policy.name, static_cast<unsigned long long>(seed),
                   static_cast<unsigned long long>(step + 1),
                   static_cast<unsigned long long>(setting.steps), outcome->loss,
                   adacc::steady_seconds() - start);
  }
  const auto loss = run.evaluate(validation);
  if (loss) std::fprintf(stderr, " validation %.5f\n", *loss);
  if (run.evolution() != nullptr) print_plan("in the end", *run.evolution());
  return loss;
}

int fail(const adacc::Error& why) {
  std::fprintf(stderr, "fidelity: %s\n", why.text());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  study::Setting setting;
  std::uint64_t seeds = 3;
  std::string model, tokens, val, json;
  std::vector<std::string> wanted;
  for (const Policy& policy : policies)
    if (policy.role != Role::reference) wanted.push_back(policy.name);
  CLI::App app("Trains pairs of GPTs, on exact and on compressed activations, and compares them.",
               "fidelity");
  app.option_defaults()->always_capture_default();
  app.add_option("--model", model, "take the model's shape from this llm.c checkpoint");
  app.add_option("--tokens", tokens, "llm.c token file, or text, to train on")->required();
  app.add_option("--val", val, "... and to validate on, all of it")->required();
  app.add_option("--steps", setting.steps)->check(CLI::Range(1, 1 << 30));
  app.add_option("--warmup", setting.warmup);
  app.add_option("--lr", setting.lr);
  app.add_option("--min-lr", setting.min_lr);
  app.add_option("--batch", setting.batch)->check(CLI::PositiveNumber);
  app.add_option("--seq", setting.seq)->check(CLI::PositiveNumber);
  app.add_option("--seeds", seeds)->check(CLI::Range(1, 1000));
  app.add_option("--threads", setting.threads)->check(CLI::Range(1, 256));
  app.add_option("--policies", wanted, "what is compared with retain")
      ->check(CLI::IsMember(wanted))
      ->delimiter(',');
  support::add_budget(app, setting.budget, "of auto, as 96MiB or as 50% of what retain needs",
                      "30%");
  app.add_option("--tolerance", setting.tolerance, "of auto's gradient error")
      ->check(CLI::Range(0.0, 1e3));
  app.add_option("--json", json, "write the figures to this file as well");
  CLI11_PARSE(app, argc, argv);

  if (!model.empty()) {
    const auto header = adacc::read_llmc_header(model);
    if (!header) return fail(header.error);
    setting.network = {static_cast<int>(header->layers), header->heads, header->channels,
                       header->max_seq_len, header->vocab_size};
  }
  if (setting.network.context < setting.seq) setting.network.context = setting.seq;
  if (adacc::Error why = setting.rate().validate()) return fail(why);
  const auto data = study::read_tokens(tokens, setting.network.vocab);
  const auto validation = study::read_tokens(val, setting.network.vocab);
  if (!data || !validation) return fail(data ? validation.error : data.error);
  for (const auto* text : {&*data, &*validation})
    if (adacc::Error why = text->check_batch(setting.batch, setting.seq)) return fail(why);
  adacc::EigenPool pool(setting.threads);
  const adacc::Cpu cpu{adacc::ExecutorRef(pool)};

  constexpr std::size_t count = sizeof policies / sizeof *policies;
  const auto runs = [&](std::size_t i) {
    return i == 0 || std::find(wanted.begin(), wanted.end(), policies[i].name) != wanted.end();
  };
  std::vector<double> losses[count];
  for (std::uint64_t seed = 1; seed <= seeds; ++seed)
    for (std::size_t i = 0; i < count; ++i) {
      if (!runs(i)) continue;
      const auto trained =
          policies[i].scalar == adacc::Dtype::bf16 ? train<adacc::bfloat16> : train<float>;
      const auto loss = trained(setting, policies[i], seed, cpu, *data, *validation);
      if (!loss) return fail(loss.error);
      losses[i].push_back(*loss);
    }

  std::printf("%s; B %zu, T %zu, %llu steps, %llu seeds\n", gpt::describe(setting.network).c_str(),
              setting.batch, setting.seq, static_cast<unsigned long long>(setting.steps),
              static_cast<unsigned long long>(seeds));
  std::printf("%-12s %-30s %10s %10s  %s\n", "policy", "validation loss by seed", "gap, mean", "se",
              "limit");
  bool all_within = true, any_control = false, any_caught = false;
  nlohmann::ordered_json figures = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < count; ++i) {
    if (!runs(i)) continue;
    const Policy& policy = policies[i];
    const auto n = static_cast<double>(seeds);
    double mean = 0, square = 0;
    std::string shown;
    for (std::size_t s = 0; s < seeds; ++s) {
      const double gap = 100 * (losses[i][s] / losses[0][s] - 1);
      mean += gap / n;
      square += gap * gap / n;
      char text[32];
      std::snprintf(text, sizeof text, "%.5f ", losses[i][s]);
      shown += text;
    }
    const double error = seeds < 2 ? 0 : std::sqrt(std::fmax(0, square - mean * mean) / (n - 1));
    const bool within = policy.within(mean, error);
    const char* verdict = "";
    if (policy.role == Role::judged) {
      all_within = all_within && within;
      verdict = within ? ": pass" : ": FAIL";
    } else if (policy.role == Role::control) {
      any_control = true;
      any_caught = any_caught || !within;
      verdict = within ? ": control not caught" : ": control caught";
    }
    std::printf("%-12s %-30s %8.3f %% %8.3f %%  %s%s\n", policy.name, shown.c_str(), mean, error,
                policy.limit, verdict);
    figures.push_back({{"policy", policy.name},
                       {"what", policy.what},
                       {"validation_loss", losses[i]},
                       {"gap_percent", mean},
                       {"standard_error_percent", error},
                       {"within_limit", within}});
  }
  const bool shows = !any_control || any_caught;
  std::printf("%s%s\n", all_within ? "all limits kept" : "a limit is broken",
              !any_control ? ""
              : any_caught ? ", and the comparison catches a control"
                           : ", but no control is caught: the comparison shows nothing");
  if (!json.empty()) {
    std::FILE* file = std::fopen(json.c_str(), "w");
    if (file == nullptr)
      return fail(adacc::Error::say("--json ", json.c_str(), " cannot be written"));
    std::fprintf(file, "%s\n", figures.dump(2).c_str());
    if (std::fclose(file) != 0) return 2;
  }
  return all_within && shows ? 0 : 1;
}
