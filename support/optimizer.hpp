// SPDX-License-Identifier: MIT
/// Optimizers and forms of their moments, as a user writes them: --optimizer lion --moments int8.
#pragma once

#include <CLI/CLI.hpp>

#include <adacc/core/error.hpp>
#include <adacc/optimizer/adafactor.hpp>
#include <adacc/optimizer/any_optimizer.hpp>
#include <adacc/optimizer/lion.hpp>
#include <adacc/optimizer/sgd.hpp>

#include <iterator>
#include <string>
#include <vector>

namespace support {

inline const char* const optimizer_names[] = {"adamw", "sgd", "lion", "adafactor"};
inline const char* const moment_names[] = {"fp32", "bf16", "int8"};

namespace detail {

template <class Moments>
adacc::AnyOptimizer in_form(const std::string& name, float weight_decay) {
  if (name == "sgd") return adacc::SgdWith<Moments>{.weight_decay = weight_decay};
  if (name == "lion") return adacc::LionWith<Moments>{.weight_decay = weight_decay};
  return adacc::AdamWWith<Moments>{.weight_decay = weight_decay};
}

}  // namespace detail

/// The optimizer of these names, one of each list.
inline adacc::Result<adacc::AnyOptimizer> make_optimizer(const std::string& name,
                                                         const std::string& moments,
                                                         double weight_decay) {
  const auto decay = static_cast<float>(weight_decay);
  if (name == "adafactor") {
    if (moments != "fp32")
      return adacc::Error::say("--moments ", moments.c_str(),
                               ": Adafactor keeps a row and a column of a matrix's moments, in "
                               "fp32 alone; --optimizer adamw, sgd and lion have other forms");
    return adacc::AnyOptimizer(adacc::Adafactor{.weight_decay = decay});
  }
  if (moments == "bf16") return detail::in_form<adacc::Bf16Moments>(name, decay);
  if (moments == "int8") return detail::in_form<adacc::Int8Moments>(name, decay);
  return detail::in_form<adacc::FullMoments>(name, decay);
}

inline constexpr const char* parameter_names[] = {"fp32", "bf16"};

/// The form of that name.
inline adacc::ParameterForm parameter_form(const std::string& name) {
  return name == "bf16" ? adacc::ParameterForm::bf16 : adacc::ParameterForm::full;
}

/// The option --parameters, which sets this name.
inline void add_parameters(CLI::App& app, std::string& name, const char* what) {
  app.add_option("--parameters", name, what)
      ->check(CLI::IsMember(
          std::vector<std::string>(std::begin(parameter_names), std::end(parameter_names))));
}

/// The options --optimizer and --moments, which set these names.
inline void add_optimizer(CLI::App& app, std::string& optimizer, std::string& moments,
                          const char* what_optimizer, const char* what_moments) {
  const auto add = [&](const char* name, std::string& to, const char* what, const auto& names) {
    app.add_option(name, to, what)
        ->check(CLI::IsMember(std::vector<std::string>(std::begin(names), std::end(names))));
  };
  add("--optimizer", optimizer, what_optimizer, optimizer_names);
  add("--moments", moments, what_moments, moment_names);
}

}  // namespace support
