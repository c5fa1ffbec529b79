// SPDX-License-Identifier: MIT
/// Sharded gradients: each rank keeps those of its own parameters alone (ZeRO, stage 2; Rajbhandari et
/// al., SC20).
///
/// Steps have a layer's gradients in their arena, only until the layer's backward has completed
/// them. Then gradients owned by this rank move to its block, and others to a place for one layer. They
/// travel from there to their owners while backward goes on with the layers before. The next
/// layer waits for the place, so one place is enough.
///
/// Each shard is summed over ranks before the next one is added: ranks take shards by turns (rank r of R
/// takes shards r modulo R), and R shards in a row are a sum of their own in the one order
/// (pairwise_sum.hpp). So a rank keeps sums of shards for its own parameters alone.
#pragma once

#include <cstddef>
#include <cstring>
#include <utility>

#include "../../core/array.hpp"
#include "../../core/block.hpp"
#include "../../core/error.hpp"
#include "../../model/graph.hpp"
#include "../../step/complete_gradients.hpp"
#include "pairwise_sum.hpp"
#include "rank_sums.hpp"

namespace adacc { inline namespace v0_1 {

template <class T>
class OwnedGradients {
 public:
  OwnedGradients() = default;

  /// The gradients of rank `rank` for a graph with fused updates. `owners`: the rank of each parameter.
  /// `shards`: of an update, on each rank.
  OwnedGradients(const Graph& graph, const Array<int>& owners, int rank, std::size_t shards)
      : levels_(static_cast<std::size_t>(pairwise_levels(shards))) {
    at_.resize(graph.parameters.size());
    std::size_t layer = 0;
    for (std::size_t g = 0; g < graph.gradients.size(); ++g) {
      if (g == 0 || graph.gradients[g].complete != graph.gradients[g - 1].complete) layer = 0;
      const auto p = static_cast<std::size_t>(graph.gradients[g].parameter);
      const std::size_t elems = padded_elems(graph.parameters[p].shape, graph.scalar);
      if (owners[p] == rank) {
        at_[p] = owned_elems_;
        owned_elems_ += elems;
      } else {
        layer += elems;
        if (layer > place_elems_) place_elems_ = layer;
      }
    }
  }

  /// Bytes of owned gradients, and of the place for a layer.
  std::size_t gradient_bytes() const { return (owned_elems_ + place_elems_) * sizeof(T); }
  /// Bytes of the sums of shards.
  std::size_t sums_bytes() const { return levels_ * owned_elems_ * sizeof(T); }

  Error allocate() {
    Error error;
    detail::take(owned_, owned_elems_, "gradients", error);
    detail::take(place_, place_elems_, "a layer's gradients", error);
    detail::take(kept_, levels_ * owned_elems_, "sums of shards", error);
    return error;
  }

  /// The gradient of parameter p, owned by this rank: of a shard, or the sum once all shards are closed.
  T* gradient(std::size_t p) { return owned_.data() + at_[p]; }

  /// Gives gradients completed by a step to `sums`; waits for the gradients before.
  template <class Sums>
  Error take(const CompleteGradients<T>& complete, const Array<int>& owners, int rank, Sums& sums) {
    if (const Error why = sums.finish()) return why;
    T* place = place_.data() + place_.size();
    for (std::size_t i = complete.size(); i-- > 0;) {
      const std::size_t p = complete.parameter_number(i);
      const View<T> from = complete.gradient(i);
      const std::size_t elems = padded_elems(from.shape(), complete.graph().scalar);
      T* const to = owners[p] == rank ? gradient(p) : (place -= elems);
      std::memcpy(to, from.data(), from.size() * sizeof(T));
      for (std::size_t e = from.size(); e < elems; ++e) to[e] = T{};
      sums.sum({to, Shape(elems)}, owners[p]);
    }
    // Sends even small blocks now: the next gradients wait for these.
    sums.close();
    sums.progress();
    return {};
  }

  /// Ends this rank's shard number `shard`, of `shards`: waits for the shard's sums, and adds them to
  /// the sums of the shards before.
  template <class Context, class Sums>
  Error close_shard(Context& context, std::size_t shard, std::size_t shards, Sums& sums) {
    if (const Error why = sums.finish()) return why;
    std::size_t level = 0;
    const auto add = [&] {
      const View<const T> kept(kept_.data() + level * owned_elems_, Shape(owned_elems_));
      context.accumulate(kept, owned_.view());
    };
    if (owned_.size() == 0) return {};
    for (; (shard >> level & 1) != 0; ++level) add();
    if (shard + 1 != shards) {
      std::memcpy(kept_.data() + level * owned_elems_, owned_.data(), owned_elems_ * sizeof(T));
      return {};
    }
    for (; level < levels_; ++level)
      if ((shard >> level & 1) != 0) add();
    return {};
  }

 private:
  std::size_t owned_elems_ = 0, place_elems_ = 0, levels_ = 0;
  Array<std::size_t> at_;  ///< by owned parameter: offset in owned_
  Block<T> owned_, place_, kept_;
};

}}  // namespace adacc::v0_1
