// SPDX-License-Identifier: MIT
/// Adafactor on a CUDA device: the passes of adafactor.hpp, a launch of each for up to FactoredPieces::most parameters.
///
/// State is laid out as on the host. Sums are in double, in an order that depends on shapes alone: results are the host's
/// to rounding, and the same from run to run.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "adafactor.hpp"
#include "elementwise.cuh"
#include "gradient_norm.cuh"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Parameters that one launch of a pass updates.
struct FactoredPieces {
  static constexpr unsigned most = 64;
  struct Piece {
    std::uint64_t first;  ///< element of the block; doubled, plus 1 if the parameter decays
    std::uint64_t elems;
    std::uint64_t state[3];    ///< where each tensor of state begins
    std::uint32_t rows, cols;  ///< of a matrix; no rows: a vector
    std::uint32_t tiles;       ///< of sums of the update
    std::uint32_t blocks;      ///< of the pieces before
  };
  Piece at[most];
  std::uint32_t count = 0;
};

template <class T>
struct FactoredTerms {
  T *params, *gradients;
  bfloat16* copies;
  std::byte* state;
  double scale, fresh;  ///< fresh: 1 - beta2
  T rate, decay, clip;
  const double* norm;
  double most_norm;
};

/// A piece with its memory.
template <class T>
struct FactoredPiece : FactoredPieces::Piece {
  const FactoredTerms<T>& terms;

  __device__ FactoredPiece(const FactoredPieces::Piece& piece, const FactoredTerms<T>& with)
      : Piece(piece), terms(with) {}
  __device__ T* numbers(int i) const {
    return static_cast<T*>(static_cast<void*>(terms.state + state[i]));
  }
  __device__ T* gradient() const { return terms.gradients + (first >> 1); }
  __device__ void mix(T& moment, double square) const {
    moment = static_cast<T>((1 - terms.fresh) * static_cast<double>(moment) + terms.fresh * square);
  }
};

inline constexpr unsigned factored_rows = cuda_threads / 32;   ///< of a block of the pass over rows
inline constexpr unsigned factored_elems = 16 * cuda_threads;  ///< of a vector
inline constexpr unsigned factored_threads = 1024, factored_columns = 32;

/// Means over rows: a warp for each. A vector has a moment for each element.
template <class T>
static __global__ void __launch_bounds__(cuda_threads)
    factored_rows_kernel(const __grid_constant__ FactoredPieces pieces, FactoredTerms<T> terms) {
  double scale = terms.scale;
  if (!clip_by_norm(terms.norm, terms.most_norm, scale)) return;
  const FactoredPiece<T> piece(piece_of(pieces.at, pieces.count, blockIdx.x), terms);
  const std::size_t block = blockIdx.x - piece.blocks;
  if (piece.rows == 0) {
    const std::size_t end = (block + 1) * factored_elems;
    for (std::size_t e = block * factored_elems + threadIdx.x; e < end && e < piece.elems;
         e += cuda_threads) {
      const double gradient = scale * static_cast<double>(piece.gradient()[e]);
      piece.mix(piece.numbers(0)[e], gradient * gradient);
    }
    return;
  }
  const std::size_t row = block * factored_rows + threadIdx.x / 32;
  if (row >= piece.rows) return;
  const T* const from = piece.gradient() + row * piece.cols;
  double sum = 0;
  for (unsigned c = threadIdx.x % 32; c < piece.cols; c += 32) {
    const double gradient = from[c];
    sum = fma(gradient, gradient, sum);
  }
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xFFFFFFFF, sum, apart);
  if (threadIdx.x % 32 == 0)
    piece.mix(piece.numbers(0)[row], scale * scale * sum / static_cast<double>(piece.cols));
}

/// Means over columns: a block for factored_columns of them; a matrix's first block also makes the mean of its rows' moments.
template <class T>
static __global__ void __launch_bounds__(factored_threads)
    factored_columns_kernel(const __grid_constant__ FactoredPieces pieces, FactoredTerms<T> terms) {
  constexpr unsigned warps = factored_threads / factored_columns;
  __shared__ double sums[warps][factored_columns + 1];
  double scale = terms.scale;
  if (!clip_by_norm(terms.norm, terms.most_norm, scale)) return;
  const FactoredPiece<T> piece(piece_of(pieces.at, pieces.count, blockIdx.x), terms);
  const unsigned lane = threadIdx.x % factored_columns, warp = threadIdx.x / factored_columns;
  const unsigned column = (blockIdx.x - piece.blocks) * factored_columns + lane;
  const double rows = piece.rows;
  double sum = 0;
  if (column < piece.cols) {
    const T* const from = piece.gradient() + column;
#pragma unroll 8
    for (std::size_t r = warp; r < piece.rows; r += warps) {
      const double gradient = from[r * piece.cols];
      sum = fma(gradient, gradient, sum);
    }
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp == 0 && column < piece.cols) {
    sum = 0;
    for (unsigned w = 0; w < warps; ++w) sum += sums[w][lane];
    piece.mix(piece.numbers(1)[column], scale * scale * sum / rows);
  }
  if (blockIdx.x != piece.blocks) return;
  __syncthreads();
  sum = 0;
  for (unsigned r = threadIdx.x; r < piece.rows; r += factored_threads)
    sum += static_cast<double>(piece.numbers(0)[r]);
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0) return;
  sum = 0;
  for (unsigned w = 0; w < warps; ++w) sum += sums[w][lane];
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xFFFFFFFF, sum, apart);
  if (lane == 0) piece.numbers(2)[0] = static_cast<T>(sum / rows);
}

/// Without the source's epsilon, an element that never had a gradient has the moment 0 and is not moved.
template <class T>
__device__ inline T reciprocal_root(T square) {
  const T root = sqrt(square);
  return root > 0 ? 1 / root : T(0);
}

/// Calls visit(e, u) for the elements of a tile, e counted in the piece, by the threads of a block together.
template <class T, class Visit>
__device__ void each_factored(const FactoredPiece<T>& piece, std::size_t tile, double scale,
                              const Visit& visit) {
  __shared__ T factors[cuda_threads];
  const auto factor = static_cast<T>(scale);
  if (piece.rows == 0) {
    const std::size_t begin = tile * update_tile, left = piece.elems - begin;
    const std::size_t count = left < update_tile ? left : update_tile;
    for (std::size_t e = begin + threadIdx.x; e < begin + count; e += cuda_threads)
      visit(e, piece.gradient()[e] * factor * reciprocal_root(piece.numbers(0)[e]));
    return;
  }
  const T mean = piece.numbers(2)[0];
  const unsigned in_tile = update_tile / piece.cols > 1 ? update_tile / piece.cols : 1;
  const std::size_t begin = tile * in_tile;
  const std::size_t end = begin + in_tile < piece.rows ? begin + in_tile : piece.rows;
  for (std::size_t row = begin; row < end; row += cuda_threads) {
    const unsigned rows =
        end - row < cuda_threads ? static_cast<unsigned>(end - row) : cuda_threads;
    if (threadIdx.x < rows)
      factors[threadIdx.x] = factor * reciprocal_root(piece.numbers(0)[row + threadIdx.x] / mean);
    __syncthreads();
    const std::size_t first = row * piece.cols, count = std::size_t{rows} * piece.cols;
    for (std::size_t e = threadIdx.x; e < count; e += cuda_threads) {
      const std::size_t line = e / piece.cols;
      visit(first + e, piece.gradient()[first + e] * factors[line] *
                           reciprocal_root(piece.numbers(1)[e - line * piece.cols]));
    }
    __syncthreads();
  }
}

/// The sum of the update's squares in each tile.
template <class T>
static __global__ void __launch_bounds__(cuda_threads)
    factored_squares_kernel(const __grid_constant__ FactoredPieces pieces, FactoredTerms<T> terms) {
  double scale = terms.scale;
  if (!clip_by_norm(terms.norm, terms.most_norm, scale)) return;
  const FactoredPiece<T> piece(piece_of(pieces.at, pieces.count, blockIdx.x), terms);
  const std::size_t tile = blockIdx.x - piece.blocks;
  double sum = 0;
  each_factored(piece, tile, scale, [&](std::size_t, T u) {
    sum = fma(static_cast<double>(u), static_cast<double>(u), sum);
  });
  sum = block_sum(sum);
  if (threadIdx.x == 0) piece.numbers(2)[1 + tile] = static_cast<T>(sum);
}

/// Moves the values, and leaves zeros in the gradient.
template <class T>
static __global__ void __launch_bounds__(cuda_threads)
    factored_values_kernel(const __grid_constant__ FactoredPieces pieces, FactoredTerms<T> terms) {
  __shared__ T shared_factor;
  double scale = terms.scale;
  const bool finite = clip_by_norm(terms.norm, terms.most_norm, scale);
  const FactoredPiece<T> piece(piece_of(pieces.at, pieces.count, blockIdx.x), terms);
  double sum = 0;
  for (unsigned i = threadIdx.x; finite && i < piece.tiles; i += cuda_threads)
    sum += static_cast<double>(piece.numbers(2)[1 + i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) {
    const double rms = sqrt(sum / static_cast<double>(piece.elems)), most = terms.clip;
    shared_factor = static_cast<T>(rms > most ? most / rms : 1.0);
  }
  __syncthreads();
  const T factor = shared_factor, decay = (piece.first & 1) != 0 ? terms.decay : T(0);
  const std::size_t begin = piece.first >> 1;
  each_factored(piece, blockIdx.x - piece.blocks, scale, [&](std::size_t e, T u) {
    if (finite) {
      T& value = terms.params[begin + e];
      value = fma(-terms.rate, fma(decay, value, factor * u), value);
      if (terms.copies != nullptr) terms.copies[begin + e] = narrowed<bfloat16>(value);
    }
    piece.gradient()[e] = 0;
  });
}

}  // namespace detail

template <>
struct optimizer_kernel<Adafactor, Cuda> {
  /// Updates all parameters of a Training. Faults of the memory are noted in the context (Cuda::take_error()); then
  /// nothing is queued.
  template <class Table>
  static void update(const Adafactor& adafactor, Cuda& cuda, const UpdateTable& state,
                     const Table& table, const UpdateMemory<float>& memory,
                     const CudaUpdateTerms& terms) {
    using namespace detail;
    if (const Error why = update_fault(Adafactor::name, cuda, memory, terms)) return cuda.note(why);
    if (!memory.held.empty())
      return cuda.note(Error::misuse("Adafactor updates parameters in full, and got bfloat16"));
    const FactoredTerms<float> all{
        memory.params.data(),
        memory.gradients.data(),
        data_of(memory.copies),
        memory.state.data(),
        terms.scale,
        std::pow(static_cast<double>(terms.number), -static_cast<double>(adafactor.decay_power)),
        static_cast<float>(terms.rate),
        adafactor.weight_decay,
        adafactor.clip,
        terms.norm,
        terms.clip};
    FactoredPieces pieces;
    const auto launch = [&] {
      const auto pass = [&](auto* kernel, unsigned threads, const auto& blocks_of) {
        std::size_t blocks = 0;
        for (std::uint32_t i = 0; i < pieces.count; ++i) {
          pieces.at[i].blocks = static_cast<std::uint32_t>(blocks);
          blocks += blocks_of(pieces.at[i]);
        }
        if (blocks != 0)
          cuda.launch(Adafactor::name, static_cast<unsigned>(blocks), threads, kernel, pieces, all);
      };
      using Piece = FactoredPieces::Piece;
      const auto tiles = [](const Piece& piece) { return std::size_t{piece.tiles}; };
      pass(&factored_rows_kernel<float>, cuda_threads, [](const Piece& piece) {
        return piece.rows != 0 ? div_up(std::size_t{piece.rows}, factored_rows)
                               : div_up(static_cast<std::size_t>(piece.elems), factored_elems);
      });
      pass(&factored_columns_kernel<float>, factored_threads, [](const Piece& piece) {
        return piece.rows != 0 ? div_up(std::size_t{piece.cols}, factored_columns) : std::size_t{0};
      });
      pass(&factored_squares_kernel<float>, cuda_threads, tiles);
      pass(&factored_values_kernel<float>, cuda_threads, tiles);
      pieces.count = 0;
    };
    for (std::size_t o = 0; o < state.owners(); ++o) {
      const ParameterSpec& parameter = table[state.owner(o)];
      const Shape shape = parameter.shape;
      const std::size_t columns = Adafactor::state(1, parameter).elems;
      FactoredPieces::Piece& piece = pieces.at[pieces.count++];
      piece = {table[state.owner(o)].offset << 1 | (parameter.decay ? 1 : 0),
               shape.elems(),
               {state.begin(0, o), state.begin(1, o), state.begin(2, o)},
               static_cast<std::uint32_t>(columns != 0 ? shape.rows() : 0),
               static_cast<std::uint32_t>(columns),
               static_cast<std::uint32_t>(Adafactor::state(2, parameter).elems - 1),
               0};
      if (pieces.count == FactoredPieces::most) launch();
    }
    if (pieces.count != 0) launch();
  }
};

}}  // namespace adacc::v0_1
