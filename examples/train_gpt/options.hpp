// SPDX-License-Identifier: MIT
/// What train_gpt can be told, and what of it a checkpoint keeps.
#pragma once

#include <adacc/core/number_text.hpp>
#include <adacc/io/budget.hpp>
#include <adacc/models/gpt.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

struct Options {
  std::string model;
  std::string adapter;  ///< file of adapters beside it
  adacc::gpt::Config network;
  bool shape_given = false;      ///< any of --layers, --heads, --channels, --context
  std::string for_auto;          ///< an option that was given and says something to auto alone
  std::string not_for_pipeline;  ///< one that a pipeline cannot do with
  std::string for_backward;      ///< one that says something to training by gradients alone
  std::string tokens, text;
  std::size_t batch = 8;
  std::size_t seq = 0;
  std::size_t micro = 1;  ///< batches, one after the other, that an update is made of
  int shards = 0;         ///< of an update, on all ranks; 0: see parallel()
  bool shard_moments = false, shard_gradients = false;
  int pipeline = 0;                   ///< stages, one for each rank; 0: none
  double rank_limit = 300;            ///< seconds that ranks wait for one
  std::string train;                  ///< patterns of the parameters that are trained; empty: all
  adacc::gpt::Lora lora{.alpha = 0};  ///< alpha 0: twice the rank
  std::uint64_t steps = 200;
  double lr = 1e-3;
  double weight_decay = 0;
  double clip = 0;
  std::string clip_by = "step";  ///< whose norm: the step's own, or that of the one before
  bool fused = false;            ///< updates in the step
  std::uint64_t warmup = 0;
  double min_lr = -1;
  std::uint64_t seed = 1;
  std::string device = "cpu";
  bool device_given = false;
  std::string precision = "fp32";  ///< of activations
  std::string attention = "own";   ///< on a device: own kernels, or cudnn
  std::string tuned;               ///< file of algorithms of products that were chosen by time
  adacc::Budget pinned;  ///< the host's memory that activations of a device may be sent to
  std::string pinned_text;
  bool capture = false;  ///< a device's steps as CUDA graphs: asked for, though it is the default
  bool no_capture = false;  ///< a device's steps kernel by kernel
  int threads = 1;
  int plan_threads = 0;
  int parts = 1;
  std::string policy = "auto";
  adacc::Budget budget;  ///< of the activations, for the policy auto
  std::string budget_text;
  adacc::Budget total;  ///< of all that training holds
  std::string total_text;
  bool may_freeze = false;  ///< if the budget cannot be met otherwise
  std::string parameters = "fp32", optimizer = "adamw", moments = "fp32";
  std::string moments_store;  ///< folder of a scratch file that has them
  adacc::Budget moments_window;
  std::string moments_window_text;
  bool forward_only = false;
  int directions = 1;
  double epsilon = 1e-3;
  double tolerance = 1e-2;
  int most_runs = 1;  ///< of an activation again in backward
  std::string solver = "auto";
  std::string offload;  ///< folder of a scratch file
  adacc::Budget offload_limit{.share = 2};
  std::string offload_limit_text;
  bool fixed_costs = false;
  std::string profile;
  std::string report;
  std::string log;
  std::string save;
  std::uint64_t save_every = 0;
  std::string export_to;     ///< a folder for the trained model in safetensors, or a C header
  bool export_int8 = false;  ///< that header's matrices, with a scale for each row
  std::string merge;         ///< for a checkpoint of the model with its adapters merged
  std::string resume;
  std::size_t sample = 0;
  std::string val;
  std::uint64_t val_every = 0;

  bool plans() const { return policy == "auto" && !forward_only; }
  /// Whether updates are made of shards: they are with several ranks, and with --shards.
  /// Threads that workspaces are planned for, and shares of what retain needs are taken of.
  int workers() const { return std::max(threads, plan_threads); }
  bool parallel() const { return shards > 0; }
  /// Batches that an update is made of, on all ranks.
  std::size_t update_batches() const {
    return micro * (parallel() ? static_cast<std::size_t>(shards) : std::size_t{1});
  }

  bool on_device() const { return device != "cpu"; }
  /// An option that is not there on a device, as it stands; null if there is none.
  const char* for_cpu() const {
    const Given all[] = {{parallel(), "--shards"},
                         {shard_moments, "--shard-moments"},
                         {shard_gradients, "--shard-gradients"},
                         {pipeline > 0, "--pipeline"},
                         {lora.rank > 0, "--lora"},
                         {forward_only, "--forward-only"},
                         {fused, "--fused"},
                         {may_freeze, "--may-freeze"},
                         {!moments_store.empty(), "--moments-store"},
                         {!offload.empty(), "--offload, to a disk,"},
                         {parts > 1, "--parts"}};
    return first_of(all);
  }

  /// Of a run that is to go on as a pipeline: what makes it one that a pipeline cannot do; null if
  /// nothing does.
  const char* for_one_stage() const {
    const Given all[] = {{shards > 1, "--shards"},
                         {!train.empty(), "--train"},
                         {lora.rank > 0, "--lora"},
                         {forward_only, "--forward-only"},
                         {fused, "--fused"},
                         {clip_by != "step", "--clip-by"},
                         {parameters != "fp32", "--parameters"}};
    return first_of(all);
  }

  /// The adapters, if there are any.
  adacc::gpt::Lora adapters() const {
    adacc::gpt::Lora found = lora;
    if (found.alpha == 0) found.alpha = 2 * static_cast<float>(found.rank);
    return found;
  }

  /// What checkpoints call the model. Which of its parameters are trained is not part of it.
  std::string model_text() const { return adacc::gpt::describe(network, adapters()); }

 private:
  struct Given {
    bool given;
    const char* option;
  };
  template <std::size_t count>
  static const char* first_of(const Given (&all)[count]) {
    for (const Given& one : all)
      if (one.given) return one.option;
    return nullptr;
  }
};

/// Whether --export names a C header, and no folder.
inline bool exports_header(const std::string& path) {
  return path.size() > 2 && path.compare(path.size() - 2, 2, ".h") == 0;
}

/// The text that a run trains on: where it was read from, and what tells it from others.
struct DataIdentity {
  std::uint64_t tokens = 0, checksum = 0;

  friend bool operator==(const DataIdentity&, const DataIdentity&) = default;
};

/// An option that makes a run what it is, as it stands on a command line.
struct RunOption {
  std::string name, value;
  std::string usual;    ///< what a checkpoint that does not name it had; empty: nothing
  bool always = false;  ///< whether checkpoints name it if it is as usual, too
};

/// All of them. Which ones there are depends on --forward-only, --policy, --pipeline and --shards alone.
inline std::vector<RunOption> run_options(const Options& options) {
  std::vector<RunOption> all;
  const auto text_of = [](auto value) {
    if constexpr (std::is_floating_point_v<decltype(value)>)
      return std::string(adacc::NumberText::shortest(value).c_str());
    else return std::to_string(value);
  };
  const auto add = [&](const char* name, const std::string& value, const char* usual = "") {
    all.push_back({name, value, usual});
  };
  const auto always = [&](const char* name, const std::string& value, const char* usual = "") {
    all.push_back({name, value, usual, true});
  };
  const auto flag = [&](const char* name, bool on) { add(name, on ? "true" : "false", "false"); };
  add("--tokens", options.tokens);
  add("--text", options.text);
  always("--batch", text_of(options.batch));
  always("--seq", text_of(options.seq));
  add("--micro", text_of(options.micro), "1");
  // A pipeline adds its micro-batches one after the other, whatever the number of its stages.
  if (options.parallel() || options.pipeline > 0)
    always("--shards", text_of(std::max(1, options.shards)));
  add("--train", options.train);
  add("--lora", text_of(options.lora.rank), "0");
  add("--lora-alpha", text_of(options.lora.alpha), "0");
  flag("--lora-fa", !options.lora.train_a);
  always("--steps", text_of(options.steps));
  always("--lr", text_of(options.lr));
  flag("--forward-only", options.forward_only);
  if (options.forward_only) {
    always("--directions", text_of(options.directions));
    always("--epsilon", text_of(options.epsilon));
    add("--parts", text_of(options.parts), "1");
  } else {
    always("--parameters", options.parameters, "fp32");
    always("--optimizer", options.optimizer, "adamw");
    always("--moments", options.moments, "fp32");
    add("--moments-store", options.moments_store);
    add("--moments-window", options.moments_window_text);
  }
  always("--weight-decay", text_of(options.weight_decay));
  always("--clip", text_of(options.clip));
  add("--clip-by", options.clip_by, "step");
  flag("--fused", options.fused);
  always("--warmup", text_of(options.warmup));
  add("--min-lr", options.min_lr < 0 ? "" : text_of(options.min_lr));
  always("--seed", text_of(options.seed));
  if (!options.forward_only) always("--policy", options.policy);
  add("--device", options.device, "cpu");
  add("--precision", options.precision, "fp32");
  add("--attention", options.attention, "own");
  add("--head-rows",
      options.network.device_tile_rows == 0 ? "" : text_of(options.network.device_tile_rows));
  if (!options.plans()) return all;
  if (options.pipeline > 0) {  // what its ranks have is no part of the run
    always("--tolerance", text_of(options.tolerance));
    add("--parts", text_of(options.parts), "1");
    return all;
  }
  add("--pinned", options.pinned_text);
  if (!options.total_text.empty()) always("--total", options.total_text);
  else always("--budget", options.budget_text.empty() ? "100%" : options.budget_text);
  always("--tolerance", text_of(options.tolerance));
  always("--solver", options.solver);
  add("--most-runs", text_of(options.most_runs), "1");
  add("--offload", options.offload);
  add("--offload-limit", options.offload_limit_text.empty() ? "200%" : options.offload_limit_text,
      "200%");
  always("--plan-threads", text_of(options.plan_threads));
  add("--parts", text_of(options.parts), "1");
  flag("--fixed-costs", options.fixed_costs);
  return all;
}

/// A checkpoint's notes: the options that make a run what it is, and its text. A resumed run takes them up
/// unless it is told otherwise.
struct Notes {
  std::vector<std::pair<std::string, std::string>> options;  ///< name and value
  DataIdentity data;

  static constexpr const char* title = "train_gpt, version 1";

  static Notes of(const Options& options, const DataIdentity& data) {
    Notes notes;
    notes.data = data;
    for (const RunOption& option : run_options(options))
      if (option.always || option.value != option.usual)
        notes.options.emplace_back(option.name, option.value);
    return notes;
  }

  std::string text() const {
    std::string lines = std::string(title) + "\ndata " + std::to_string(data.tokens) + ' ' +
                        std::to_string(data.checksum) + '\n';
    for (const auto& [name, value] : options) lines += name + ' ' + value + '\n';
    return lines;
  }

  /// Whether the run that saved `saved` had a plan that goes on under options `now`: where, in what numbers
  /// and what a step trains is the same.
  template <class Info>
  bool plans_alike(const Info& saved, const Options& now) const {
    const std::string device = value("--device"), precision = value("--precision");
    return !saved.evolution.empty() && (device.empty() ? "cpu" : device) == now.device &&
           (precision.empty() ? "fp32" : precision) == now.precision &&
           value("--batch") == std::to_string(now.batch) &&
           value("--seq") == std::to_string(now.seq) && value("--train") == now.train &&
           value("--lora-fa").empty() == now.lora.train_a;
  }

  /// Reads text(); false if it is none.
  bool parse(const std::string& text) {
    std::size_t at = 0;
    const auto line = [&] {
      const std::size_t end = text.find('\n', at);
      std::string found = text.substr(at, end - at);
      at = end == std::string::npos ? text.size() : end + 1;
      return found;
    };
    if (line() != title) return false;
    const std::string of = line();
    unsigned long long tokens = 0, checksum = 0;
    if (std::sscanf(of.c_str(), "data %llu %llu", &tokens, &checksum) != 2) return false;
    data = {tokens, checksum};
    while (at < text.size()) {
      const std::string option = line();
      const std::size_t space = option.find(' ');
      if (space == std::string::npos) return false;
      options.emplace_back(option.substr(0, space), option.substr(space + 1));
    }
    return true;
  }

  /// Gives `name` a value.
  void set(const std::string& name, const std::string& value) {
    for (auto& [option, before] : options)
      if (option == name) {
        before = value;
        return;
      }
    options.emplace_back(name, value);
  }
  /// The value of `name`; empty if it has none.
  std::string value(const std::string& name) const {
    for (const auto& [option, value] : options)
      if (option == name) return value;
    return {};
  }
};
