// SPDX-License-Identifier: MIT
/// A contrastive loss: each row is to be more like its partner than like any other of the batch.
///
///     loss = mean over i of -log softmax over j != i of (scale cos(x_i, x_j)) at j = partner of i
///
/// Chen, Kornblith, Norouzi, Hinton, "A simple framework for contrastive learning of visual
/// representations" (NT-Xent), arXiv 2002.05709; van den Oord, Li, Vinyals, "Representation learning
/// with contrastive predictive coding", arXiv 1807.03748.
///
/// With n_i = x_i / |x_i|, and G the gradient of the loss for the cosines, times scale:
///
///     dn_i = sum over j of (G_ij + G_ji) n_j,  dx_i = (dn_i - n_i (n_i . dn_i)) / |x_i|
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "../core/bytes.hpp"
#include "../model/contract.hpp"
#include "math/numbers.hpp"
#include "math/packet.hpp"
#include "math/rows.hpp"
#include "softmax_cross_entropy.hpp"

namespace adacc { inline namespace v0_1 {

/// x (B, C); targets (B): the row of each row's partner, another one in [0, B). Any other target makes the loss NaN. dx
/// may overwrite x.
struct ContrastiveLoss {
  float scale = 20;  ///< one over the temperature

  using target_type = std::int32_t;
  static constexpr const char* name = "contrastive_loss";
  static constexpr LayerFacts facts{.dx_overwrites_x = true, .runs_in_bf16 = true};

  constexpr Shape target_shape(Shape in) const { return detail::without_cols(in); }

  constexpr LayerNeeds needs(Shape in, NeedsQuery query) const {
    if (!(scale > 0)) return {.error = Error::say(name, ": the scale must be a number above 0")};
    if (in.rank() != 2 || in[0] < 2 || in[1] == 0)
      return {.error = Error::say(name, ": the input is ", in,
                                  "; expected at least 2 rows of channels")};
    std::size_t bytes = 0;
    if (!multiply(in[0], in[0], bytes) || !multiply(bytes, sizeof(double), bytes) ||
        bytes > most_tensor_bytes)
      return {.error =
                  Error::say(name, ": ", in[0], " rows have more pairs than can be addressed")};
    return {.workspace = workspace_bytes(in, query.scalar)};
  }

  template <class T>
  void forward(Cpu& cpu, const LossCall<T, std::int32_t>& call, Cpu::Loss& loss) const {
    run(cpu, call, loss);
  }

  template <class T>
  void forward_backward(Cpu& cpu, const LossCall<T, std::int32_t>& call, Cpu::Loss& loss) const {
    run(cpu, call, loss);
  }

 private:
  /// Rows of length 1, their factors, the gradient for all pairs, and each row's loss; of bfloat16 also the sums that
  /// become dx.
  constexpr std::size_t workspace_bytes(Shape in, Dtype scalar) const {
    const std::size_t elem = bytes_of(wide(scalar));
    const std::size_t sums = scalar == Dtype::bf16 ? align_up(in.elems() * elem) : 0;
    return sums + align_up(in.elems() * elem) + align_up(in[0] * elem) +
           align_up(in[0] * in[0] * elem) + align_up(in[0] * sizeof(double));
  }

  template <class T>
  void run(Cpu& cpu, const LossCall<T, std::int32_t>& call, Cpu::Loss& loss) const {
    using W = Wide<T>;
    Bytes workspace = call.workspace;
    const std::size_t rows = call.x.rows(), cols = call.x.cols();
    W* const unit = carve<W>(workspace, rows * cols).data();
    W* const factor = carve<W>(workspace, rows).data();  // 1 / |x_i|
    W* const pairs = carve<W>(workspace, rows * rows).data();
    const View<double> losses = carve<double>(workspace, rows);
    W* const sums = carve<W>(workspace, detail::in_place<T> ? 0 : rows * cols).data();
    const W share = W(1) / static_cast<W>(rows);

    detail::for_each_row(cpu, rows, cols, [&](std::size_t i) {
      const T* const row = call.x.row(i);
      const W length = std::sqrt(detail::dot_of_rows(row, row, cols));
      factor[i] = W(1) / (length < W(1e-12) ? W(1e-12) : length);
      detail::for_each_span<T>(cols, [&](std::size_t first, std::size_t n) {
        const detail::Numbers<T> numbers(row + first, n);
        detail::as_array(unit + i * cols + first, n) = numbers.array() * factor[i];
      });
    });
    detail::for_each_row(cpu, rows, rows * cols, [&](std::size_t i) {
      W* const row = pairs + i * rows;
      for (std::size_t j = 0; j < rows; ++j)
        row[j] = i == j
                     ? -std::numeric_limits<W>::infinity()
                     : static_cast<W>(scale) * detail::dot(unit + i * cols, unit + j * cols, cols);
      const auto partner = static_cast<std::size_t>(call.targets[i]);
      losses[i] = detail::softmax_loss(row, rows, partner == i ? rows : partner, share,
                                       call.dx.empty() ? nullptr : row);
    });
    for (const double row : losses) loss.add(row / static_cast<double>(rows));
    if (call.dx.empty()) return;
    detail::for_each_row(cpu, rows, rows * cols, [&](std::size_t i) {
      W* row = sums;
      if constexpr (detail::in_place<T>) row = call.dx.row(i);
      else row += i * cols;
      auto down = detail::as_array(row, cols);  // at first, dn_i / scale
      down.setZero();
      for (std::size_t j = 0; j < rows; ++j)
        down +=
            (pairs[i * rows + j] + pairs[j * rows + i]) * detail::as_array(unit + j * cols, cols);
      const auto mine = detail::as_array(unit + i * cols, cols);
      const W along = detail::dot(unit + i * cols, row, cols);
      down = (down - mine * along) * (static_cast<W>(scale) * factor[i]);
      if constexpr (!detail::in_place<T>) detail::narrow(row, cols, call.dx.row(i));
    });
  }
};

}}  // namespace adacc::v0_1
