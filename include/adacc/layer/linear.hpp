// SPDX-License-Identifier: MIT
/// A linear layer: y = x W^T + b over the last extent.
///
/// The weight is stored (out, in), as in PyTorch and llm.c, so that their checkpoints are read as
/// they are. All three products are `gemm`; the bias joins the first of them while C is written.
#pragma once

#include <cstddef>

#include "../codec/bf16.hpp"
#include "../codec/int4_outlier.hpp"
#include "../codec/int8_outlier.hpp"
#include "../core/cpu.hpp"
#include "../core/vector_target.hpp"
#include "../model/contract.hpp"
#include "math/gemm.hpp"
#include "math/numbers.hpp"
#include "math/product.hpp"
#include "math/shapes.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Columns of a matrix summed up at a time, by a thread.
template <class T>
inline constexpr std::size_t summed_columns = 256 / sizeof(Wide<T>);

ADACC_TARGET_CODE_BEGIN
/// sums[j] += at[r * stride + j] for every row in order, for `count` columns, at most summed_columns.
template <class T>
void add_rows(const T* at, std::size_t rows, std::size_t stride, std::size_t count, Wide<T>* sums) {
  constexpr std::size_t chunk = summed_columns<T>;
  Wide<T> sum[chunk] = {};
  for (std::size_t j = 0; j < count; ++j) sum[j] = sums[j];
  for (std::size_t r = 0; r < rows; ++r, at += stride) {
    if (count == chunk)
      for (std::size_t j = 0; j < chunk; ++j) sum[j] += number(at[j]);
    else
      for (std::size_t j = 0; j < count; ++j) sum[j] += number(at[j]);
  }
  for (std::size_t j = 0; j < count; ++j) sums[j] = sum[j];
}
ADACC_TARGET_CODE_END

/// sums[j] += matrix[r][j] for every row in order, in parallel over columns: one sum, however rows
/// are cut into several calls. Sums of fp32 wait for memory at every instruction level.
template <class T>
void add_column_sums(const Cpu& ctx, View<const T> matrix, Wide<T>* sums) {
  constexpr std::size_t chunk = summed_columns<T>;
  const std::size_t rows = matrix.rows(), cols = matrix.cols();
  ctx.parallel(div_up(cols, chunk), [&](std::size_t tile, int) {
    const std::size_t first = tile * chunk, count = least(chunk, cols - first);
    const T* const at = matrix.data() + first;
    if constexpr (in_place<T>) add_rows(at, rows, cols, count, sums + first);
    else call_at_level<add_rows<T>>(at, rows, cols, count, sums + first);
  });
}

/// The step's memory for the packed weight, empty if the call has none.
template <class T, class Call>
PackedOperand<T> kept_operand(const Call& call) {
  if (call.packed.empty()) return {};
  return {static_cast<T*>(static_cast<void*>(call.packed.data())), call.packed_holds};
}

}  // namespace detail

/// x (..., in) to y (..., out). Parameters: "weight" (out, in) and, if wanted, "bias" (out),
/// which starts at zero and does not decay.
struct Linear {
  std::size_t out = 0;
  bool bias = true;
  /// Standard deviation of the normal distribution of the initial weight. 0: uniform in +-1/sqrt(in), as in PyTorch.
  float init_stddev = 0;

  static constexpr const char* name = "linear";
  static constexpr LayerFacts facts{.runs_in_bf16 = true};
  static constexpr auto backward_reads = reads::input;
  static constexpr auto split = Split::rows;
  /// The input's error meets dy in a sum over all rows, and averages out there.
  using input_codecs = CodecList<Int4Outlier, Int8Outlier, Bf16>;
  static constexpr double input_sensitivity = 0.037;

  /// dx and the bias's gradient are made of dy alone.
  constexpr Reads reads_when(Wanted wanted) const {
    return wanted.parameter(0) ? reads::input : reads::none;
  }

  constexpr Shape output_shape(Shape in) const { return in.with_cols(out); }

  constexpr LayerNeeds needs(Shape in, NeedsQuery query) const {
    if (out == 0)
      return {.error = Error::say("linear: the number of outputs is 0; expected at least 1")};
    if (in.rank() == 0 || in.cols() == 0)
      return {.error = Error::say("linear: the input has ",
                                  in.rank() == 0 ? "no extents" : "no channels",
                                  "; expected (..., channels), each at least 1")};
    if (in.elems() == 0)
      return {.error =
                  Error::say("linear: the input has an extent of 0, or more elements than fit ",
                             "std::size_t; expected (..., channels), each at least 1")};
    std::size_t bytes = 0;
    if (!multiply(out, in.cols(), bytes) || !multiply(bytes, sizeof(double), bytes))
      return {.error = Error::say("linear: a weight of ", out, " x ", in.cols(),
                                  " elements has more bytes than fit std::size_t")};
    if (!multiply(in.rows(), out, bytes) || !multiply(bytes, sizeof(double), bytes))
      return {.error = Error::say("linear: an output of ", in.rows(), " x ", out,
                                  " elements has more bytes than fit std::size_t")};
    if (!(init_stddev >= 0))
      return {.error = Error::say(
                  "linear: init_stddev is negative or not a number; expected 0 or more")};
    return {.workspace = workspace_bytes(in, query.scalar, query.workers, query.pass),
            .packed = packed_bytes(in, query.scalar, query.pass),
            .decode_tiles =
                detail::stored_tile_bytes(Shape(out, in.cols()), query.scalar, query.workers)};
  }

  using Specs = ParameterSpecs<2>;

  constexpr Specs parameters(Shape in) const {
    const Init init = init_stddev > 0 || in.cols() == 0
                          ? Init::normal(init_stddev)
                          : Init::uniform(detail::reciprocal_root(static_cast<double>(in.cols())));
    return {{{"weight", Shape(out, in.cols()), init}, {"bias", Shape(out), Init::zeros(), false}},
            bias ? std::size_t{2} : std::size_t{1}};
  }

  template <class T>
  void forward(Cpu& ctx, const ForwardCall<T>& call) const {
    const std::size_t in = call.x.cols();
    detail::product(ctx, call.x.rows(), out, in, Operand<T>{call.x.data(), in, 1},
                    call.params.matrix(0), in, true, call.y.data(), out, Accumulate::no,
                    call.workspace, bias ? call.params[1].data() : nullptr,
                    detail::kept_operand<T>(call));
  }

  template <class T>
  void backward(Cpu& ctx, const BackwardCall<T>& call) const {
    const std::size_t rows = call.dy.rows(), in = call.params.shape(0).cols();
    if (!call.dx.empty())
      detail::product(ctx, rows, in, out, Operand<T>{call.dy.data(), out, 1}, call.params.matrix(0),
                      in, false, call.dx.data(), in, Accumulate::no, call.workspace, nullptr,
                      detail::kept_operand<T>(call));
    if (!call.dparams[0].empty())
      detail::product(ctx, out, in, rows, Operand<T>{call.dy.data(), 1, out},
                      Operand<T>{call.x.data(), in, 1}, call.dparams[0].data(), in, Accumulate::yes,
                      call.workspace);
    if (bias && !call.dparams[1].empty())
      detail::add_column_sums(ctx, call.dy, call.dparams[1].data());
  }

 private:
  constexpr std::size_t workspace_bytes(Shape in, Dtype scalar, int workers, Pass pass) const {
    const auto product = [&](std::size_t m, std::size_t n, std::size_t k) {
      return detail::product_workspace_bytes(scalar, m, n, k, workers);
    };
    const std::size_t rows = in.rows(), cols = in.cols();
    if (pass == Pass::forward) return product(rows, out, cols);
    const std::size_t dweight = product(out, cols, rows);
    if (pass == Pass::backward_without_dx) return dweight;
    const std::size_t dx = product(rows, cols, out);
    return dx < dweight ? dweight : dx;
  }

  /// The weight, packed for the product reading it.
  constexpr std::size_t packed_bytes(Shape in, Dtype scalar, Pass pass) const {
    switch (pass) {
      case Pass::forward: return detail::product_packed_bytes(scalar, out, in.cols());
      case Pass::backward: return detail::product_packed_bytes(scalar, in.cols(), out);
      default: return 0;
    }
  }
};

}}  // namespace adacc::v0_1
