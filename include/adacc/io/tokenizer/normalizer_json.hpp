// SPDX-License-Identifier: MIT
/// The member "normalizer" of tokenizer.json, read and written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "../../core/error.hpp"
#include "../file.hpp"
#include "../json_string.hpp"
#include "../weights/json_reader.hpp"
#include "normalizer.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Bytes as base64 writes them (RFC 4648).
inline constexpr std::string_view base64_letters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
inline std::string base64(std::string_view bytes) {
  std::string out;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t three = 0;
    for (std::size_t i = 0; i < 3; ++i)
      three = three << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    for (std::size_t i = 0; i < 4; ++i)
      out += at + i > bytes.size() ? '=' : base64_letters[three >> (18 - 6 * i) & 63];
  }
  return out;
}
/// False if `text` is none.
inline bool bytes_of_base64(std::string_view text, std::string& bytes) {
  bytes.clear();
  if (text.size() % 4 != 0) return false;
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t value = base64_letters.find(text[i]);
    if (value == base64_letters.npos) return false;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    if (i % 4 != 0) bytes += static_cast<char>(bits >> (6 - 2 * (i % 4)) & 0xFF);
  }
  return true;
}

/// The regular expressions among the patterns of "Replace".
struct KnownPattern {
  NormalizerStep::Kind kind;
  const char* pattern;
  const char* from;
};
inline constexpr KnownPattern known_patterns[] = {
    {NormalizerStep::Kind::replace_spaces, " {2,}", ""},
    {NormalizerStep::Kind::trim, "\\A +| +\\z", ""},
    {NormalizerStep::Kind::replace_start, "\\A\xE2\x96\x81", "\xE2\x96\x81"}};

class NormalizerJson {
 public:
  NormalizerJson(std::string_view json, TextNormalizer& to) : json_(json), raw_(json), to_(to) {}

  /// The mistake, in words for behind "has "; empty if there is none.
  std::string read() {
    if (json_.is_null()) return {};
    const bool good = step() && json_.end();
    if (!problem_.empty()) return problem_;
    return good ? std::string()
                : "the normalizer " + one_line(std::string(raw_.substr(0, 200)), 60) +
                      ", which is none";
  }

 private:
  using Step = NormalizerStep;

  bool complain(const std::string& problem) {
    if (problem_.empty()) problem_ = problem;
    return false;
  }

  /// One normalizer, or a sequence.
  bool step() {
    std::string type, before, content, text, regex, charsmap, raw;
    bool left = false, right = false;
    const auto member = [&](const std::string& key) {
      if (key == "type") return json_.string(type);
      if (key == "normalizers") return json_.array([&] { return step(); });
      if (key == "prepend") return json_.string(before);
      if (key == "content") return json_.string(content);
      if (key == "precompiled_charsmap") return json_.string(charsmap);
      if (key == "strip_left") return json_.truth(left, raw);
      if (key == "strip_right") return json_.truth(right, raw);
      if (key != "pattern") return json_.skip();
      return json_.object(
          [&](const std::string& kind) { return json_.string(kind == "String" ? text : regex); });
    };
    if (!json_.object(member)) return false;
    if (type == "Sequence") return true;
    if (type == "NFC") return add({Step::Kind::compose});
    if (type == "Prepend") return prepend(before);
    if (type == "Strip") return add({.kind = Step::Kind::strip, .left = left, .right = right});
    if (type == "Replace") return replace(text, regex, content);
    if (type == "Precompiled") return precompiled(charsmap);
    return complain("the normalizer " + one_line(type, 40) +
                    "; those known are NFC, Prepend, Replace, Strip and Precompiled");
  }
  bool add(const Step& step) { return to_.steps.push_back(step), true; }

  bool prepend(const std::string& before) {
    if (before != lower_block)
      return complain("the normalizer Prepend of \"" + one_line(before, 20) +
                      "\", which has to be of U+2581");
    return add({Step::Kind::prepend, "", before});
  }

  bool replace(const std::string& text, const std::string& regex, const std::string& content) {
    if (!text.empty()) return add({Step::Kind::replace, text, content});
    for (const KnownPattern& known : known_patterns)
      if (regex == known.pattern && (known.kind != Step::Kind::trim || content.empty()))
        return add({known.kind, known.from, content});
    return complain("the normalizer Replace of " + one_line(regex, 60) + " by \"" +
                    one_line(content, 20) +
                    R"("; the expressions known are " {2,}", "\A▁", and "\A +| +\z" by nothing)");
  }

  bool precompiled(const std::string& letters) {
    std::string bytes;
    if (!to_.charsmap.empty()) return complain("two normalizers that are Precompiled");
    if (!bytes_of_base64(letters, bytes))
      return complain("a precompiled_charsmap that is no base64");
    auto made = Charsmap::make(bytes);
    if (!made)
      return complain("a normalizer whose precompiled_charsmap " + std::string(made.error.text()));
    to_.charsmap = static_cast<Charsmap&&>(*made);
    return add({Step::Kind::charsmap});
  }

  JsonReader json_;
  std::string_view raw_;
  TextNormalizer& to_;
  std::string problem_;
};

/// Empty if tokenizer.json has no such normalizer.
inline std::string normalizer_json(const TextNormalizer& normalizer) {
  using enum NormalizerStep::Kind;
  std::string all;
  for (const NormalizerStep& step : normalizer.steps) {
    const auto replaced = [&](const std::string& kind, const std::string& pattern) {
      return R"({"type":"Replace","pattern":{")" + kind + "\":" + json_string(pattern) +
             R"(},"content":)" + json_string(step.to) + "}";
    };
    const auto truth = [](bool is) { return std::string(is ? "true" : "false"); };
    std::string one;
    if (step.kind == compose) one = R"({"type":"NFC"})";
    if (step.kind == prepend) one = R"({"type":"Prepend","prepend":)" + json_string(step.to) + "}";
    if (step.kind == replace) one = replaced("String", step.from);
    for (const KnownPattern& known : known_patterns)
      if (step.kind == known.kind) one = replaced("Regex", known.pattern);
    if (step.kind == strip)
      one = R"({"type":"Strip","strip_left":)" + truth(step.left) + R"(,"strip_right":)" +
            truth(step.right) + "}";
    if (step.kind == charsmap)
      one = R"({"type":"Precompiled","precompiled_charsmap":")" +
            base64(normalizer.charsmap.bytes()) + "\"}";
    if (one.empty()) return {};
    all += (all.empty() ? "" : ",") + one;
  }
  if (normalizer.steps.empty()) return "null";
  if (normalizer.steps.size() == 1) return all;
  return R"({"type":"Sequence","normalizers":[)" + all + "]}";
}

}}}  // namespace adacc::v0_1::detail
