// SPDX-License-Identifier: MIT
/// What codecs saw in a step that is watched, from the blobs that they made.
///
/// A blob's place is taken by others later in the step. The host reads it as soon as it is there. Of one in
/// a device's memory, what is read is copied to memory that is lent for it, by the stream that encodes, and
/// the host reads a copy of that when the step has ended: nothing waits in between.
#pragma once

#include <cstddef>
#include <cstring>

#include "../core/array.hpp"
#include "../program/plan.hpp"
#include "dispatch_table.hpp"
#include "memory_check.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

template <class T, class Context>
class WatchedBlobs {
  static constexpr bool gathers = context_traits<Context>::gathers;
  static constexpr bool on_host = !context_traits<Context>::own_memory;
  using Codecs = Dispatch<T, Context>;

 public:
  /// What steps under `plan`, or another one that a planner may choose, want to be lent: 0 if the host
  /// reads blobs itself.
  static std::size_t bytes(const Graph& graph, const Plan& plan, const Codecs& codecs) {
    std::size_t sum = 0;
    for (int k = 0; k < graph.node_count(); ++k) sum += bytes_of_node(graph, plan, codecs, k);
    return sum;
  }

  bool on() const { return on_; }
  Error start(const Graph& graph, const Plan& plan, const Codecs& codecs, Bytes memory) {
    const std::size_t wanted = bytes(graph, plan, codecs);
    if (memory.size() < wanted)
      return Error::misuse("steps that are watched leave ", wanted,
                           " bytes of what their codecs saw, and were lent ", memory.size());
    if constexpr (!on_host)
      if (wanted != 0)
        if (const Error why = Context::memory_fault("bytes to watch in", memory.data(), wanted))
          return why;
    statistics_.resize(graph.nodes.size());
    for (CodecStatistics& of : statistics_) of = {};
    places_.clear();
    std::size_t place = 0;
    for (int k = 0; k < graph.node_count(); ++k) {
      places_.push_back(place);
      place += bytes_of_node(graph, plan, codecs, k);
    }
    memory_ = memory;
    on_ = true;
    return {};
  }
  void stop() { on_ = false; }

  /// Activation `id` was encoded to `blob`, and judged by `errors`.
  void look(Context& context, const Graph& graph, int id, const CodecDispatch<T, Context>& codec,
            ConstBytes blob, const RowErrors& errors) {
    if (!on_) return;
    const Shape shape = graph.node(id).output;
    if constexpr (on_host) {
      if (codec.statistics != nullptr)
        statistics_[index(id)] = codec.statistics(blob, shape.rows(), shape.cols(), dtype_of<T>);
      statistics_[index(id)].rows_over = errors.over;
      if (errors.over > 0) statistics_[index(id)].elements = shape.elems();
    } else if constexpr (gathers) {
      if (codec.watched == nullptr) return;
      std::byte* const to = memory_.data() + places_[index(id)];
      context.gather(blob.data(), {0, blob_header_bytes, 0, 1}, to);
      context.gather(blob.data(), codec.watched(shape.rows(), shape.cols(), dtype_of<T>),
                     to + blob_header_bytes);
    }
  }

  /// Activation `id` is held by another codec, as its own names one for unlike rows: none of them is lost.
  void rows_are_held(int id) {
    if (on_ && on_host) statistics_[index(id)].rows_over = 0;
  }

  /// Reads what the step that ended has left in the memory that it was lent, of which `copy` is one on the
  /// host.
  void read(const Graph& graph, const Plan& plan, const Codecs& codecs, ConstBytes copy) {
    for (int k = 0; k < graph.node_count(); ++k) {
      const CodecDispatch<T, Context>* codec = codecs.find(plan[k].codec());
      if (on_host || plan[k].codec() == nullptr || codec == nullptr || codec->watched == nullptr)
        continue;
      const Shape shape = graph.node(k).output;
      const std::byte* const from = copy.data() + places_[index(k)];
      const BlobHeader header =
          blob_header(codec->info->id, dtype_of<T>, shape.rows(), shape.cols());
      if (std::memcmp(from, &header, sizeof header) != 0) continue;  // nothing was encoded
      const Pieces pieces = codec->watched(shape.rows(), shape.cols(), dtype_of<T>);
      statistics_[index(k)] =
          codec->seen(from + blob_header_bytes, pieces.bytes, shape.rows(), shape.cols());
    }
  }

  /// Of activation `id` in the last step that was watched.
  CodecStatistics of(int id) const {
    return index(id) < statistics_.size() ? statistics_[index(id)] : CodecStatistics{};
  }

 private:
  static constexpr std::size_t index(int i) { return static_cast<std::size_t>(i); }

  /// The most that a codec which a plan may choose for `id` leaves.
  static std::size_t bytes_of_node(const Graph& graph, const Plan& plan, const Codecs& codecs,
                                   int id) {
    std::size_t most = 0;
    if constexpr (gathers) {
      const Node& node = graph.node(id);
      const Shape shape = node.output;
      const auto count = [&](const CodecInfo* info) {
        const CodecDispatch<T, Context>* codec = info == nullptr ? nullptr : codecs.find(info);
        if (codec == nullptr || codec->watched == nullptr) return;
        const std::size_t bytes =
            blob_header_bytes + codec->watched(shape.rows(), shape.cols(), dtype_of<T>).total();
        if (bytes > most) most = bytes;
      };
      count(plan[id].codec());
      count(node.policy.codec());
      const CodecSpan candidates = graph.candidates_of(node);
      for (std::size_t i = 0; i < candidates.count; ++i) count(candidates[i]);
    }
    return align_up(most);
  }

  Array<CodecStatistics> statistics_;  ///< by activation
  Array<std::size_t> places_;          ///< by activation, in the memory that was lent
  Bytes memory_;
  bool on_ = false;
};

}}}  // namespace adacc::v0_1::detail
