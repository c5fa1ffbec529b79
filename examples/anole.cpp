// SPDX-License-Identifier: MIT
/// An army of small models that learns on the device, after "Anole: Adapting Diverse Compressed Models
/// For Cross-Scene Prediction On Mobile Devices" (2024), of which only the abstract was at hand.
///
/// Offline, clips of a camera below a drone are sorted into groups of scenes by what they look like and
/// a few hints; each group gets a compact model, a selector learns to tell the groups apart, and one
/// large network with as many parameters learns everything. Online, pictures stream by and scenes
/// change. The selector follows the scene, models come and go within a budget of bytes, the chosen one
/// answers, and its last layer goes on learning in slices.
///
///     anole --seeds 5                     vehicles from above; --digits FILE: digits painted on the ground
///     anole --save army.safetensors      and --load, for another stream
///
/// Exit status: 0 done; 1 something failed on the way; 2 bad input, in words.
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <adacc/io/file.hpp>
#include <support/command_line.hpp>

#include <cinttypes>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "anole/army_file.hpp"
#include "anole/offline.hpp"
#include "anole/picture.hpp"
#include "anole/stream.hpp"

namespace {

using adacc::Error;

struct Options {
  anole::OfflineWays offline;
  anole::StreamWays online;
  std::size_t seeds = 1, visited = 12, visit = 80;
  std::uint64_t seed = 1;
  double cue = 0.1;
  adacc::Budget bytes{.share = 0.7};
  std::string digits, save, load, picture;
  bool times = true;
};

int fail(const Error& why, int status) {
  std::fprintf(stderr, "anole: %s\n", why.text());
  return status;
}

/// Numbers of several seeds.
class Series {
 public:
  void add(double value) { values_.push_back(value); }
  double mean() const {
    double sum = 0;
    for (const double value : values_) sum += value;
    return sum / static_cast<double>(values_.size());
  }
  /// Of the mean.
  double standard_error() const {
    if (values_.size() < 2) return 0;
    double square = 0;
    for (const double value : values_) square += (value - mean()) * (value - mean());
    const auto n = static_cast<double>(values_.size());
    return std::sqrt(square / (n - 1) / n);
  }
  std::string text(const char* format) const {
    return draw::print(format, mean()) +
           (values_.size() < 2 ? "" : " ± " + draw::print(format, standard_error()));
  }

 private:
  std::vector<double> values_;
};

/// What all seeds came to.
struct Totals {
  struct Row {
    Series known, unseen, all;
  };
  std::array<Row, anole::systems> rows;
  Series gain, gain_unseen, gain_learning, time, mean_time, bytes, multiply_adds;
  long heap_calls = 0;

  void add(const anole::StreamResult& result, double operations) {
    for (std::size_t s = 0; s < anole::systems; ++s) {
      rows[s].known.add(100 * result.counts[s].known());
      rows[s].unseen.add(100 * result.counts[s].unseen());
      rows[s].all.add(100 * result.counts[s].all());
    }
    const anole::Count &army = result.counts[anole::army_learning],
                       &large = result.counts[anole::large_frozen];
    gain.add(100 * (army.all() - large.all()));
    gain_unseen.add(100 * (army.unseen() - large.unseen()));
    gain_learning.add(100 * (army.all() - result.counts[anole::large_learning].all()));
    time.add(result.army_seconds / result.large_seconds);
    mean_time.add(result.army_mean / result.large_mean);
    bytes.add(static_cast<double>(result.army_bytes) / static_cast<double>(result.large_bytes));
    multiply_adds.add(operations);
    heap_calls = std::max(heap_calls, result.heap_calls);
  }
};

void print_army(const anole::Army& army) {
  const anole::Sizes &compact = army.compacts[0].sizes, &large = army.large.sizes;
  const anole::Sizes& selector = army.selector.sizes;
  std::printf("army        %zu compact models of %zu parameters and a selector of %zu: %zu\n",
              army.compacts.size(), compact.parameters(), selector.parameters(), army.parameters());
  std::printf("large       %zu parameters\n", large.parameters());
  std::printf(
      "an answer   %zu multiply-adds of a compact model and %zu of the selector; large %zu\n",
      compact.multiply_adds(), selector.multiply_adds(), large.multiply_adds());
}

void print_offline(const anole::OfflineReport& report, double agreement_share) {
  std::printf(
      "scenes      %zu clips, %zu frames; %zu clips have hints; %zu groups, %.1f %% of pairs "
      "as hints would have them\n",
      report.clips, report.frames, report.hinted, report.groups, agreement_share);
  std::printf(
      "training    activations %zu bytes of %zu (large), %zu of %zu (compact); large: rate %g, "
      "%.1f %% right of frames held out\n",
      report.large.peak_bytes, report.large.retain_bytes, report.compact.peak_bytes,
      report.compact.retain_bytes, report.large_rate, 100 * report.large_held_out);
}

void print_stream(const anole::StreamResult& result, const Options& options) {
  std::printf("stream      %zu pictures, %zu scenes; army %.1f %% right, large %.1f %%\n",
              result.right[0].size(), result.visits.size(),
              100 * result.counts[anole::army_learning].all(),
              100 * result.counts[anole::large_frozen].all());
  std::printf(
      "            %zu models fit; %zu switches, %zu loads, %zu evictions; %zu updates of heads, "
      "%zu steps given up\n",
      result.slots, result.use.switches, result.use.loads, result.use.evictions, result.updates,
      result.abandoned);
  std::printf("            resident %zu bytes of a budget of %zu; large %zu\n", result.army_bytes,
              result.budget_bytes, result.large_bytes);
  if (anole::counts_heap_calls)
    std::printf("            calls of the heap while the army was at work: %ld\n",
                result.heap_calls);
  std::printf("            answers %016" PRIx64 "\n", result.fingerprint);
  if (options.times)
    std::printf(
        "            an answer takes %.1f us (mean %.1f), large %.1f (%.1f); longest slice %.1f\n",
        1e6 * result.army_seconds, 1e6 * result.army_mean, 1e6 * result.large_seconds,
        1e6 * result.large_mean, 1e6 * result.longest_slice);
}

void print_totals(const Totals& totals, const Options& options) {
  std::printf("\n%-22s %16s %16s %16s\n", "right answers, %", "known scenes", "unseen scenes",
              "all");
  // A plus-minus sign has two bytes and one place.
  const int wide = options.seeds > 1 ? 17 : 16;
  for (std::size_t s = 0; s < anole::systems; ++s)
    std::printf("%-22s %*s %*s %*s\n", anole::system_names[s], wide,
                totals.rows[s].known.text("%.1f").c_str(), wide,
                totals.rows[s].unseen.text("%.1f").c_str(), wide,
                totals.rows[s].all.text("%.1f").c_str());
  std::printf("\nthe army that learns, beside the large network:\n");
  std::printf(
      "  right answers   %s points more; in unseen scenes %s; %s if the large one learns, too\n",
      totals.gain.text("%.1f").c_str(), totals.gain_unseen.text("%.1f").c_str(),
      totals.gain_learning.text("%.1f").c_str());
  std::printf("  multiply-adds   %s of its\n", totals.multiply_adds.text("%.3f").c_str());
  std::printf("  bytes           %s of its\n", totals.bytes.text("%.3f").c_str());
  if (options.times)
    std::printf("  time            %s of its (medians), %s (means, with loads)\n",
                totals.time.text("%.3f").c_str(), totals.mean_time.text("%.3f").c_str());
}

/// The sizes that an army of these options has, for a file to be read into.
anole::Army empty_army(const Options& options, const anole::World& world) {
  anole::Army army;
  const anole::Sizes compact = anole::compact_sizes(options.offline, world);
  army.compacts.assign(options.offline.models, {compact, {}});
  army.selector.sizes = anole::selector_sizes(options.offline, options.offline.models);
  army.large.sizes = compact.widened_to(army.parameters());
  return army;
}

int run(const Options& options) {
  for (const std::string* path : {&options.save, &options.picture})
    if (!path->empty())
      if (const auto file = adacc::AtomicFile::create(*path); !file) return fail(file.error, 2);
  std::optional<anole::Digits> digits;
  if (!options.digits.empty()) {
    auto read = anole::Digits::read(options.digits);
    if (!read) return fail(read.error, 2);
    digits = std::move(*read);
  }

  Totals totals;
  for (std::uint64_t seed = options.seed; seed < options.seed + options.seeds; ++seed) {
    const anole::World world(seed, static_cast<float>(options.cue), digits);
    const anole::SceneSplit split(seed, options.offline.known_scenes,
                                  options.offline.unseen_scenes);
    anole::Army army = empty_army(options, world);
    // Before anything is trained: whether the budget holds a model depends on sizes alone.
    if (const Error why = anole::check_budget(army, options.online, options.bytes))
      return fail(why, 2);
    const bool shown = isatty(STDERR_FILENO) != 0;
    const auto say = [&](const char* text) {
      if (shown) std::fprintf(stderr, "\r\033[Kseed %" PRIu64 ": %s", seed, text);
    };
    if (options.seeds > 1) std::printf("seed %" PRIu64 "\n", seed);
    if (options.load.empty()) {
      anole::OfflineReport report;
      auto trained = anole::train_army(world, split, options.offline, report, say);
      if (shown) std::fprintf(stderr, "\r\033[K");
      if (!trained) return fail(trained.error, 2);
      army = std::move(*trained);
      print_army(army);
      print_offline(report, 100 * report.agreement);
    } else {
      if (const Error why = anole::load_army(options.load, army)) return fail(why, 2);
      print_army(army);
    }
    if (!options.save.empty())
      if (const Error why = anole::save_army(options.save, army)) return fail(why, 1);

    anole::StreamWays ways = options.online;
    ways.seed = seed;
    const auto visits = anole::plan_visits(split, options.visited, options.visit, seed);
    say("the stream");
    const auto result = anole::run_stream(world, visits, army, ways, options.bytes);
    if (shown) std::fprintf(stderr, "\r\033[K");
    if (!result) return fail(result.error, 1);
    print_stream(*result, options);
    std::fflush(stdout);
    const auto of_army =
        army.compacts[0].sizes.multiply_adds() + army.selector.sizes.multiply_adds();
    totals.add(*result, static_cast<double>(of_army) /
                            static_cast<double>(army.large.sizes.multiply_adds()));
    if (!options.picture.empty() && seed == options.seed)
      if (const Error why = adacc::write_file(options.picture, anole::picture(*result)))
        return fail(why, 1);
  }
  print_totals(totals, options);
  if (totals.heap_calls > 0)
    return fail(Error::say("the army took memory from the heap online"), 1);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("An army of small models that learns on the device, beside one large network.",
               "anole");
  app.option_defaults()->always_capture_default();
  const CLI::Range count(1, 1 << 16);
  auto& offline = options.offline;
  auto& online = options.online;
  app.add_option(
      "--digits", options.digits,
      "scikit-learn's digits.csv (examples/anole/digits.sh): digits painted on the ground, "
      "instead of vehicles");
  app.add_option("--seeds", options.seeds, "so many runs, each with scenes and networks of its own")
      ->check(CLI::Range(1, 1000));
  app.add_option("--seed", options.seed, "of the first of them")->check(support::whole_number());
  app.add_option("--cue", options.cue,
                 "how plainly the ground's relief and texture show, 1: plainly")
      ->check(support::between(0, 3));
  app.add_option("--models", offline.models, "compact models, for as many groups of scenes")
      ->check(CLI::Range(1, 16));
  app.add_option("--known", offline.known_scenes, "kinds of scenes that are filmed to learn from")
      ->check(CLI::Range(1, 200));
  app.add_option("--unseen", offline.unseen_scenes, "others, which only the stream has")
      ->check(CLI::Range(0, 16));
  app.add_option("--clips", offline.clips, "clips of each scene")->check(CLI::Range(1, 1000));
  app.add_option("--frames", offline.frames, "frames of each clip")->check(CLI::Range(1, 1000));
  app.add_option("--hints", offline.hints, "clips with a hint for each value of the attribute")
      ->check(CLI::Range(1, 1000));
  app.add_option("--shared-epochs", offline.shared_epochs, "on all frames, before models part")
      ->check(support::between(0.01, 1000));
  app.add_option("--own-epochs", offline.own_epochs, "of each compact model on its group")
      ->check(support::between(0.01, 1000));
  app.add_option("--selector-epochs", offline.selector_epochs, "of the selector")
      ->check(support::between(0.01, 1000));
  app.add_option("--rate", offline.rate, "learning rate of the models' beginning and the selector")
      ->check(support::between(0, 1));
  app.add_option("--own-rate", offline.own_rate, "learning rate of each compact model on its group")
      ->check(support::between(0, 1));
  app.add_option("--large-rates", offline.large_rates,
                 "learning rates of the large network, of which the best by held-out frames counts")
      ->check(support::between(0, 1))
      ->delimiter(',');
  support::add_budget(app, offline.budget, "most that activations of a training step may take",
                      "85%");
  support::add_bytes(app, "--bytes", options.bytes,
                     "most that the army takes on the device, or a share of the large network",
                     "70%");
  app.add_option("--visited", options.visited, "known scenes that the stream visits, twice each")
      ->check(CLI::Range(0, 200));
  app.add_option("--visit", options.visit, "pictures of a visit, give or take a third")
      ->check(CLI::Range(3, 100000));
  app.add_option("--told", online.told_every, "of so many pictures the class of one becomes known")
      ->check(count);
  app.add_option("--slice", online.slice, "parts of a learning step behind every picture")
      ->check(count);
  app.add_option("--head-rate", online.rate, "learning rate on the device")
      ->check(support::between(0, 10));
  app.add_option("--save", options.save, "write the army to this file (of the last seed)");
  app.add_option("--load", options.load, "use the army in this file, and train nothing offline");
  app.add_option("--picture", options.picture,
                 "draw accuracy along the first stream into this SVG");
  app.add_flag("!--no-times", options.times, "print no times, so that equal runs print the same");
  if (const auto status = support::parse(app, argc, argv)) return *status;
  if (offline.unseen_scenes + std::min(options.visited, offline.known_scenes) == 0)
    return fail(Error::say("--visited 0 and --unseen 0: the stream has no scenes"), 2);
  return run(options);
}
