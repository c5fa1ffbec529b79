// SPDX-License-Identifier: MIT
/// Conversations as tokens, in the forms known to families of models.
///
/// There is no language of templates: a form is a few lines here. Contents are text and nothing else: "<|im_end|>" in a
/// user's message does not end a turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../../core/error.hpp"
#include "../file.hpp"
#include "tokenizer.hpp"

namespace adacc { inline namespace v0_1 {

struct ChatMessage {
  std::string role;  ///< system, user, assistant or tool
  std::string content;
};

enum class ChatTemplate : std::uint8_t {
  chatml,  ///< Qwen, SmolLM: <|im_start|>role\ncontent<|im_end|>\n
  llama3,  ///< <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|>, behind <|begin_of_text|>
  plain  ///< role: content\n, answers end with eos instead; bos before all if the tokenizer adds one
};

/// A conversation as tokens, and marks of the model's answers: contents of the assistant, with their ending
/// tokens.
struct ChatTokens {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint8_t> answers;  ///< 1 for tokens of answers
  std::size_t left_out = 0;           ///< bytes without tokens (Tokenizer::encode)
};

/// "chatml", "llama3" or "plain".
inline Result<ChatTemplate> chat_template(std::string_view name) {
  if (name == "chatml") return ChatTemplate::chatml;
  if (name == "llama3") return ChatTemplate::llama3;
  if (name == "plain") return ChatTemplate::plain;
  return Error::say("no chat template is called \"", one_line(std::string(name), 40).c_str(),
                    "\"; there are chatml, llama3 and plain");
}

namespace detail {

class ChatWriter {
 public:
  ChatWriter(const Tokenizer& tokenizer, ChatTokens& to) : tokenizer_(tokenizer), to_(to) {}

  void text(std::string_view text, bool answer = false) {
    for (const std::int32_t token : tokenizer_.encode(text, SpecialText::text, &to_.left_out))
      token_of(token, answer);
  }
  void token_of(std::int32_t token, bool answer = false) {
    to_.tokens.push_back(token);
    to_.answers.push_back(answer ? 1 : 0);
  }

 private:
  const Tokenizer& tokenizer_;
  ChatTokens& to_;
};

/// Without spaces at both ends, as in Llama 3's template.
inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view spaces = " \t\n\r\v\f";
  const std::size_t first = text.find_first_not_of(spaces);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(spaces) - first + 1);
}

}  // namespace detail

/// The conversation; with `ask`, the beginning of an answer behind it. An error names a special token missing in
/// the tokenizer, or an unknown role. No system message is added.
inline Result<ChatTokens> encode_chat(const Tokenizer& tokenizer, ChatTemplate form,
                                      const std::vector<ChatMessage>& messages, bool ask) {
  std::string missing;
  const auto special = [&](const char* text) {
    const std::int32_t token = tokenizer.special(text);
    if (token < 0) missing += (missing.empty() ? "" : ", ") + std::string(text);
    return token;
  };
  std::int32_t begin = -1, header_end = -1, end = -1, first = -1;
  if (form == ChatTemplate::chatml) {
    begin = special("<|im_start|>");
    end = special("<|im_end|>");
  } else if (form == ChatTemplate::llama3) {
    first = special("<|begin_of_text|>");
    begin = special("<|start_header_id|>");
    header_end = special("<|end_header_id|>");
    end = special("<|eot_id|>");
  } else {
    end = tokenizer.eos();
    if (end < 0) missing = "eos";
    if (tokenizer.adds_bos()) first = tokenizer.bos();
  }
  if (!missing.empty())
    return Error::say("the tokenizer lacks the special tokens of this chat template: ",
                      missing.c_str());
  ChatTokens made;
  detail::ChatWriter write(tokenizer, made);
  if (first >= 0) write.token_of(first);
  // The text before a content, which is encoded together with the content. Before an answer this text is encoded
  // alone, as in a question to a model.
  const auto header = [&](const std::string& role) -> std::string {
    if (form == ChatTemplate::plain) return role + ":";
    write.token_of(begin);
    if (form == ChatTemplate::chatml) return role + "\n";
    write.text(role);
    write.token_of(header_end);
    return "\n\n";
  };
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    const bool answer = role == "assistant", plain = form == ChatTemplate::plain;
    if (!answer && role != "system" && role != "user" && role != "tool")
      return Error::say("message ", i, " has the role \"", one_line(role, 40).c_str(),
                        "\"; expected system, user, assistant or tool");
    std::string before = header(role);
    std::string content = messages[i].content;
    if (form == ChatTemplate::llama3) content = std::string(detail::trimmed(content));
    if (plain) {
      content.insert(content.begin(), ' ');
      if (!answer) content += '\n';
    }
    if (answer) write.text(before);
    write.text(answer ? content : before + content, answer);
    if (!plain || answer) write.token_of(end, answer);
    if (form == ChatTemplate::chatml) write.text("\n");
  }
  if (ask) write.text(header("assistant"));
  return made;
}

}}  // namespace adacc::v0_1
