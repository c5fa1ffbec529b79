// SPDX-License-Identifier: MIT
/// The command talk: answers to lines or prompts, written as they come.
#pragma once

#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/core/steady_clock.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "loaded.hpp"
#include "talker.hpp"
#include "words.hpp"

namespace chat_tune {

struct TalkCommand {
  ModelOptions model;
  TalkOptions how;
  std::string adapter, system;
  std::vector<std::string> prompts;
  bool forget = false;
};

inline int talk(TalkCommand& command) {
  Loaded loaded;
  if (const Error why = loaded.open(command.model, command.adapter, false)) return fail(why);
  if (command.model.context == 0)
    command.model.context = std::min<std::size_t>(2048, loaded.model.weights.sizes().context);
  Talker talker(loaded.model, loaded.network, &loaded.model.weights.stored());
  if (const Error why = talker.set_up(
          command.model, command.forget ? adacc::WhenFull::forget : adacc::WhenFull::refuse,
          loaded.params.view()))
    return fail(why);
  std::fprintf(stderr, "%.1f MiB for a context of %zu tokens, beside %.1f MiB of weights\n",
               mebi(talker.generator().memory_bytes()), command.model.context,
               mebi(loaded.graph.mapped_bytes));
  adacc::EigenPool pool(command.model.threads);
  adacc::Cpu cpu{adacc::ExecutorRef(pool)};
  adacc::Sampler sampler(command.how.sampling);
  std::vector<adacc::ChatMessage> messages;
  if (!command.system.empty()) messages.push_back({"system", command.system});
  const bool asks = command.prompts.empty(), terminal = ::isatty(STDIN_FILENO) != 0;
  for (std::size_t i = 0; asks || i < command.prompts.size(); ++i) {
    std::string line;
    if (!asks) {
      line = command.prompts[i];
    } else {
      if (terminal) std::printf("> "), std::fflush(stdout);
      if (!std::getline(std::cin, line)) break;
      if (line.empty()) continue;
    }
    messages.push_back({"user", line});
    const double start = adacc::steady_seconds();
    const auto answer =
        talker.answer(cpu, messages, sampler, command.how.most_tokens, [](std::string_view piece) {
          std::fwrite(piece.data(), 1, piece.size(), stdout);
          std::fflush(stdout);
        });
    if (!answer) return fail(answer.error);
    const double seconds = adacc::steady_seconds() - start;
    std::printf("\n");
    std::fflush(stdout);
    std::fprintf(stderr, "(%zu tokens read, %zu written, %.1f a second)\n", talker.read(),
                 talker.written(), static_cast<double>(talker.written()) / seconds);
    messages.push_back({"assistant", *answer});
  }
  return 0;
}

}  // namespace chat_tune
