// SPDX-License-Identifier: MIT
/// Token, position and token-type embedding: the rows of up to three tables, added.
///
/// Backward scatters into the tables. Tiles are columns, and each goes through all rows in order:
/// tokens that repeat add up in one order for any number of threads, with no lock and no scratch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "../core/dtype.hpp"
#include "../model/contract.hpp"
#include "math/numbers.hpp"
#include "math/rows.hpp"

namespace adacc { inline namespace v0_1 {

/// Tokens (B, T) -> (B, T, channels). Parameters: wte (vocab, channels); wpe (context, channels) if positions are
/// learned; wtt (types, channels) if tokens have types: a token w of type k is then given as w + k vocab. An unknown
/// token yields a row of NaN and has no gradient: data readers refuse such a token earlier, and here it must neither
/// read foreign memory nor go unseen.
struct Embedding {
  std::size_t vocab = 0;
  std::size_t context = 0;  ///< the longest sequence
  std::size_t channels = 0;
  const char* tied = "wte";   ///< the name under which a head shares the token table; may be null
  float init_stddev = 0.02F;  ///< standard deviation of the tables before training
  std::size_t types = 0;      ///< token types, like BERT's sentences A and B; 0: none
  bool positions = true;      ///< learned ones; else a layer further on sees to them (rotary)

  using input_type = std::int32_t;
  static constexpr auto backward_reads = reads::input;
  static constexpr auto split = Split::batch;  // a part must begin at position 0
  static constexpr const char* name = "embedding";
  static constexpr LayerFacts facts{
      .extends_sequences = true, .reads_positions = true, .runs_in_bf16 = true};

  constexpr Reads reads_when(Wanted) const { return reads::input; }

  /// Tokens below this number are known; all others yield NaN.
  constexpr std::size_t known_tokens() const { return vocab * kinds(); }
  /// The place of wtt among the parameters.
  constexpr std::size_t type_table() const { return positions ? 2 : 1; }

  /// Rows of the tables are looked up wherever they are.
  constexpr LayerNeeds needs(Shape in, NeedsQuery) const {
    if (vocab == 0 || context == 0 || channels == 0)
      return {.error = Error::say("embedding: vocab ", vocab, ", context ", context, ", channels ",
                                  channels, "; each must be at least 1")};
    constexpr std::size_t most_tokens = (std::numeric_limits<std::int32_t>::max)();
    if (vocab > most_tokens / kinds())
      return {.error =
                  Error::say("embedding: a vocabulary of ", vocab,
                             " tokens; token ids are 32-bit, so ", most_tokens, " is the limit")};
    if (in.rank() != 2)
      return {.error = Error::say("embedding: the input has rank ", in.rank(),
                                  "; expected tokens of shape (batch, time)")};
    if (in[0] == 0 || in[1] == 0)
      return {.error = Error::say("embedding: batch ", in[0], " and sequence length ", in[1],
                                  "; each must be at least 1")};
    if (in[1] > context)
      return {.error = Error::say("embedding: sequence length T ", in[1], " exceeds the context ",
                                  context)};
    if (!fits(Shape(vocab, channels)) || !fits(Shape(context, channels)) ||
        !fits(Shape(kinds(), channels)) || !fits(in.append(channels)))
      return {.error = Error::say("embedding: vocab ", vocab, ", context ", context, ", channels ",
                                  channels, " and tokens (", in[0], ", ", in[1],
                                  ") need more bytes than can be ", "addressed")};
    return {.decode_room = 0};  // decoded by the rows that are read
  }

  constexpr Shape output_shape(Shape in) const { return in.append(channels); }

  using Specs = ParameterSpecs<3>;

  constexpr Specs parameters(Shape) const {
    Specs specs;
    const auto add = [&](const char* table, std::size_t rows, const char* shared) {
      specs.spec[specs.count++] = {table, Shape(rows, channels), Init::normal(init_stddev), true,
                                   shared};
    };
    add("wte", vocab, tied);
    if (positions) add("wpe", context, nullptr);
    if (types > 0) add("wtt", types, nullptr);
    return specs;
  }

  template <class T>
  void forward(Cpu& cpu, const ForwardCall<T, std::int32_t>& call) const {
    const std::size_t time = call.x.cols();
    const auto place = [&](std::size_t r) {
      return cpu.position_of(call.part.first + r / time, r % time, time);
    };
    detail::for_each_row(cpu, call.x.size(), channels, [&](std::size_t r) {
      detail::for_each_span<T>(channels, [&](std::size_t first, std::size_t n) {
        detail::Draft sum(call.y.data() + r * channels + first, n);
        if (!known(call.x[r])) sum.array() = std::numeric_limits<Wide<T>>::quiet_NaN();
        else if (call.params.in_bf16() || call.params.any_stored())
          add_coded_rows(call.params, call.x[r], place(r), first, n, sum.data());
        else add_rows(call.params, call.x[r], place(r), first, n, sum.array());
        sum.store();
      });
    });
  }

  template <class T>
  void backward(Cpu& cpu, const BackwardCall<T, std::int32_t>& call) const {
    constexpr std::size_t tile_cols = 64;  // whole cache lines
    const std::size_t rows = call.x.size(), time = call.x.cols();
    const bool tokens = !call.dparams[0].empty(), places = positions && !call.dparams[1].empty();
    const bool segments = types > 0 && !call.dparams[type_table()].empty();
    cpu.parallel(div_up(channels, tile_cols), [&](std::size_t tile, int) {
      const std::size_t first = tile * tile_cols;
      const std::size_t n = channels - first < tile_cols ? channels - first : tile_cols;
      for (std::size_t r = 0; r < rows; ++r) {
        if (!known(call.x[r])) continue;
        const detail::Numbers up(call.dy.data() + r * channels + first, n);
        const auto add_to = [&](std::size_t table, std::size_t row) {
          detail::as_array(call.dparams[table].row(row) + first, n) += up.array();
        };
        if (tokens) add_to(0, word(call.x[r]));
        if (places) add_to(1, cpu.position_of(call.part.first + r / time, r % time, time));
        if (segments) add_to(type_table(), type(call.x[r]));
      }
    });
  }

 private:
  /// Columns [first, first + n) of the sum of the tables' rows.
  template <class W, class Array>
  void add_rows(const Params<const W>& params, std::int32_t token, std::size_t place,
                std::size_t first, std::size_t n, Array sum) const {
    const auto part = [&](std::size_t table, std::size_t row) {
      return detail::as_array(params[table].row(row) + first, n);
    };
    if (positions) sum = part(0, word(token)) + part(1, place);
    else sum = part(0, word(token));
    if (types > 0) sum += part(type_table(), type(token));
  }

  /// This sum, in this order, from tables in bfloat16, or stored in a file.
  template <class W>
  void add_coded_rows(const Params<const W>& params, std::int32_t token, std::size_t place,
                      std::size_t first, std::size_t n, W* out) const {
    const auto add = [&](std::size_t table, std::size_t row) {
      W piece[detail::stack_elems];
      for (std::size_t c = 0; c < n; c += detail::stack_elems) {
        const std::size_t count = detail::smaller(n - c, detail::stack_elems);
        params.decode_row(table, row, first + c, count, piece);
        for (std::size_t i = 0; i < count; ++i) out[c + i] += piece[i];
      }
    };
    params.decode_row(0, word(token), first, n, out);
    if (positions) add(1, place);
    if (types > 0) add(type_table(), type(token));
  }

  constexpr std::size_t kinds() const { return types > 0 ? types : 1; }

  constexpr bool known(std::int32_t token) const {
    return token >= 0 && static_cast<std::size_t>(token) < known_tokens();
  }
  constexpr std::size_t word(std::int32_t token) const {
    return static_cast<std::size_t>(token) % vocab;
  }
  constexpr std::size_t type(std::int32_t token) const {
    return static_cast<std::size_t>(token) / vocab;
  }

  /// Whether pointers can span a tensor of doubles of this shape.
  static constexpr bool fits(Shape shape) {
    const std::size_t elems = shape.elems();
    return elems != 0 && elems <= static_cast<std::size_t>(-1) / 2 / sizeof(double);
  }
};

}}  // namespace adacc::v0_1
