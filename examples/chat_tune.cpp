// SPDX-License-Identifier: MIT
/// Tunes a language model of a GGUF file on conversations within a budget of memory, talks to it, and exports it.
///
///     bash cmake/quickstart.sh tune        # fetches SmolLM2, makes conversations of Python's own library
///
/// The model stays as it is, and adapters beside its linear layers learn (LoRA), of the answers alone; or all of its
/// weights learn (--full).
///
/// Exit status: 0 done; 1 the loss stopped being finite; 2 bad input, in one line.
#include <CLI/CLI.hpp>

#include <support/command_line.hpp>

#include <algorithm>
#include <string>
#include <thread>

#include "chat_tune/command_line.hpp"
#include "chat_tune/export.hpp"
#include "chat_tune/talk.hpp"
#include "chat_tune/tune.hpp"

int main(int argc, char** argv) {
  chat_tune::TuneOptions tune_options;
  chat_tune::TalkCommand talk_command;
  chat_tune::ExportCommand export_command;
  std::string too_long = "cut";
  for (chat_tune::ModelOptions* const options :
       {&tune_options.model, &talk_command.model, &export_command.model})
    options->threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  CLI::App app(
      "Tunes a language model on conversations within a budget of memory, and talks to it.",
      "chat_tune");
  app.require_subcommand(1);
  CLI::App* const tunes =
      app.add_subcommand("tune", "train adapters, or all weights, on conversations or on a text");
  CLI::App* const talks = app.add_subcommand("talk", "talk to a model, with or without adapters");
  CLI::App* const exports = app.add_subcommand("export", "write a model, its adapters merged");
  chat_tune::add_tune(*tunes, tune_options, too_long);
  chat_tune::add_talk(*talks, talk_command);
  chat_tune::add_export(*exports, export_command);
  if (const auto status = support::parse(app, argc, argv)) return *status;
  if (talks->parsed()) return chat_tune::talk(talk_command);
  if (exports->parsed()) return chat_tune::export_model(export_command);
  tune_options.read.too_long =
      too_long == "refuse" ? chat_tune::Long::refuse : chat_tune::Long::cut;
  return tune_options.precision == "bf16" ? chat_tune::tune<adacc::bfloat16>(tune_options)
                                          : chat_tune::tune<float>(tune_options);
}
