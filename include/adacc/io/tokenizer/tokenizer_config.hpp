// SPDX-License-Identifier: MIT
/// The tokenizer_config.json of a folder of the Hugging Face Hub, as far as it decides about tokens at the ends of a text and
/// about the form of chats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "../../core/error.hpp"
#include "../../core/no_memory.hpp"
#include "../file.hpp"
#include "../mapped_file.hpp"
#include "../weights/json_reader.hpp"
#include "tokenizer.hpp"

namespace adacc { inline namespace v0_1 {

struct TokenizerConfig {
  std::string bos, eos;  ///< texts of tokens; empty: none is named
  /// Whether it says add_bos_token or add_eos_token, and so decides in place of tokenizer.json.
  bool decides = false;
  bool add_bos = false, add_eos = false;
  std::string chat_template;  ///< in the template language Jinja; empty: there is none
};

namespace detail {

inline std::string_view text_of_file(const MappedFile& file) {
  const void* const text = file.bytes().data();
  return {static_cast<const char*>(text), file.bytes().size()};
}

/// The last token of this text; -1 if there is none.
inline std::int32_t token_of(const TokenizerParts& parts, std::string_view text) {
  for (std::size_t i = parts.texts.size(); i-- > 0;)
    if (parts.texts[i] == text && parts.kinds[i] != TokenizerParts::Kind::none)
      return static_cast<std::int32_t>(i);
  return -1;
}

/// Reads members, and skips those of another kind.
class TokenizerConfigJson {
 public:
  explicit TokenizerConfigJson(std::string_view text) : json_(text) {}

  /// The fault of the file; empty if there is none.
  std::string read(TokenizerConfig& to) {
    const auto member = [&](const std::string& key) {
      std::string raw;
      if (!json_.value(raw)) return false;
      if (key == "bos_token") to.bos = text_of(raw, "content");
      if (key == "eos_token") to.eos = text_of(raw, "content");
      if (key == "chat_template") to.chat_template = template_of(raw);
      if (key == "add_bos_token") decide(to, raw, to.add_bos);
      if (key == "add_eos_token") decide(to, raw, to.add_eos);
      return true;
    };
    return json_.object(member) && json_.end() ? std::string() : json_.fault().text();
  }

 private:
  static void decide(TokenizerConfig& to, const std::string& raw, bool& add) {
    add = raw == "true";
    to.decides = to.decides || add || raw == "false";
  }
  /// A text, or that of a member of an object.
  static std::string text_of(const std::string& raw, const char* name) {
    std::string text;
    JsonReader json(raw);
    const auto member = [&](const std::string& key) {
      return key == name ? json.string(text) : json.skip();
    };
    const bool good = raw.starts_with('"')   ? json.string(text)
                      : raw.starts_with('{') ? json.object(member)
                                             : false;
    return good ? text : std::string();
  }
  /// One template, or the one called "default" in a list.
  static std::string template_of(const std::string& raw) {
    if (!raw.starts_with('[')) return text_of(raw, "template");
    std::string found, one;
    JsonReader json(raw);
    static_cast<void>(json.array([&] {
      if (!json.value(one)) return false;
      if (text_of(one, "name") == "default") found = text_of(one, "template");
      return true;
    }));
    return found;
  }

  JsonReader json_;
};

/// Tokens at the ends of a text as a tokenizer_config.json names them, if config.json does not, and whether they are
/// added. As transformers does, an end without a name is not added.
inline Error set_ends(const TokenizerConfig& config, const std::string& folder,
                      TokenizerParts& parts) {
  for (const bool begin : {true, false}) {
    const std::string& text = begin ? config.bos : config.eos;
    std::int32_t& token = begin ? parts.bos : parts.eos;
    bool& adds = begin ? parts.add_bos : parts.add_eos;
    const bool asked = begin ? config.add_bos : config.add_eos;
    if (config.decides) adds = asked;
    if (text.empty() || (token >= 0 && !(config.decides && asked))) continue;
    const std::int32_t found = token_of(parts, text);
    if (found < 0 && config.decides && asked)
      return Error::say(one_line(folder, 80).c_str(), ": its tokenizer_config.json adds \"",
                        one_line(text, 40).c_str(), "\" to each text, which is no token");
    if (found >= 0) token = found;
  }
  return {};
}

}  // namespace detail

/// Of a folder, or of a file in it; without the file nothing is said. A chat_template.jinja is the template where the file has none.
inline Result<TokenizerConfig> read_tokenizer_config(const std::string& path) {
  return detail::or_no_memory("to read a tokenizer_config.json", [&]() -> Result<TokenizerConfig> {
    TokenizerConfig config;
    const std::string folder = folder_of(path);
    if (is_there(folder + "tokenizer_config.json")) {
      const auto file =
          MappedFile::open(folder + "tokenizer_config.json", "a tokenizer_config.json");
      if (!file) return file.error;
      const std::string why = detail::TokenizerConfigJson(detail::text_of_file(*file)).read(config);
      if (!why.empty()) return file->fault(why.c_str());
    }
    if (config.chat_template.empty() && is_there(folder + "chat_template.jinja")) {
      const auto file = MappedFile::open(folder + "chat_template.jinja", "a chat template");
      if (!file) return file.error;
      config.chat_template = detail::text_of_file(*file);
    }
    return config;
  });
}

}}  // namespace adacc::v0_1
