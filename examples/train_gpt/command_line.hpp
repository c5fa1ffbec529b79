/// The command line of train_gpt.
#pragma once

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "../budget_option.hpp"
#include "options.hpp"

/// Declares every option on `app`, reading into `options`.
inline void declare(CLI::App& app, Options& options) {
  // Bounds that no machine reaches, and below which no product of sizes overflows.
  const CLI::Range layers(1, 4096), size(1, 1 << 20), threads(1, 256);
  const CLI::Range count(std::uint64_t{0}, std::uint64_t{1} << 31);
  const CLI::Range rate(0.0, 1e6);

  app.add_option("--model", options.model,
                 "start from an llm.c checkpoint (fixes the model's shape)");
  auto& network = options.network;
  app.add_option("--layers", network.layers, "transformer blocks")->check(layers);
  app.add_option("--heads", network.heads, "attention heads; must divide the channels")
      ->check(size);
  app.add_option("--channels", network.channels, "width of the residual stream")->check(size);
  app.add_option("--context", network.context, "longest sequence the model can see")->check(size);

  auto* tokens = app.add_option("--tokens", options.tokens, "train on an llm.c token file");
  app.add_option("--text", options.text,
                 "train on the bytes of a file, or of all files in a folder "
                 "[default: the headers of the Eigen this was compiled with]")
      ->excludes(tokens);
  app.add_option("--batch", options.batch, "sequences per step")->check(size);
  app.add_option("--seq", options.seq, "tokens per sequence [default: the context]")
      ->check(size)
      ->default_str("");
  app.add_option("--steps", options.steps, "train until this many steps are done")->check(count);
  app.add_option("--lr", options.lr, "learning rate")->check(rate);
  app.add_option("--weight-decay", options.weight_decay, "AdamW's decoupled weight decay")
      ->check(rate);
  app.add_option("--clip", options.clip, "clip the gradient to this L2 norm; 0 is off")
      ->check(rate);
  app.add_option("--warmup", options.warmup, "steps of linear warm-up")->check(count);
  app.add_option("--min-lr", options.min_lr,
                 "decay to this rate along a cosine [default: constant]")
      ->check(rate)
      ->default_str("");
  app.add_option("--seed", options.seed, "seed of the parameters and of sampling");
  app.add_option("--threads", options.threads, "threads; the results do not depend on it")
      ->check(threads);

  std::vector<std::string> policies{"auto"};
  policies.insert(policies.end(), std::begin(gpt::set_names), std::end(gpt::set_names));
  app.add_option(
         "--policy", options.policy,
         "what becomes of activations: auto (measured, planned within --budget, and planned again "
         "as training goes on); retain; recompute (all inside a block); int8 or int4 "
         "(compress all with one codec); tolerated (compress each as far as the layers "
         "that read it tolerate); mixed (recompute norms and GELU, compress GELU's input "
         "and attention's output) [default: auto, or the checkpoint's plan]")
      ->check(CLI::IsMember(policies));
  add_budget(app, options.budget,
             "for auto: the most that activations, gradients and workspaces may take, as 96MiB (or "
             "B, KiB, GiB) or as 50% of what retain needs",
             "100%");
  app.add_option("--tolerance", options.tolerance,
                 "for auto: the largest relative squared error of the gradient")
      ->check(CLI::Range(0.0, 1e3));
  app.add_option("--profile", options.profile,
                 "for auto: read the costs of layers and codecs from this file, or, where it is "
                 "missing or not of this machine and model, measure and write it, probed gradient "
                 "errors included");

  app.add_option("--log", options.log, "write one JSON object a step to this file");
  app.add_option("--report", options.report,
                 "write a page about the run here (HTML): plan, memory, losses, changes, "
                 "predicted and measured");
  auto* save = app.add_option("--save", options.save, "write a checkpoint here when training ends");
  app.add_option("--save-every", options.save_every, "... and every so many steps")
      ->needs(save)
      ->check(count);
  app.add_option("--resume", options.resume, "go on from a checkpoint, bit for bit");
  app.add_option("--sample", options.sample, "generate this many bytes at the end")
      ->check(CLI::Range(std::size_t{0}, std::size_t{1} << 24));
  auto* val = app.add_option("--val", options.val,
                             "measure the loss on this llm.c token file or text as well");
  app.add_option("--val-every", options.val_every,
                 "... every so many steps, beside the end [default: at the end only]")
      ->needs(val)
      ->check(count);
}

/// Parses the command line. True to go on; false to exit with `status`.
inline bool parse(int argc, char** argv, Options& options, int& status) {
  CLI::App app(
      "Trains a GPT-2 on text, with a policy for every activation and a memory peak that "
      "is known before it runs.",
      "train_gpt");
  app.option_defaults()->always_capture_default()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);
  options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  declare(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    status = app.exit(help);
    return false;
  } catch (const CLI::ParseError& wrong) {
    std::fprintf(stderr, "train_gpt: %s (--help lists the options)\n", wrong.what());
    status = 2;
    return false;
  }
  for (const char* name : {"--layers", "--heads", "--channels", "--context"})
    options.shape_given = options.shape_given || app.count(name) > 0;
  return true;
}
