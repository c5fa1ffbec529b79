// SPDX-License-Identifier: MIT
/// The online half: static memory, an answer for every picture, and a head that goes on learning.
///
/// Set-up makes programs and tables, and may take memory from the heap. From then on all that changes
/// lies in a block of bytes that is there from the beginning, and nothing is allocated.
#pragma once

#include <adacc/core/bytes.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "picture_net.hpp"
#include "school.hpp"

namespace anole {

/// Bytes that are handed out from the front, for as long as they last.
class Memory {
 public:
  explicit Memory(adacc::Bytes all) : left_(all), size_(all.size()) {}

  template <class T>
  adacc::View<T> take(std::size_t count) {
    if (adacc::carved_bytes<T>(count) > left_.size()) {
      short_of_ += adacc::carved_bytes<T>(count);
      return {};
    }
    return adacc::carve<T>(left_, count);
  }
  std::size_t used() const { return size_ - left_.size(); }
  std::size_t left() const { return left_.size(); }
  /// Bytes that were asked for in vain.
  std::size_t short_of() const { return short_of_; }

 private:
  adacc::Bytes left_;
  std::size_t size_, short_of_ = 0;
};

/// A network that answers one picture.
class Answerer {
 public:
  Answerer() = default;
  Answerer(const Answerer&) = delete;  // the step knows where the network is
  Answerer& operator=(const Answerer&) = delete;

  adacc::Error set_up(const Sizes& sizes) {
    sizes_ = sizes;
    net_ = sizes.net();
    auto graph = graph_of(net_, 1, true);
    if (!graph) return graph.error;
    auto made =
        adacc::Inference<>::make(adacc::make_dispatch<float, adacc::Cpu>(net_), std::move(*graph));
    if (made) inference_ = std::move(*made);
    return made.error;
  }

  const Sizes& sizes() const { return sizes_; }
  const adacc::Graph& graph() const { return inference_.graph(); }
  std::size_t arena_bytes() const { return inference_.arena_bytes(); }
  adacc::Error bind(adacc::Bytes arena, adacc::View<const float> params) {
    return inference_.bind(arena, params);
  }
  /// Scores of all answers, valid until the arena's next use.
  adacc::Result<const float*> scores(adacc::Cpu& cpu, const float* input) {
    const auto last = inference_.infer(cpu, adacc::View<const float>(input, input_shape(1)));
    if (!last) return last.error;
    return last->data();
  }

 private:
  Sizes sizes_;
  Net net_;
  adacc::Inference<> inference_;
};

/// Goes on training the head of a network, a slice at a time, from the last pictures whose class became
/// known. A step is of one picture, so that its arena is as small as that of an answer; gradients of
/// `batch` of them are summed before an update.
class Learner {
 public:
  static constexpr std::size_t batch = 8, remembered = 32;

  Learner() = default;
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;

  adacc::Error set_up(const Sizes& sizes, std::uint64_t seed, float rate) {
    net_ = sizes.net();
    rate_ = rate;
    auto graph = graph_of(net_, 1, true);  // trains the head alone
    if (!graph) return graph.error;
    adacc::Plan plan = adacc::plan_from_types(*graph);
    auto program = adacc::make_program(std::move(*graph), std::move(plan));
    if (!program) return program.error;
    auto step = adacc::Step<>::make(net_, std::move(*program));
    if (!step) return step.error;
    step_ = std::move(*step);
    auto cursor = adacc::Cursor<>::make(step_);
    if (!cursor) return cursor.error;
    cursor_ = std::move(*cursor);
    key_ = {.seed = seed, .purpose = adacc::Purpose::sampling};
    return {};
  }

  /// Elements of the head, which come first among the network's parameters.
  std::size_t head_elems() const { return step_.graph().gradient_elems; }

  void take(Memory& memory) {
    arena_ = memory.take<std::byte>(step_.arena_bytes());
    gradients_ = memory.take<float>(head_elems());
    pictures_ = memory.take<unsigned char>(remembered * pixels);
    kinds_ = memory.take<std::int32_t>(remembered);
    input_ = memory.take<float>(pixels);
  }

  /// From now on it trains the network with these parameters, and knows no pictures.
  adacc::Error bind(adacc::View<float> params) {
    if (step_.active()) ++abandoned_;
    step_.abandon();
    params_ = params;
    known_ = next_ = fresh_ = summed_ = 0;
    return step_.bind(arena_, params, gradients_);
  }

  /// The class of a picture became known.
  void note(const unsigned char* picture, std::size_t kind) {
    std::memcpy(pictures_.data() + next_ * pixels, picture, pixels);
    kinds_[next_] = static_cast<std::int32_t>(kind);
    next_ = (next_ + 1) % remembered;
    known_ = std::min(known_ + 1, remembered);
    fresh_ += passes_per_picture;
  }

  /// Runs so many parts of a step, if there is something to learn.
  adacc::Error slice(adacc::Cpu& cpu, std::size_t parts) {
    if (!cursor_.active()) {
      if (fresh_ == 0 || known_ < batch) return {};
      --fresh_;
      const std::size_t i = adacc::random_word(key_, drawn_++) % known_;
      as_input(pictures_.data() + i * pixels, input_.data());
      answer_ = kinds_[i];
      if (summed_ == 0) cpu.fill(gradients_, 0.0F);
      if (const adacc::Error why =
              cursor_.begin(adacc::View<const float>(input_.data(), input_shape(1)),
                            adacc::View<const std::int32_t>(&answer_, answers_shape(1))))
        return why;
    }
    const auto slice = cursor_.run(cpu, parts);
    if (!slice) return slice.error;
    if (!slice->ended || ++summed_ < batch) return {};
    summed_ = 0;
    for (std::size_t i = 0; i < head_elems(); ++i)
      params_[i] -= rate_ / static_cast<float>(batch) * gradients_[i];
    ++updates_;
    return {};
  }

  std::size_t updates() const { return updates_; }
  std::size_t abandoned() const { return abandoned_; }

 private:
  static constexpr std::size_t passes_per_picture = 4;

  Net net_;
  adacc::Step<> step_;
  adacc::Cursor<> cursor_;
  adacc::RandomKey key_;
  float rate_ = 0;
  adacc::Bytes arena_;
  adacc::View<float> params_, gradients_, input_;
  adacc::View<unsigned char> pictures_;
  adacc::View<std::int32_t> kinds_;
  std::int32_t answer_ = 0;  ///< of the picture that is learned from
  std::size_t known_ = 0, next_ = 0, fresh_ = 0, drawn_ = 0, summed_ = 0, updates_ = 0,
              abandoned_ = 0;
};

/// One network for everything: what the army is compared with.
class OneNetwork {
 public:
  adacc::Error set_up(const Weights& weights, adacc::Bytes memory, bool learns, std::uint64_t seed,
                      float rate) {
    if (const adacc::Error why = network_.set_up(weights.sizes)) return why;
    Memory all(memory);
    const auto arena = all.take<std::byte>(network_.arena_bytes());
    const auto params = all.take<float>(network_.graph().parameter_elems);
    input_ = all.take<float>(pixels);
    learns_ = learns;
    if (learns) {
      if (const adacc::Error why = learner_.set_up(weights.sizes, seed, rate)) return why;
      learner_.take(all);
    }
    if (all.short_of() != 0)
      return adacc::Error::say("the large network needs more than ", adacc::shown(memory.size()));
    bytes_ = all.used();
    const Net net = weights.sizes.net();
    const auto stored = graph_of(net, 1, false);
    if (!stored) return stored.error;
    copy_parameters(*stored, weights.values.data(), network_.graph(), params.data());
    if (learns)
      if (const adacc::Error why = learner_.bind(params)) return why;
    return network_.bind(arena, params);
  }

  std::size_t bytes() const { return bytes_; }
  adacc::Result<std::size_t> answer(const unsigned char* picture) {
    as_input(picture, input_.data());
    const auto scores = network_.scores(cpu_, input_.data());
    if (!scores) return scores.error;
    return largest(*scores, network_.sizes().outputs);
  }
  adacc::Error learn(std::size_t parts) {
    return learns_ ? learner_.slice(cpu_, parts) : adacc::Error{};
  }
  void note(const unsigned char* picture, std::size_t kind) {
    if (learns_) learner_.note(picture, kind);
  }

 private:
  adacc::Cpu cpu_;
  Answerer network_;
  Learner learner_;
  adacc::View<float> input_;
  std::size_t bytes_ = 0;
  bool learns_ = false;
};

}  // namespace anole
