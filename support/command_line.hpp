// SPDX-License-Identifier: MIT
/// What the command lines of examples and benchmarks share.
#pragma once

#include <CLI/CLI.hpp>

#include <adacc/core/number_text.hpp>
#include <adacc/core/read_number.hpp>
#include <adacc/io/budget.hpp>
#include <adacc/io/file.hpp>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace support {

/// An option that was given as nothing, as by a variable of the shell that is not set: it would be taken for
/// one that was not given.
inline const CLI::Option* empty_option(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options())
    for (const std::string& value : option->results())
      if (value.empty()) return option;
  return nullptr;
}

/// Parses; the status to exit with, if it is not to go on: 0 after --help, 2 after one line about
/// what is wrong.
inline std::optional<int> parse(CLI::App& app, int argc, const char* const* argv) {
  std::string fault;
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& wrong) {
    fault = wrong.what();
  }
  if (const CLI::Option* option = empty_option(app))
    fault = option->get_name() + ": is empty: give it a value, or leave it out";
  if (fault.empty()) return std::nullopt;
  std::fprintf(stderr, "%s: %s (--help lists the options)\n", app.get_name().c_str(),
               adacc::one_line(fault, 400).c_str());
  return 2;
}

/// A number from `least` to `most`. CLI::Range lets a NaN pass.
inline CLI::Validator between(double least, double most) {
  const adacc::NumberText from = adacc::NumberText::significant(least, 6);
  const std::string range = std::string("[") + from.c_str() + " - " +
                            adacc::NumberText::significant(most, 6).c_str() + "]";
  return {[=](std::string& text) {
            double value = 0;
            if (adacc::read_number(text, value) && value >= least && value <= most)
              return std::string();
            return "\"" + text + "\" is no number in " + range;
          },
          range, "between"};
}

/// A whole number from 0 to 2^64 - 1: CLI11 takes -1 for the last of them.
inline CLI::Validator whole_number() {
  return {[](std::string& text) {
            std::uint64_t value = 0;
            if (adacc::read_number(text, value)) return std::string();
            return "\"" + text + "\" is no whole number from 0 to 18446744073709551615";
          },
          "", "whole number"};
}

/// The option `name`, a number of bytes or a share of something, which sets `budget`, and
/// `as_written` to its text; help shows `usual` as what it is without.
inline CLI::Option* add_bytes(CLI::App& app, const char* name, adacc::Budget& budget,
                              const char* what, const char* usual,
                              std::string* as_written = nullptr) {
  return app
      .add_option_function<std::string>(
          name,
          [name, &budget, as_written](const std::string& text) {
            const auto parsed = adacc::parse_budget(text);
            if (!parsed) throw CLI::ValidationError(name, parsed.error.text());
            budget = *parsed;
            if (as_written != nullptr) *as_written = text;
          },
          what)
      ->default_str(usual);
}
inline CLI::Option* add_budget(CLI::App& app, adacc::Budget& budget, const char* what,
                               const char* usual, std::string* as_written = nullptr) {
  return add_bytes(app, "--budget", budget, what, usual, as_written);
}

}  // namespace support
