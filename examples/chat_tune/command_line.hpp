// SPDX-License-Identifier: MIT
/// The program's options.
#pragma once

#include <CLI/CLI.hpp>

#include <adacc/io/budget.hpp>
#include <support/command_line.hpp>
#include <support/optimizer.hpp>

#include <cstdint>
#include <string>

#include "checks.hpp"
#include "export.hpp"
#include "talk.hpp"
#include "tuner.hpp"

namespace chat_tune {

inline void add_model(CLI::App& app, ModelOptions& options) {
  app.option_defaults()->always_capture_default();
  app.add_option(
         "--model", options.model,
         "GGUF file, or a folder of the Hugging Face Hub, of the architecture llama, qwen2, "
         "qwen3 or gpt2")
      ->required();
  app.add_option_function<std::string>(
         "--weights",
         [&](const std::string& form) {
           options.weights = form == "int8"  ? adacc::WeightForm::int8
                             : form == "nf4" ? adacc::WeightForm::nf4
                                             : adacc::WeightForm::as_stored;
         },
         "form of weights that the file has in 16 or 32 bits: as in the file, or encoded in "
         "memory: int8, nf4")
      ->default_str("file")
      ->check(CLI::IsMember({"file", "int8", "nf4"}));
  app.add_option(
      "--template", options.form,
      "form of conversations: chatml, llama3 or plain; without it by the model's tokens");
  app.add_option("--threads", options.threads, "threads")->check(CLI::Range(1, 256));
}

inline void add_pages(CLI::App& app, ModelOptions& options, const char* otherwise) {
  app.add_option_function<std::string>(
         "--weight-pages",
         [&](const std::string& pages) {
           options.pages =
               pages == "streamed" ? adacc::WeightPages::streamed : adacc::WeightPages::resident;
         },
         "pages of the weights' file: resident; streamed, they leave the process behind each layer "
         "and are read again from the system's page cache, or from the disk")
      ->default_str(otherwise)
      ->check(CLI::IsMember({"resident", "streamed"}));
}

inline void add_tune(CLI::App& app, TuneOptions& options, std::string& too_long) {
  add_model(app, options.model);
  add_pages(app, options.model, "streamed with --budget smallest, or else resident");
  const CLI::Range size(1, 1 << 16), count(std::uint64_t{0}, std::uint64_t{1} << 31);
  app.add_option("--data", options.read.data,
                 "conversations: a file .jsonl with [{\"role\": ..., \"content\": ...}, ...] or "
                 "{\"messages\": [...]} in each line; any other name is a text")
      ->required();
  app.add_option("--context", options.read.context, "tokens of a sequence")->check(size);
  app.add_option("--long", too_long, "conversations longer than a sequence: cut, or refuse")
      ->check(CLI::IsMember({"cut", "refuse"}));
  app.add_option("--held-out", options.read.held_out, "share of conversations to judge by")
      ->check(support::between(0, 0.9));
  app.add_option("--rank", options.adapters.rank, "rank of the adapters")->check(size);
  app.add_option("--alpha", options.adapters.alpha, "the adapters' factor is alpha / rank")
      ->check(support::between(1e-6, 1e6));
  app.add_flag("--full", options.full,
               "train all weights, and no adapters: weights are decoded into memory");
  app.add_option("--precision", options.precision,
                 "how activations and their gradients are held: fp32; bf16, in half the memory")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  support::add_parameters(
      app, options.parameters,
      "how weights of --full are held: fp32; bf16, in half the memory, decoded for each layer and "
      "rounded stochastically by updates");
  app.add_option("--moments", options.moments,
                 "how AdamW keeps its moments: fp32; bf16, rounded stochastically; int8")
      ->check(CLI::IsMember({"fp32", "bf16", "int8"}));
  app.add_flag(
      "--fused", options.fused,
      "update each parameter in the step, as soon as its gradient is complete, and give the "
      "gradient's memory up");
  app.add_option("--parts", options.parts,
                 "cut layers into so many parts, for loops over rows; without it 1, or the best of "
                 "1, 2, 4 and 8 with --budget smallest")
      ->check(CLI::Range(1, 1 << 10));
  app.add_flag(
      "--lora-fa", [&](std::int64_t) { options.train_a = false; },
      "train only the second matrix of each adapter");
  app.add_option("--adapter", options.adapter,
                 "begin with these adapters, of their rank and alpha");
  app.add_option("--batch", options.batch, "sequences in a batch")->check(size);
  app.add_option("--micro", options.micro, "batches whose gradients make an update")->check(size);
  app.add_option("--steps", options.steps, "updates in all; with 0 the model is only judged")
      ->check(count);
  app.add_option("--lr", options.lr, "learning rate")->check(support::between(0, 1));
  app.add_option("--min-lr", options.min_lr,
                 "learning rate at the end of the cosine; below 0: a tenth of --lr");
  app.add_option("--warmup", options.warmup, "updates until the learning rate is reached")
      ->check(count);
  app.add_option("--weight-decay", options.weight_decay, "AdamW's decoupled weight decay")
      ->check(support::between(0, 1e6));
  app.add_option("--clip", options.clip, "clip the gradient to this L2 norm; 0 is off")
      ->check(support::between(0, 1e6));
  app.add_option("--clip-by", options.clip_by,
                 "the norm to clip by: of this step, or of the step before, as --fused needs it")
      ->check(CLI::IsMember({"step", "previous"}));
  app.add_option("--tolerance", options.tolerance,
                 "largest relative squared error of the gradient that codecs may cause")
      ->check(support::between(0, 1e6));
  app.add_option_function<std::string>(
         "--budget",
         [&](const std::string& text) {
           options.smallest = text == "smallest";
           if (options.smallest) return;
           const auto parsed = adacc::parse_budget(text);
           if (!parsed) throw CLI::ValidationError("--budget", parsed.error.text());
           options.budget = *parsed;
         },
         "most that the activations of a step may take: 200MiB, 50% of what retain needs, or "
         "smallest")
      ->default_str("100%");
  support::add_bytes(
      app, "--total", options.total,
      "most that all of the training may take, weights included: 900MiB, or a share of what "
      "retaining everything needs",
      "none", &options.total_text);
  app.add_option_function<std::string>(
         "--order",
         [&](const std::string& text) {
           options.order = text == "file" ? Order::file : Order::random;
         },
         "order of conversations in each round over them: random, another one in each round; file")
      ->check(CLI::IsMember({"random", "file"}))
      ->default_str("random");
  app.add_option("--seed", options.seed, "of the adapters and of the order of conversations")
      ->check(support::whole_number());
  app.add_option("--evaluate-every", options.evaluate_every,
                 "updates from one held-out loss to the next; 0: only before and after")
      ->check(count);
  app.add_option("--most-batches", options.most_batches, "batches of a held-out loss, at most")
      ->check(size);
  app.add_option(
         "--match", options.match,
         "answer so many held-out conversations before and after, and compare letter by letter")
      ->check(count);
  app.add_option("--out", options.out,
                 "write what has the least held-out loss: adapters as .safetensors, the model of "
                 "--full as .gguf, or as a folder");
  app.add_option("--type", options.type, "type of matrices in the GGUF file that --full writes")
      ->check(CLI::IsMember(written_types()));
  app.add_option("--save", options.save, "write a checkpoint at the end, weights included");
  app.add_option("--save-every", options.save_every, "and every so many updates")->check(count);
  app.add_option("--resume", options.resume, "go on from a checkpoint, bit for bit");
  app.add_option("--log", options.log, "write a line of JSON for each update, and one at the end");
  app.add_option("--report", options.report, "write a page of HTML about the run");
  app.callback([&] { check_together(app, options); });
}

inline void add_talk(CLI::App& app, TalkCommand& command) {
  add_model(app, command.model);
  add_pages(app, command.model, "resident");
  app.add_option("--adapter", command.adapter, "adapters of tune --out");
  app.add_option("--prompt", command.prompts,
                 "say this, one after the other; without it lines are read");
  app.add_option("--system", command.system, "a message of the system before all");
  app.add_option("--context", command.model.context,
                 "most tokens of the talk; 0: 2048, or the model's if that is less");
  app.add_option("--tokens", command.how.most_tokens, "most tokens of an answer")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--temperature", command.how.sampling.temperature,
                 "0: the likeliest token each time")
      ->check(support::between(0, 100));
  app.add_option("--top-p", command.how.sampling.top_p,
                 "draw from the likeliest tokens of this probability together")
      ->check(support::between(1e-6, 1));
  app.add_option("--seed", command.how.sampling.seed, "of the drawn tokens")
      ->check(support::whole_number());
  app.add_flag("--forget", command.forget,
               "a full context forgets its older half; without it, it is an error");
}

inline void add_export(CLI::App& app, ExportCommand& command) {
  add_model(app, command.model);
  app.add_option("--adapter", command.adapter,
                 "adapters of tune --out; without them the model is written as it is");
  app.add_option(
         "--out", command.out,
         "a name that ends with .gguf, or a folder for the decoded model as Hugging Face has it")
      ->required();
  app.add_option("--type", command.type, "type of matrices in a GGUF file")
      ->check(CLI::IsMember(written_types()));
  app.add_flag("--adapters", command.adapters_alone,
               "write the adapters alone, as llama.cpp's --lora takes them");
}

}  // namespace chat_tune
