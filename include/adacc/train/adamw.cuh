// SPDX-License-Identifier: MIT
/// AdamW on a CUDA device: one pass over memory, with the formulas of adamw.hpp.
///
/// The norm by which gradients are clipped may stay on the device, where the update reads it: then
/// nothing waits between backward and the next step. A norm that is not finite makes the update
/// leave parameters and moments as they are and clear the gradients.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/cuda.cuh"
#include "adamw.hpp"
#include "update_table.hpp"

namespace adacc { inline namespace v0_1 {

/// What an update on a device works on: the parameters; all others mirror those that are trained.
template <class T>
struct UpdateBlocks {
  View<T> params;
  View<T> gradients;
  const View<T>* state = nullptr;  ///< first and second moments
};

/// What an update on a device is told.
struct CudaUpdateTerms : UpdateTerms {
  const double* norm = nullptr;  ///< of the gradients, in device memory; null: not looked at
  double clip = 0;               ///< scale * gradients are scaled down to this norm; 0 is off
};

namespace detail {

/// Runs of parameters that decay or do not: run i ends before elements ends[i] >> 1, and its last
/// bit says whether it decays. A kernel's arguments have room for so many.
struct DecayRuns {
  static constexpr std::size_t most = 480;
  std::uint64_t ends[most];
  std::uint32_t count = 0;

  ADACC_HD std::uint64_t end(std::uint32_t run) const { return ends[run] >> 1; }
};

template <bool clear, class T>
static __global__ void __launch_bounds__(cuda_threads)
    adamw_kernel(const __grid_constant__ DecayRuns runs, std::size_t first, AdamWTerms<T> a,
                 const double* norm, double clip, T* p, T* g, T* m, T* v) {
  const std::size_t last = runs.end(runs.count - 1);
  T scale = a.scale;
  bool finite = true;
  if (norm != nullptr) {
    const double length = *norm * static_cast<double>(a.scale);
    finite = isfinite(length);
    if (clip > 0 && length > clip)
      scale = static_cast<T>(static_cast<double>(a.scale) * (clip / length));
  }
  const std::size_t step = std::size_t{gridDim.x} * cuda_threads;
  for (std::size_t e = first + std::size_t{blockIdx.x} * cuda_threads + threadIdx.x; e < last;
       e += step) {
    if (finite) {
      std::uint32_t low = 0, high = runs.count - 1;  // the first run that ends behind e
      while (low < high) {
        const std::uint32_t middle = (low + high) / 2;
        if (runs.end(middle) > e) high = middle;
        else low = middle + 1;
      }
      const T decay = (runs.ends[low] & 1) != 0 ? a.decay : T(0);
      const T gradient = scale * g[e];
      const T first_moment = a.beta1 * m[e] + a.fresh1 * gradient;
      const T second_moment = a.beta2 * v[e] + a.fresh2 * gradient * gradient;
      m[e] = first_moment;
      v[e] = second_moment;
      p[e] -= a.rate * (first_moment * a.correct1 / (sqrt(second_moment * a.correct2) + a.epsilon) +
                        decay * p[e]);
    }
    if constexpr (clear) g[e] = 0;
  }
}

}  // namespace detail

template <>
struct optimizer_kernel<AdamW, Cuda> {
  /// For a Training.
  template <class Table, class T>
  static void update(const AdamW& adamw, Cuda& cuda, const UpdateTable& state, const Table& table,
                     const UpdateMemory<T>& memory, const UpdateTerms& terms) {
    CudaUpdateTerms on_device;
    static_cast<UpdateTerms&>(on_device) = terms;
    View<T> moments[2];
    for (std::size_t i = 0; i < 2; ++i)
      moments[i] = {static_cast<T*>(static_cast<void*>(memory.state.data() + state.begin(i))),
                    memory.gradients.shape()};
    if (state.bytes() != 2 * memory.gradients.size() * sizeof(T))
      return cuda.note(Error::misuse("AdamW's moments do not mirror the gradients"));
    update(adamw, cuda, table, UpdateBlocks<T>{memory.params, memory.gradients, moments},
           on_device);
  }
  template <class Table, class T>
  static void update(const AdamW& adamw, Cuda& cuda, const Table& table,
                     const UpdateBlocks<T>& blocks, const CudaUpdateTerms& terms) {
    const detail::AdamWTerms<T> shared =
        adamw.template terms_of<T>(ParameterSpec{.decay = true}, terms);
    detail::DecayRuns runs;
    std::size_t first = 0;
    const auto launch = [&] {
      if (runs.count == 0) return;
      const std::size_t elems = runs.end(runs.count - 1) - first;
      detail::adamw_kernel<true>
          <<<detail::cuda_grid(elems), detail::cuda_threads, 0, cuda.stream()>>>(
              runs, first, shared, terms.norm, terms.clip, blocks.params.data(),
              blocks.gradients.data(), blocks.state[0].data(), blocks.state[1].data());
      cuda.launched(AdamW::name);
      first = runs.end(runs.count - 1);
      runs.count = 0;
    };
    // Owners lie one behind the other. The padding before one belongs to its run: zeros stay zeros.
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (!table[i].owner || table[i].frozen) continue;
      const std::uint64_t end = table[i].offset + table[i].shape.elems();
      const std::uint64_t run = end << 1 | (table[i].decay ? 1 : 0);
      const bool joins = runs.count != 0 && ((runs.ends[runs.count - 1] ^ run) & 1) == 0;
      if (!joins && runs.count == detail::DecayRuns::most) launch();
      if (!joins) ++runs.count;
      runs.ends[runs.count - 1] = run;
    }
    launch();
  }
};

}}  // namespace adacc::v0_1
