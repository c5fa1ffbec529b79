// SPDX-License-Identifier: MIT
/// Options of tune that do not go with one another.
#pragma once

#include <CLI/CLI.hpp>

#include "tuner.hpp"

namespace chat_tune {

/// Refuses options that were given.
class Refusals {
 public:
  explicit Refusals(const CLI::App& app) : app_(app) {}
  void refuse(const char* name, const char* why) const {
    if (app_.get_option(name)->count() != 0) throw CLI::ValidationError(name, why);
  }

 private:
  const CLI::App& app_;
};

inline void check_full(const Refusals& given, const TuneOptions& options) {
  for (const char* const name : {"--rank", "--alpha", "--lora-fa", "--adapter"})
    given.refuse(name, "is of adapters, and --full trains all weights: give one of the two");
  if (options.model.weights != adacc::WeightForm::as_stored)
    given.refuse("--weights",
                 "encodes weights that stay as they are, and --full trains all: "
                 "--parameters bf16 holds these in half the memory");
  given.refuse("--weight-pages",
               "is of frozen weights in their file, and --full decodes all weights into memory");
  if (options.out.ends_with(".safetensors"))
    given.refuse("--out",
                 "--full writes a whole model: let the name end with .gguf, or give that of a "
                 "folder");
  if (!is_gguf(options.out))
    given.refuse("--type",
                 "is of GGUF files, and a folder has the type that --parameters says: let --out "
                 "end with .gguf");
}

inline void check_adapters(const Refusals& given, const TuneOptions& options) {
  given.refuse("--type", "is of the model that --full writes, and adapters are written in F32");
  if (options.parameters != "fp32")
    given.refuse("--parameters",
                 "bf16 is for the weights of --full: beside frozen weights in their "
                 "file adapters are in fp32");
  if (is_gguf(options.out))
    given.refuse("--out",
                 "adapters are written as .safetensors, of which `export --adapters` makes a "
                 "GGUF file; --full writes a model as .gguf");
}

inline void check_updates(const Refusals& given, const TuneOptions& options) {
  if (options.fused && options.clip > 0 && options.clip_by == "step")
    throw CLI::ValidationError(
        "--clip",
        "needs all gradients of a step before the first update, and --fused gives each "
        "up as it comes: clip by the norm of the step before, with --clip-by previous, or "
        "not at all, with --clip 0");
  if (options.fused && options.micro > 1)
    given.refuse("--micro",
                 "sums the gradients of several batches, and --fused gives each up as it comes: "
                 "give one of the two");
  if (options.clip == 0) given.refuse("--clip-by", "says how to clip, and --clip 0 does not");
}

inline void check_together(const CLI::App& app, const TuneOptions& options) {
  const Refusals given(app);
  if (options.full) check_full(given, options);
  else check_adapters(given, options);
  check_updates(given, options);
}

}  // namespace chat_tune
