// SPDX-License-Identifier: MIT
/// The loss of rows of logits and its gradient, on a CUDA device: a block of threads for each row.
///
/// A first pass over the row finds its maximum and the sum of exponentials at once: a thread keeps a sum relative to
/// the largest logit so far, and rescales the sum when a larger one comes. A second pass writes the gradient. (Milakov
/// and Gimelshein, "Online normalizer calculation for softmax", 2018.)
///
/// The first pass keeps the row in shared memory if the row fits, so that the second reads no device memory. Results
/// have the same bits either way.
#pragma once

#include <cstdint>

#include "../../core/shared_memory.cuh"
#include "../../model/class_targets.hpp"
#include "functions.cuh"
#include "sums.cuh"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Threads for a row: enough of them to keep a device busy with some hundreds of rows.
inline constexpr unsigned softmax_threads = 512, softmax_warps = softmax_threads / warp_size;
/// Rows of at most so many bytes are kept in shared memory: a processor of an H100 has 228 KiB, for two blocks.
inline constexpr std::size_t softmax_row_bytes = std::size_t{112} * 1024;

/// The sum of e^(x - top) over some numbers, of which `top` is the largest (a NaN is none).
struct LogitSum {
  float top = -infinity_of<float>, sum = 0;

  /// e^(x - top); if numbers are all -infinity, e^x.
  static __device__ float relative(float x, float top) {
    return fast_power_of_2((x - (top == -infinity_of<float> ? 0.0F : top)) * log2_e);
  }
  /// Missing numbers are -infinity.
  template <unsigned count>
  __device__ void add(const Packet<float, count>& x) {
    float most = top;
#pragma unroll
    for (unsigned i = 0; i < count; ++i) most = fmaxf(most, x.at[i]);
    if (most > top) {
      sum *= relative(top, most);
      top = most;
    }
    const float from = top == -infinity_of<float> ? 0.0F : top;
#pragma unroll
    for (unsigned i = 0; i < count; ++i) sum += fast_power_of_2((x.at[i] - from) * log2_e);
  }
  /// The sum relative to `most`, which is at least `top`.
  __device__ float relative_to(float most) const {
    return top == most ? sum : sum * relative(top, most);
  }
};

/// Counts targets that are not ignored, finds the first that is no class, and leaves both in the report, if there is
/// one. *divisor becomes `all`, or the number of counted targets, 1 at least, if `all` is 0. One block.
static __global__ void __launch_bounds__(cuda_threads)
    count_targets_kernel(std::size_t rows, std::size_t classes, const std::int32_t* targets,
                         double all, double* divisor, Cuda::TargetReport* report) {
  __shared__ std::uint64_t counts[cuda_threads], firsts[cuda_threads];
  std::uint64_t counted = 0, first = rows;
  for (std::size_t row = threadIdx.x; row < rows; row += cuda_threads) {
    const std::int32_t target = targets[row];
    if (target == ignored_target) continue;
    ++counted;
    if (static_cast<std::size_t>(target) >= classes && row < first) first = row;
  }
  counts[threadIdx.x] = counted;
  firsts[threadIdx.x] = first;
  for (unsigned half = cuda_threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      const std::uint64_t other = firsts[threadIdx.x + half];
      counts[threadIdx.x] += counts[threadIdx.x + half];
      if (other < firsts[threadIdx.x]) firsts[threadIdx.x] = other;
    }
  }
  if (threadIdx.x != 0) return;
  *divisor = all != 0 ? all : counts[0] == 0 ? 1.0 : static_cast<double>(counts[0]);
  if (report == nullptr) return;
  report->counted = counts[0];
  report->wrong_at = firsts[0] == rows ? 0 : firsts[0] + 1;
  report->wrong = firsts[0] == rows ? 0 : targets[firsts[0]];
}

/// Counts the targets of `call`, and writes the divisor of the loss's sum (LossCall::divisor).
template <class Call>
void count_targets(Cuda& cuda, const char* name, const Call& call, std::size_t classes,
                   double* divisor, Cuda::Loss& into) {
  cuda.launch(name, 1, cuda_threads, &count_targets_kernel, call.targets.size(), classes,
              call.targets.data(), static_cast<double>(call.divisor), divisor, into.report());
}

/// losses[row] = -log softmax(logits[row])[target]; an ignored target gives 0, any other beyond the classes NaN. `out`,
/// if not null, becomes (softmax - one-hot) / *divisor, and zeros if the target is ignored; `out` may be the logits. Rows
/// of both begin `stride` elements one after the other. Logits behind the classes are not read, and become zeros in
/// `out`. With `keeps` a row of packets fits in the block's dynamic shared memory.
template <bool keeps, class T>
static __global__ void __launch_bounds__(softmax_threads, keeps ? 4 : 3)
    softmax_loss_kernel(std::size_t rows, std::size_t classes, std::size_t stride, bool aligned,
                        const T* logits, const std::int32_t* targets, const double* divisor,
                        double* losses, T* out) {
  constexpr unsigned count = packet_elems<T>, unrolled = 4;
  constexpr std::size_t step = std::size_t{softmax_threads} * count;
  extern __shared__ __align__(16) unsigned char softmax_row[];
  __shared__ float shared[2][softmax_warps];
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const std::size_t begin = threadIdx.x * count;
  const float share = 1 / static_cast<float>(*divisor);
  // Calls use(column, packet, numbers, whole) for this thread's packets of a row, in order. Missing numbers are
  // -infinity.
  const auto each = [&](const T* in, const auto& use) {
    each_packet<unrolled, count>(in, begin, step, classes, aligned,
                                 [&](std::size_t c, const Packet<T, count>& packet, bool whole) {
                                   auto numbers = widened(packet);
#pragma unroll
                                   for (unsigned i = 0; i < count; ++i)
                                     if (!whole && i >= classes - c)
                                       numbers.at[i] = -infinity_of<float>;
                                   use(c, packet, numbers, whole);
                                 });
  };
  for (std::size_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const in = logits + row * stride;
    if (targets[row] == ignored_target) {
      if (threadIdx.x == 0) losses[row] = 0;
      if (out == nullptr) continue;
      for (std::size_t c = begin; c < stride; c += step)
        write_packet(out + row * stride + c, narrowed<T>(Packet<float, count>{}), stride - c,
                     aligned && stride - c >= count);
      continue;
    }
    T* const kept = reinterpret_cast<T*>(softmax_row);
    const T* again = in;  // the row in the second pass
    if constexpr (keeps) again = kept;
    LogitSum mine;
    each(in, [&](std::size_t c, const auto& packet, const auto& numbers, bool whole) {
      mine.add(numbers);
      if constexpr (keeps) write_packet(kept + c, packet, classes - c, whole);
    });
    // First in every warp, then in the block.
    const float most = warp_maximum(mine.top), sum_of_warp = warp_sum(mine.relative_to(most));
    if (lane == 0) shared[0][warp] = most, shared[1][warp] = sum_of_warp;
    __syncthreads();
    const LogitSum of_warp =
        lane < softmax_warps ? LogitSum{shared[0][lane], shared[1][lane]} : LogitSum{};
    const float top = warp_maximum(of_warp.top), sum = warp_sum(of_warp.relative_to(top));
    const auto target = static_cast<std::size_t>(targets[row]);
    if (threadIdx.x == 0) {
      const float logit = target < classes ? widened(again[target]) : quiet_nan_of<float>;
      losses[row] =
          log(static_cast<double>(sum)) + (static_cast<double>(top) - static_cast<double>(logit));
    }
    __syncthreads();  // the target's logit is read before it is overwritten
    if (out == nullptr) continue;
    const float scale = share / sum;
    each(again, [&](std::size_t c, const auto&, const auto& numbers, bool whole) {
      const unsigned here = target - c < count ? static_cast<unsigned>(target - c) : count;
      Packet<float, count> slopes;
#pragma unroll
      for (unsigned i = 0; i < count; ++i)
        slopes.at[i] =
            fma(fast_power_of_2((numbers.at[i] - top) * log2_e), scale, i == here ? -share : 0.0F);
      write_packet(out + row * stride + c, narrowed<T>(slopes), classes - c, whole);
    });
    for (std::size_t c = classes + threadIdx.x; c < stride; c += softmax_threads)
      out[row * stride + c] = narrowed<T>(0.0F);
  }
}

/// Rows of at most `most_kept` bytes are kept in shared memory, if the device has so much for a block.
template <class T>
void softmax_loss(Cuda& cuda, const char* name, std::size_t rows, std::size_t classes,
                  std::size_t stride, const T* logits, const std::int32_t* targets,
                  const double* divisor, double* losses, T* out,
                  std::size_t most_kept = softmax_row_bytes) {
  constexpr unsigned count = packet_elems<T>;
  const bool aligned =
      stride % count == 0 && packet_aligned<count>(logits) && packet_aligned<count>(out);
  const auto launch = [&](auto kernel, std::size_t shared) {
    cuda.note(detail::launch(name, {cuda_grid(rows, 1), softmax_threads, cuda.stream(), shared},
                             kernel, rows, classes, stride, aligned, logits, targets, divisor,
                             losses, out));
  };
  const std::size_t row_bytes = div_up(classes, count) * packet_bytes;
  if (out != nullptr && row_bytes <= most_kept)
    if (const auto room = shared_room(softmax_loss_kernel<true, T>); room && row_bytes <= *room)
      return launch(softmax_loss_kernel<true, T>, row_bytes);
  launch(softmax_loss_kernel<false, T>, 0);
}

}}}  // namespace adacc::v0_1::detail
