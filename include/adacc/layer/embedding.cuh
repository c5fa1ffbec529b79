// SPDX-License-Identifier: MIT
/// Token and position embedding on a CUDA device.
///
/// The gradient of a token's row is the sum over the rows of dy where the token stands, in their order. A block of
/// threads for each row of dy looks for the token in earlier rows; if there is none, the block finds all rows with this
/// token and adds them up. Comparing each row's token with all others takes little beside the rest of a step, and needs
/// neither atomic additions nor scratch.
#pragma once

#include <cstdint>

#include "cuda/sums.cuh"
#include "embedding.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// A warp for each row.
template <class T>
static __global__ void __launch_bounds__(cuda_threads)
    embedding_forward_kernel(const std::int32_t* tokens, std::size_t rows, std::size_t vocab,
                             std::size_t time, std::size_t channels, bool aligned,
                             const Wide<T>* words, const Wide<T>* positions, T* y) {
  using W = Wide<T>;
  constexpr unsigned count = packet_elems<W>;
  const WarpRows at;
  for (std::size_t row = at.row; row < rows; row += at.step) {
    const auto token = static_cast<std::size_t>(tokens[row]);  // negative: beyond any vocabulary
    const W* const position = positions + row % time * channels;
    for (std::size_t c = at.lane * count; c < channels; c += warp_size * count) {
      const std::size_t left = channels - c;
      Packet<W, count> out;
      if (token < vocab) {
        const auto a = read_packet<count>(words + token * channels + c, left, aligned);
        const auto b = read_packet<count>(position + c, left, aligned);
#pragma unroll
        for (unsigned i = 0; i < count; ++i) out.at[i] = a.at[i] + b.at[i];
      } else {
#pragma unroll
        for (unsigned i = 0; i < count; ++i) out.at[i] = quiet_nan_of<W>;
      }
      write_packet(y + row * channels + c, narrowed<T>(out), left, aligned);
    }
  }
}

/// Sums of rows of dy, a packet of channels each, to be added to a row of a gradient.
template <class T>
struct EmbeddingSum {
  static constexpr unsigned count = packet_elems<Wide<T>>;
  Packet<Wide<T>, count> sum{};
  __device__ void add(const Packet<T, count>& row) {
    const auto wide = widened(row);
#pragma unroll
    for (unsigned i = 0; i < count; ++i) sum.at[i] += wide.at[i];
  }
  __device__ void add_to(Wide<T>* to, std::size_t left, bool aligned) const {
    auto total = read_packet<count>(to, left, aligned);
#pragma unroll
    for (unsigned i = 0; i < count; ++i) total.at[i] += sum.at[i];
    write_packet(to, total, left, aligned);
  }
};

/// Gradients of the positions: a warp for each.
template <class T>
static __global__ void __launch_bounds__(cuda_threads)
    position_backward_kernel(const std::int32_t* tokens, std::size_t rows, std::size_t vocab,
                             std::size_t time, std::size_t channels, bool aligned, const T* dy,
                             Wide<T>* positions) {
  using Sum = EmbeddingSum<T>;
  const WarpRows at;
  for (std::size_t position = at.row; position < time; position += at.step)
    for (std::size_t c = at.lane * Sum::count; c < channels; c += warp_size * Sum::count) {
      Sum sum;
#pragma unroll 4
      for (std::size_t row = position; row < rows; row += time)
        if (static_cast<std::size_t>(tokens[row]) < vocab)
          sum.add(read_packet<Sum::count>(dy + row * channels + c, channels - c, aligned));
      sum.add_to(positions + position * channels + c, channels - c, aligned);
    }
}

/// Finds the places of a token among others, a piece of `span` tokens after the other. For all threads of a
/// block together.
struct TokenSearch {
  static constexpr unsigned each = 4, span = each * cuda_threads;
  static constexpr unsigned most = 2 * span;  ///< places kept
  struct Storage {
    unsigned counts[cuda_warps];
    unsigned places[most];
  };
  const std::int32_t* tokens;
  std::size_t count;
  std::int32_t token;
  bool aligned;

  /// Bit i: whether token `first` + i, which is one of this thread's, is the one in question.
  __device__ unsigned matches(std::size_t first) const {
    if (first >= count) return 0;
    const bool whole = aligned && count - first >= each;
    const auto packet = read_packet<each>(tokens + first, count - first, whole);
    unsigned bits = 0;
#pragma unroll
    for (unsigned i = 0; i < each; ++i)
      if (packet.at[i] == token && first + i < count) bits |= 1U << i;
    return bits;
  }
  /// Whether the token is among tokens [0, end).
  __device__ bool stands_before(std::size_t end) const {
    bool found = false;
    for (std::size_t begin = 0; begin < end && !found; begin += span) {
      const std::size_t first = begin + threadIdx.x * each;
      const unsigned bits = matches(first);
#pragma unroll
      for (unsigned i = 0; i < each; ++i)
        found = found || ((bits >> i & 1) != 0 && first + i < end);
    }
    return __syncthreads_or(found ? 1 : 0) != 0;
  }
  /// Appends the token's places from `begin` on, ascending and counted from there, to storage.places, until all are
  /// there or there is no room for those of another piece. `begun` counts the tokens searched behind `begin`.
  /// Returns the number of places. Barriers stand before and behind the writes.
  __device__ unsigned find(std::size_t begin, std::size_t& begun, Storage& storage) const {
    const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    const unsigned below = (1U << lane) - 1;
    unsigned found = 0;
    for (; begin + begun < count && found + span <= most; begun += span) {
      const unsigned own = static_cast<unsigned>(begun) + threadIdx.x * each;
      const unsigned bits = matches(begin + own);
      if (__syncthreads_or(bits != 0 ? 1 : 0) == 0) continue;
      unsigned before = found, all = 0;  // places before this thread's; of its warp
#pragma unroll
      for (unsigned i = 0; i < each; ++i) {
        const unsigned lanes = __ballot_sync(~0U, (bits >> i & 1) != 0);
        before += static_cast<unsigned>(__popc(lanes & below));
        all += static_cast<unsigned>(__popc(lanes));
      }
      if (lane == 0) storage.counts[warp] = all;
      __syncthreads();
#pragma unroll
      for (unsigned w = 0; w < cuda_warps; ++w) {
        if (w < warp) before += storage.counts[w];
        found += storage.counts[w];
      }
#pragma unroll
      for (unsigned i = 0; i < each; ++i)
        if ((bits >> i & 1) != 0) storage.places[before++] = own + i;
    }
    __syncthreads();
    return found;
  }
};

/// A block for each row. Each thread has a packet of channels.
template <class T>
static __global__ void __launch_bounds__(cuda_threads, 4)
    embedding_backward_kernel(const std::int32_t* tokens, std::size_t rows, std::size_t vocab,
                              std::size_t channels, bool aligned, bool aligned_tokens, const T* dy,
                              Wide<T>* words) {
  using Sum = EmbeddingSum<T>;
  constexpr std::size_t width = std::size_t{cuda_threads} * Sum::count;
  constexpr unsigned unrolled = 8;  // rows on their way together
  __shared__ TokenSearch::Storage storage;
  for (std::size_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::int32_t token = tokens[row];
    if (static_cast<std::size_t>(token) >= vocab) continue;
    const TokenSearch search{tokens, rows, token, aligned_tokens};
    if (search.stands_before(row)) continue;
    const std::size_t begin = row / search.each * search.each;  // aligned as the first token is
    for (std::size_t first = 0; first < channels; first += width) {
      const std::size_t c = first + threadIdx.x * Sum::count;
      const T* const at = dy + begin * channels + c;
      Sum sum;
      for (std::size_t begun = 0; begin + begun < rows;) {
        const unsigned found = search.find(begin, begun, storage);
        if (c >= channels) continue;
        for (unsigned k = 0; aligned && k < found; k += unrolled) {
          Packet<T, Sum::count> read[unrolled];
#pragma unroll
          for (unsigned u = 0; u < unrolled; ++u) {  // the last one again where there are no more
            const unsigned place = storage.places[k + u < found ? k + u : found - 1];
            read[u] = read_packet<Sum::count>(at + place * channels, Sum::count, true);
          }
#pragma unroll
          for (unsigned u = 0; u < unrolled; ++u)
            if (k + u < found) sum.add(read[u]);
        }
        for (unsigned k = 0; !aligned && k < found; ++k)
          sum.add(read_packet<Sum::count>(at + storage.places[k] * channels, channels - c, false));
      }
      if (c < channels)
        sum.add_to(words + static_cast<std::size_t>(token) * channels + c, channels - c, aligned);
    }
  }
}

}  // namespace detail

template <>
struct kernel<Embedding, Cuda> {
  static constexpr LayerNeeds needs(const Embedding& f, Shape in, NeedsQuery query) {
    if (f.positions && f.types == 0) return f.needs(in, query);
    return {
        .error = Error::say(
            "embedding on a CUDA device adds tokens and learned positions; token types, or tokens "
            "alone, are not supported there")};
  }

  template <class T>
  static void forward(const Embedding& f, Cuda& cuda, const ForwardCall<T, std::int32_t>& call) {
    using namespace detail;
    const std::size_t rows = call.x.size();
    embedding_forward_kernel<<<cuda_grid(rows, cuda_warps), cuda_threads, 0, cuda.stream()>>>(
        call.x.data(), rows, f.vocab, call.x.cols(), f.channels,
        aligned<T>(f, call.y.data(), call.params[0].data(), call.params[1].data()),
        call.params[0].data(), call.params[1].data(), call.y.data());
    cuda.launched(Embedding::name);
  }

  template <class T>
  static void backward(const Embedding& f, Cuda& cuda, const BackwardCall<T, std::int32_t>& call) {
    using namespace detail;
    const std::size_t rows = call.x.size();
    if (!call.dparams[0].empty()) {
      embedding_backward_kernel<<<cuda_grid(rows, 1), cuda_threads, 0, cuda.stream()>>>(
          call.x.data(), rows, f.vocab, f.channels,
          aligned<T>(f, call.dy.data(), call.dparams[0].data()),
          packet_aligned<TokenSearch::each>(call.x.data()), call.dy.data(), call.dparams[0].data());
      cuda.launched(Embedding::name);
    }
    if (call.dparams[1].empty()) return;
    position_backward_kernel<<<cuda_grid(call.x.cols(), cuda_warps), cuda_threads, 0,
                               cuda.stream()>>>(
        call.x.data(), rows, f.vocab, call.x.cols(), f.channels,
        aligned<T>(f, call.dy.data(), call.dparams[1].data()), call.dy.data(),
        call.dparams[1].data());
    cuda.launched(Embedding::name);
  }

 private:
  /// Whether all rows are whole packets.
  template <class T, class... P>
  static bool aligned(const Embedding& f, const P*... at) {
    constexpr unsigned count = detail::packet_elems<Wide<T>>;
    return f.channels % count == 0 && (detail::packet_aligned<count>(at) && ...);
  }
};

}}  // namespace adacc::v0_1
