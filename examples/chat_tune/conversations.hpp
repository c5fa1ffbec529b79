// SPDX-License-Identifier: MIT
/// Conversations, or a text, as documents of tokens: those to learn from and those that are held out.
#pragma once

#include <adacc/core/random.hpp>
#include <adacc/io/mapped_file.hpp>
#include <adacc/io/packing.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model.hpp"

namespace chat_tune {

using Messages = std::vector<adacc::ChatMessage>;

/// What becomes of a conversation longer than a sequence.
enum class Long : std::uint8_t { refuse, cut };

struct Document {
  std::vector<std::int32_t> tokens;
  std::vector<bool> learnt;
  Messages messages;  ///< empty for a text
};

struct Documents {
  std::vector<Document> train, held_out;
  std::size_t cut = 0;             ///< conversations that were cut
  std::size_t empty = 0;           ///< conversations without a token to learn, which are left out
  std::size_t left_out_bytes = 0;  ///< that have no tokens
};

namespace detail {

/// A line of a file, for errors.
class Line {
 public:
  Line(const adacc::MappedFile& file, std::size_t number) : file_(file), number_(number) {}
  template <class... Words>
  adacc::Error fault(const Words&... words) const {
    return file_.fault("line ", number_, ": ", words...);
  }

 private:
  const adacc::MappedFile& file_;
  std::size_t number_;
};

/// [{"role": ..., "content": ...}, ...], or an object with such a list as its "messages".
inline adacc::Result<Messages> read_messages(std::string_view text, const Line& line) {
  using nlohmann::json;
  json parsed;
  try {
    parsed = json::parse(text);
  } catch (const json::parse_error& wrong) {
    std::string why = wrong.what();
    const std::size_t at = why.rfind("syntax error");
    return line.fault("column ", wrong.byte, ": no JSON: ",
                      adacc::one_line(at == why.npos ? why : why.substr(at), 160).c_str());
  }
  if (parsed.is_object() && parsed.contains("messages")) {
    const json list = parsed["messages"];
    parsed = list;
  }
  if (!parsed.is_array() || parsed.empty())
    return line.fault(
        "is no conversation: expected [{\"role\": \"user\", \"content\": \"...\"}, "
        "...], or {\"messages\": [...]}");
  Messages messages;
  for (const json& message : parsed) {
    for (const char* const member : {"role", "content"})
      if (!message.is_object() || !message.contains(member) || !message[member].is_string())
        return line.fault("message ", messages.size(), " has no text as its \"", member, "\"");
    messages.push_back({message["role"].get<std::string>(), message["content"].get<std::string>()});
  }
  return messages;
}

}  // namespace detail

struct ReadOptions {
  std::string data;
  std::size_t context = 512;
  Long too_long = Long::cut;
  double held_out = 0.05;  ///< the share of documents
};

/// Which documents are held out, as if drawn: a function of the document's number.
inline bool is_held_out(std::size_t index, double share) {
  return static_cast<double>(adacc::unit_float(
             adacc::random_word({.purpose = adacc::Purpose::data}, index))) < share;
}

/// Reads lines of JSON, if the name ends with .jsonl, or else a text, cut into pieces of a sequence.
inline adacc::Result<Documents> read_documents(const Model& model, const ReadOptions& options) {
  using namespace adacc;
  const auto file = MappedFile::open(options.data, "conversations or a text");
  if (!file) return file.error;
  const void* const bytes = file->bytes().data();
  const std::string_view text(static_cast<const char*>(bytes), file->bytes().size());
  Documents made;
  std::size_t index = 0;
  const auto keep = [&](Document document) {
    if (std::find(document.learnt.begin() + 1, document.learnt.end(), true) ==
        document.learnt.end()) {
      ++made.empty;
      return;
    }
    auto& to = is_held_out(index++, options.held_out) ? made.held_out : made.train;
    to.push_back(std::move(document));
  };
  const std::size_t most = options.context + 1;  // the last token is a target alone
  if (!options.data.ends_with(".jsonl")) {
    const std::vector<std::int32_t> tokens = model.tokenizer.with_ends(
        model.tokenizer.encode(text, SpecialText::text, &made.left_out_bytes));
    for (std::size_t at = 0; tokens.size() - at >= 2;
         at += std::min(options.context, tokens.size() - at)) {
      const auto from = tokens.begin() + static_cast<std::ptrdiff_t>(at);
      const std::size_t count = std::min(most, tokens.size() - at);
      if (count < 2) break;
      keep({{from, from + static_cast<std::ptrdiff_t>(count)}, std::vector<bool>(count, true), {}});
    }
  } else {
    std::size_t number = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      const std::string_view content = text.substr(at, end - at);
      at = end + 1;
      const detail::Line line(*file, ++number);
      if (content.find_first_not_of(" \t\r") == content.npos) continue;
      auto messages = detail::read_messages(content, line);
      if (!messages) return messages.error;
      auto chat = encode_chat(model.tokenizer, model.form, *messages, false);
      if (!chat) return line.fault(chat.error.text());
      made.left_out_bytes += chat->left_out;
      if (chat->tokens.size() > most) {
        if (options.too_long == Long::refuse)
          return line.fault("a conversation of ", chat->tokens.size(),
                            " tokens, and a sequence has ", options.context,
                            " and one more: --long cut cuts it");
        chat->tokens.resize(most);
        chat->answers.resize(most);
        ++made.cut;
      }
      keep({std::move(chat->tokens),
            {chat->answers.begin(), chat->answers.end()},
            std::move(*messages)});
    }
  }
  if (made.train.empty())
    return file->fault("has nothing to learn: ", made.empty,
                       " conversations have no answer within a sequence, ", made.held_out.size(),
                       " are held out");
  return made;
}

/// Order of documents in a round.
enum class Order {
  random,  ///< another one in each round, by the seed
  file,    ///< the order of the file
};

/// Batches of documents. A batch is a function of its number.
class Batches {
 public:
  Batches(const std::vector<Document>& documents, adacc::Shape shape, Order order,
          std::uint64_t seed)
      : documents_(documents), batch_(shape), kind_(order), seed_(seed) {}

  /// The batch of that number, counted over all rounds.
  const adacc::PackedBatch& get(std::uint64_t number) {
    if (number < first_) round_ = 0, first_ = 0, begins_.clear();
    if (begins_.empty()) begin_round(round_);
    while (number - first_ >= begins_.size()) {
      first_ += begins_.size();
      begin_round(++round_);
    }
    fill(begins_[number - first_]);
    return batch_;
  }
  /// The number of the round of the last batch, from 0.
  std::uint32_t round() const { return round_; }

  /// Packs documents from place `at` of the order on; the place of the first that finds no room.
  std::size_t fill(std::size_t at) {
    batch_.clear();
    while (at < documents_.size() && add(at)) ++at;
    return at;
  }
  /// In the order of the file, for documents that are judged.
  void in_order() {
    order_.resize(documents_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
  }
  const adacc::PackedBatch& batch() const { return batch_; }

 private:
  bool add(std::size_t at) {
    const Document& document = documents_[order_[at]];
    const auto added =
        batch_.add({document.tokens.data(), adacc::Shape(document.tokens.size())}, document.learnt);
    return added && *added;
  }
  void begin_round(std::uint32_t round) {
    in_order();
    if (kind_ == Order::random) shuffle(round);
    begins_.clear();
    for (std::size_t at = 0; at < order_.size();) {
      begins_.push_back(at);
      at = fill(at);
    }
  }
  void shuffle(std::uint32_t round) {
    const adacc::RandomKey key{seed_, round, 0, 0, adacc::Purpose::data};
    for (std::size_t i = order_.size(); i > 1; --i)
      std::swap(order_[i - 1], order_[adacc::random_word(key, i) % i]);
  }

  const std::vector<Document>& documents_;
  adacc::PackedBatch batch_;
  Order kind_;
  std::uint64_t seed_;
  std::vector<std::size_t> order_,
      begins_;               ///< of the round, and the first place of each batch in it
  std::uint64_t first_ = 0;  ///< number of the round's first batch
  std::uint32_t round_ = 0;
};

}  // namespace chat_tune
