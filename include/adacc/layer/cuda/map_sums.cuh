// SPDX-License-Identifier: MIT
/// The gradient of an elementwise function on a CUDA device and, beside it, the sums of its columns.
#pragma once

#include "../../model/call.hpp"
#include "../../model/contract.hpp"
#include "sums.cuh"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Stores 16 bytes of global memory by one instruction, where nvcc would make four of write_packet().
template <class T, unsigned count>
__device__ inline void store_at_once(T* to, const Packet<T, count>& packet) {
  static_assert(sizeof packet == packet_bytes);
  const uint4 words = bits_as<uint4>(packet);
#if defined(__CUDA_ARCH__)
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
               "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w)
               : "memory");
#else
  static_cast<void>(to), static_cast<void>(words);
#endif
}

/// Writes dx = body(x, dy), which may be dy, and sums its columns, in the order of a MatrixBody.
template <class T, class Body>
struct MapSumsBody {
  static constexpr unsigned sums = 1, count = packet_elems<T>;
  struct Row {
    Packet<T, count> x, dy;
  };
  Body body;
  const T *x, *dy;
  T* dx;
  std::size_t cols;

  bool aligned() const {
    return cols % count == 0 && packet_aligned<count>(x) && packet_aligned<count>(dy) &&
           packet_aligned<count>(dx);
  }
  __device__ Row read(std::size_t row, std::size_t column, std::size_t left, bool whole) const {
    const std::size_t e = row * cols + column;
    return {read_packet<count>(x + e, left, whole), read_packet<count>(dy + e, left, whole)};
  }
  __device__ void add(const Row& read, std::size_t row, std::size_t column, std::size_t left,
                      bool whole, Packet<Wide<T>, count> (&sum)[sums]) const {
    const auto in = widened(read.x), up = widened(read.dy);
    Packet<Wide<T>, count> out;
#pragma unroll
    for (unsigned i = 0; i < count; ++i) out.at[i] = body(in.at[i], up.at[i]);
    T* const to = dx + row * cols + column;
    if (whole) store_at_once(to, narrowed<T>(out));
    else write_packet(to, narrowed<T>(out), left, false);
      // Numbers as they are stored; beyond the last column are none.
#pragma unroll
    for (unsigned i = 0; i < count; ++i)
      if (whole || i < left) sum[0].at[i] += widened(narrowed<T>(out.at[i]));
  }
};

/// Bytes of workspace for map_gradient().
constexpr std::size_t map_gradient_bytes(Shape in, NeedsQuery query) {
  if (query.pass == Pass::forward) return 0;
  return CudaChunks{in.rows()}.all_bytes(1, in.cols(), wide(query.scalar));
}

/// dx = body(x, dy); and its column sums, if somebody wants them.
template <class T, class Body>
void map_gradient(Cuda& cuda, const char* name, const Body& body, const BackwardCall<T>& call) {
  const View<const T> x = call.x, dy = call.dy;
  const View<T> dx = call.dx;
  if (call.dx_sums == nullptr) return cuda.map(name, dx, body, x.data(), dy.data());
  add_column_sums<Wide<T>>(cuda, name, dx.rows(), dx.cols(),
                           MapSumsBody<T, Body>{body, x.data(), dy.data(), dx.data(), dx.cols()},
                           call.workspace, {{call.dx_sums}, {call.dx_sums_begin}});
}

}}}  // namespace adacc::v0_1::detail
