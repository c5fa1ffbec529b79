// SPDX-License-Identifier: MIT
/// The scratch files of --offload and --moments-store.
#pragma once

#include <adacc/core/bytes.hpp>
#include <adacc/core/error.hpp>
#include <adacc/cost/link.hpp>
#include <adacc/io/file.hpp>
#include <adacc/optimizer/adamw.hpp>
#include <adacc/optimizer/any_optimizer.hpp>
#include <adacc/optimizer/stored_moments.hpp>
#include <adacc/store/scratch_file.hpp>
#include <adacc/train/total.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>

#include "options.hpp"

/// Outlives the training that sends to its files.
class ScratchFiles {
 public:
  /// Opens the file of --offload, and lends it to `planning`. `retain_bytes`: arena bytes of retaining everything.
  template <class PlanningOptions>
  adacc::Error open_offload(const Options& options, std::size_t retain_bytes,
                            PlanningOptions& planning) {
    if (options.offload.empty()) return {};
    planning.most_written_bytes = options.offload_limit.of(retain_bytes);
    auto file = adacc::ScratchFile::make(options.offload, planning.most_written_bytes);
    if (!file) return adacc::Error::say("--offload: ", file.error.text());
    offload_ = std::move(*file);
    planning.store = offload_;
    return {};
  }

  /// Opens the file of --moments-store, and lends it to `moments`.
  adacc::Error open_moments(const Options& options, const adacc::Graph& graph,
                            const adacc::AnyOptimizer& optimizer, adacc::MomentStore& moments) {
    if (options.moments_store.empty()) return {};
    const auto fp32 = adacc::memory_beside_arena(graph, adacc::AdamW{});
    if (!fp32) return fp32.error;
    if (!options.moments_window_text.empty())
      moments.window.bytes = std::max<std::size_t>(1, options.moments_window.of(fp32->moments));
    const auto held = adacc::memory_beside_arena(graph, optimizer, moments.window);
    if (!held) return adacc::Error::say("--moments-store: ", held.error.text());
    auto file = adacc::ScratchFile::make(options.moments_store, held->stored);
    if (!file) return adacc::Error::say("--moments-store: ", file.error.text());
    moments_ = std::move(*file);
    moments.store = moments_;
    return {};
  }

  /// How --offload works, in words; empty without it.
  std::string offload_text(const Options& options, const adacc::LinkCost& link) const {
    if (options.offload.empty()) return {};
    char text[160];
    std::snprintf(text, sizeof text, ", writes %.2f GB/s, reads %.2f GB/s", link.write_rate / 1e9,
                  link.read_rate / 1e9);
    return adacc::one_line(options.offload, 100) + " by " + offload_.engine() + text;
  }

  /// How --moments-store works, in words; empty without it.
  std::string moments_text(const Options& options, const adacc::TrainingMemoryUse& use) const {
    if (options.moments_store.empty()) return {};
    char text[160];
    std::snprintf(text, sizeof text, "; %.1f MiB in and out again a step, through %.1f MiB",
                  static_cast<double>(use.stored) / adacc::MiB,
                  static_cast<double>(use.moments) / adacc::MiB);
    return adacc::one_line(options.moments_store, 100) + " by " + moments_.engine() + text;
  }

 private:
  adacc::ScratchFile offload_, moments_;
};
