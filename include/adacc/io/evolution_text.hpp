// SPDX-License-Identifier: MIT
/// The memory of an evolving plan as text and back: checkpoints keep it beside the plan.
///
///     adacc evolution, version 1
///     codecs int4_outlier bf16
///     budget 1105920
///     tolerance 0.01
///     ...
///
/// One field of Evolution::each_field() per line, in this order: name and value. Numbers are written to be
/// read back to the bit. A list of numbers starts with their count.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "../core/no_memory.hpp"
#include "../core/number_text.hpp"
#include "../core/read_number.hpp"
#include "../evolve/evolution.hpp"
#include "file.hpp"

namespace adacc { inline namespace v0_1 {

/// Writes fields, one per line.
class FieldWriter {
 public:
  template <class Field>
  void operator()(const char* name, const Field& field) const {
    text_ += name;
    if constexpr (std::is_arithmetic_v<Field>) {
      number(field);
    } else {
      number(static_cast<std::uint64_t>(field.size()));
      for (const double value : field) number(value);
    }
    text_ += '\n';
  }

  std::string take() { return static_cast<std::string&&>(text_); }

 private:
  template <class Number>
  void number(Number value) const {
    text_ += ' ';
    if constexpr (std::is_same_v<Number, bool>) text_ += value ? '1' : '0';
    else if constexpr (std::is_floating_point_v<Number>) text_ += NumberText::shortest(value);
    else text_ += std::to_string(value);
  }

  mutable std::string text_;
};

/// Reads the text of FieldWriter, field by field; the first unexpected field is the error.
class FieldReader {
 public:
  explicit FieldReader(std::string_view text) : text_(text) {}

  template <class Field>
  void operator()(const char* name, Field& field) const {
    if (error_) return;
    const std::string_view found = line();
    std::string_view rest = found;
    const std::string_view key(name);
    bool good = rest.substr(0, key.size()) == key;
    if (good) rest.remove_prefix(key.size());
    if constexpr (std::is_arithmetic_v<Field>) {
      good = good && number(rest, field);
    } else {
      std::uint64_t count = 0;
      good = good && number(rest, count) && count <= most_numbers;
      if (good) field.clear();
      double value = 0;
      for (std::uint64_t i = 0; good && i < count; ++i)
        if (good = number(rest, value); good) field.push_back(value);
    }
    if (good && rest.empty()) return;
    error_ = Error::say("is wrong in line ", number_, ": it is \"",
                        one_line(std::string(found), 60).c_str(), "\", not \"", name, " NUMBER\"");
  }

  /// The next line, without its end.
  std::string_view line() const {
    const std::size_t end = text_.find('\n');
    const std::string_view found = text_.substr(0, end);
    text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
    ++number_;
    return found;
  }

  bool at_end() const { return text_.empty(); }
  const Error& error() const { return error_; }

 private:
  static constexpr std::uint64_t most_numbers = 1 << 16;

  /// Takes a space and a finite number from the start of `rest`.
  template <class Number>
  static bool number(std::string_view& rest, Number& value) {
    if (rest.empty() || rest[0] != ' ') return false;
    if constexpr (std::is_same_v<Number, bool>) {
      int bit = 0;
      const bool good = number(rest, bit) && (bit == 0 || bit == 1);
      value = bit == 1;
      return good;
    } else {
      rest.remove_prefix(1);
      if (!take_number(rest, value)) return false;
      if constexpr (std::is_floating_point_v<Number>) return std::isfinite(value);
      return true;
    }
  }

  mutable std::string_view text_;
  mutable int number_ = 0;
  mutable Error error_;
};

namespace detail {

inline constexpr std::string_view evolution_title = "adacc evolution, version 1";
/// Before a list of such texts, one for each length class (train/lengths.hpp).
inline constexpr std::string_view lengths_title = "adacc lengths, version 1";

}  // namespace detail

/// The memory of `evolution` as text; `more(visit)` visits the fields of an owner that keeps more beside it.
template <class More>
std::string evolution_text(const Evolution& evolution, const More& more) {
  std::string text(detail::evolution_title);
  text += "\ncodecs";
  for (const CodecInfo* codec : evolution.profile().codecs) text += std::string(" ") + codec->name;
  FieldWriter writer;
  Evolution::each_field(evolution, writer);
  more(writer);
  return text + '\n' + writer.take();
}

/// Reads the text of evolution_text for an evolution of the same graph, whose plan was `plan`, and goes on with it
/// under `request` (Evolution::resume). Any other text is refused; the error, which follows on "what evolved", names
/// the line.
template <class More>
Result<Evolution> parse_evolution(const std::string& text, Graph graph, Plan plan,
                                  const PlanRequest& request, Planner planner,
                                  const EvolutionOptions& options, const More& more) {
  return detail::or_no_memory("to read what evolved", [&]() -> Result<Evolution> {
    const FieldReader reader(text);
    const std::string_view title = reader.line();
    if (title == detail::lengths_title)
      return Error::say(
          "has a plan for each of several lengths: make the training with Lengths, or "
          "restore the numbers alone (Restore::numbers)");
    if (title != detail::evolution_title)
      return Error::say("is not of version 1, or cut off: it starts with \"",
                        one_line(text.substr(0, 40)).c_str(), "\"");
    std::string_view names = reader.line();
    if (names.substr(0, 6) != "codecs") return Error::say("is wrong in line 2: it names no codecs");
    names.remove_prefix(6);
    Array<const CodecInfo*> codecs;
    const Array<const CodecInfo*> known = codecs_of(graph);
    while (!names.empty()) {
      names.remove_prefix(1);
      const std::string_view name = names.substr(0, names.find(' '));
      names.remove_prefix(name.size());
      const CodecInfo* found = nullptr;
      for (const CodecInfo* codec : known)
        if (name == codec->name) found = codec;
      for (const CodecInfo* codec : codecs)
        if (codec == found) found = nullptr;
      if (found == nullptr)
        return Error::say("names the codec ", one_line(std::string(name), 60).c_str(),
                          ", which this model's layers do not tolerate, or names it twice");
      codecs.push_back(found);
    }
    return Evolution::resume(static_cast<Graph&&>(graph), static_cast<Plan&&>(plan), codecs,
                             request, planner, options, [&](Evolution& evolution) -> Error {
                               Evolution::each_field(evolution, reader);
                               more(reader);
                               if (reader.error()) return reader.error();
                               if (!reader.at_end()) return Error::say("goes on behind its end");
                               return {};
                             });
  });
}

}}  // namespace adacc::v0_1
