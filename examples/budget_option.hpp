/// A budget on the command line.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

#include "budget.hpp"

/// --budget, which sets `budget`; help shows `usual` as what it is without.
inline void add_budget(CLI::App& app, Budget& budget, const char* what, const char* usual) {
  app.add_option_function<std::string>(
         "--budget",
         [&budget](const std::string& text) {
           const auto parsed = parse_budget(text);
           if (!parsed) throw CLI::ValidationError("--budget", parsed.error.text());
           budget = *parsed;
         },
         what)
      ->default_str(usual);
}
