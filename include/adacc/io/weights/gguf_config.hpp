// SPDX-License-Identifier: MIT
/// The common part of readers of models in GGUF files: the metadata as a configuration, compared with all tensors.
#pragma once

#include <climits>
#include <cstddef>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "gguf.hpp"
#include "pretrained.hpp"

namespace adacc { inline namespace v0_1 {

/// The metadata of one of some architectures, whose keys begin with its name and a point. Another architecture is
/// among the problems.
inline ModelConfig gguf_config(const Gguf& file, std::initializer_list<const char*> architectures) {
  const std::string architecture(file.architecture());
  std::map<std::string, std::string> members;
  for (const auto& [key, value] : file.metadata())
    if (key == "general.architecture" || key.starts_with(architecture + "."))
      members[key] = value.json();
  ModelConfig config = ModelConfig::of(file.path(), static_cast<decltype(members)&&>(members));
  std::string list;
  bool known = false;
  for (const char* const one : architectures) {
    list += std::string(list.empty() ? "\"" : " or \"") + one + '"';
    known = known || architecture == one;
  }
  const std::string key = "general.architecture";
  if (!known)
    config.complain(key + " is " + (config.has(key) ? one_line(config.raw(key), 40) : "missing") +
                    ", and has to be " + list);
  return config;
}

/// Rows of the token table, for files that do not say how many tokens there are; 0 if there is no table.
inline std::size_t gguf_vocabulary(const Gguf& file) {
  const GgufTensor* const table = file.find("token_embd.weight");
  const bool sound = table != nullptr && table->shape.size() == 2 && table->shape[0] <= INT_MAX;
  return sound ? table->shape[0] : 0;
}

/// compare_with_file(), and refuses tensors that a network has no place for: they would change its results.
template <class ExpectedOf>
Error compare_with_gguf(const Gguf& file, const char* layers_name, std::size_t layers,
                        const ExpectedOf& expected_of, std::vector<std::string>* problems) {
  if (const Error why =
          compare_with_file(file, file.path(), layers_name, layers, expected_of, problems))
    return why;
  std::map<std::string, bool> known;
  for (const ExpectedTensor& tensor : expected_of(file)) known[tensor.name] = true;
  std::string first;
  std::size_t count = 0;
  for (const GgufTensor& tensor : file) {
    if (known.count(tensor.name) != 0) continue;
    const std::string problem =
        "\"" + one_line(tensor.name, 80) + "\" has no place in this network";
    if (problems != nullptr) problems->push_back(problem);
    if (count++ == 0) first = problem;
  }
  if (count == 0) return {};
  if (count > 1) first += ", and " + std::to_string(count - 1) + " more";
  return file.fault(first.c_str());
}

}}  // namespace adacc::v0_1
