// SPDX-License-Identifier: MIT
/// The gradient of an elementwise function on a CUDA device and, beside it, the sums of its columns.
#pragma once

#include "../../model/call.hpp"
#include "sums.cuh"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Writes dx = body(x, dy), which may be dy, and sums its columns, in the order of a MatrixBody.
template <class T, class Body>
struct MapSumsBody {
  static constexpr unsigned sums = 1, count = packet_elems<T>;
  struct Row {
    Packet<T, count> x, dy;
    T* to;
    std::size_t left;
    bool whole;
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
    return {read_packet<count>(x + e, left, whole), read_packet<count>(dy + e, left, whole), dx + e,
            left, whole};
  }
  __device__ void add(const Row& row, Packet<Wide<T>, count> (&sum)[sums]) const {
    const auto in = widened(row.x), up = widened(row.dy);
    Packet<Wide<T>, count> out;
#pragma unroll
    for (unsigned i = 0; i < count; ++i) out.at[i] = body(in.at[i], up.at[i]);
    const Packet<T, count> stored = narrowed<T>(out);
    write_packet(row.to, stored, row.left, row.whole);
    const auto numbers = widened(stored);
#pragma unroll
    for (unsigned i = 0; i < count; ++i)
      if (row.whole || i < row.left) sum[0].at[i] += numbers.at[i];
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
  if (call.dx_sums.empty()) return cuda.map(name, dx, body, x.data(), dy.data());
  add_column_sums<Wide<T>>(cuda, name, dx.rows(), dx.cols(),
                           MapSumsBody<T, Body>{body, x.data(), dy.data(), dx.data(), dx.cols()},
                           call.workspace, {{call.dx_sums.data()}, {call.dx_sums_begin}});
}

}}}  // namespace adacc::v0_1::detail
