// SPDX-License-Identifier: MIT
/// The output head of a language model: logits, softmax cross-entropy and their gradients, fused.
///
/// The logits of a large vocabulary would outweigh the rest of a small model, so they never all exist: rows are taken
/// in tiles and the vocabulary in blocks. If the vocabulary is one block, its logits are computed once. Otherwise a
/// first pass over the blocks finds each row's maximum and sum, and a second computes the logits again: 8 instead of 6
/// operations per row and weight. Thinner tiles with all of the vocabulary would read the whole weight from memory for
/// every handful of rows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "../core/extremes.hpp"
#include "../model/contract.hpp"
#include "math/numbers.hpp"
#include "math/product.hpp"
#include "math/rows.hpp"
#include "softmax_cross_entropy.hpp"

namespace adacc { inline namespace v0_1 {

/// Mean over counted rows of -log softmax(x W^T)[target]: x (…, channels), W (vocab, channels), targets (…) in
/// [0, vocab), which steps check, or ignored (class_targets.hpp). Tiles of ignored rows alone cost nothing. dx may
/// overwrite x.
struct CrossEntropyHead {
  std::size_t vocab = 0;
  const char* tied = "wte";      ///< the name under which W is the token table's; may be null
  std::size_t padded_vocab = 0;  ///< rows of W if more than vocab; those beyond get no gradient
  float init_stddev = 0.02F;     ///< standard deviation of W before training
  /// Rows whose logits exist at a time on a CUDA device; 0: an eighth of all, 256 to 2048. More rows are faster, and their
  /// logits are part of the step's peak. Sums depend on the number, and plans do not change it.
  std::size_t device_tile_rows = 0;

  using target_type = std::int32_t;
  static constexpr const char* name = "cross_entropy_head";
  static constexpr LayerFacts facts{.dx_overwrites_x = true, .runs_in_bf16 = true};
  static constexpr auto split = Split::rows;

  constexpr Reads reads_when(Wanted) const { return reads::input; }

  /// At most so many rows and words have logits at a time: 2 MiB of float.
  static constexpr std::size_t tile_rows = 256;
  static constexpr std::size_t block_words = 2048;

  constexpr Shape target_shape(Shape in) const { return detail::without_cols(in); }
  constexpr std::size_t target_classes(Shape) const { return vocab; }

  constexpr std::array<ParameterSpec, 1> parameters(Shape in) const {
    return {ParameterSpec{"weight", Shape(weight_rows(), in.cols()), Init::normal(init_stddev),
                          true, tied}};
  }

  /// The window of parameters is a block of words.
  constexpr LayerNeeds needs(Shape in, NeedsQuery query) const {
    constexpr std::size_t most_words = (std::numeric_limits<std::int32_t>::max)();
    if (vocab == 0 || weight_rows() > most_words)
      return {.error = Error::say(name, ": a vocabulary of ", weight_rows(),
                                  " words; token ids are 32-bit, so 1 to ", most_words,
                                  " are possible")};
    if (padded_vocab != 0 && padded_vocab < vocab)
      return {.error = Error::say(name, ": the padded vocabulary of ", padded_vocab,
                                  " words is smaller than the vocabulary of ", vocab)};
    if (const Error error = detail::check_loss_rows(name, in)) return {.error = error};
    std::size_t bytes = 0;
    if (!multiply(in.elems(), sizeof(double), bytes) ||
        !multiply(weight_rows(), in.cols(), bytes) || !multiply(bytes, sizeof(double), bytes))
      return {.error = Error::say(name, ": ", in.rows(), " rows of ", in.cols(), " channels and ",
                                  weight_rows(), " words need more bytes than can be addressed")};
    return {.workspace = workspace_bytes(in, query.scalar, query.workers, query.pass),
            .decode_room = Params<float>::window_bytes(block() * in.cols(), wide(query.scalar)),
            .decode_tiles = detail::stored_tile_bytes(Shape(weight_rows(), in.cols()), query.scalar,
                                                      query.workers)};
  }

  template <class T>
  void forward(Cpu& cpu, const LossCall<T, std::int32_t>& call, Cpu::Loss& loss) const {
    run(cpu, call, loss);
  }

  template <class T>
  void forward_backward(Cpu& cpu, const LossCall<T, std::int32_t>& call, Cpu::Loss& loss) const {
    run(cpu, call, loss);
  }

  constexpr std::size_t logits_workspace_bytes(Shape x_rows, Dtype scalar, int workers) const {
    return detail::product_workspace_bytes(scalar, x_rows.rows(), vocab, x_rows.cols(), workers);
  }

  /// out (rows, vocab) = x_rows (rows, channels) W^T, all of them at once, from a weight of Wide<T>, or a stored one
  /// with tiles: for sampling.
  template <class T>
  void logits(Cpu& cpu, Params<const Wide<T>> params, View<const T> x_rows, View<Wide<T>> out,
              Bytes workspace) const {
    const std::size_t channels = x_rows.cols();
    detail::product(cpu, x_rows.rows(), vocab, channels, Operand<T>{x_rows.data(), channels, 1},
                    params.matrix(0), channels, true, out.data(), vocab, Accumulate::no, workspace);
  }

 private:
  /// Logits of a tile, the state of its rows, its dx if summed over blocks, and the workspace of the products.
  constexpr std::size_t workspace_bytes(Shape in, Dtype scalar, int workers, Pass pass) const {
    if (vocab == 0) return 0;
    const std::size_t rows = detail::smaller(in.rows(), tile_rows);
    const std::size_t elem = bytes_of(wide(scalar));
    const std::size_t state = scalar == Dtype::f64 ? sizeof(Row<double>) : sizeof(Row<float>);
    const bool sums_dx = pass == Pass::backward && vocab > block_words;
    return align_up(rows * block() * elem) + align_up(rows * state) +
           align_up(sums_dx ? rows * in.cols() * elem : 0) +
           products_bytes(in.rows(), in.cols(), scalar, workers, pass);
  }

  /// The state of one row between blocks of the vocabulary.
  template <class T>
  struct Row {
    detail::SoftmaxSum<T> softmax;
    T target_logit = std::numeric_limits<T>::quiet_NaN();  // a target beyond the vocabulary shows
  };

  constexpr std::size_t weight_rows() const { return padded_vocab == 0 ? vocab : padded_vocab; }
  constexpr std::size_t block() const { return detail::smaller(vocab, block_words); }

  /// The largest workspace of the products; tiles and blocks at the end are smaller, but their
  /// products need not need less.
  constexpr std::size_t products_bytes(std::size_t rows, std::size_t channels, Dtype scalar,
                                       int workers, Pass pass) const {
    std::size_t most = 0;
    const std::size_t tiles[] = {detail::smaller(rows, tile_rows), rows % tile_rows};
    const std::size_t blocks[] = {block(), vocab % block()};
    for (const std::size_t m : tiles)
      for (const std::size_t n : blocks) {
        if (m == 0 || n == 0) continue;
        const std::size_t needs[] = {
            detail::product_workspace_bytes(scalar, m, n, channels, workers),
            detail::product_workspace_bytes(scalar, n, channels, m, workers),
            detail::product_workspace_bytes(scalar, m, channels, n, workers)};
        for (int i = 0; i < (pass == Pass::forward ? 1 : 3); ++i)
          if (needs[i] > most) most = needs[i];
      }
    return most;
  }

  template <class T>
  void run(Cpu& cpu, const LossCall<T, std::int32_t>& call, Cpu::Loss& loss) const {
    using W = Wide<T>;
    Bytes workspace = call.workspace;
    const std::size_t total_rows = call.x.rows(), channels = call.x.cols();
    const bool one_block = vocab <= block_words;
    const std::size_t scratch_rows = detail::smaller(total_rows, tile_rows);
    W* const logits = carve<W>(workspace, scratch_rows * block()).data();
    Row<W>* const states = carve<Row<W>>(workspace, scratch_rows).data();
    W* const dx_sum =
        carve<W>(workspace, call.dx.empty() || one_block ? 0 : scratch_rows * channels).data();
    const std::size_t divisor = detail::loss_divisor(call);
    const W share = W(1) / static_cast<W>(divisor);
    for (std::size_t first = 0; first < total_rows; first += tile_rows) {
      const std::size_t rows = detail::smaller(tile_rows, total_rows - first);
      const Operand<T> x_rows{call.x.data() + first * channels, channels, 1};
      const std::int32_t* const words = call.targets.data() + first;
      if (count_targets({words, Shape(rows)}).counted == 0) {
        if (!call.dx.empty())
          for (std::size_t i = 0; i < rows * channels; ++i) call.dx[first * channels + i] = T{};
        continue;
      }
      // Returns the weights of these words, which stay until the next call.
      const auto multiply_block = [&](std::size_t word, std::size_t count) {
        const ParameterMatrix<W> weight = call.params.matrix(cpu, 0, word, count);
        detail::product(cpu, rows, count, channels, x_rows, weight, channels, true, logits, count,
                        Accumulate::no, workspace);
        return weight;
      };

      ParameterMatrix<W> weights;
      for (std::size_t r = 0; r < rows; ++r) states[r] = {};
      for (std::size_t word = 0; word < vocab; word += block_words) {
        const std::size_t count = detail::smaller(block_words, vocab - word);
        weights = multiply_block(word, count);
        detail::for_each_row(cpu, rows, count, [&](std::size_t r) {
          states[r].softmax.include(logits + r * count, count);
          const std::size_t target = static_cast<std::size_t>(words[r]) - word;
          if (target < count) states[r].target_logit = logits[r * count + target];
        });
      }
      for (std::size_t r = 0; r < rows; ++r)
        if (words[r] != ignored_target)
          loss.add(states[r].softmax.loss(states[r].target_logit) / static_cast<double>(divisor));
      if (call.dx.empty()) continue;

      T* const dx_tile = call.dx.data() + first * channels;
      for (std::size_t word = 0; word < vocab; word += block_words) {
        const std::size_t count = detail::smaller(block_words, vocab - word);
        if (!one_block) weights = multiply_block(word, count);
        detail::for_each_row(cpu, rows, count, [&](std::size_t r) {
          W* const row = logits + r * count;
          if (words[r] == ignored_target) {
            for (std::size_t c = 0; c < count; ++c) row[c] = W{};
            return;
          }
          states[r].softmax.probabilities(row, count, share, row);
          const std::size_t target = static_cast<std::size_t>(words[r]) - word;
          if (target < count) row[target] -= share;
          detail::round_in_place<T>(row, count);
        });
        const Operand<T> dlogits = detail::rounded_rows<T>(logits, count);
        // The weight's gradient first: dx may overwrite x.
        if (!call.dparams[0].empty())
          detail::product(
              cpu, count, channels, rows, Operand<T>{dlogits.data, 1, dlogits.row_stride}, x_rows,
              call.dparams[0].data() + word * channels, channels, Accumulate::yes, workspace);
        if (one_block)
          detail::product(cpu, rows, channels, count, dlogits, weights, channels, false, dx_tile,
                          channels, Accumulate::no, workspace);
        else
          detail::product(cpu, rows, channels, count, dlogits, weights, channels, false, dx_sum,
                          channels, word == 0 ? Accumulate::no : Accumulate::yes, workspace);
      }
      if (!one_block)
        detail::for_each_row(cpu, rows, channels, [&](std::size_t r) {
          for (std::size_t c = 0; c < channels; ++c)
            dx_tile[r * channels + c] = detail::rounded<T>(dx_sum[r * channels + c]);
        });
    }
  }
};

}}  // namespace adacc::v0_1
