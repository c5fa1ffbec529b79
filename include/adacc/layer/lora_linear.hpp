// SPDX-License-Identifier: MIT
/// A linear layer that keeps its weight and learns a product of two thin matrices beside it.
///
/// Hu et al., "LoRA: low-rank adaptation of large language models", ICLR 2022; with a fixed A, Zhang
/// et al., "LoRA-FA: memory-efficient low-rank adaptation", 2023:
///
///     y = x W^T + b + h B^T        h = alpha / rank * x A^T
///
/// h is kept as aux, with `rank` numbers a row: the gradient of B needs no more of the input. The gradient of A needs
/// the whole input, so with A trained nothing of this is saved.
#pragma once

#include <cstddef>

#include "linear.hpp"
#include "math/rows.hpp"

namespace adacc { inline namespace v0_1 {

/// x (..., in) to y (..., out). Parameters: "weight" (out, in) and, if wanted, "bias" (out), both
/// frozen; "lora_a" (rank, in), uniform in +-1/sqrt(in), and "lora_b" (out, rank), which starts at
/// zero: at first y is the linear layer's. aux: h.
struct LoraLinear {
  std::size_t out = 0;
  bool bias = true;
  float init_stddev = 0;  ///< the weight's, as in Linear
  std::size_t rank = 8;   ///< at most the smaller of inputs and outputs
  float alpha = 16;
  bool train_a = true;  ///< false: A never changes (LoRA-FA)

  static constexpr const char* name = "lora_linear";
  static constexpr LayerFacts facts{.runs_in_bf16 = true};
  static constexpr auto backward_reads = reads::input;
  static constexpr auto split = Split::rows;
  using input_codecs = Linear::input_codecs;
  static constexpr double input_sensitivity = Linear::input_sensitivity;

  /// The layer without its factors, with the first parameters.
  constexpr Linear linear() const { return {out, bias, init_stddev}; }
  /// The place of lora_a among the parameters; lora_b is the next.
  constexpr std::size_t a_index() const { return bias ? 2 : 1; }
  /// alpha / rank.
  template <class W>
  constexpr W factor() const {
    return static_cast<W>(alpha) / static_cast<W>(rank);
  }

  constexpr Reads reads_when(Wanted wanted) const {
    return wanted.parameter(0) || wanted.parameter(a_index()) ? reads::input : reads::none;
  }

  constexpr Shape output_shape(Shape in) const { return in.with_cols(out); }

  /// The frozen weight alone is packed: both factors are small.
  constexpr LayerNeeds needs(Shape in, NeedsQuery query) const {
    LayerNeeds needs = linear().needs(in, query);
    if (!needs.error) needs.error = examine(in);
    if (needs.error) return needs;
    needs.aux = in.rows() * rank * bytes_of(query.scalar);
    needs.workspace = workspace_bytes(in, query, needs.workspace);
    return needs;
  }

  using Specs = ParameterSpecs<4>;

  constexpr Specs parameters(Shape in) const {
    const auto base = linear().parameters(in);
    const float width =
        in.cols() == 0 ? 1 : detail::reciprocal_root(static_cast<double>(in.cols()));
    Specs specs{};
    for (std::size_t i = 0; i < base.size(); ++i) {
      specs.spec[i] = base[i];
      specs.spec[i].frozen = true;
    }
    specs.spec[a_index()] = {"lora_a", Shape(rank, in.cols()), Init::uniform(width)};
    specs.spec[a_index()].frozen = !train_a;
    specs.spec[a_index() + 1] = {"lora_b", Shape(out, rank), Init::zeros()};
    specs.count = a_index() + 2;
    return specs;
  }

  template <class T>
  void forward(Cpu& cpu, const ForwardCall<T>& call) const {
    Bytes aux = call.aux;
    const std::size_t rows = call.x.rows(), in = call.x.cols();
    const View<T> h = carve<T>(aux, rows * rank);
    detail::product(cpu, rows, rank, in, Operand<T>{call.x.data(), in, 1},
                    call.params.matrix(a_index()), in, true, h.data(), rank, Accumulate::no,
                    call.workspace);
    scale(cpu, h);
    linear().forward(cpu, call);
    add_product<T>(cpu, rows, out, {h.data(), rank, 1}, call.params.matrix(a_index() + 1), rank,
                   true, call.y.data(), call.workspace);
  }

  template <class T>
  void backward(Cpu& cpu, const BackwardCall<T>& call) const {
    ConstBytes aux = call.aux;
    Bytes workspace = call.workspace;
    const std::size_t rows = call.dy.rows(), in = call.params.shape(0).cols();
    const View<const T> h = carve<T>(aux, rows * rank);
    const View<T> dh = carve<T>(workspace, rows * rank);
    const View<Wide<T>> da = call.dparams[a_index()], db = call.dparams[a_index() + 1];
    BackwardCall<T> base = call;
    base.workspace = workspace;
    linear().backward(cpu, base);
    if (!call.dx.empty() || !da.empty()) {
      detail::product(cpu, rows, rank, out, Operand<T>{call.dy.data(), out, 1},
                      call.params.matrix(a_index() + 1), rank, false, dh.data(), rank,
                      Accumulate::no, workspace);
      scale(cpu, dh);
    }
    if (!call.dx.empty())
      add_product<T>(cpu, rows, in, {dh.data(), rank, 1}, call.params.matrix(a_index()), in, false,
                     call.dx.data(), workspace);
    if (!da.empty())
      detail::product(cpu, rank, in, rows, Operand<T>{dh.data(), 1, rank},
                      Operand<T>{call.x.data(), in, 1}, da.data(), in, Accumulate::yes, workspace);
    if (!db.empty())
      detail::product(cpu, out, rank, rows, Operand<T>{call.dy.data(), 1, out},
                      Operand<T>{h.data(), rank, 1}, db.data(), rank, Accumulate::yes, workspace);
  }

  /// weight += alpha / rank * B A: a Linear with the resulting weight computes the same as this layer.
  template <class T>
  void merge(Params<const T> params, View<T> weight) const {
    const View<const T> a = params[a_index()], b = params[a_index() + 1];
    for (std::size_t o = 0; o < weight.rows(); ++o)
      for (std::size_t k = 0; k < rank; ++k) {
        const T share = factor<T>() * b.row(o)[k];
        for (std::size_t i = 0; i < weight.cols(); ++i) weight.row(o)[i] += share * a.row(k)[i];
      }
  }

 private:
  constexpr Error examine(Shape in) const {
    const std::size_t most = detail::least(in.cols(), out);
    if (rank == 0 || rank > most)
      return Error::say(name, ": a rank of ", rank, " between ", in.cols(), " inputs and ", out,
                        " outputs; 1 to ", most, " are possible");
    if (alpha == 0 || !(alpha - alpha == 0))
      return Error::say(name, ": alpha must be a finite number, and with 0 nothing is learned");
    return {};
  }

  /// The workspace of the largest product; in backward behind the gradient of h.
  constexpr std::size_t workspace_bytes(Shape in, NeedsQuery query, std::size_t most) const {
    const std::size_t rows = in.rows(), cols = in.cols();
    struct Sizes {
      std::size_t m, n, k;
    };
    const Sizes forward[] = {{rows, rank, cols}, {rows, out, rank}};
    const Sizes backward[] = {
        {out, rank, rows}, {rows, rank, out}, {rows, cols, rank}, {rank, cols, rows}};
    const auto include = [&](const Sizes& of) {
      std::size_t bytes = product_bytes(query.scalar, of.m, of.n, of.k, query.workers);
      if (of.k == rank && of.m == rows) bytes += sums_bytes(query.scalar, of.m, of.n);
      if (bytes > most) most = bytes;
    };
    if (query.pass == Pass::forward) {
      for (const Sizes& of : forward) include(of);
      return most;
    }
    for (const Sizes& of : backward) include(of);
    return align_up(rows * rank * bytes_of(query.scalar)) + most;
  }

  static constexpr std::size_t product_bytes(Dtype scalar, std::size_t m, std::size_t n,
                                             std::size_t k, int workers) {
    return detail::product_workspace_bytes(scalar, m, n, k, workers);
  }

  /// Rows whose sums are formed in fp32 at a time, if activations are in bfloat16.
  static constexpr std::size_t sum_rows = 128;
  static constexpr std::size_t sums_bytes(Dtype scalar, std::size_t rows, std::size_t cols) {
    return scalar == Dtype::bf16
               ? align_up(detail::least(rows, sum_rows) * cols * bytes_of(wide(scalar)))
               : 0;
  }

  /// to (rows, cols) += a (rows, rank) b, a matrix of b_cols columns or its transpose (rank, cols).
  template <class T>
  void add_product(Cpu& cpu, std::size_t rows, std::size_t cols, Operand<T> a,
                   const ParameterMatrix<Wide<T>>& b, std::size_t b_cols, bool transposed, T* to,
                   Bytes workspace) const {
    if constexpr (detail::in_place<T>) {
      detail::product(cpu, rows, cols, rank, a, b, b_cols, transposed, to, cols, Accumulate::yes,
                      workspace);
    } else {
      Wide<T>* const sums = carve<Wide<T>>(workspace, detail::least(rows, sum_rows) * cols).data();
      for (std::size_t first = 0; first < rows; first += sum_rows) {
        const std::size_t count = detail::least(rows - first, sum_rows);
        detail::product(cpu, count, cols, rank, a.at(first, 0), b, b_cols, transposed, sums, cols,
                        Accumulate::no, workspace);
        T* const at = to + first * cols;
        detail::for_each_piece(
            cpu, count * cols, detail::stack_elems, [&](std::size_t i, std::size_t n) {
              const detail::Numbers<T> old(at + i, n);
              detail::store(at + i, n, old.array() + detail::as_array(sums + i, n));
            });
      }
    }
  }

  template <class T>
  void scale(const Cpu& cpu, View<T> h) const {
    const Wide<T> share = factor<Wide<T>>();
    constexpr std::size_t piece = detail::piece_elems<T>;
    detail::for_each_piece(cpu, h.size(), piece, [&](std::size_t first, std::size_t n) {
      const detail::Numbers<T> in(h.data() + first, n);
      detail::store(h.data() + first, n, in.array() * share);
    });
  }
};

}}  // namespace adacc::v0_1
