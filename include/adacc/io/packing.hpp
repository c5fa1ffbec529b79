// SPDX-License-Identifier: MIT
/// Documents packed into the sequences of a batch: tokens, targets, and positions that keep documents apart.
///
///     PackedBatch batch(Shape(4, 512));
///     Result<bool> added = true;
///     while ((added = batch.add(documents[next])) && *added) ++next;   // until full, or an error
///     training.context().positions = batch.positions();
///     training.step(batch.tokens(), batch.targets(), rate);
///
/// Each document goes whole to the first sequence with room for it. The target of a token is the next token of the same
/// document; the last token has none and is left out. Room at the end of a sequence is a document of padding, whose
/// targets are ignored (model/class_targets.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../core/error.hpp"
#include "../core/view.hpp"
#include "../model/class_targets.hpp"

namespace adacc { inline namespace v0_1 {

class PackedBatch {
 public:
  /// `shape`: (batch, time).
  explicit PackedBatch(Shape shape, std::int32_t padding = 0)
      : shape_(shape), padding_(padding), filled_(shape.rank() == 2 ? shape[0] : 0) {
    clear();
  }

  /// Packs a document; false if no sequence has room for it: the batch is full, and unchanged. A document that fits no
  /// sequence is an error.
  /// `tokens`: at least two.
  /// `learnt`: whether each token is to be learned; empty: all are. A token that is not is no target.
  Result<bool> add(View<const std::int32_t> tokens, const std::vector<bool>& learnt = {}) {
    if (shape_.rank() != 2 || shape_.elems() == 0)
      return Error::misuse("documents are packed into a batch of shape (batch, time), and got ",
                           shape_);
    if (tokens.size() < 2)
      return Error::say("a document of ", tokens.size(),
                        " tokens has nothing to learn: at least 2 are needed");
    if (!learnt.empty() && learnt.size() != tokens.size())
      return Error::misuse("a document has ", tokens.size(), " tokens, and ", learnt.size(),
                           " of them are said to be learnt or not");
    const std::size_t length = tokens.size() - 1, time = shape_[1];
    if (length > time)
      return Error::say("a document of ", tokens.size(), " tokens is longer than a sequence of ",
                        time, " and one more: cut it");
    std::size_t row = 0;
    while (row < filled_.size() && time - filled_[row] < length) ++row;
    if (row == filled_.size()) return false;
    const std::size_t first = row * time + filled_[row];
    for (std::size_t i = 0; i < length; ++i) {
      tokens_[first + i] = tokens[i];
      targets_[first + i] = learnt.empty() || learnt[i + 1] ? tokens[i + 1] : ignored_target;
      positions_[first + i] = static_cast<std::int32_t>(i);
    }
    filled_[row] += length;
    for (std::size_t i = filled_[row]; i < time; ++i)
      positions_[row * time + i] = static_cast<std::int32_t>(i - filled_[row]);
    ++documents_;
    return true;
  }

  /// Empties the batch; the memory stays.
  void clear() {
    const std::size_t elems = filled_.empty() ? 0 : shape_.elems();
    tokens_.assign(elems, padding_);
    targets_.assign(elems, ignored_target);
    positions_.resize(elems);
    for (std::size_t i = 0; i < elems; ++i)
      positions_[i] = static_cast<std::int32_t>(i % shape_[1]);
    for (std::size_t& filled : filled_) filled = 0;
    documents_ = 0;
  }

  std::size_t documents() const { return documents_; }
  /// Views of the batch, valid as long as the batch is; add() and clear() change the numbers.
  View<const std::int32_t> tokens() const { return {tokens_.data(), shape_}; }
  View<const std::int32_t> targets() const { return {targets_.data(), shape_}; }
  View<const std::int32_t> positions() const { return {positions_.data(), shape_}; }

 private:
  Shape shape_;
  std::int32_t padding_;
  std::vector<std::size_t> filled_;  ///< by sequence
  std::vector<std::int32_t> tokens_, targets_, positions_;
  std::size_t documents_ = 0;
};

}}  // namespace adacc::v0_1
