// SPDX-License-Identifier: MIT
/// What train_gpt can be told, and what of it a checkpoint keeps.
#pragma once

#include <adacc/io/budget.hpp>
#include <adacc/layer/gpt.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
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
  std::string precision = "fp32";  ///< of activations on a device
  adacc::Budget pinned;  ///< the host's memory that activations of a device may be sent to
  std::string pinned_text;
  bool capture = false;  ///< a device's steps as CUDA graphs
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
                         {parameters != "fp32", "--parameters other than fp32"},
                         {fused, "--fused"},
                         {may_freeze, "--may-freeze"},
                         {optimizer != "adamw", "--optimizer other than adamw"},
                         {moments != "fp32", "--moments other than fp32"},
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

/// A checkpoint's notes: the options that make a run what it is, as they stand on a command line,
/// and its text. A resumed run takes them up unless it is told otherwise.
struct Notes {
  std::vector<std::pair<std::string, std::string>> options;  ///< name and value
  DataIdentity data;

  static constexpr const char* title = "train_gpt, version 1";

  static Notes of(const Options& options, const DataIdentity& data) {
    Notes notes;
    notes.data = data;
    const auto number = [&](const char* name, auto value) {
      char digits[64];
      const auto end = std::to_chars(digits, digits + sizeof digits, value);
      notes.options.emplace_back(name, std::string(digits, end.ptr));
    };
    if (!options.tokens.empty()) notes.options.emplace_back("--tokens", options.tokens);
    if (!options.text.empty()) notes.options.emplace_back("--text", options.text);
    number("--batch", options.batch);
    number("--seq", options.seq);
    if (options.micro > 1) number("--micro", options.micro);
    // A pipeline adds its micro-batches one after the other, whatever the number of its stages.
    if (options.parallel() || options.pipeline > 0) number("--shards", std::max(1, options.shards));
    if (!options.train.empty()) notes.options.emplace_back("--train", options.train);
    if (options.lora.rank > 0) {
      number("--lora", options.lora.rank);
      if (options.lora.alpha != 0) number("--lora-alpha", options.lora.alpha);
      if (!options.lora.train_a) notes.options.emplace_back("--lora-fa", "true");
    }
    number("--steps", options.steps);
    number("--lr", options.lr);
    if (options.forward_only) {
      notes.options.emplace_back("--forward-only", "true");
      number("--directions", options.directions);
      number("--epsilon", options.epsilon);
      if (options.parts > 1) number("--parts", options.parts);
    } else {
      notes.options.emplace_back("--parameters", options.parameters);
      notes.options.emplace_back("--optimizer", options.optimizer);
      notes.options.emplace_back("--moments", options.moments);
      if (!options.moments_store.empty())
        notes.options.emplace_back("--moments-store", options.moments_store);
      if (!options.moments_window_text.empty())
        notes.options.emplace_back("--moments-window", options.moments_window_text);
    }
    number("--weight-decay", options.weight_decay);
    number("--clip", options.clip);
    if (options.clip_by != "step") notes.options.emplace_back("--clip-by", options.clip_by);
    if (options.fused) notes.options.emplace_back("--fused", "true");
    number("--warmup", options.warmup);
    if (options.min_lr >= 0) number("--min-lr", options.min_lr);
    number("--seed", options.seed);
    if (!options.forward_only) notes.options.emplace_back("--policy", options.policy);
    if (options.device != "cpu") notes.options.emplace_back("--device", options.device);
    if (options.precision != "fp32") notes.options.emplace_back("--precision", options.precision);
    if (!options.plans()) return notes;
    if (options.pipeline > 0) {  // what its ranks have is no part of the run
      number("--tolerance", options.tolerance);
      if (options.parts > 1) number("--parts", options.parts);
      return notes;
    }
    if (!options.pinned_text.empty()) notes.options.emplace_back("--pinned", options.pinned_text);
    const bool neither = options.budget_text.empty() && options.total_text.empty();
    if (neither) notes.options.emplace_back("--budget", "100%");
    else if (options.total_text.empty())
      notes.options.emplace_back("--budget", options.budget_text);
    else notes.options.emplace_back("--total", options.total_text);
    number("--tolerance", options.tolerance);
    notes.options.emplace_back("--solver", options.solver);
    if (!options.offload.empty()) notes.options.emplace_back("--offload", options.offload);
    if (!options.offload_limit_text.empty())
      notes.options.emplace_back("--offload-limit", options.offload_limit_text);
    number("--plan-threads", options.plan_threads);
    if (options.parts > 1) number("--parts", options.parts);
    if (options.fixed_costs) notes.options.emplace_back("--fixed-costs", "true");
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

  /// The value of `name`; empty if it has none.
  std::string value(const std::string& name) const {
    for (const auto& [option, value] : options)
      if (option == name) return value;
    return {};
  }
};
