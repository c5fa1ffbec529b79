// SPDX-License-Identifier: MIT
/// Algorithms of products that were chosen by time, as a text file.
///
///     adacc products, version 1
///     library cuBLASLt 130100
///     device NVIDIA H100 80GB HBM3
///     product M N K A_STRIDE C_STRIDE ROOM BOUNDARY FLAGS HEURISTIC MICROSECONDS and eight words of the algorithm
///     ...
///     checksum 0123456789abcdef
///
/// The checksum is that of profile_text.hpp. A file is taken whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "../core/no_memory.hpp"
#include "../core/number_text.hpp"
#include "../core/read_number.hpp"
#include "../layer/cuda/product_choices.hpp"
#include "file.hpp"
#include "profile_text.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

inline constexpr std::string_view choices_title = "adacc products, version 1\n";
inline constexpr std::size_t choices_limit = 4 * MiB;
inline constexpr const char* choices_expected = "algorithms of products, as adacc writes them";

/// Takes "word value" and the end of the line from the front of `text`.
inline bool take_named_line(std::string_view& text, std::string_view word, std::string& value) {
  if (!take_word(text, word)) return false;
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos) return false;
  value = text.substr(0, end);
  text.remove_prefix(end + 1);
  return true;
}

/// Takes a space and a number from the front of `text`.
template <class Number>
bool take_spaced(std::string_view& text, Number& number) {
  return take_word(text, " ") && take_number(text, number);
}

/// Takes the line of a choice from the front of `text`.
inline bool take_choice(std::string_view& text, ProductChoice& choice) {
  if (!take_word(text, "product")) return false;
  ProductKey& key = choice.key;
  for (std::size_t* const number :
       {&key.m, &key.n, &key.k, &key.a_stride, &key.c_stride, &key.room})
    if (!take_spaced(text, *number)) return false;
  for (std::uint32_t* const number : {&key.boundary, &key.flags})
    if (!take_spaced(text, *number)) return false;
  if (!take_spaced(text, choice.heuristic) || !take_spaced(text, choice.microseconds)) return false;
  for (std::uint64_t& number : choice.algorithm.word)
    if (!take_spaced(text, number)) return false;
  return take_word(text, "\n");
}

}  // namespace detail

inline std::string product_choices_text(const ProductChoices& choices) {
  std::string text(detail::choices_title);
  text += "library " + choices.library + "\ndevice " + choices.device + '\n';
  for (const ProductChoice& choice : choices.list) {
    const ProductKey& key = choice.key;
    text += "product";
    for (const std::size_t number :
         {key.m, key.n, key.k, key.a_stride, key.c_stride, key.room, std::size_t{key.boundary},
          std::size_t{key.flags}, static_cast<std::size_t>(choice.heuristic)})
      text += ' ' + std::to_string(number);
    text += ' ';
    text += NumberText::shortest(choice.microseconds);
    for (const std::uint64_t number : choice.algorithm.word) text += ' ' + std::to_string(number);
    text += '\n';
  }
  return text + detail::checksum_line(text);
}

/// Reads the text of product_choices_text(). Errors follow on a file's name.
inline Result<ProductChoices> parse_product_choices(const std::string& text) {
  return detail::or_no_memory("to read algorithms", [&]() -> Result<ProductChoices> {
    std::string_view left = text;
    const std::string_view title = detail::choices_title;
    if (left.substr(0, title.size()) != title)
      return Error::say("is no file of ", detail::choices_expected, ", of version 1");
    const std::size_t sum_at = text.rfind("\nchecksum ");
    if (sum_at == std::string::npos)
      return Error::say("is cut off: it does not end with a checksum");
    left = left.substr(0, sum_at + 1);
    if (std::string_view(text).substr(sum_at + 1) != detail::checksum_line(left))
      return Error::say("is damaged: its checksum does not match its contents");
    left.remove_prefix(title.size());
    ProductChoices choices;
    bool fine = detail::take_named_line(left, "library ", choices.library) &&
                detail::take_named_line(left, "device ", choices.device);
    while (fine && !left.empty()) {
      ProductChoice choice;
      fine = detail::take_choice(left, choice);
      if (fine) choices.list.push_back(choice);
    }
    if (!fine) return Error::say("is wrong in the line of its algorithm ", choices.list.size() + 1);
    return static_cast<ProductChoices&&>(choices);
  });
}

/// Writes a file, which appears whole or not at all.
inline Error save_product_choices(const std::string& path, const ProductChoices& choices) {
  return write_file(path, product_choices_text(choices));
}

/// Reads a file; errors are those of parse_product_choices(), after the file's name.
inline Result<ProductChoices> load_product_choices(const std::string& path) {
  return detail::or_no_memory("to read algorithms", [&]() -> Result<ProductChoices> {
    Result<InputFile> file = InputFile::open(path, detail::choices_expected);
    if (!file) return file.error;
    if (file->size() > detail::choices_limit)
      return file->fault("is too large: it has ", shown(file->size()));
    std::string text(file->size(), '\0');
    if (Error why = file->read(text.data(), text.size())) return why;
    Result<ProductChoices> choices = parse_product_choices(text);
    if (!choices) return Error::say(one_line(path, 100).c_str(), ": ", choices.error.text());
    return choices;
  });
}

}}  // namespace adacc::v0_1
