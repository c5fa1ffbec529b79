/// The costs that auto plans with: read from --profile, or measured before training starts.
#pragma once

#include <adacc/io/profile_text.hpp>

#include <string>
#include <utility>

#include <unistd.h>

#include "../measured_costs.hpp"
#include "options.hpp"

inline adacc::ProfileSource profile_source(const Options& options) {
  return {adacc::machine_name(), gpt::describe(options.network), options.threads};
}

/// The costs in --profile, where they are of this machine and model; otherwise what is measured,
/// which is then written there.
template <class X, class Y>
adacc::Result<gpt::Costs> train_gpt_costs(const Options& options, const adacc::Graph& graph,
                                          const adacc::Dispatch<float, adacc::Cpu>& dispatch,
                                          const adacc::Cpu& cpu, std::size_t arena_bytes,
                                          adacc::View<X> input, adacc::View<Y> targets,
                                          double (*now)()) {
  using namespace adacc;
  const ProfileSource source = profile_source(options);
  std::string refused;
  if (!options.profile.empty()) {
    auto loaded = load_profile(options.profile, graph, source);
    if (loaded) return gpt::Costs{std::move(*loaded), "read from " + one_line(options.profile)};
    refused = loaded.error.text();
  }
  // Where they are kept, errors are probed at once.
  const auto errors = options.profile.empty() ? gpt::Errors::assumed : gpt::Errors::probed;
  auto costs = gpt::measured_costs(graph, dispatch, cpu, arena_bytes, input, targets, now, errors);
  if (!costs || options.profile.empty() || !costs->measured) return costs;
  if (::access(options.profile.c_str(), F_OK) == 0) costs->source += "; " + refused;
  if (Error why = save_profile(options.profile, graph, costs->profile, source)) return why;
  costs->source += "; written to " + one_line(options.profile);
  return costs;
}
