// SPDX-License-Identifier: MIT
/// A trainer with no more than train/trainer.hpp asks for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "../train/trainer.hpp"

namespace adacc { inline namespace v0_1 { namespace testing {

class TrainerArchetype {
 public:
  Result<TrainingOutcome> step(AnyView x, AnyView y, double rate) {
    if (const Result<double> loss = accumulate(x, y); !loss) return loss.error;
    return update(rate);
  }
  Result<double> accumulate(AnyView, AnyView) {
    ++batches_;
    return 0.0;
  }
  Error begin(AnyView, AnyView) { return {}; }
  template <class Clock>
  Result<Slice> slice(Clock&&, std::int64_t) {
    ++batches_;
    return Slice{.ended = true};
  }
  Result<TrainingOutcome> update(double) {
    ++updates_;
    batches_ = 0;
    return TrainingOutcome{};
  }
  Result<double> evaluate(AnyView, AnyView) { return 0.0; }
  Error infer(AnyView, View<float>) { return {}; }
  Error set_budget(std::size_t) { return {}; }
  Error save(const std::string&, const std::string& = {}) const { return {}; }
  Error load(const std::string&) { return {}; }
  std::uint64_t updates() const { return updates_; }
  std::size_t batches() const { return batches_; }
  const Plan& plan() const { return plan_; }
  std::size_t peak_bytes() const { return 0; }
  TrainingMemoryUse memory_use() const { return {}; }

 private:
  Plan plan_;
  std::uint64_t updates_ = 0;
  std::size_t batches_ = 0;
};

}}}  // namespace adacc::v0_1::testing
