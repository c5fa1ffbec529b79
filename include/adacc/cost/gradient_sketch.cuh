// SPDX-License-Identifier: MIT
/// Sketches of gradients in a CUDA device's memory: the host's numbers, summed in another order.
///
/// Eight threads share 256 sums in shared memory; each thread adds one of eight consecutive elements, which have
/// eight different sums. So no addition is atomic, and a sketch has the same bits in every run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/cuda.cuh"
#include "../core/device_block.cuh"
#include "gradient_sketch.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Doubles of a sketch in device memory: the sums, and the squared norm.
inline constexpr unsigned sketch_places = GradientSketch::size + 1;

/// Teams of 8 threads in a block, each with sums of its own.
inline constexpr unsigned sketch_teams = 16, sketch_threads = 8 * sketch_teams;

/// partials[block * sketch_places ...] becomes the sketch of the block's share: groups of 64 elements, one team per
/// group.
template <class T>
static __global__ void __launch_bounds__(sketch_threads)
    sketch_kernel(std::size_t elems, const T* gradient, RandomKey key, double* partials) {
  constexpr unsigned size = GradientSketch::size, lanes = 8;
  // Like on the host, sums past the end are folded to the start.
  __shared__ double sums[sketch_teams][size + lanes];
  __shared__ double squares[sketch_threads];
  double* const mine = sums[threadIdx.x / lanes];
  const unsigned lane = threadIdx.x % lanes;
  for (unsigned i = lane; i < size + lanes; i += lanes) mine[i] = 0;
  __syncwarp();
  double square = 0;
  const std::size_t groups = div_up(elems, 64), step = std::size_t{gridDim.x} * sketch_teams;
  // All teams take part in every turn, with zeros behind the last element.
  for (std::size_t first = std::size_t{blockIdx.x} * sketch_teams; first < groups; first += step) {
    const std::size_t group = first + threadIdx.x / lanes;
    const PhiloxBlock random = random_block(key, group);
#pragma unroll
    for (unsigned v = 0; v < 8; ++v) {
      const std::size_t e = group * 64 + v * lanes + lane;
      const double x = e < elems ? static_cast<double>(gradient[e]) : 0;
      const std::uint32_t bits = random.word[v / 2] >> (v % 2 * 16);
      double& to = mine[(bits >> 8 & 255) + lane];
      to += (bits >> lane & 1) != 0 ? -x : x;
      square = fma(x, x, square);
      __syncwarp();  // the next eight elements may go to sums of neighbours
    }
  }
  squares[threadIdx.x] = square;
  __syncthreads();
  double* const to = partials + std::size_t{blockIdx.x} * sketch_places;
  for (unsigned i = threadIdx.x; i < size; i += sketch_threads) {
    double sum = 0;
    for (unsigned team = 0; team < sketch_teams; ++team)
      sum += sums[team][i] + (i < lanes ? sums[team][size + i] : 0);
    to[i] = sum;
  }
  if (threadIdx.x == 0) {
    double sum = 0;
    for (const double each : squares) sum += each;
    to[size] = sum;
  }
}

/// sketch[i] = the sum of the i-th numbers of `count` sketches. One block.
static __global__ void __launch_bounds__(sketch_threads)
    sum_sketches_kernel(std::size_t count, const double* partials, double* sketch) {
  for (unsigned i = threadIdx.x; i < sketch_places; i += sketch_threads) {
    double sum = 0;
    for (std::size_t c = 0; c < count; ++c) sum += partials[c * sketch_places + i];
    sketch[i] = sum;
  }
}

}  // namespace detail

/// sketch_of() on a device; waits for the result. `scratch` is device memory of at least 2 * 257 doubles, with any
/// contents.
template <class T>
Result<GradientSketch> sketch_in(Bytes scratch, Cuda& cuda, View<T> gradient, RandomKey key) {
  constexpr const char* name = "sketch of a gradient";
  constexpr std::size_t most = 512, bytes = detail::sketch_places * sizeof(double);
  const std::size_t room = scratch.size() / bytes;
  if (room < 2)
    return Error::say(name, ": ", 2 * bytes, " bytes are wanted to add up in, and there are ",
                      scratch.size());
  const std::size_t wanted = div_up(gradient.size(), 64 * detail::sketch_teams);
  std::size_t blocks = wanted < most ? wanted : most;
  if (blocks > room - 1) blocks = room - 1;
  auto* const sum = reinterpret_cast<double*>(scratch.data());
  double* const partials = sum + detail::sketch_places;
  if (blocks != 0) {
    key.purpose = Purpose::probe;
    cuda.launch(name, static_cast<unsigned>(blocks), detail::sketch_threads,
                &detail::sketch_kernel<T>, gradient.size(), gradient.data(), key, partials);
  }
  cuda.launch(name, 1, detail::sketch_threads, &detail::sum_sketches_kernel, blocks, partials, sum);
  double numbers[detail::sketch_places] = {};
  const Shape places(detail::sketch_places);
  if (const Error why =
          copy_to_host(cuda, View<double>(sum, places), View<double>(numbers, places)))
    return why;
  if (const Error why = cuda.take_error()) return why;
  GradientSketch sketch;
  for (std::size_t i = 0; i < GradientSketch::size; ++i) sketch.sums[i] = numbers[i];
  sketch.squared_norm = numbers[GradientSketch::size];
  return sketch;
}

}}  // namespace adacc::v0_1
