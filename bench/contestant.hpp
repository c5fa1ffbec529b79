// SPDX-License-Identifier: MIT
/// A GPT's training step as a benchmark times it: a network with its memory, one fixed batch, and
/// what is to be compared with it.
#pragma once

#include <CLI/CLI.hpp>

#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/core/steady_clock.hpp>
#include <adacc/cost/measure.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/store/scratch_file.hpp>
#include <adacc/train/training.hpp>

#include <algorithm>
#include <ctime>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "throttled_store.hpp"

namespace contest {

namespace gpt = adacc::gpt;

inline double now_ms() { return 1e3 * adacc::steady_seconds(); }
/// Of the process, all its threads together: what else runs on a machine does not count.
inline double processor_ms() { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n == 0 ? 0 : (values[(n - 1) / 2] + values[n / 2]) / 2;
}

struct Setting {
  gpt::Config network{6, 6, 384, 256, 256};
  std::size_t batch = 4, seq = 256;
  int threads = 2;
  int parts = 1;                ///< that layers are cut into
  bool loops = true;            ///< over these parts, as programs have them
  bool processor_time = false;  ///< instead of time by the clock
  std::string store;            ///< folder of scratch files for what plans offload
  Throttle throttle{};          ///< or memory as slow as this, in place of a folder
};

/// The store that a setting says.
struct Away {
  adacc::ScratchFile file;
  ThrottledStore memory;
  adacc::StoreRef store;  ///< lend it once Away stays where it is

  adacc::Error make(const Setting& setting, std::size_t bytes) {
    if (setting.throttle) {
      auto made = ThrottledStore::make(bytes, setting.throttle);
      if (!made) return made.error;
      memory = std::move(*made);
      store = memory.store();
      return {};
    }
    auto made = adacc::ScratchFile::make(setting.store, bytes);
    if (!made) return made.error;
    file = std::move(*made);
    store = file;
    return {};
  }
};

/// Declares the options that say which step is timed.
inline void add_options(CLI::App& app, Setting& setting) {
  app.add_option("--layers", setting.network.layers)->check(CLI::Range(1, 4096));
  app.add_option("--heads", setting.network.heads)->check(CLI::PositiveNumber);
  app.add_option("--channels", setting.network.channels)->check(CLI::PositiveNumber);
  app.add_option("--seq", setting.seq)->check(CLI::PositiveNumber);
  app.add_option("--batch", setting.batch)->check(CLI::PositiveNumber);
  app.add_option("--threads", setting.threads)->check(CLI::Range(1, 256));
}

/// A network's step with its memory and a fixed batch.
class Contestant {
 public:
  Contestant(const Setting& setting, adacc::Plan plan, const adacc::Cpu& cpu)
      : network_(gpt::make(setting.network)), cpu_(cpu), shape_(setting.batch, setting.seq),
        now_(setting.processor_time ? processor_ms : now_ms) {
    error_ = set_up(setting, std::move(plan));
  }
  Contestant(const Contestant&) = delete;
  Contestant& operator=(const Contestant&) = delete;

  const adacc::Error& error() const { return error_; }
  const adacc::Step<>& step() const { return training_.compiled_step(); }

  /// The costs of this model's instructions, measured in this contestant's memory.
  adacc::Result<adacc::CostProfile> measure(const adacc::Graph& graph,
                                            const adacc::MeasureOptions& options) {
    auto& t = training_;
    return adacc::measure(t.context(), adacc::make_dispatch<float, adacc::Cpu>(network_), graph,
                          t.arena(), t.params(), t.gradients(), input(), target(),
                          adacc::steady_seconds, options);
  }

  /// Milliseconds of one step, the optimizer's update included; its share of them in `update_ms`.
  double run(double& update_ms) {
    const double start = now_();
    if (!training_.accumulate(input(), target())) return 0;
    const double middle = now_();
    if (!training_.update(1e-4)) return 0;
    const double end = now_();
    update_ms = end - middle;
    return end - start;
  }

  /// Adds the milliseconds of each instruction of one step to `split`, by what it does.
  void profile(std::map<std::string, double>& split) {
    adacc::Step<>& step = training_.compiled_step();
    if (step.begin(input(), target())) return;
    for (adacc::Position at; at.instruction < step.instruction_count();) {
      const adacc::Instruction& inst = step.program().schedule.instructions[at.instruction];
      const bool loss = inst.op == adacc::Op::loss_gradient;
      const std::string name = std::string(inst.again ? "again " : "") + name_of(inst.op) + " " +
                               (loss ? step.graph().loss.name : step.graph().node(inst.node).name);
      const double start = now_ms();
      at = step.execute(training_.context(), at);
      split[name] += now_ms() - start;
    }
  }

 private:
  adacc::Error set_up(const Setting& setting, adacc::Plan plan) {
    using namespace adacc;
    auto graph = make_graph(network_, shape_, {.workers = setting.threads, .parts = setting.parts});
    if (!graph) return graph.error;
    auto program = make_program(*graph, std::move(plan));
    if (!program) return program.error;
    if (!setting.loops) {
      program->schedule = make_straight_schedule(program->graph, program->plan);
      program->layout = make_layout(program->schedule);
    }
    auto dispatch = make_dispatch<float, Cpu>(network_);
    dispatch.add_codec<Int8Outlier>();
    dispatch.add_codec<Int4Outlier>();
    if (const std::size_t bytes = program->schedule.store_bytes; bytes > 0)
      if (const Error why = away_.make(setting, bytes)) return why;
    auto made = adacc::Training<>::make(std::move(dispatch), std::move(*program), cpu_, 0, {}, {},
                                        away_.store);
    if (!made) return made.error;
    training_ = std::move(*made);
    training_.clip = 1;
    const RandomKey key{.purpose = Purpose::data};
    const std::size_t tokens = shape_.elems();
    inputs_ = *Block<std::int32_t>::make(tokens, "inputs");
    targets_ = *Block<std::int32_t>::make(tokens, "targets");
    for (std::size_t i = 0; i < tokens; ++i) {
      inputs_[i] = static_cast<std::int32_t>(random_word(key, i) % setting.network.vocab);
      targets_[i] = static_cast<std::int32_t>(random_word(key, tokens + i) % setting.network.vocab);
    }
    return {};
  }
  adacc::View<const std::int32_t> input() const { return {inputs_.data(), shape_}; }
  adacc::View<const std::int32_t> target() const { return {targets_.data(), shape_}; }

  gpt::Gpt<gpt::RetainSet> network_;
  adacc::Cpu cpu_;
  adacc::Shape shape_;
  double (*now_)();
  Away away_;  // outlives the training
  adacc::Training<> training_;
  adacc::Block<std::int32_t> inputs_, targets_;
  adacc::Error error_;
};

/// The plan that the set `name` spells out for the setting's model.
inline adacc::Plan named_plan(const std::string& name, const Setting& setting) {
  return gpt::named_plan(name, setting.network, setting.batch, setting.seq);
}

}  // namespace contest
