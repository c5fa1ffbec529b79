// SPDX-License-Identifier: MIT
/// Declines encodes that lose rows, if a codec judges its own blobs (codec/row_errors.hpp).
///
/// An encode's input is still there at its end. If rows are over the codec's bound, and the arena has room to spare
/// until backward wants the activation (step/spare_room.hpp), the activation waits there unencoded. Otherwise other
/// codecs are tried, each judged in the same way: first the codec's for_unlike_rows, whose blob mostly fits in the
/// place of the planned one, then the next milder ones among the codecs tolerated by all readers. If none passes, the
/// planned blob stays, and the report says so. All this depends on the program and the values alone, not on threads or
/// slices.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "../codec/estimated_error.hpp"
#include "../core/context.hpp"
#include "dispatch_table.hpp"
#include "memory_check.hpp"
#include "spare_room.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Copies `bytes` bytes on the threads of a context.
template <class Context>
void copy_in_tiles(Context& context, const std::byte* from, std::byte* to, std::size_t bytes) {
  constexpr std::size_t tile = 64 * KiB;
  for_tiles(context, div_up(bytes, tile), [=](std::size_t i, int) {
    const std::size_t begin = i * tile, left = bytes - begin;
    std::memcpy(to + begin, from + begin, left < tile ? left : tile);
  });
}

/// For steps whose codecs judge nothing.
struct NoDeclining {
  void let(bool) {}
  static constexpr bool judges() { return false; }
  void begin(Program&) {}
  void mark(Program&) {}
};

/// For the steps of one program, which notes the outcome for each activation.
template <class T, class Context>
class Declining {
  using Codec = CodecDispatch<T, Context>;
  using Codecs = Dispatch<T, Context>;

 public:
  /// Sets whether encodes are judged, and kept otherwise if not good enough.
  void let(bool on) { on_ = on; }
  bool judges() const { return on_; }

  /// A step begins: nothing is declined yet.
  void begin(Program& program) {
    for (Declinable& declinable : program.declinables) declinable.now = {};
    stale_ = stale_ || (marked_ && !program.declinables.empty());
  }

  /// `part` of activation `id` was encoded to `blob`. `x` begins where the whole activation would begin; only this part
  /// is in memory. Returns the codec's verdict.
  RowErrors judge(Context& context, Program& program, const Codec& codec, int id, View<const T> x,
                  ConstBytes blob, Part part) const {
    if (!on_ || codec.row_errors == nullptr) return {};
    Declinable* const declinable = find_declinable(program.declinables, id);
    if (declinable == nullptr) return {};
    if (part.first == 0) declinable->now = {};  // a failed one may be encoded again
    return declinable->now.errors =
               declinable->now.errors + codec.row_errors(context, x, blob, part);
  }

  /// The last part was encoded: if rows are over the bound, keeps the activation in another form. The error of a codec.
  Error decline(Context& context, Program& program, const Codecs& codecs, int id, View<const T> x,
                Bytes arena) {
    if constexpr (!context_traits<Context>::own_memory) {
      Declinable* const declinable = on_ ? find_declinable(program.declinables, id) : nullptr;
      if (declinable == nullptr || declinable->now.errors.over == 0) return {};
      declinable->now.kept = KeptAs::over_bound;
      if (!declinable->movable) return {};
      const std::size_t bytes = x.size() * sizeof(T),
                        place = spare_room(program, *declinable, bytes);
      if (place == no_room)
        return encode_otherwise(context, program, codecs, *declinable, x, arena);
      copy_in_tiles(context, bytes_of_values(x.data()), arena.data() + place, bytes);
      keep(*declinable, KeptAs::exactly, nullptr, place, bytes);
    }
    return {};
  }

  /// Whether activation `id` is kept otherwise than planned.
  static const Declined* kept(const Program& program, int id) {
    const Declinable* const declinable = find_declinable(program.declinables, id);
    return declinable != nullptr && declinable->now.otherwise() ? &declinable->now : nullptr;
  }

  /// Whether activation `id` is kept by its codec's for_unlike_rows.
  static bool holds_unlike_rows(const Program& program, int id) {
    const Declined* const now = kept(program, id);
    return now != nullptr && now->codec != nullptr &&
           now->codec == program.plan[id].codec()->for_unlike_rows;
  }

  /// Brings back an activation kept otherwise: part `part` of instruction `inst`, whose `piece` the plan's codec would
  /// decode, to `y`.
  Error bring_back(Context& context, const Program& program, const Codecs& codecs,
                   const Declined& from, const Instruction& inst, std::size_t part, Part piece,
                   ConstBytes arena, View<T> y) const {
    if constexpr (!context_traits<Context>::own_memory) {
      const CodecInfo& planned = *program.plan[inst.node].codec();
      const auto share = [&](std::size_t whole, std::size_t p) {
        return whole / static_cast<std::size_t>(inst.parts) * p +
               whole % static_cast<std::size_t>(inst.parts) * p /
                   static_cast<std::size_t>(inst.parts);
      };
      if (from.codec == nullptr) {
        // A reader of a part of rows, right behind this instruction, wants these rows.
        Run run = run_of(planned, y, piece);
        if (inst.loop < 0) run = {share(y.size(), part), share(y.size(), part + 1)};
        copy_in_tiles(context, arena.data() + from.place + run.begin * sizeof(T),
                      reinterpret_cast<std::byte*>(y.data() + run.begin),
                      (run.end - run.begin) * sizeof(T));
        return {};
      }
      const ConstBytes blob(arena.data() + from.place, Shape(from.bytes));
      Part range;
      if (from.codec->split_items == nullptr) {
        if (part != 0) return {};
      } else if (inst.parts > 1) {
        const std::size_t items = from.codec->split_items(y.rows(), y.cols());
        std::size_t first = share(items, part), end = share(items, part + 1);
        if (inst.loop >= 0) {
          const std::size_t elems = from.codec->item_elements(y.cols());
          const Run run = run_of(planned, y, piece);
          first = run.begin / elems, end = div_up(run.end, elems);
        }
        if (first == end) return {};
        range = {first, end - first, items};
      }
      return codecs.find(from.codec)->decode(context, blob, y, range);
    }
    return {};
  }

  /// Before backward looks at program.exact: activations kept exactly are exact, and so are those recomputed from them.
  void mark(Program& program) {
    if (!stale_) return;
    stale_ = marked_ = false;
    mark_exact(
        program.graph, program.plan,
        [&](int k) {
          const Declined* const now = kept(program, k);
          if (now == nullptr || (now->codec != nullptr && !now->codec->lossless)) return false;
          return marked_ = true;
        },
        program.exact);
  }

 private:
  /// Elements of a tensor.
  struct Run {
    std::size_t begin = 0, end = 0;
  };
  /// The elements of `y` in `piece`, as cut by `codec`.
  static Run run_of(const CodecInfo& codec, View<const T> y, Part piece) {
    if (codec.item_elements == nullptr) return {0, y.size()};
    const std::size_t n = codec.item_elements(y.cols());
    const Part items = piece.of(codec.split_items(y.rows(), y.cols()));
    const std::size_t end = (items.first + items.count) * n;
    return {items.first * n, end < y.size() ? end : y.size()};
  }

  static const std::byte* bytes_of_values(const T* values) {
    return reinterpret_cast<const std::byte*>(values);
  }

  void keep(Declinable& declinable, KeptAs kept, const CodecInfo* codec, std::size_t place,
            std::size_t bytes) {
    declinable.now.kept = kept;
    declinable.now.codec = codec;
    declinable.now.place = place;
    declinable.now.bytes = bytes;
    stale_ = stale_ || codec == nullptr || codec->lossless;
  }

  Error encode_otherwise(Context& context, const Program& program, const Codecs& codecs,
                         Declinable& declinable, View<const T> x, Bytes arena) {
    const Graph& graph = program.graph;
    const CodecInfo& planned = *program.plan[declinable.activation].codec();
    bool spoiled = false;  // a tried codec may write where the blob was
    if (const Error why = try_codec(context, program, codecs, declinable, x, arena,
                                    planned.for_unlike_rows, spoiled))
      return why;
    const CodecSpan candidates = graph.candidates_of(declinable.activation);
    const auto error_of = [&](const CodecInfo& codec) {
      return estimated_error(codec, graph.node(declinable.activation).output, graph.scalar);
    };
    double above = error_of(planned);
    std::size_t last = candidates.count;  // among codecs with this error, the one tried last
    while (!declinable.now.otherwise()) {
      const CodecInfo* next = nullptr;
      double error = -1;
      std::size_t number = 0;
      for (std::size_t i = 0; i < candidates.count; ++i) {
        const double its = error_of(*candidates[i]);
        const bool milder = its < above || (its <= above && last < i);
        if (milder && its > error) next = candidates[i], error = its, number = i;
      }
      if (next == nullptr) break;
      above = error, last = number;
      if (const Error why =
              try_codec(context, program, codecs, declinable, x, arena, next, spoiled))
        return why;
    }
    if (declinable.now.otherwise() || !spoiled || declinable.blob < 0) return {};
    return codecs.find(&planned)->encode(context, x, place_of_blob(program, declinable, arena), {});
  }

  /// Keeps the activation by the codec `next`, if the table has this codec, the arena has room, and no row is over the
  /// bound.
  Error try_codec(Context& context, const Program& program, const Codecs& codecs,
                  Declinable& declinable, View<const T> x, Bytes arena, const CodecInfo* next,
                  bool& spoiled) {
    const Codec* const codec = next == nullptr ? nullptr : codecs.find(next);
    if (codec == nullptr || !next->keeps_values || !can_come_back(program, declinable, *next))
      return {};
    const std::size_t bytes = next->encoded_bytes(x.rows(), x.cols(), dtype_of<T>);
    const std::size_t place = bytes == 0 ? no_room : room_for_blob(program, declinable, bytes);
    if (place == no_room) return {};
    const Bytes blob(arena.data() + place, Shape(bytes));
    spoiled = true;
    if (const Error why = codec->encode(context, x, blob, {})) return why;
    if (codec->row_errors == nullptr || codec->row_errors(context, x, blob, {}).over == 0)
      keep(declinable, KeptAs::milder, next, place, bytes);
    return {};
  }

  static Bytes place_of_blob(const Program& program, const Declinable& declinable, Bytes arena) {
    const auto b = static_cast<std::size_t>(declinable.blob);
    return {arena.data() + program.layout.offsets[b], Shape(program.schedule.buffers[b].bytes)};
  }
  /// The planned blob's place, if large enough: gaps are left to activations that need them.
  static std::size_t room_for_blob(const Program& program, const Declinable& declinable,
                                   std::size_t bytes) {
    if (declinable.blob >= 0) {
      const auto b = static_cast<std::size_t>(declinable.blob);
      if (bytes <= program.schedule.buffers[b].bytes) return program.layout.offsets[b];
    }
    return spare_room(program, declinable, bytes);
  }

  /// Whether `codec` can decode in parts for readers right behind each part.
  static bool can_come_back(const Program& program, const Declinable& declinable,
                            const CodecInfo& codec) {
    if (!declinable.by_parts) return true;
    const CodecInfo& planned = *program.plan[declinable.activation].codec();
    if (codec.split_items == nullptr || codec.item_elements == nullptr) return false;
    const std::size_t cols = program.graph.node(declinable.activation).output.cols();
    const Cut cut = codec_cut(program.graph, declinable.activation, planned);
    return cut.part_items * planned.item_elements(cols) % codec.item_elements(cols) == 0;
  }

  bool on_ = true;
  bool stale_ = false;  ///< program.exact does not describe this step
  bool marked_ =
      true;  ///< program.exact may differ from the plan: the program may be another step's copy
};

}}}  // namespace adacc::v0_1::detail
