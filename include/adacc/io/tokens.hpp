// SPDX-License-Identifier: MIT
/// A text as token ids, and the batches of a training run.
///
/// Batches come in file order, and the batch of a step is a function of the step alone: a resumed run sees the
/// batches of the uninterrupted one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "../core/block.hpp"
#include "../core/error.hpp"
#include "../core/view.hpp"
#include "file.hpp"
#include "file_format.hpp"

namespace adacc { inline namespace v0_1 {

class Tokens {
 public:
  Tokens() = default;
  /// `source` is the file or folder named in messages.
  Tokens(std::string source, Block<std::uint16_t> ids)
      : source_(static_cast<std::string&&>(source)),
        ids_(static_cast<Block<std::uint16_t>&&>(ids)) {}

  std::size_t size() const { return ids_.size(); }
  std::uint16_t operator[](std::size_t i) const { return ids_[i]; }
  const std::string& source() const { return source_; }

  /// A number that hardly any other text has: a Checksum (file_format.hpp) of the ids.
  std::uint64_t checksum() const {
    Checksum sum;
    const std::size_t whole = size() / 4 * 4;
    std::uint16_t tail[4] = {};
    sum.add(ids_.data(), whole * sizeof tail[0]);
    for (std::size_t i = whole; i < size(); ++i) tail[i - whole] = ids_[i];
    sum.add(tail, sizeof tail);
    return sum.value();
  }

  /// An error that names the first id outside of a vocabulary of this size.
  Error check_vocabulary(std::size_t vocabulary) const {
    for (std::size_t i = 0; i < size(); ++i)
      if (ids_[i] >= vocabulary)
        return Error::say(one_line(source_).c_str(), ": token ", i, " has the id ", int{ids_[i]},
                          "; expected ids below the vocabulary of ", vocabulary);
    return {};
  }

  /// An error if there are fewer tokens than one batch takes: batch * seq + 1.
  Error check_batch(std::size_t batch, std::size_t seq) const {
    std::size_t needed = 0;
    if (batch == 0 || seq == 0 || !multiply(batch, seq, needed) || needed + 1 == 0)
      return Error::say("a batch of ", batch, " x ", seq, " tokens makes no sense");
    if (size() == 0)
      return Error::say(one_line(source_).c_str(), ": is empty; expected at least ", needed + 1,
                        " tokens for a batch of ", batch, " x ", seq);
    if (size() <= needed)
      return Error::say(one_line(source_).c_str(), ": has ", size(), " tokens; expected at least ",
                        needed + 1, " for a batch of ", batch, " x ", seq);
    return {};
  }

  /// Whole batches in one pass over the tokens; 0 if check_batch fails.
  std::size_t batches(std::size_t batch, std::size_t seq) const {
    std::size_t elems = 0;
    if (!multiply(batch, seq, elems) || elems == 0 || size() == 0) return 0;
    return (size() - 1) / elems;
  }

  /// The position in the tokens at which the batch of this step (counted from 0) starts. Like in llm.c's loader, step
  /// s starts at s * batch * seq, and if fewer than batch * seq + 1 tokens are left, batches begin again at 0.
  std::size_t position(std::uint64_t step, std::size_t batch, std::size_t seq) const {
    const std::size_t count = batches(batch, seq);
    return count == 0 ? 0 : static_cast<std::size_t>(step % count) * batch * seq;
  }

  /// Fills `inputs` and `targets` (batch * seq elements each); targets are inputs shifted by one.
  Error batch(std::uint64_t step, std::size_t batch, std::size_t seq, View<std::int32_t> inputs,
              View<std::int32_t> targets) const {
    if (Error error = check_batch(batch, seq)) return error;
    const std::size_t elems = batch * seq;
    if (inputs.size() != elems || targets.size() != elems)
      return Error::say("a batch of ", batch, " x ", seq, " tokens needs ", elems,
                        " inputs and targets; there is room for ", inputs.size(), " and ",
                        targets.size());
    const std::uint16_t* from = ids_.data() + position(step, batch, seq);
    for (std::size_t i = 0; i < elems; ++i) {
      inputs[i] = from[i];
      targets[i] = from[i + 1];
    }
    return {};
  }

 private:
  std::string source_;
  Block<std::uint16_t> ids_;
};

}}  // namespace adacc::v0_1
