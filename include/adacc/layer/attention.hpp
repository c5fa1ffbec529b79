// SPDX-License-Identifier: MIT
/// Multi-head self-attention, computed block by block: no T x T matrix ever exists.
///
/// Causal or in both directions; with as many heads of keys and values as of queries, or with fewer, each of which
/// serves a group of query heads (Ainslie, Lee-Thorp, de Jong, Zemlyanskiy, Lebrón, Sanghai, "GQA", arXiv 2305.13245).
/// In both directions, sequences may end early: the step's context has the length of each (KernelCall::lengths). Documents
/// packed into a sequence do not see each other (KernelCall::positions), and each has the bits of the document alone.
/// Under a causal mask a pass may continue sequences (KernelCall::carried): keys and values of earlier positions are
/// carried from pass to pass, and outputs have the bits of one pass over all positions.
///
/// Forward walks over blocks of keys with a running maximum and sum per query ("online softmax") and keeps one number
/// per query, the logarithm of the sum of exponentials; backward computes the probabilities again from this number.
/// Algorithm: Rabe and Staats, "Self-attention does not need O(n^2) memory", arXiv 2112.05682; Dao, Fu, Ermon, Rudra,
/// Ré, "FlashAttention", arXiv 2205.14135, whose D = rowsum(dO * O) stands for the softmax's inner product.
///
/// Scores are kept transposed, keys down and queries across: then maximum, exponential and sum run
/// over whole vectors of queries with no horizontal step, and of all operands only the queries and
/// dO are ever laid out anew, once per query block.
///
/// If a lossy codec has changed queries, keys and values, the saved logarithm no longer normalizes the probabilities,
/// and D no longer makes the gradients of a row of scores add up to zero. So if input or output are not exact, backward
/// computes both again from its input, in one more pass over the keys: the gradient is then the exact one of attention
/// on the decoded values, and the output is not read at all. On a trained GPT a quarter (int8) to a sixth (int4) of the
/// squared gradient error remains (docs/codecs.md).
///
/// The bound, per head of size d: 2 T^2 d operations in forward and 5 T^2 d in backward at the rate of the multiply-add
/// units, and T^2 / 2 exponentials in each. At d = 64 these kernels reach four fifths of this bound; exponentials are a
/// tenth of forward's.
#pragma once

#include <cstddef>
#include <limits>

#include "../codec/bf16.hpp"
#include "../codec/int4_outlier.hpp"
#include "../codec/int8_outlier.hpp"
#include "../core/bytes.hpp"
#include "../core/cpu.hpp"
#include "../model/contract.hpp"
#include "math/attention_room.hpp"
#include "math/attention_softmax.hpp"
#include "math/block_product.hpp"
#include "math/lanes.hpp"
#include "math/numbers.hpp"
#include "math/packet.hpp"

namespace adacc { inline namespace v0_1 {

/// Which positions a query attends to.
enum class Mask : unsigned char {
  causal,  ///< its own and earlier ones
  length   ///< its whole sequence, up to KernelCall::lengths
};

/// (B, T, (heads + 2 kv_heads) D) -> (B, T, heads D), D channels of a head. A row of the input holds the queries of all
/// heads, then all keys, then all values, each head's side by side; query head h meets keys and values of head h /
/// (heads / kv_heads). Scores are scaled by 1 / sqrt(D). Aux: log-sum-exp of the scaled scores, (B, heads, T). A key or
/// value that is not finite shows at the positions attending to it; under the causal mask also, perhaps, at up to five
/// before, whose weight for it is zero. Positions behind a sequence's length yield zeros, and their gradient is zero.
template <Mask mask>
struct Attention {
  std::size_t heads = 1;     ///< query heads
  std::size_t kv_heads = 0;  ///< key and value heads, a divisor of heads; 0: as many

  static constexpr bool causal = mask == Mask::causal;
  static constexpr const char* name = causal ? "causal_attention" : "attention";
  static constexpr LayerFacts facts{
      .extends_sequences = causal, .reads_positions = true, .runs_in_bf16 = true};
  static constexpr auto backward_reads = reads::both;
  static constexpr auto split = Split::own;
  /// Scores are exponentiated, so errors of q and k grow with them: attention is ten times as sensitive as the second
  /// most sensitive layer of a GPT.
  using input_codecs = CodecList<Int8Outlier, Bf16>;
  static constexpr double input_sensitivity = 0.95;
  /// An inexact output is not read by backward: these are the codecs that the next layer tolerates.
  using output_codecs = CodecList<Int4Outlier, Int8Outlier, Bf16>;
  static constexpr double output_sensitivity = 0;

  /// Queries, and keys, of a block.
  static constexpr std::size_t block = detail::attention_block;

  constexpr std::size_t key_heads() const { return kv_heads == 0 ? heads : kv_heads; }
  constexpr std::size_t all_heads() const { return heads + 2 * key_heads(); }
  /// Channels of a head.
  constexpr std::size_t head_size(Shape in) const {
    return heads == 0 ? 0 : in.cols() / all_heads();
  }

  constexpr Shape output_shape(Shape in) const { return in.with_cols(heads * head_size(in)); }

  /// The workspace has for each worker a transposed block of queries, a block of probabilities and
  /// three numbers per query; in backward twice as many blocks. In bfloat16 it also has packed operands.
  constexpr LayerNeeds needs(Shape in, NeedsQuery query) const {
    if (heads == 0) return {.error = Error::say("attention needs at least 1 head, but has 0")};
    if (in.rank() != 3)
      return {.error = Error::say("attention takes (batch, time, 3 * channels), but its input has ",
                                  in.rank(), " extents")};
    if (in.elems() == 0)
      return {.error = Error::say("attention's input (", in[0], ", ", in[1], ", ", in[2],
                                  ") is empty or too large to count")};
    if (heads % key_heads() != 0)
      return {.error = Error::say("attention's ", kv_heads,
                                  " heads of keys and values do not divide its ", heads,
                                  " heads of queries")};
    if (key_heads() != heads && in.cols() % all_heads() != 0)
      return {.error = Error::say("attention takes ", heads, " heads of queries and ", kv_heads,
                                  " of keys and of values side by side, but ", in.cols(),
                                  " columns are not divisible by ", all_heads())};
    if (key_heads() == heads && in.cols() % 3 != 0)
      return {.error = Error::say("attention takes queries, keys and values side by side, but ",
                                  in.cols(), " columns are not divisible by 3")};
    if (key_heads() == heads && in.cols() / 3 % heads != 0)
      return {.error = Error::say("attention's ", heads, " heads do not divide its ", in.cols() / 3,
                                  " channels")};
    std::size_t statistics = 0;
    if (!multiply(in[0] * in[1], heads, statistics) || !multiply(statistics, 8, statistics))
      return {.error = Error::say("attention over ", in[0], " x ", in[1], " positions with ", heads,
                                  " heads is too large to count")};
    return {.aux = in[0] * heads * in[1] * bytes_of(wide(query.scalar)),
            .workspace = static_cast<std::size_t>(query.workers) *
                         worker_bytes(in, query.scalar, query.pass),
            .carried = causal ? 2 * key_heads() * head_size(in) * bytes_of(query.scalar) : 0,
            .split_items = items_of(in) / blocks_of_item(in, query.scalar),
            .entry_items = heads * div_up(in[1], block) / blocks_of_item(in, query.scalar),
            .operations = operations(in)};
  }

  template <class T>
  void forward(Cpu& cpu, const ForwardCall<T>& call) const {
    using W = Wide<T>;
    if (causal && cpu.carried != nullptr) return continue_sequences(cpu, call);
    Bytes aux = call.aux;
    const Shape in = call.x.shape();
    const std::size_t query_blocks = div_up(in[1], block);
    const View<W> sums = carve<W>(aux, in[0] * heads * in[1]);
    const Part part = blocks_in(call.part, in, dtype_of<T>);
    const std::size_t room_bytes = worker_bytes(in, dtype_of<T>, Pass::forward);
    const InstructionLevel level = detail::target_level();
    cpu.parallel(part.count, [&](std::size_t index, int worker) {
      const std::size_t tile = part.first + index;
      detail::RoomPieces pieces(call.workspace.data() +
                                static_cast<std::size_t>(worker) * room_bytes);
      const detail::AttentionForwardRoom<T> own(pieces, block, head_size(in));
      const std::size_t head = tile / query_blocks;
      // Under a causal mask the last queries see the most keys: they go first, or one thread would end alone with them.
      const std::size_t first = (query_blocks - 1 - tile % query_blocks) * block;
      for_each_block(cpu, in, head, first, [&](const Head& at, std::size_t begin) {
        if (begin < at.time) {
          const T* const rows = call.x.data() + at.q + begin * at.in_ld;
          T* const out = call.y.data() + at.o + begin * at.out_ld;
          W* const own_sums = sums.data() + at.sums + begin;
          const std::size_t queries = positions_in(at.time, begin);
          detail::with_target(level, [&]<class Target>(Target) {
            forward_block<T, Target>(at, begin,
                                     {rows, at.in_ld, queries, out, at.out_ld, own_sums, 1},
                                     call.x.data(), own);
          });
        }
        for (std::size_t t = at.from_padding(begin); t < at.block_end(begin); ++t) {
          fill_zero(call.y.data() + at.o + t * at.out_ld, at.size);
          sums[at.sums + t] = 0;
        }
      });
    });
  }

  template <class T>
  void backward(Cpu& cpu, const BackwardCall<T>& call) const {
    using W = Wide<T>;
    ConstBytes aux = call.aux;
    const Shape in = call.x.shape();
    const View<const W> sums = carve<W>(aux, in[0] * heads * in[1]);
    const bool exact = call.exact_input && call.exact_output;
    const Part part = blocks_in(call.part, in, dtype_of<T>);
    const std::size_t room_bytes = worker_bytes(in, dtype_of<T>, Pass::backward);
    const InstructionLevel level = detail::target_level();
    const std::size_t query_blocks = div_up(in[1], block), end = part.first + part.count;
    const std::size_t group_items = heads / key_heads() * query_blocks;
    const std::size_t first_group = part.first / group_items;
    // A tile is a head of keys and values with all its query heads, or with those within the part: only this tile
    // writes their gradients, in a fixed order.
    cpu.parallel(div_up(end, group_items) - first_group, [&](std::size_t tile, int worker) {
      const std::size_t begin = (first_group + tile) * group_items;
      detail::RoomPieces pieces(call.workspace.data() +
                                static_cast<std::size_t>(worker) * room_bytes);
      const detail::AttentionBackwardRoom<T> own(pieces, block, head_size(in), in[1]);
      const std::size_t from = part.first > begin ? part.first : begin;
      const std::size_t to = end < begin + group_items ? end : begin + group_items;
      for (std::size_t item = from; item < to; ++item) {
        const std::size_t head = item / query_blocks, first = item % query_blocks * block;
        for_each_block(cpu, in, head, first, [&](const Head& at, std::size_t from_query) {
          if (from_query < at.time)
            detail::with_target(level, [&]<class Target>(Target) {
              backward_block<T, Target>(at, from_query, call.x.data(),
                                        exact ? call.y.data() : nullptr, call.dy.data(),
                                        call.dx.data(), sums.data() + at.sums, own);
            });
          for (std::size_t t = at.from_padding(from_query); t < at.block_end(from_query); ++t) {
            T* const row = call.dx.data() + t * at.in_ld;
            fill_zero(row + at.q, at.size);
            if (!at.first_of_group) continue;
            fill_zero(row + at.k, at.size);
            fill_zero(row + at.v, at.size);
          }
        });
      }
      if constexpr (!detail::in_place<T>) {
        const Head at = head_at(cpu, in, begin / query_blocks);
        detail::with_target(level, [&]<class Target>(Target) {
          round_rows<Target>(own.dkey, at.time, at.size, call.dx.data() + at.k, at.in_ld);
          round_rows<Target>(own.dvalue, at.time, at.size, call.dx.data() + at.v, at.in_ld);
        });
      }
    });
  }

 private:
  /// Blocks of queries, head after head.
  constexpr std::size_t items_of(Shape in) const { return in[0] * heads * div_up(in[1], block); }

  /// Two products over the positions seen by each query: under a causal mask half of the sequence on average.
  constexpr double operations(Shape in) const {
    const std::size_t outputs = in.rows() * heads * head_size(in);
    return (causal ? 2.0 : 4.0) * static_cast<double>(outputs) * static_cast<double>(in[1]);
  }

  /// Places and strides of a head's numbers in one document: a whole sequence, unless documents are packed.
  struct Head {
    std::size_t time, size;          ///< valid positions, channels of the head
    std::size_t in_ld, out_ld;       ///< elements from one position to the next
    std::size_t q, k, v, o;          ///< offsets of position 0 in the input and in the output
    std::size_t sums;                ///< offset of position 0 in aux
    std::size_t padded_time;         ///< positions with room; those from `time` on are padding
    bool first_of_group;             ///< among query heads sharing keys and values
    std::size_t document_start = 0;  ///< in its sequence

    /// The document at positions [start, next).
    Head document(std::size_t start, std::size_t next) const {
      Head at = *this;
      at.padded_time = next - start;
      at.time = time < start ? 0 : time < next ? time - start : next - start;
      for (std::size_t* const place : {&at.q, &at.k, &at.v}) *place += start * in_ld;
      at.o += start * out_ld;
      at.sums += start;
      at.document_start = start;
      return at;
    }

    /// Behind the last position seen by a query, if the query is in the block beginning at `first`.
    std::size_t keys_end(std::size_t first) const { return causal ? first + 1 : time; }
    /// The first padding position of this block.
    std::size_t from_padding(std::size_t first) const { return time < first ? first : time; }
    std::size_t block_end(std::size_t first) const {
      return first + positions_in(padded_time, first);
    }
  };

  template <class T>
  static void fill_zero(T* to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) to[i] = T{};
  }

  /// The valid positions of an entry of the batch.
  static std::size_t length_of(const Cpu& cpu, std::size_t entry, std::size_t time) {
    return causal ? time : cpu.length_of(entry, time);
  }

  constexpr std::size_t worker_bytes(Shape in, Dtype scalar, Pass pass) const {
    if (scalar == Dtype::bf16) return worker_bytes_of<bfloat16>(in, pass);
    return scalar == Dtype::f64 ? worker_bytes_of<double>(in, pass)
                                : worker_bytes_of<float>(in, pass);
  }
  template <class T>
  constexpr std::size_t worker_bytes_of(Shape in, Pass pass) const {
    detail::RoomPieces pieces(nullptr);
    if (pass == Pass::forward) detail::AttentionForwardRoom<T>(pieces, block, head_size(in));
    else detail::AttentionBackwardRoom<T>(pieces, block, head_size(in), in[1]);
    return pieces.bytes();
  }

  /// Blocks of queries in an item of the cut work: in bfloat16 all that meet one head of keys and values, whose
  /// gradients are sums in fp32 until the last of these blocks.
  constexpr std::size_t blocks_of_item(Shape in, Dtype scalar) const {
    return scalar == Dtype::bf16 ? heads / key_heads() * div_up(in[1], block) : 1;
  }
  /// `part`, in blocks of queries.
  constexpr Part blocks_in(const Part& part, Shape in, Dtype scalar) const {
    const std::size_t each = blocks_of_item(in, scalar);
    const Part items = part.of(items_of(in) / each);
    return {items.first * each, items.count * each, items.whole * each};
  }

  Head head_at(const Cpu& cpu, Shape in, std::size_t head) const {
    const std::size_t size = head_size(in), width = in.cols(), channels = heads * size;
    const std::size_t entry = head / heads, query_head = head % heads;
    const std::size_t group = heads / key_heads(), row = entry * in[1];
    Head at{};
    at.time = length_of(cpu, entry, in[1]);
    at.padded_time = in[1];
    at.size = size;
    at.in_ld = width;
    at.out_ld = channels;
    at.q = row * width + query_head * size;
    at.k = row * width + channels + query_head / group * size;
    at.v = at.k + key_heads() * size;
    at.o = row * channels + query_head * size;
    at.sums = head * in[1];
    at.first_of_group = query_head % group == 0;
    return at;
  }

  /// Calls use(head, first) for the blocks of queries that begin at positions [first, first + block) of the sequence: one
  /// block, or, if documents are packed, as many as begin there. A document's blocks are those of the document alone.
  template <class Use>
  void for_each_block(const Cpu& cpu, Shape in, std::size_t head, std::size_t first,
                      const Use& use) const {
    const Head whole = head_at(cpu, in, head);
    if (cpu.positions.empty()) return use(whole, first);
    const std::size_t entry = head / heads, end = whole.block_end(first);
    const auto begins = [&](std::size_t t) { return cpu.position_of(entry, t, in[1]) == 0; };
    for (std::size_t start = first - cpu.position_of(entry, first, in[1]); start < end;) {
      std::size_t next = start + 1;
      while (next < in[1] && !begins(next)) ++next;
      const Head document = whole.document(start, next);
      const std::size_t earlier = start < first ? div_up(first - start, block) * block : 0;
      for (std::size_t at = earlier; start + at < next && start + at < end; at += block)
        use(document, at);
      start = next;
    }
  }

  /// Positions of the block beginning at `first`.
  static std::size_t positions_in(std::size_t time, std::size_t first) {
    return time - first < block ? time - first : block;
  }

  /// A block of queries, or of their dO, as a right operand of products: (size, block), scaled; or, of bfloat16, its
  /// `count` rows where they are, packed by the first of several products, and the factor is the products'.
  template <class T>
  struct Columns {
    const T* data;
    std::size_t ld;
    std::size_t count;
    Wide<T> factor;
    PackedOperand<T> packed = {};
  };
  template <class T>
  static Columns<T> columns(const T* rows, std::size_t ld, std::size_t count, std::size_t size,
                            Wide<T> factor, T* room, T* packed) {
    if constexpr (detail::in_place<T>) {
      detail::transpose(rows, ld, count, size, factor, room, block, block);
      return {room, block, count, factor};
    } else {
      return {rows, ld, count, factor, {packed, false}};
    }
  }

  /// Numbers to be summed up, from row `start` of a sequence on: a tensor's own, or, of bfloat16, those of a room for the
  /// sequence.
  template <class W>
  struct Sums {
    W* data;
    std::size_t ld;
  };
  template <class T>
  static Sums<Wide<T>> sums_of(T* rows, std::size_t ld, Wide<T>* room, std::size_t size,
                               std::size_t start = 0) {
    if constexpr (detail::in_place<T>) return {rows, ld};
    else return {room + start * size, size};
  }
  template <class Target>
  static void round_rows(const float* sums, std::size_t rows, std::size_t size, bfloat16* to,
                         std::size_t ld) {
    for (std::size_t i = 0; i < rows; ++i)
      Target::template call<detail::round_numbers<bfloat16, Target>>(sums + i * size, size,
                                                                     to + i * ld);
  }

  /// `block` numbers for each key as factors of products: on the diagonal zeros where a query does not see the key.
  template <class T, class Target>
  static const T* factors(const Wide<T>* numbers, std::size_t keys, bool diagonal, T* room) {
    if constexpr (detail::in_place<T>) {
      return numbers;
    } else {
      Target::template call<detail::round_numbers<T, Target>>(numbers, keys * block, room);
      for (std::size_t k = 0; diagonal && k < keys; ++k) fill_zero(room + k * block, k);
      return room;
    }
  }

  template <class T, class Target>
  static void run(detail::BlockProduct<T, Target> product, Bytes room) {
    if constexpr (!detail::in_place<T>) product.room = room;
    Target::template call<detail::multiply_block<T, Target>>(product);
  }

  template <class T>
  static T inverse_root(std::size_t n) {
    return T(1) / Eigen::numext::sqrt(static_cast<T>(n));
  }

  /// Rows of queries, at most a block, and the place of their results.
  template <class T>
  struct Queries {
    const T* rows;
    std::size_t ld, count;
    T* out;
    std::size_t out_ld;
    Wide<T>* sums;  ///< a logarithm for each query
    std::size_t sums_stride;
    bool see_all =
        false;  ///< each query sees all keys; else those of the causal mask, if there is one
  };

  /// A block of queries that begins at position `first`. `head` has the places of keys and values in `from`.
  template <class T, class Target>
  static void forward_block(const Head& head, std::size_t first, const Queries<T>& to,
                            const T* from, const detail::AttentionForwardRoom<T>& room) {
    using W = Wide<T>;
    constexpr std::size_t vector = detail::lanes_of<W, Target>;
    const std::size_t queries = to.count, lanes = div_up(queries, vector) * vector;
    Columns<T> query = columns(to.rows, to.ld, queries, head.size, inverse_root<W>(head.size),
                               room.query, room.packed);
    for (std::size_t i = 0; i < lanes; ++i) {
      room.maximum[i] = -std::numeric_limits<W>::infinity();
      room.sum[i] = 0;
    }

    const Sums<W> totals = sums_of(to.out, to.out_ld, room.out, head.size);
    const std::size_t end = to.see_all ? head.time : head.keys_end(first);
    for (std::size_t key = 0; key < end; key += block) {
      const bool diagonal = causal && !to.see_all && key == first;
      const std::size_t keys = positions_in(head.time, key);
      by_query<T, Target>(head, key, diagonal, from + head.k, query, room.score, room.products,
                          lanes);
      Target::template call<detail::online_softmax<W, Target>>(
          room.score, keys, diagonal, lanes, room.maximum, room.sum, room.rescale);
      detail::BlockProduct<T, Target> product{
          .rows = queries,
          .lanes = head.size,
          .inner = keys,
          .a = factors<T, Target>(room.score, keys, diagonal, room.weight),
          .a_row_stride = 1,
          .a_inner_stride = block,
          .b = from + head.v + key * head.in_ld,
          .ldb = head.in_ld,
          .c = totals.data,
          .ldc = totals.ld,
          .merge = key == 0 ? detail::Merge::overwrite : detail::Merge::scale_and_add,
          .triangle = diagonal ? detail::Triangle::inner_to_row : detail::Triangle::none,
          .scale = room.rescale};
      run(product, room.products);
    }

    for (std::size_t i = 0; i < queries; ++i) {
      const W factor = W(1) / room.sum[i];
      const W* const total = totals.data + i * totals.ld;
      T* const row = to.out + i * to.out_ld;
      Target::template call<detail::scale_numbers<T, Target>>(total, head.size, factor, row);
      to.sums[i * to.sums_stride] = room.maximum[i] + Eigen::numext::log(room.sum[i]);
    }
  }

  /// Forward of positions behind those of earlier passes. Keys and values join the carried ones, (entry, position, keys
  /// and values of all heads). From a whole number of blocks on, blocks are those of one pass over all positions;
  /// elsewhere the queries of one position that share a head of keys and values make up a block.
  template <class T>
  void continue_sequences(const Cpu& cpu, const ForwardCall<T>& call) const {
    using W = Wide<T>;
    Bytes aux = call.aux;
    const CarriedState& state = *cpu.carried;
    const Shape in = call.x.shape();
    const std::size_t size = head_size(in), group = heads / key_heads(), time = in[1];
    const std::size_t channels = heads * size, width = 2 * key_heads() * size;
    const View<W> sums = carve<W>(aux, in[0] * heads * time);
    T* const kept = state.of<T>(cpu.key.activation);
    cpu.parallel(in.rows(), [&](std::size_t row, int) {
      const T* const from = call.x.data() + row * in.cols() + channels;
      T* const to = kept + (row / time * state.room + state.first + row % time) * width;
      for (std::size_t c = 0; c < width; ++c) to[c] = from[c];
    });
    const std::size_t room_bytes = worker_bytes(in, dtype_of<T>, Pass::forward);
    const InstructionLevel level = detail::target_level();
    cpu.parallel(in[0] * key_heads(), [&](std::size_t tile, int worker) {
      detail::RoomPieces pieces(call.workspace.data() +
                                static_cast<std::size_t>(worker) * room_bytes);
      const detail::AttentionForwardRoom<T> own(pieces, block, size);
      const std::size_t entry = tile / key_heads(), key_head = tile % key_heads();
      const T* const from = kept + entry * state.room * width;
      Head at{};
      at.size = size;
      at.in_ld = width;
      at.k = key_head * size;
      at.v = at.k + key_heads() * size;
      // The queries of `count` rows, from row t and query head h of the group on, at distances of `ld` and `out_ld`.
      const auto queries = [&](std::size_t t, std::size_t h, std::size_t ld, std::size_t out_ld,
                               std::size_t count) {
        const std::size_t row = entry * time + t, head = key_head * group + h;
        return Queries<T>{call.x.data() + row * in.cols() + head * size,
                          ld,
                          count,
                          call.y.data() + row * channels + head * size,
                          out_ld,
                          sums.data() + (entry * heads + head) * time + t,
                          ld == size ? time : 1,
                          ld == size};
      };
      detail::with_target(level, [&]<class Target>(Target) {
        if (time > 1 && state.first % block == 0) {
          at.time = state.first + time;
          for (std::size_t h = 0; h < group; ++h)
            for (std::size_t t = 0; t < time; t += block)
              forward_block<T, Target>(at, state.first + t,
                                       queries(t, h, in.cols(), channels, positions_in(time, t)),
                                       from, own);
          return;
        }
        for (std::size_t t = 0; t < time; ++t) {
          at.time = state.first + t + 1;
          for (std::size_t h = 0; h < group; h += block)
            forward_block<T, Target>(at, 0, queries(t, h, size, size, positions_in(group, h)), from,
                                     own);
        }
      });
    });
  }

  /// Products of a block's rows of `of_keys` (keys or values) with the columns of `of_queries`
  /// (size, block): (keys, block).
  template <class T, class Target>
  static void by_query(const Head& head, std::size_t key, bool diagonal, const T* of_keys,
                       Columns<T>& of_queries, Wide<T>* products, Bytes room,
                       std::size_t lanes = block) {
    detail::BlockProduct<T, Target> product{
        .rows = positions_in(head.time, key),
        .lanes = lanes,
        .inner = head.size,
        .a = of_keys + key * head.in_ld,
        .a_row_stride = head.in_ld,
        .a_inner_stride = 1,
        .b = of_queries.data,
        .ldb = of_queries.ld,
        .c = products,
        .ldc = block,
        .triangle = diagonal ? detail::Triangle::lanes_from_row : detail::Triangle::none};
    if constexpr (!detail::in_place<T>) {
      // Columns of queries that are not there count as zeros.
      product.lanes = of_queries.count;
      product.ldb = 1;
      product.b_lane_stride = of_queries.ld;
      product.kept = of_queries.packed;
      of_queries.packed.holds = true;
      if (product.lanes < block) fill_zero(products, product.rows * block);
    }
    run(product, room);
    if constexpr (!detail::in_place<T>)
      Target::template call<detail::scale_numbers<Wide<T>, Target>>(products, product.rows * block,
                                                                    of_queries.factor, products);
  }

  /// For a block of keys and a block of queries, both transposed: scores (keys, block), and into `dweight` the
  /// gradients of the weights.
  template <class T, class Target>
  static void scores(const Head& head, std::size_t key, bool diagonal, const T* qkv,
                     Columns<T>& query, Columns<T>& dout,
                     const detail::AttentionBackwardRoom<T>& room) {
    by_query<T, Target>(head, key, diagonal, qkv + head.k, query, room.weight, room.products);
    by_query<T, Target>(head, key, diagonal, qkv + head.v, dout, room.dscore, room.products);
  }

  /// log_sum and inner = sum of p dp per query, from one more pass over the keys. This pass ends at the first block of
  /// keys, whose scores and gradients are left in `weight` and `dscore`.
  template <class T, class Target>
  static void statistics_again(const Head& head, std::size_t first, const T* qkv, Columns<T>& query,
                               Columns<T>& dout, const detail::AttentionBackwardRoom<T>& room) {
    using W = Wide<T>;
    W* const log_sum = room.log_sum;
    W* const inner = room.inner;
    W sum[block];
    for (std::size_t i = 0; i < block; ++i) {
      log_sum[i] = -std::numeric_limits<W>::infinity();  // until the end, the maximum
      sum[i] = inner[i] = 0;
    }
    const std::size_t blocks = div_up(head.keys_end(first), block);
    for (std::size_t next = blocks * block; next > 0; next -= block) {
      const std::size_t key = next - block;
      const bool diagonal = causal && key == first;
      scores<T, Target>(head, key, diagonal, qkv, query, dout, room);
      Target::template call<detail::online_statistics<W, Target>>(
          room.weight, room.dscore, positions_in(head.time, key), diagonal, log_sum, inner, sum);
    }
    for (std::size_t i = 0; i < block; ++i) {
      log_sum[i] += Eigen::numext::log(sum[i]);
      inner[i] /= sum[i];
    }
  }

  /// `out` is null if statistics and output do not belong to the numbers in `qkv`.
  template <class T, class Target>
  static void backward_block(const Head& head, std::size_t first, const T* qkv, const T* out,
                             const T* dout, T* dqkv, const Wide<T>* sums,
                             const detail::AttentionBackwardRoom<T>& room) {
    using W = Wide<T>;
    const std::size_t queries = positions_in(head.time, first);
    const W scale = inverse_root<W>(head.size);
    const T* const query_rows = qkv + head.q + first * head.in_ld;
    const T* const dout_rows = dout + head.o + first * head.out_ld;
    Columns<T> query =
        columns(query_rows, head.in_ld, queries, head.size, scale, room.query, room.packed[0]);
    Columns<T> dout_t =
        columns(dout_rows, head.out_ld, queries, head.size, W(1), room.dout, room.packed[1]);
    T* const dquery_rows = dqkv + head.q + first * head.in_ld;
    const Sums<W> dquery = sums_of(dquery_rows, head.in_ld, room.dquery, head.size);
    const Sums<W> dkey =
        sums_of(dqkv + head.k, head.in_ld, room.dkey, head.size, head.document_start);
    const Sums<W> dvalue =
        sums_of(dqkv + head.v, head.in_ld, room.dvalue, head.size, head.document_start);
    const bool again = out == nullptr;
    if (again) {
      statistics_again<T, Target>(head, first, qkv, query, dout_t, room);
    } else {
      const T* const out_rows = out + head.o + first * head.out_ld;
      for (std::size_t i = 0; i < block; ++i) {
        room.log_sum[i] = i < queries ? sums[first + i] : W(0);
        room.inner[i] = 0;
      }
      Target::template call<detail::inner_products<T, Target>>(out_rows, dout_rows, head.out_ld,
                                                               queries, head.size, room.inner);
    }

    for (std::size_t key = 0; key < head.keys_end(first); key += block) {
      const bool diagonal = causal && key == first;
      const std::size_t keys = positions_in(head.time, key);
      const T* const key_rows = qkv + head.k + key * head.in_ld;
      const auto from_key = diagonal ? detail::Triangle::inner_from_row : detail::Triangle::none;
      // A key's first query block is the one on the diagonal, or the first of all.
      const bool fresh = head.first_of_group && (causal ? diagonal : first == 0);
      const auto merge_key = fresh ? detail::Merge::overwrite : detail::Merge::add;

      if (!again || key != 0) scores<T, Target>(head, key, diagonal, qkv, query, dout_t, room);
      Target::template call<detail::softmax_gradient<W, Target>>(
          room.weight, room.dscore, keys, diagonal, room.log_sum, room.inner, scale);
      const T* const weight = factors<T, Target>(room.weight, keys, diagonal, room.rounded_weight);
      const T* const dscore = factors<T, Target>(room.dscore, keys, diagonal, room.rounded_dscore);
      const auto sum_over_queries = [&](const T* factor, const T* rows, std::size_t ld,
                                        const Sums<W>& to, T* packed) {
        detail::BlockProduct<T, Target> product{.rows = keys,
                                                .lanes = head.size,
                                                .inner = queries,
                                                .a = factor,
                                                .a_row_stride = block,
                                                .a_inner_stride = 1,
                                                .b = rows,
                                                .ldb = ld,
                                                .c = to.data + key * to.ld,
                                                .ldc = to.ld,
                                                .merge = merge_key,
                                                .triangle = from_key};
        if constexpr (!detail::in_place<T>) product.kept = {packed, key != 0};
        run(product, room.products);
      };
      sum_over_queries(weight, dout_rows, head.out_ld, dvalue, room.packed[2]);
      sum_over_queries(dscore, query_rows, head.in_ld, dkey, room.packed[3]);
      run(
          detail::BlockProduct<T, Target>{
              .rows = queries,
              .lanes = head.size,
              .inner = keys,
              .a = dscore,
              .a_row_stride = 1,
              .a_inner_stride = block,
              .b = key_rows,
              .ldb = head.in_ld,
              .c = dquery.data,
              .ldc = dquery.ld,
              .merge = key == 0 ? detail::Merge::overwrite : detail::Merge::add,
              .triangle = diagonal ? detail::Triangle::inner_to_row : detail::Triangle::none},
          room.products);
    }
    if constexpr (!detail::in_place<T>)
      round_rows<Target>(dquery.data, queries, head.size, dquery_rows, head.in_ld);
  }
};

/// Every position sees every other of its sequence, as in an encoder.
using BidirectionalAttention = Attention<Mask::length>;

}}  // namespace adacc::v0_1
