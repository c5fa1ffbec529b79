// SPDX-License-Identifier: MIT
/// Whether all ranks were told the same, asked before any of them trains.
///
/// What ranks have of their own is left out: their memory (--budget, --total), threads, files, and how long they
/// wait for one another.
#pragma once

#include <adacc/model/fingerprint.hpp>
#include <adacc/ranks/collectives.hpp>

#include <cstdint>
#include <string>

#include "command_line.hpp"
#include "options.hpp"

/// Of a checkpoint: where it stands, what it says of its run, and its plan.
inline std::uint64_t hash_of(const adacc::CheckpointInfo& info) {
  adacc::detail::Mixer hash;
  for (const std::string* text :
       {&info.model, &info.optimizer, &info.plan, &info.evolution, &info.notes}) {
    hash.mix(text->size());
    for (const char c : *text) hash.mix(static_cast<unsigned char>(c));
  }
  for (const std::uint64_t number : {info.updates, info.data_position, info.key.seed, info.layout})
    hash.mix(number);
  return hash.value();
}

/// The error is that of all ranks, and names the first thing that they do not agree on.
inline adacc::Error agree(adacc::GroupRef group, const CommandLine& line,
                          const DataIdentity& text) {
  const Options& options = line.options;
  const auto given = [](bool is) { return is ? "one" : "none"; };
  adacc::Agreement agreement;
  const bool resumes = !options.resume.empty();
  agreement.add("start of the run",
                resumes ? "a checkpoint of step " + std::to_string(line.resumed.updates)
                        : std::string("no checkpoint"));
  if (resumes) agreement.add("checkpoint (a hash of what it says)", hash_of(line.resumed));
  agreement.add("option --pipeline", static_cast<std::uint64_t>(options.pipeline));
  agreement.add("model", options.model_text());
  agreement.add("option --model", given(!options.model.empty()));
  agreement.add("option --adapter", given(!options.adapter.empty()));
  agreement.add("text", std::to_string(text.tokens) + " tokens with checksum " +
                            std::to_string(text.checksum));
  agreement.add("option --forward-only", options.forward_only ? "true" : "false");
  agreement.add("option --policy", options.policy);
  agreement.add("option --shard-moments", options.shard_moments ? "true" : "false");
  agreement.add("option --shard-gradients", options.shard_gradients ? "true" : "false");
  agreement.add("option --save", given(!options.save.empty()));
  agreement.add("option --save-every", options.save_every);
  for (const RunOption& option : run_options(options)) {
    bool own = false;
    for (const char* name : {"--tokens", "--text", "--budget", "--total"})
      own = own || option.name == name;
    if (!own) agreement.add("option " + option.name, option.value);
  }
  return agreement.examine(group);
}
