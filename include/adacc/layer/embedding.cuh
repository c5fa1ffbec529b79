// SPDX-License-Identifier: MIT
/// Token, position and token-type embedding on a CUDA device.
///
/// The gradient of a token's row is the sum over the rows of dy where the token stands, in their order: they are found by
/// a stable sort (cuda/token_order.cuh), and no addition is atomic.
#pragma once

#include <cstdint>

#include "cuda/sums.cuh"
#include "cuda/token_order.cuh"
#include "embedding.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Tables whose rows are added: of words, and, unless null, of positions and of token types. Numbers are of type E:
/// parameters are in full or in bfloat16.
template <class E>
struct EmbeddingTables {
  const E *words, *positions, *types;
};

/// A warp for each row.
template <class T, class E>
static __global__ void __launch_bounds__(cuda_threads)
    embedding_forward_kernel(const std::int32_t* tokens, std::size_t rows, std::size_t known,
                             std::uint32_t vocab, std::size_t time, std::size_t channels,
                             bool aligned, const EmbeddingTables<E> tables, T* y) {
  using W = Wide<T>;
  constexpr unsigned count = packet_elems<W>;
  const WarpRows at;
  for (std::size_t row = at.row; row < rows; row += at.step) {
    const auto token = static_cast<std::size_t>(tokens[row]);  // negative: beyond any vocabulary
    const std::size_t type =
        tables.types == nullptr ? 0 : static_cast<std::uint32_t>(token) / vocab;
    const E* const word = tables.words + (token - type * vocab) * channels;
    for (std::size_t c = at.lane * count; c < channels; c += warp_size * count) {
      const std::size_t left = channels - c;
      Packet<W, count> out;
      if (token < known) {
        out = widened(read_packet<count>(word + c, left, aligned));
        const auto add = [&](const E* table, std::size_t at_row) {
          if (table == nullptr) return;
          const auto more =
              widened(read_packet<count>(table + at_row * channels + c, left, aligned));
#pragma unroll
          for (unsigned i = 0; i < count; ++i) out.at[i] += more.at[i];
        };
        add(tables.positions, row % time);
        add(tables.types, type);
      } else {
#pragma unroll
        for (unsigned i = 0; i < count; ++i) out.at[i] = quiet_nan_of<W>;
      }
      write_packet(y + row * channels + c, narrowed<T>(out), left, aligned);
    }
  }
}

/// Sums of rows of dy, a packet of channels each, to be added to a row of a gradient, or written there.
template <class T>
struct EmbeddingSum {
  static constexpr unsigned count = packet_elems<Wide<T>>;
  Packet<Wide<T>, count> sum{};
  __device__ void add(const Packet<T, count>& row) {
    const auto wide = widened(row);
#pragma unroll
    for (unsigned i = 0; i < count; ++i) sum.at[i] += wide.at[i];
  }
  __device__ void add_to(Wide<T>* to, std::size_t left, bool aligned, bool begins = false) const {
    if (begins) return write_packet(to, sum, left, aligned);
    auto total = read_packet<count>(to, left, aligned);
#pragma unroll
    for (unsigned i = 0; i < count; ++i) total.at[i] += sum.at[i];
    write_packet(to, total, left, aligned);
  }
};

/// Gradients of the positions: a warp for each.
template <class T>
static __global__ void __launch_bounds__(cuda_threads)
    position_backward_kernel(const std::int32_t* tokens, std::size_t rows, std::size_t known,
                             std::size_t time, std::size_t channels, bool aligned, bool begins,
                             const T* dy, Wide<T>* positions) {
  using Sum = EmbeddingSum<T>;
  const WarpRows at;
  for (std::size_t position = at.row; position < time; position += at.step)
    for (std::size_t c = at.lane * Sum::count; c < channels; c += warp_size * Sum::count) {
      Sum sum;
#pragma unroll 4
      for (std::size_t row = position; row < rows; row += time)
        if (static_cast<std::size_t>(tokens[row]) < known)
          sum.add(read_packet<Sum::count>(dy + row * channels + c, channels - c, aligned));
      sum.add_to(positions + position * channels + c, channels - c, aligned, begins);
    }
}

/// A block for each of the sorted rows. One whose row is the first with its token, of all tiles, adds up the token's rows.
/// Each thread has a packet of channels.
template <class T>
static __global__ void __launch_bounds__(cuda_threads, 4)
    embedding_backward_kernel(const TokenOrder order, std::uint32_t vocab, std::size_t channels,
                              bool aligned, const T* dy, Wide<T>* words) {
  using Sum = EmbeddingSum<T>;
  constexpr std::size_t width = std::size_t{cuda_threads} * Sum::count;
  constexpr unsigned unrolled = 8;  // rows on their way together
  __shared__ TokenOrder::Range found[cuda_warps];
  const unsigned warp = threadIdx.x / warp_size;
  for (std::size_t at = blockIdx.x; at < order.rows; at += gridDim.x) {
    const std::uint32_t key = order.keys[at];
    const std::size_t tile = at / TokenOrder::span;
    if (key >= vocab) continue;
    if (at % TokenOrder::span != 0 && order.keys[at - 1] == key) continue;
    bool before = false;
    for (std::size_t t = warp; t < tile && !before; t += cuda_warps) {
      const TokenOrder::Range range = order.find(t, key);
      before = range.begin < range.end;
    }
    if (__syncthreads_or(before ? 1 : 0) != 0) continue;
    for (std::size_t first = 0; first < channels; first += width) {
      const std::size_t c = first + threadIdx.x * Sum::count;
      Sum sum;
      for (std::size_t group = tile; group < order.tiles(); group += cuda_warps) {
        if (group + warp < order.tiles()) {
          const TokenOrder::Range range = order.find(group + warp, key);
          if (threadIdx.x % warp_size == 0) found[warp] = range;
        }
        __syncthreads();
        for (unsigned t = 0; t < cuda_warps && group + t < order.tiles() && c < channels; ++t) {
          const std::size_t begin = (group + t) * TokenOrder::span;
          const std::uint16_t* const places = order.places + begin;
          const T* const from = dy + begin * channels + c;
          const unsigned end = found[t].end;
          for (unsigned k = found[t].begin; aligned && k < end; k += unrolled) {
            Packet<T, Sum::count> read[unrolled];
#pragma unroll
            for (unsigned u = 0; u < unrolled; ++u) {  // the last one again where there are no more
              const std::size_t place = places[k + u < end ? k + u : end - 1];
              read[u] = read_packet<Sum::count>(from + place * channels, Sum::count, true);
            }
#pragma unroll
            for (unsigned u = 0; u < unrolled; ++u)
              if (k + u < end) sum.add(read[u]);
          }
          for (unsigned k = found[t].begin; !aligned && k < end; ++k)
            sum.add(read_packet<Sum::count>(from + places[k] * channels, channels - c, false));
        }
        __syncthreads();
      }
      if (c < channels) sum.add_to(words + key * channels + c, channels - c, aligned);
    }
  }
}

/// The column sums of the rows of dy whose token is of one type.
template <class T>
struct TokenTypeBody {
  static constexpr unsigned sums = 1, count = MatrixBody<T>::count;
  using Row = typename MatrixBody<T>::Row;
  MatrixBody<T> dy;
  const std::int32_t* tokens;
  std::size_t vocab, type;
  bool aligned() const { return dy.aligned(); }
  __device__ Row read(std::size_t row, std::size_t column, std::size_t left, bool whole) const {
    const auto token = static_cast<std::size_t>(tokens[row]);  // negative: of no type
    return token / vocab == type ? dy.read(row, column, left, whole) : Row{};
  }
  __device__ void add(const Row& read, std::size_t row, std::size_t column, std::size_t left,
                      bool whole, Packet<Wide<T>, count> (&sum)[sums]) const {
    dy.add(read, row, column, left, whole, sum);
  }
};

}  // namespace detail

template <>
struct kernel<Embedding, Cuda> {
  static constexpr bool writes_gradients = true;

  static constexpr LayerNeeds needs(const Embedding& f, Shape in, NeedsQuery query) {
    LayerNeeds needs = f.needs(in, query);
    if (!needs.error && query.pass != Pass::forward)
      needs.workspace = workspace_bytes(f, in.elems(), query.scalar);
    return needs;
  }

  /// Backward's: sorted rows, and behind them, in their place, partial sums of the types' gradients.
  static constexpr std::size_t workspace_bytes(const Embedding& f, std::size_t rows, Dtype scalar) {
    const std::size_t order = detail::TokenOrder::bytes(rows);
    const std::size_t sums =
        f.types == 0 ? 0 : detail::CudaChunks{rows}.all_bytes(1, f.channels, wide(scalar));
    return order < sums ? sums : order;
  }

  template <class T>
  static void forward(const Embedding& f, Cuda& cuda, const ForwardCall<T, std::int32_t>& call) {
    if (call.params.in_bf16())
      look_up<T, bfloat16>(f, cuda, call,
                           [&](std::size_t i) { return call.params.bf16_row(i, 0); });
    else look_up<T, Wide<T>>(f, cuda, call, [&](std::size_t i) { return call.params[i].data(); });
  }

  template <class T>
  static void backward(const Embedding& f, Cuda& cuda, const BackwardCall<T, std::int32_t>& call) {
    if (!call.dparams[0].empty()) add_words(f, cuda, call);
    if (f.positions && !call.dparams[1].empty()) add_positions(f, cuda, call);
    if (f.types > 0 && !call.dparams[f.type_table()].empty()) add_types(f, cuda, call);
  }

 private:
  /// `table_of` returns the first row of a parameter, of numbers in E.
  template <class T, class E, class Of>
  static void look_up(const Embedding& f, Cuda& cuda, const ForwardCall<T, std::int32_t>& call,
                      const Of& table_of) {
    using namespace detail;
    const std::size_t rows = call.x.size();
    const auto table = [&](std::size_t i, bool there) -> const E* {
      return there ? table_of(i) : nullptr;
    };
    const EmbeddingTables<E> tables{table(0, true), table(1, f.positions),
                                    table(f.type_table(), f.types > 0)};
    cuda.launch(Embedding::name, cuda_grid(rows, cuda_warps), cuda_threads,
                &embedding_forward_kernel<T, E>, call.x.data(), rows, f.known_tokens(),
                static_cast<std::uint32_t>(f.vocab), call.x.cols(), f.channels,
                aligned<T>(f, call.y.data(), tables.words, tables.positions, tables.types), tables,
                call.y.data());
  }

  template <class T>
  static void add_words(const Embedding& f, Cuda& cuda, const BackwardCall<T, std::int32_t>& call) {
    using namespace detail;
    const auto vocab = static_cast<std::uint32_t>(f.vocab);
    // Only rows of tokens that occur are added to.
    if (call.begins(0)) set_zero(cuda, Embedding::name, call.dparams[0]);
    const TokenOrder order =
        token_order(cuda, Embedding::name, call.x, f.known_tokens(), vocab, call.workspace);
    cuda.launch(Embedding::name, cuda_grid(order.rows, 1), cuda_threads,
                &embedding_backward_kernel<T>, order, vocab, f.channels,
                aligned<T>(f, call.dy.data(), call.dparams[0].data()), call.dy.data(),
                call.dparams[0].data());
  }

  template <class T>
  static void add_positions(const Embedding& f, Cuda& cuda,
                            const BackwardCall<T, std::int32_t>& call) {
    using namespace detail;
    cuda.launch(Embedding::name, cuda_grid(call.x.cols(), cuda_warps), cuda_threads,
                &position_backward_kernel<T>, call.x.data(), call.x.size(), f.known_tokens(),
                call.x.cols(), f.channels, aligned<T>(f, call.dy.data(), call.dparams[1].data()),
                call.begins(1), call.dy.data(), call.dparams[1].data());
    if (call.begins(1))
      set_zero(cuda, Embedding::name, call.dparams[1], call.x.cols() * f.channels);
  }

  template <class T>
  static void add_types(const Embedding& f, Cuda& cuda, const BackwardCall<T, std::int32_t>& call) {
    using namespace detail;
    using W = Wide<T>;
    const View<W> gradients = call.dparams[f.type_table()];
    for (std::size_t type = 0; type < f.types; ++type)
      add_column_sums<W>(
          cuda, Embedding::name, call.x.size(), f.channels,
          TokenTypeBody<T>{{call.dy.data(), f.channels}, call.x.data(), f.vocab, type},
          call.workspace, {{gradients.row(type)}, {call.begins(f.type_table())}});
  }

  /// Whether all rows are whole packets; null is aligned.
  template <class T, class... P>
  static bool aligned(const Embedding& f, const P*... at) {
    constexpr unsigned count = detail::packet_elems<Wide<T>>;
    return f.channels % count == 0 && (detail::packet_aligned<count>(at) && ...);
  }
};

}}  // namespace adacc::v0_1
