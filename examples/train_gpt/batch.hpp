// SPDX-License-Identifier: MIT
/// The batch of tokens that a step is given, in the host's memory.
#pragma once

#include <adacc/core/block.hpp>
#include <adacc/core/error.hpp>
#include <adacc/core/view.hpp>
#include <adacc/io/tokens.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

class Batch {
 public:
  /// Takes the memory of `sequences` sequences of `time` tokens, and of as many targets.
  adacc::Error make(std::size_t sequences, std::size_t time) {
    auto inputs = adacc::Block<std::int32_t>::make(sequences * time, "inputs");
    auto targets = adacc::Block<std::int32_t>::make(sequences * time, "targets");
    if (!inputs || !targets) return inputs ? targets.error : inputs.error;
    inputs_ = std::move(*inputs);
    targets_ = std::move(*targets);
    sequences_ = sequences;
    time_ = time;
    return {};
  }

  /// Becomes batch number `index` of `data`.
  adacc::Error fill(const adacc::Tokens& data, std::uint64_t index) {
    return data.batch(index, sequences_, time_, inputs_.view(), targets_.view());
  }
  adacc::View<const std::int32_t> inputs() const { return {inputs_.data(), shape()}; }
  adacc::View<const std::int32_t> targets() const { return {targets_.data(), shape()}; }

  /// The mean of loss(inputs, targets) over the first batches of `data`, at most 20 of them.
  template <class Loss>
  adacc::Result<double> mean(const adacc::Tokens& data, const Loss& loss) {
    const std::size_t all = data.batches(sequences_, time_);
    const std::size_t count = all < 20 ? all : 20;
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (adacc::Error why = fill(data, i)) return why;
      const auto one = loss(inputs(), targets());
      if (!one) return one.error;
      sum += *one;
    }
    return sum / static_cast<double>(count);
  }

 private:
  adacc::Shape shape() const { return {sequences_, time_}; }

  adacc::Block<std::int32_t> inputs_, targets_;
  std::size_t sequences_ = 0, time_ = 0;
};
