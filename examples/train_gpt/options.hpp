/// What train_gpt can be told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "../budget.hpp"
#include "../gpt.hpp"

struct Options {
  std::string model;
  gpt::Config network;
  bool shape_given = false;  ///< any of --layers, --heads, --channels, --context
  std::string tokens, text;
  std::size_t batch = 8;
  std::size_t seq = 0;
  std::uint64_t steps = 200;
  double lr = 1e-3;
  double weight_decay = 0;
  double clip = 0;
  std::uint64_t warmup = 0;
  double min_lr = -1;
  std::uint64_t seed = 1;
  int threads = 1;
  std::string policy;  ///< empty: auto, or what the checkpoint says
  Budget budget;       ///< of the activations, for the policy auto
  double tolerance = 1e-2;
  std::string profile;
  std::string report;
  std::string log;
  std::string save;
  std::uint64_t save_every = 0;
  std::string resume;
  std::size_t sample = 0;
  std::string val;
  std::uint64_t val_every = 0;
};
