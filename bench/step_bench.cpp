// SPDX-License-Identifier: MIT
/// A GPT's training step against the machine: how much of Eigen's SGEMM rate does it reach, what
/// does recomputation cost, and where does the time go?
///
/// The bound is the rate of matrix products. Machines are shared and drift, so every step is timed
/// next to a product of Eigen's, in pairs, and the medians of ratios are reported: never a time
/// alone. Model FLOP count 6 per matrix parameter and token, and 6 * layers * T * channels per
/// token for causal attention; optimizer, norms and everything else count as zero FLOP but take
/// their time.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <Eigen/Core>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "contestant.hpp"

namespace {

namespace gpt = adacc::gpt;

using contest::Contestant;
using contest::median;
using contest::now_ms;

struct Setting : contest::Setting {
  int pairs = 15;
  std::string policy = "recompute";
};

/// C = A B, 1024 x 1024, each thread one block of rows.
class Sgemm {
 public:
  static constexpr int size = 1024;
  Sgemm() : a_(Matrix::Random(size, size)), b_(Matrix::Random(size, size)), c_(size, size) {}

  double gflops(const adacc::Cpu& cpu) {
    const double start = now_ms();
    const int parts = cpu.workers();
    cpu.parallel(static_cast<std::size_t>(parts), [&](std::size_t i, int) {
      const int part = static_cast<int>(i), first = size * part / parts;
      const int rows = size * (part + 1) / parts - first;
      c_.middleRows(first, rows).noalias() = a_.middleRows(first, rows) * b_;
    });
    return 2e-6 * size * size * size / (now_ms() - start);
  }

 private:
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  Matrix a_, b_, c_;
};

double model_gflop(const Setting& s) {
  const double c = static_cast<double>(s.network.channels), l = s.network.layers;
  const double tokens = static_cast<double>(s.batch * s.seq);
  const double matrix = 12 * l * c * c + static_cast<double>(s.network.vocab) * c;
  return 1e-9 * tokens * (6 * matrix + 6 * l * static_cast<double>(s.seq) * c);
}

/// Bytes that llm.c's CPU trainer holds for activations and their gradients: 2 floats for each of
/// its activation tensors' elements (counted from its layout).
double llmc_bytes(const Setting& s) {
  const double b = static_cast<double>(s.batch), t = static_cast<double>(s.seq);
  const double c = static_cast<double>(s.network.channels), l = s.network.layers;
  const double h = static_cast<double>(s.network.heads), v = static_cast<double>(s.network.vocab);
  const double per_layer = 18 * b * t * c + 4 * b * t + 2 * b * h * t * t;
  return 8 * (b * t * c + l * per_layer + b * t * c + 2 * b * t + 2 * b * t * v + b * t);
}

}  // namespace

int main(int argc, char** argv) {
  Setting s;
  std::string json;
  CLI::App app("Times a GPT's training step against Eigen's SGEMM, in pairs.", "step_bench");
  app.option_defaults()->always_capture_default();
  contest::add_options(app, s);
  app.add_option("--pairs", s.pairs, "interleaved pairs, of which the median is taken")
      ->check(CLI::Range(1, 100000));
  app.add_option("--policy", s.policy, "what is compared with retain")
      ->check(CLI::IsMember(
          std::vector<std::string>(std::begin(gpt::set_names), std::end(gpt::set_names))));
  app.add_option("--json", json, "write the figures to this file as well");
  CLI11_PARSE(app, argc, argv);
  s.network.context = s.seq;

  adacc::EigenPool pool(s.threads);
  const adacc::Cpu cpu{adacc::ExecutorRef(pool)};
  Sgemm sgemm;
  Contestant retain(s, contest::named_plan("retain", s), cpu);
  Contestant other(s, contest::named_plan(s.policy, s), cpu);
  for (const Contestant* contestant : {&retain, &other}) {
    if (!contestant->error()) continue;
    std::fprintf(stderr, "step_bench: %s\n", contestant->error().text());
    return 2;
  }

  const double gflop = model_gflop(s);
  std::vector<double> rates, ratios, ratios_step, costs, times, updates;
  double update = 0, other_update = 0;
  for (int i = -2; i < s.pairs; ++i) {  // two rounds warm up
    const double before = sgemm.gflops(cpu);
    const double ms = retain.run(update);
    const double after = sgemm.gflops(cpu);
    const double other_ms = other.run(other_update);
    if (i < 0) continue;
    const double eigen = 2 / (1 / before + 1 / after);
    rates.push_back(eigen);
    times.push_back(ms);
    updates.push_back(update / ms);
    ratios.push_back(1000 * gflop / ms / eigen);
    ratios_step.push_back(1000 * gflop / (ms - update) / eigen);
    costs.push_back(other_ms / ms);
  }
  std::map<std::string, double> split, other_split;
  for (int i = 0; i < 5; ++i) {
    retain.profile(split);
    other.profile(other_split);
  }

  const double tokens = static_cast<double>(s.batch * s.seq);
  const auto peak = static_cast<double>(retain.step().arena_bytes());
  const auto other_peak = static_cast<double>(other.step().arena_bytes());
  const auto waste = [](const adacc::Layout& layout) {
    return static_cast<double>(layout.arena_bytes) / static_cast<double>(layout.live_bytes);
  };
  std::printf("%d layers, %zu heads, %zu channels, T %zu, B %zu, %d threads, %d pairs\n",
              s.network.layers, s.network.heads, s.network.channels, s.seq, s.batch, s.threads,
              s.pairs);
  std::printf("Eigen's SGEMM, 1024 x 1024          %8.1f GFLOP/s\n", median(rates));
  std::printf("retain: step with update            %8.1f ms, %.0f tokens/s\n", median(times),
              1000 * tokens / median(times));
  std::printf(
      "  model FLOP/s over SGEMM           %8.3f (%.3f without the update, %.1f %% of it)\n",
      median(ratios), median(ratios_step), 100 * median(updates));
  std::printf("%-10s time over retain's        %8.3f\n", s.policy.c_str(), median(costs));
  std::printf("arena: retain %.1f MiB, %.3f of llm.c's; %s %.1f MiB, %.3f of retain's\n",
              peak / adacc::MiB, peak / llmc_bytes(s), s.policy.c_str(), other_peak / adacc::MiB,
              other_peak / peak);
  std::printf("arena over live bytes: retain %.3f, %s %.3f\n",
              waste(retain.step().program().layout), s.policy.c_str(),
              waste(other.step().program().layout));
  for (const auto* part : {&split, &other_split}) {
    double sum = 0;
    std::vector<std::pair<double, std::string>> sorted;
    for (const auto& [name, ms] : *part) sorted.push_back({ms, name}), sum += ms;
    std::sort(sorted.rbegin(), sorted.rend());
    std::printf("\ntime by instruction, %s\n", part == &split ? "retain" : s.policy.c_str());
    for (const auto& [ms, name] : sorted)
      std::printf("  %-34s %7.2f ms %5.1f %%\n", name.c_str(), ms / 5, 100 * ms / sum);
  }
  if (json.empty()) return 0;
  const nlohmann::ordered_json figures = {{"sgemm_gflops", median(rates)},
                                          {"step_ms", median(times)},
                                          {"model_flops_over_sgemm", median(ratios)},
                                          {"without_update", median(ratios_step)},
                                          {"policy", s.policy},
                                          {"time_over_retain", median(costs)},
                                          {"retain_arena_bytes", retain.step().arena_bytes()},
                                          {"policy_arena_bytes", other.step().arena_bytes()}};
  std::FILE* file = std::fopen(json.c_str(), "w");
  if (file == nullptr) {
    std::fprintf(stderr, "step_bench: --json %s cannot be written\n", json.c_str());
    return 2;
  }
  std::fprintf(file, "%s\n", figures.dump(2).c_str());
  return std::fclose(file) == 0 ? 0 : 2;
}
