// SPDX-License-Identifier: MIT
/// checkpoint(fn, inputs...): runs fn and keeps only the inputs, and no tensors saved by operators of fn; backward
/// runs fn again. The counterpart of Python's torch.utils.checkpoint for libtorch, which lacks one
/// (pytorch/pytorch#52744).
///
///     y = adacc::torch::checkpoint([&](const at::Tensor& h) { return block->forward(h); }, h);
///
/// In forward, hooks keep a number in place of each saved tensor. The first tensor needed in backward runs fn again,
/// under hooks that collect the tensors in the same order and end the run at the last one. So gradients have the bits
/// of a run without a checkpoint, if fn computes the same when called again. Random numbers and autocast are
/// restored, on the CPU and on the device of each input, through default generators; where they cannot be kept,
/// checkpoint() throws. For a device without an input, and for other generators, fn is responsible.
///
/// Checkpoints nest, work with torch::autograd::grad, with retain_graph and create_graph, and with inputs that need
/// no gradient. Any operator would save inputs the same way: under an outer SavedTensors they are encoded, too. Hooks
/// inside of fn keep the tensors given to them.
///
/// fn and everything fn refers to must live until backward is over. fn may be called several times; other state
/// changed by fn (running statistics of batch norm, counters) changes each time. fn must let exceptions of unknown
/// type pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include "blocks.hpp"
#include "hooks.hpp"
#include "repetition.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

namespace detail {

/// Collects the tensors saved by a function, and also serves a backward inside of the function.
class Collector final : public Hooks {
 public:
  explicit Collector(Repetition::Collect collect) : collect_(std::move(collect)) {}
  void call_pack_hook(const at::Tensor& tensor) override {
    value_ = tensor.detach();
    collect_(value_);
  }
  at::Tensor call_unpack_hook() override { return value_; }

 private:
  Repetition::Collect collect_;
  at::Tensor value_;
};

/// One call of checkpoint(): everything needed to repeat the call, and the tensors of the repetition.
class Recomputation {
 public:
  Recomputation(const Repetition::Inputs& inputs, Repetition::Again again)
      : repetition_(inputs, std::move(again)) {}

  /// Returns the number of a tensor saved by forward.
  std::size_t count(const at::Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    saved_.push_back({{}, tensor.sizes().vec(), tensor.scalar_type()});
    return saved_.size() - 1;
  }

  /// Returns a tensor to backward.
  at::Tensor take(std::size_t number) {
    const std::lock_guard lock(mutex_);
    if (!saved_[number].value.defined()) recompute();
    return std::exchange(saved_[number].value, at::Tensor());
  }

 private:
  struct Saved {
    at::Tensor value;  // from recomputation until take()
    std::vector<std::int64_t> sizes;
    at::ScalarType type;
  };
  struct AllThere {};  // thrown through fn after the last tensor

  void collect(const at::Tensor& value) {
    TORCH_CHECK(collected_ < saved_.size(), "adacc: checkpoint: its function caught what ends it");
    Saved& saved = saved_[collected_];
    TORCH_CHECK(saved.sizes == value.sizes() && saved.type == value.scalar_type(),
                "adacc: checkpoint: when its function was called again it saved a ",
                value.scalar_type(), " tensor of sizes ", value.sizes(), " where it had saved a ",
                saved.type, " tensor of sizes ", at::IntArrayRef(saved.sizes),
                ": it must do the same each time");
    saved.value = value;
    if (++collected_ == saved_.size()) throw AllThere{};
  }

  void recompute() {
    for (Saved& saved : saved_) saved.value.reset();
    collected_ = 0;
    try {
      repetition_.run([this](const at::Tensor& value) { collect(value); });
    } catch (const AllThere&) {
      return;
    }
    TORCH_CHECK(false, "adacc: checkpoint: when its function was called again it saved ",
                collected_, " tensors where it had saved ", saved_.size(),
                ": it must do the same each time");
  }

  std::mutex mutex_;
  Repetition repetition_;
  std::vector<Saved> saved_;
  std::size_t collected_ = 0;
};

/// In forward: a number in place of a saved tensor.
class Placeholder final : public Hooks {
 public:
  explicit Placeholder(std::shared_ptr<Recomputation> of) : of_(std::move(of)) {}
  void call_pack_hook(const at::Tensor& tensor) override { number_ = of_->count(tensor); }
  at::Tensor call_unpack_hook() override { return of_->take(number_); }

 private:
  std::shared_ptr<Recomputation> of_;
  std::size_t number_ = 0;
};

}  // namespace detail

/// fn(inputs...), with nothing saved but the inputs; within a budget (budget.hpp), only if the plan says so. `fn` is
/// copied and called with tensors (or undefined ones) as often as backward asks; any return type will do. Without
/// gradients, `fn` is just called.
template <class Fn, class... Tensors>
auto checkpoint(Fn fn, const Tensors&... inputs) {
  static_assert((std::is_convertible_v<const Tensors&, const at::Tensor&> && ...),
                "adacc: checkpoint(fn, inputs...) takes tensors; let fn capture what is none");
  static_assert(
      requires { fn(static_cast<const at::Tensor&>(inputs)...); },
      "adacc: checkpoint(fn, inputs...) calls fn(const at::Tensor&...)");
  if (!at::GradMode::is_enabled() || detail::within_block())
    return fn(static_cast<const at::Tensor&>(inputs)...);
  std::optional<detail::PlannedBlock> planned;
  detail::BlockRun run = detail::BlockRun::again;
  if (detail::BlockPlanner* const planner = detail::block_planner()) {
    planned.emplace(*planner, std::vector<at::Tensor>{inputs...});
    run = planned->run();
  }
  if (run == detail::BlockRun::plain) return fn(static_cast<const at::Tensor&>(inputs)...);
  const auto again = [fn](const std::vector<at::Tensor>& given,
                          const detail::Repetition::Collect& collect) mutable {
    const HooksScope hooks([&collect] { return std::make_unique<detail::Collector>(collect); });
    [&]<std::size_t... I>(std::index_sequence<I...>) { static_cast<void>(fn(given[I]...)); }
    (std::index_sequence_for<Tensors...>{});
  };
  if (run == detail::BlockRun::recorded) {
    const detail::ThreadValue<std::shared_ptr<detail::DroppedBlock>> dropped(
        detail::dropped_block(),
        std::make_shared<detail::DroppedBlock>(planned->planner(),
                                               std::vector<at::Tensor>{inputs...}, again));
    return fn(static_cast<const at::Tensor&>(inputs)...);
  }
  const auto recomputation =
      std::make_shared<detail::Recomputation>(std::vector<at::Tensor>{inputs...}, again);
  const HooksScope hooks(
      [recomputation] { return std::make_unique<detail::Placeholder>(recomputation); });
  return fn(static_cast<const at::Tensor&>(inputs)...);
}

}}}  // namespace adacc::v0_1::torch
