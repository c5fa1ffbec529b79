// SPDX-License-Identifier: MIT
/// The command line of train_gpt.
#pragma once

#include <CLI/CLI.hpp>

#include <adacc/io/checkpoint.hpp>
#include <adacc/io/file.hpp>
#include <adacc/io/weights/adapters.hpp>
#include <support/command_line.hpp>
#include <support/optimizer.hpp>
#include <support/solver.hpp>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "options.hpp"

/// Declares every option on `app`, reading into `options`.
inline void declare(CLI::App& app, Options& options) {
  // Bounds that no machine reaches, and below which no product of sizes overflows.
  const CLI::Range layers(1, 4096), size(1, 1 << 20), threads(1, 256);
  const CLI::Range count(std::uint64_t{0}, std::uint64_t{1} << 31);
  const CLI::Validator rate = support::between(0, 1e6);

  auto* model =
      app.add_option("--model", options.model,
                     "start from the parameters of a checkpoint (--save, --merge), of an llm.c "
                     "checkpoint, or of a GPT-2 of Hugging Face: a folder with config.json and "
                     "model.safetensors (fixes the model's shape)");
  auto& network = options.network;
  app.add_option("--layers", network.layers, "transformer blocks")->check(layers);
  app.add_option("--heads", network.heads, "attention heads; must divide the channels")
      ->check(size);
  app.add_option("--channels", network.channels, "width of the residual stream")->check(size);
  app.add_option("--context", network.context, "longest sequence the model can see")->check(size);
  app.add_flag("--untied-head{false}", network.tied_head,
               "give the head a table of its own, as --pipeline does");

  auto* tokens = app.add_option("--tokens", options.tokens, "train on an llm.c token file");
  app.add_option("--text", options.text,
                 "train on the bytes of a file, or of all files in a folder "
                 "[default: the headers of the Eigen this was compiled with]")
      ->excludes(tokens);
  app.add_option("--batch", options.batch, "sequences per step")->check(size);
  app.add_option("--seq", options.seq, "tokens per sequence [default: the context]")
      ->check(size)
      ->default_str("");
  app.add_option("--micro", options.micro,
                 "batches that an update is made of: their gradients are summed, one after the "
                 "other, in the memory of one")
      ->check(CLI::Range(1, 1 << 16));
  app.add_option(
         "--shards", options.shards,
         "cut what an update is made of into so many shards of --micro batches, which ranks "
         "(mpirun -np N train_gpt ...) take in equal numbers: the bits of a run depend on "
         "the shards, and not on the number of ranks [default: one for each rank; without "
         "a launcher, no shards]")
      ->check(CLI::Range(1, 1 << 16))
      ->default_str("");
  app.add_flag("--shard-moments", options.shard_moments,
               "with several ranks: each keeps the optimizer's moments of its own share of the "
               "parameters alone, and updates them");
  app.add_flag(
      "--shard-gradients", options.shard_gradients,
      "and their gradients, which then take the memory of one layer beside: ranks are as many "
      "as --shards, or 1, 2, 4 or another power of 2, and shards are single batches");
  app.add_option(
         "--pipeline", options.pipeline,
         "cut the network, whose head is then a table of its own, into so many stages, one for "
         "each rank, and train them on --micro batches an update; --total is then what each "
         "rank has. The number of stages changes no bit of the losses under lossless plans "
         "(--tolerance 0)")
      ->check(CLI::Range(1, 1 << 12))
      ->default_str("");
  app.add_option("--rank-limit", options.rank_limit,
                 "with several ranks: seconds after which one that is not heard of is given up")
      ->check(support::between(0.001, 1e6));
  auto* train = app.add_option(
      "--train", options.train,
      "train these parameters alone: names with commas between them, such as 'block.5,head' or "
      "'*.bias,*layer_norm*'; the others are frozen, and take no gradients and no moments");
  app.add_option("--lora", options.lora.rank,
                 "freeze the model, and train adapters of this rank beside its linear layers; "
                 "--save then also writes them alone, to FILE.lora.safetensors")
      ->check(CLI::Range(1, 1 << 20))
      ->excludes(train)
      ->default_str("");
  app.add_option("--lora-alpha", options.lora.alpha,
                 "adapters are scaled by alpha / rank [default: twice the rank]")
      ->check(support::between(1e-6, 1e6))
      ->default_str("");
  app.add_flag(
      "--lora-fa{false}", options.lora.train_a,
      "keep the first matrix of each adapter as it was drawn (LoRA-FA): then the inputs of "
      "linear layers need not be kept");
  app.add_option("--adapter", options.adapter,
                 "start from these adapters (FILE.lora.safetensors) beside --model: --lora and "
                 "--lora-alpha are then as the file says")
      ->needs(model)
      ->excludes(train);
  app.add_option("--steps", options.steps, "train until this many steps are done")->check(count);
  app.add_option("--lr", options.lr, "learning rate")->check(rate);
  app.add_option("--weight-decay", options.weight_decay, "decoupled weight decay")->check(rate);
  support::add_optimizer(
      app, options.optimizer, options.moments,
      "adamw; sgd, with momentum; lion, whose rates are 3 to 10 times smaller; adafactor, "
      "whose second moment is a row and a column of each matrix",
      "how the optimizer keeps its moments: fp32; bf16, rounded stochastically; int8, in "
      "blocks of 8 bits. A resumed run may change it");
  support::add_parameters(
      app, options.parameters,
      "how parameters are held: fp32; bf16, in half the memory, decoded for each layer and rounded "
      "stochastically by each update. A resumed run may change it");
  app.add_option(
      "--moments-store", options.moments_store,
      "keep the moments in a scratch file in this folder, on a disk: they are read ahead "
      "of each update and written behind it, through a window of memory. The same bits, "
      "and all of the moments written by every step: flash wears out");
  support::add_bytes(
      app, "--moments-window", options.moments_window,
      "... of so many bytes, as 32MiB or as 5% of what moments in fp32 take [default: a "
      "sixteenth of the moments, at most 32MiB]",
      "", &options.moments_window_text);
  auto* forward_only = app.add_flag(
      "--forward-only{true}", options.forward_only,
      "train by comparing losses on either side along random directions, without backward: "
      "what is held is the parameters and the memory of an evaluation. Much slower; a good --lr is "
      "smaller, the more so the more parameters are trained [default then: 1e-6]");
  app.add_option("--directions", options.directions,
                 "... of each update; each takes two forward passes")
      ->needs(forward_only)
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--epsilon", options.epsilon, "... and how far parameters are moved")
      ->needs(forward_only)
      ->check(support::between(1e-12, 1e6));
  app.add_option("--clip", options.clip, "clip the gradient to this L2 norm; 0 is off")
      ->check(rate);
  app.add_option("--clip-by", options.clip_by,
                 "clip by the norm of this step's gradient, or by that of the previous one")
      ->check(CLI::IsMember({"step", "previous"}));
  app.add_flag("--fused", options.fused,
               "update each layer as soon as its gradient is complete, which then is a buffer of "
               "the step: gradients take what the largest layer's do, instead of a block as "
               "large as the parameters");
  app.add_option("--warmup", options.warmup, "steps of linear warm-up")->check(count);
  app.add_option("--min-lr", options.min_lr,
                 "decay to this rate along a cosine [default: constant]")
      ->check(rate)
      ->default_str("");
  app.add_option("--seed", options.seed, "seed of the parameters and of sampling")
      ->check(support::whole_number());
  app.add_option("--device", options.device,
                 "where to train: cpu; cuda, in a program that was built with it")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option(
         "--precision", options.precision,
         "how activations and their gradients are held: fp32; bf16, in half the memory, summed in "
         "fp32, as parameters, their gradients and moments remain. A resumed run may change it")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option(
         "--attention", options.attention,
         "for --device cuda and --precision bf16: own, by kernels of this library; cudnn, in a "
         "program that was built with it")
      ->check(CLI::IsMember({"own", "cudnn"}));
  app.add_option(
         "--head-rows", network.device_tile_rows,
         "for --device cuda: rows that the head computes at a time. More are faster and take "
         "more memory, and last digits depend on them [default: 256, 512, 1024 or 2048, as "
         "is best within --budget or --total, by estimates that are the same everywhere; a "
         "resumed run keeps them]")
      ->check(size)
      ->default_str("");
  app.add_option("--tune-products", options.tuned,
                 "for --device cuda: each product takes the fastest algorithm of cuBLASLt, timed "
                 "when the product is "
                 "seen first, and kept in this file: runs with the same file have the same bits");
  app.add_flag(
      "--capture", options.capture,
      "for --device cuda: a step is captured as a CUDA graph once it has run under its plan, and "
      "launched as a whole from then on, with the same results; this is the default");
  app.add_flag("--no-capture", options.no_capture,
               "for --device cuda: each step is queued kernel by kernel")
      ->excludes("--capture");
  app.add_option("--threads", options.threads,
                 "threads; for one plan the results do not depend on it, but the plan that auto "
                 "makes does: times and workspaces are those of as many threads (--plan-threads)")
      ->check(threads);

  std::vector<std::string> policies{"auto"};
  policies.insert(policies.end(), std::begin(adacc::gpt::set_names),
                  std::end(adacc::gpt::set_names));
  app.add_option(
         "--policy", options.policy,
         "what becomes of activations: auto (measured, planned within --budget, and planned again "
         "as training goes on); retain; recompute (all inside a block); int8 or int4 "
         "(compress all with one codec); tolerated (compress each as far as the layers "
         "that read it tolerate); mixed (recompute norms and GELU, compress GELU's input "
         "and attention's output)")
      ->check(CLI::IsMember(policies));
  support::add_budget(
      app, options.budget,
      "for auto: the most that activations, gradients and workspaces may take, as 96MiB (or "
      "B, KiB, GiB) or as 50% of what retain needs",
      "100%", &options.budget_text);
  support::add_bytes(
      app, "--total", options.total,
      "for auto, instead of --budget: the most that all of training may take, parameters, their "
      "gradients and the optimizer's moments included, as 120MiB or as 40% of what retain with "
      "AdamW "
      "in fp32 needs",
      "", &options.total_text);
  app.add_flag(
         "--may-freeze{true}", options.may_freeze,
         "for auto: if --budget or --total cannot be met otherwise, freeze layers, those with the "
         "least share of the gradient's squared norm, as measured on a few batches; --train of a "
         "resumed run then names the others")
      ->excludes(train);
  app.add_option("--tolerance", options.tolerance,
                 "for auto: the largest relative squared error of the gradient")
      ->check(support::between(0, 1e3));
  app.add_option("--most-runs", options.most_runs,
                 "for auto: how often an activation may be recomputed in a step if no other plan "
                 "fits: less memory, more time")
      ->check(CLI::Range(1, adacc::most_runs));
  app.add_option(
         "--solver", options.solver,
         "for auto: where prices of bytes and error come from; auto is the search and, where "
         "that leaves a gap, also lp_solve's bound")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(support::solver_names),
                                                     std::end(support::solver_names))));
  auto* offload = app.add_option(
      "--offload", options.offload,
      "for auto: activations may also be sent to a scratch file in this folder, on a disk, and "
      "come "
      "back: nothing is lost, and with --tolerance 0 nothing is compressed with loss either");
  support::add_bytes(
      app, "--offload-limit", options.offload_limit,
      "... but no more than so many bytes a step, as 200MiB or as 50% of what retain "
      "needs: flash wears out",
      "200%", &options.offload_limit_text)
      ->needs(offload);
  support::add_bytes(app, "--pinned", options.pinned,
                     "for auto and --device cuda: activations may also be sent to so much "
                     "page-locked memory of the "
                     "host, as 8GiB or as 100% of what retain needs, and come back as they were",
                     "", &options.pinned_text);
  app.add_option("--plan-threads", options.plan_threads,
                 "for auto: plan for workspaces of this many threads, if that is more than "
                 "--threads, and for shares of what retain needs with as many; with --profile, "
                 "too, the plan then does not depend on --threads: the file's times may be of "
                 "any number. On a device no plan does")
      ->check(CLI::Range(0, 256));
  app.add_option(
         "--parts", options.parts,
         "for auto and --forward-only: cut layers into so many parts and run them in loops over "
         "rows, which "
         "takes less memory and a few per cent of time; best as many as sequences, if these "
         "have about 256 tokens")
      ->check(CLI::Range(1, 1 << 16));
  app.add_flag("--fixed-costs", options.fixed_costs,
               "for auto: never measure times anew, so that runs with the same --profile, and "
               "resumed ones, give the same bits however fast the machine is; with --pipeline: "
               "plan by estimated costs, to the same end");
  app.add_option("--profile", options.profile,
                 "for auto: read the costs of layers and codecs from this file, or, where it is "
                 "missing or not of this machine and model, measure and write it, probed gradient "
                 "errors included");

  app.add_option("--log", options.log, "write one JSON object a step to this file");
  app.add_option("--report", options.report,
                 "write a page about the run here (HTML): plan, memory, losses, changes, "
                 "predicted and measured");
  auto* save = app.add_option("--save", options.save,
                              "write a checkpoint here when training ends, or is interrupted");
  app.add_option("--export", options.export_to,
                 "at the end, write config.json and model.safetensors into this folder, as Hugging "
                 "Face has a GPT-2; or if this ends with .h, the weights as a C header")
      ->check([](const std::string& path) {
        return exports_header(path) ? std::string() : CLI::ExistingDirectory(path);
      });
  app.add_flag("--export-int8", options.export_int8,
               "write the matrices of that header in int8, with a scale for each row")
      ->needs("--export");
  app.add_option("--merge", options.merge,
                 "at the end, write a checkpoint of the model with its adapters merged into its "
                 "weights, for --model; --export merges them, too");
  app.add_option("--save-every", options.save_every, "... and every so many steps")
      ->needs(save)
      ->check(count);
  app.add_option("--resume", options.resume,
                 "go on from a checkpoint, bit for bit, with the options that it was made with; "
                 "others that are given hold, and are announced");
  app.add_option("--sample", options.sample, "generate this many bytes at the end")
      ->check(CLI::Range(std::size_t{0}, std::size_t{1} << 24));
  auto* val = app.add_option("--val", options.val,
                             "measure the loss on this llm.c token file or text as well");
  app.add_option("--val-every", options.val_every,
                 "... every so many steps, beside the end [default: at the end only]")
      ->needs(val)
      ->check(count);
}

/// What the command line, and the checkpoint that it resumes, come to.
struct CommandLine {
  int argc = 0;
  char** argv = nullptr;
  Options options;
  adacc::CheckpointInfo resumed;
  Notes notes;                       ///< the checkpoint's
  std::vector<std::string> frozen;   ///< what --may-freeze did, in words
  std::vector<std::string> changed;  ///< what is not as in the run that is resumed, in words
};

/// Where a resumed run goes on, and what is not as it was.
inline void print_resumed(const CommandLine& line, std::uint64_t done) {
  std::printf("resumed     %s, after step %llu\n", adacc::one_line(line.options.resume).c_str(),
              static_cast<unsigned long long>(done));
  for (const std::string& change : line.changed) std::printf("            %s\n", change.c_str());
}

/// Parses `arguments` behind those of a checkpoint; the status to exit with, if it is not to go on.
inline std::optional<int> parse(const std::vector<std::string>& stored, int argc, char** argv,
                                Options& options) {
  CLI::App app(
      "Trains a GPT-2 on text, with a policy for every activation and a memory peak that "
      "is known before it runs.",
      "train_gpt");
  app.option_defaults()->always_capture_default()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);
  options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  declare(app, options);
  std::vector<const char*> all{argv[0]};
  for (const std::string& argument : stored) all.push_back(argument.c_str());
  all.insert(all.end(), argv + 1, argv + argc);
  if (const auto status = support::parse(app, static_cast<int>(all.size()), all.data()))
    return status;
  for (const char* name : {"--layers", "--heads", "--channels", "--context", "--untied-head"})
    options.shape_given = options.shape_given || app.count(name) > 0;
  for (const char* name :
       {"--budget", "--total", "--tolerance", "--most-runs", "--solver", "--offload", "--pinned",
        "--plan-threads", "--may-freeze", "--fixed-costs", "--profile"})
    if (app.count(name) > 0) options.for_auto = name;
  options.for_backward = options.for_auto;
  for (const char* name :
       {"--model",           "--policy",        "--budget",     "--profile",
        "--offload",         "--train",         "--lora",       "--may-freeze",
        "--fused",           "--clip-by",       "--shards",     "--solver",
        "--plan-threads",    "--forward-only",  "--report",     "--export",
        "--merge",           "--sample",        "--val",        "--shard-moments",
        "--shard-gradients", "--moments-store", "--parameters", "--most-runs"})
    if (app.count(name) > 0) options.not_for_pipeline = name;
  options.device_given = app.count("--device") > 0;
  if (options.pipeline > 0) options.network.tied_head = false;
  if (app.count("--parts") > 0) options.for_auto = "--parts";
  for (const char* name : {"--policy", "--parameters", "--optimizer", "--moments",
                           "--moments-store", "--micro", "--fused", "--clip-by"})
    if (app.count(name) > 0) options.for_backward = name;
  if (options.forward_only && app.count("--lr") == 0) options.lr = 1e-6;
  return std::nullopt;
}

/// What the file of --adapter says of adapters goes into the options; what is given must agree.
inline adacc::Error adopt_adapters(Options& options) {
  if (options.adapter.empty()) return {};
  const auto shape = adacc::read_adapter_shape(options.adapter);
  if (!shape) return shape.error;
  auto& lora = options.lora;
  if ((lora.rank != 0 && lora.rank != shape->rank) ||
      (lora.alpha != 0 && lora.alpha != shape->alpha)) {
    return adacc::Error::say(adacc::one_line(options.adapter, 100).c_str(),
                             ": holds adapters of rank ", shape->rank, " and alpha ",
                             adacc::NumberText::shortest(shape->alpha),
                             "; leave out --lora and --lora-alpha");
  }
  lora.rank = shape->rank;
  lora.alpha = shape->alpha;
  return {};
}

/// The whole of it: with --resume, the checkpoint's options come first.
inline std::optional<int> parse(int argc, char** argv, CommandLine& line) {
  line.argc = argc;
  line.argv = argv;
  Options given;
  if (const auto status = parse({}, argc, argv, given)) return status;
  line.options = given;
  const auto fail = [](const adacc::Error& why) {
    std::fprintf(stderr, "train_gpt: %s\n", why.text());
    return 2;
  };
  const auto check_options = [&]() -> std::optional<int> {
    if (const adacc::Error why = adopt_adapters(line.options)) return fail(why);
    const Options& all = line.options;
    if (all.on_device() && all.for_cpu() != nullptr)
      return fail(adacc::Error::say(
          all.for_cpu(), " is for --device cpu; --device ", all.device.c_str(),
          " trains a whole GPT on one device, with any --optimizer, --moments and --parameters, "
          "activations in either --precision, under any --policy, --budget or --total, and "
          "offloads "
          "to --pinned memory"));
    if (!all.on_device() && (all.capture || all.no_capture))
      return fail(adacc::Error::say(
          "--capture and --no-capture are for steps that are queued to a device: give --device "
          "cuda"));
    if (all.attention != "own" && (!all.on_device() || all.precision != "bf16"))
      return fail(adacc::Error::say(
          "--attention ", all.attention.c_str(),
          " is for activations in bf16 on a device: give --device cuda and --precision bf16"));
    if (!all.on_device() && all.network.device_tile_rows != 0)
      return fail(
          adacc::Error::say("--head-rows is how a device's head is computed: give --device cuda"));
    if (!all.on_device() && !all.tuned.empty())
      return fail(adacc::Error::say(
          "--tune-products chooses among a device's algorithms: give --device cuda"));
    if (!all.on_device() && !all.pinned_text.empty())
      return fail(adacc::Error::say(
          "--pinned is where activations of a device go: give --device cuda, or --offload"));
    if (all.pipeline > 0 && !given.not_for_pipeline.empty())
      return fail(
          adacc::Error::say(given.not_for_pipeline.c_str(), " does not go with --pipeline yet"));
    if (all.pipeline > 0 && all.for_one_stage() != nullptr)
      return fail(adacc::Error::say(adacc::one_line(all.resume, 80).c_str(), ": is of a run with ",
                                    all.for_one_stage(),
                                    ", which does not go with --pipeline yet"));
    if (all.fused && all.clip > 0 && all.clip_by == "step")
      return fail(adacc::Error::say(
          "--clip needs all gradients of a step before the first update, and --fused gives each up "
          "as it comes: do without --fused, or clip by the norm of the step before, with "
          "--clip-by previous"));
    if (all.fused && all.micro > 1)
      return fail(
          adacc::Error::say("--micro ", all.micro,
                            " sums the gradients of several batches, and --fused gives each up as "
                            "it comes: give one of the two"));
    if (all.may_freeze && all.fused)
      return fail(
          adacc::Error::say("--may-freeze asks what fits with separate updates, and --fused "
                            "updates in the step: give "
                            "one of the two"));
    if (!all.moments_window_text.empty() && all.moments_store.empty())
      return fail(adacc::Error::say(
          "--moments-window is what moments in a store pass through: give --moments-store"));
    if (all.may_freeze && !all.moments_store.empty())
      return fail(
          adacc::Error::say("--may-freeze asks what fits with moments in memory, and "
                            "--moments-store has them in a file: give one of the two"));
    if (all.may_freeze && all.parameters != "fp32")
      return fail(
          adacc::Error::say("--may-freeze asks what fits with parameters in fp32, and "
                            "--parameters bf16 holds them in fewer bytes: give one of the two"));
    if (all.parameters != "fp32" && all.optimizer == "adafactor")
      return fail(adacc::Error::say(
          "--parameters bf16 is for --optimizer adamw, sgd and lion, which update element by "
          "element; adafactor needs all of a parameter at once"));
    if (all.may_freeze && all.lora.rank > 0)
      return fail(adacc::Error::say(
          "--may-freeze chooses among the model's layers, and with adapters these are all frozen"));
    if (all.may_freeze && all.budget_text.empty() && all.total_text.empty())
      return fail(adacc::Error::say("--may-freeze needs a --budget or a --total to be met"));
    if (all.export_int8 && !exports_header(all.export_to))
      return fail(
          adacc::Error::say("--export-int8 is for a C header, and Hugging Face's files are not in "
                            "int8: give --export "
                            "FILE.h"));
    const char* of_adapters = !all.lora.train_a     ? "--lora-fa"
                              : all.lora.alpha != 0 ? "--lora-alpha"
                              : !all.merge.empty()  ? "--merge"
                                                    : nullptr;
    if (of_adapters != nullptr && all.lora.rank == 0)
      return fail(
          adacc::Error::say(of_adapters, " is for adapters, and there are none: give --lora"));
    if (all.forward_only && given.for_backward.empty()) return std::nullopt;
    if (all.forward_only)
      return fail(adacc::Error::say(given.for_backward.c_str(),
                                    " is for training by gradients, and --forward-only does "
                                    "without: it holds no gradients, moments or kept activations"));
    if (given.for_auto.empty() || line.options.plans()) return std::nullopt;
    return fail(adacc::Error::say(given.for_auto.c_str(),
                                  " is for --policy auto, and the policy is ",
                                  line.options.policy.c_str()));
  };
  if (!given.budget_text.empty() && !given.total_text.empty())
    return fail(adacc::Error::say(
        "--budget, of the activations, and --total, of everything, were both given: give one"));
  if (given.resume.empty()) return check_options();
  if (given.may_freeze)
    return fail(adacc::Error::say(
        "--may-freeze chooses before a run starts; a resumed one goes on with what was chosen, or "
        "with --train"));
  auto info = adacc::read_checkpoint_info(given.resume);
  if (!info) return fail(info.error);
  line.resumed = *info;
  if (!line.notes.parse(info->notes))
    return fail(adacc::Error::say(adacc::one_line(given.resume, 100).c_str(),
                                  ": is a checkpoint of another program than train_gpt"));
  std::vector<std::string> stored;
  // Where a run that moves to another device could send activations is not there, nor are their numbers.
  const auto stays_behind = [&](const std::string& name) {
    if (!given.device_given) return false;
    return given.on_device() ? name == "--offload" || name == "--offload-limit"
                             : name == "--pinned" || name == "--attention" || name == "--head-rows";
  };
  const bool other_text = !given.text.empty() || !given.tokens.empty();
  // Nor does what one rank had, and did with it, say anything to a pipeline, whose stages are planned.
  const auto of_one_rank = [&](const std::string& name) {
    if (given.pipeline == 0) return false;
    for (const char* other :
         {"--policy", "--budget", "--total", "--solver", "--offload", "--offload-limit",
          "--plan-threads", "--fixed-costs", "--moments-store", "--moments-window"})
      if (name == other) return true;
    return false;
  };
  for (const auto& [name, value] : line.notes.options)
    if (!stays_behind(name) && !of_one_rank(name) &&
        (!other_text || (name != "--text" && name != "--tokens")) &&
        (given.total_text.empty() || name != "--budget") &&
        (given.budget_text.empty() || name != "--total"))
      stored.push_back(name + "=" + value);
  Options both;
  if (const auto status = parse(stored, argc, argv, both)) return status;
  if (both.pipeline > 0 && both.shards == 1) both.shards = 0;  // the same sums
  line.options = both;
  // How long it trains is not what makes it another run; a text is judged by its contents.
  for (const RunOption& option : run_options(both)) {
    const auto& [name, value, usual, always] = option;
    std::string before = line.notes.value(name);
    if (before.empty()) before = usual;
    if (value == before || name == "--steps" || name == "--text" || name == "--tokens") continue;
    if (name == "--seq" && value == "0") continue;
    line.changed.push_back(name + " " + value + (before.empty() ? "" : " instead of " + before));
  }
  return check_options();
}

/// Files that the options name must not be one another, if one of the two is written.
inline adacc::Error check_files(const Options& options) {
  struct Named {
    const char* option;
    const std::string& path;
    bool written;
  };
  const Named all[] = {
      {"--model", options.model, false},       {"--adapter", options.adapter, false},
      {"--tokens", options.tokens, false},     {"--text", options.text, false},
      {"--val", options.val, false},           {"--resume", options.resume, false},
      {"--profile", options.profile, true},    {"--log", options.log, true},
      {"--report", options.report, true},      {"--save", options.save, true},
      {"--export", options.export_to, true},   {"--merge", options.merge, true},
      {"--tune-products", options.tuned, true}};
  const std::string resumed = "--resume", saved = "--save";
  for (const Named& a : all)
    for (const Named& b : all) {
      if (&a >= &b || a.path.empty() || b.path.empty() || !(a.written || b.written)) continue;
      if (a.option == resumed && b.option == saved) continue;  // the next one in its place
      if (adacc::same_file(a.path, b.path))
        return adacc::Error::say(a.option, " and ", b.option, " are one file, ",
                                 adacc::one_line(b.path, 100).c_str(),
                                 ": what one needs would be overwritten");
    }
  return {};
}
