// SPDX-License-Identifier: MIT
/// Statistics of codecs in a watched step, from the step's blobs.
///
/// A blob's place is taken by others later in the step, so the host reads a blob at once. From a blob in a device's
/// memory, the encoding stream copies the pieces to be read to memory lent for this purpose, and judges the rows there
/// if the codec does. The host reads a copy of that memory at the end of the step: nothing waits in between.
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
  /// Bytes to be lent to steps under `plan`, or another plan that a planner may choose: 0 if the host reads blobs
  /// itself.
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

  /// Activation `id`, with the values `x`, was encoded to `blob`, and judged by `errors` if the host judges.
  /// judges: steps have encodes judged.
  Error look(Context& context, const Graph& graph, int id, const CodecDispatch<T, Context>& codec,
             [[maybe_unused]] View<const T> x, ConstBytes blob, const RowErrors& errors,
             [[maybe_unused]] bool judges) {
    if (!on_) return {};
    const Shape shape = graph.node(id).output;
    if constexpr (on_host) {
      if (codec.statistics != nullptr)
        statistics_[index(id)] = codec.statistics(blob, shape.rows(), shape.cols(), dtype_of<T>);
      statistics_[index(id)].rows_over = errors.over;
      if (errors.over > 0) statistics_[index(id)].elements = shape.elems();
    } else if constexpr (gathers) {
      if (codec.watched == nullptr) return {};
      std::byte* const to = memory_.data() + places_[index(id)];
      context.gather(blob.data(), {0, blob_header_bytes, 0, 1}, to);
      context.gather(blob.data(), codec.watched(shape.rows(), shape.cols(), dtype_of<T>),
                     to + blob_header_bytes);
      judged_ = judges;
      if (judges && codec.queue_row_errors != nullptr)
        return codec.queue_row_errors(
            context, x, blob, reinterpret_cast<RowErrors*>(to + bytes_before_errors(codec, shape)));
    }
    return {};
  }

  /// Activation `id` is kept by its codec's for_unlike_rows: no row is lost.
  void rows_are_held(int id) {
    if (on_ && on_host) statistics_[index(id)].rows_over = 0;
  }

  /// Reads the pieces left by the last step in the lent memory; `copy` is a copy of this memory on the host.
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
      CodecStatistics& seen = statistics_[index(k)];
      seen = codec->seen(from + blob_header_bytes, pieces.bytes, shape.rows(), shape.cols());
      if (!judged_ || codec->queue_row_errors == nullptr) continue;
      for (std::size_t i = 0; i < judgements(*codec, shape); ++i) {
        RowErrors errors;
        std::memcpy(&errors, from + bytes_before_errors(*codec, shape) + i * sizeof errors,
                    sizeof errors);
        seen.rows_over += errors.over;
      }
    }
  }

  /// Statistics of activation `id` in the last watched step.
  CodecStatistics of(int id) const {
    return index(id) < statistics_.size() ? statistics_[index(id)] : CodecStatistics{};
  }

 private:
  static constexpr std::size_t index(int i) { return static_cast<std::size_t>(i); }

  using Codec = CodecDispatch<T, Context>;

  /// Bytes left of a blob: its header and pieces.
  static std::size_t bytes_before_errors(const Codec& codec, Shape shape) {
    return align_up(blob_header_bytes +
                    codec.watched(shape.rows(), shape.cols(), dtype_of<T>).total());
  }
  /// The number of RowErrors behind them.
  static std::size_t judgements(const Codec& codec, Shape shape) {
    return codec.queue_row_errors == nullptr ? 0
                                             : codec.info->split_items(shape.rows(), shape.cols());
  }

  /// The most bytes left by any codec that a plan may choose for `id`.
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
            bytes_before_errors(*codec, shape) + judgements(*codec, shape) * sizeof(RowErrors);
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
  Array<std::size_t> places_;          ///< by activation, in the lent memory
  Bytes memory_;
  bool on_ = false;
  bool judged_ = false;  ///< RowErrors were left by the last encode
};

}}}  // namespace adacc::v0_1::detail
