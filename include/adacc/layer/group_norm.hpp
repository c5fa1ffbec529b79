// SPDX-License-Identifier: MIT
/// Group normalization of pictures, and the ReLU behind it in the same pass.
///
/// Wu, He, "Group normalization", 2018: mean and variance over all pixels of one picture and the channels of one group.
/// Unlike batch normalization there is no state beside the parameters: a picture has the same result in every batch, a
/// recomputed forward has the same bits, and nothing has to be remembered between steps. With x^ = (x - mean) * rstd
/// and, with `relu`, dy zero where y is not positive:
///
///     y = x^ * weight + bias
///     g = dy * weight
///     dx = rstd * (g - mean(g) - x^ * mean(g * x^))        means over picture and group
///
/// Backward of the ReLU asks whether y > 0, and computes y again from x: so between two convolutions only x has to be
/// kept. An x from a lossy codec has other signs where y is near 0, so forward keeps them: a bit an element. Running
/// forward again costs one pass over x, because its statistics are still there.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../codec/bf16.hpp"
#include "../codec/int4_outlier.hpp"
#include "../codec/int8_outlier.hpp"
#include "../core/cpu.hpp"
#include "../model/contract.hpp"
#include "math/picture.hpp"

namespace adacc { inline namespace v0_1 {

/// (B, H, W, C) -> (B, H, W, C), C a multiple of `groups`. Parameters: "weight" (C), which starts at
/// `init_weight`, and "bias" (C); they do not decay. aux: mean and rstd of every picture and group; with `relu` a bit
/// for each element, a picture's from a byte on.
struct GroupNorm {
  std::size_t groups = 8;
  bool relu = false;      ///< y = max(0, ...)
  float epsilon = 1e-5F;  ///< added to the variance
  float init_weight = 1;  ///< 0 lets a residual block begin as the identity

  static constexpr const char* name = "group_norm";
  static constexpr auto backward_reads = reads::input;
  static constexpr auto split = Split::batch;
  static constexpr LayerFacts facts{.dx_overwrites_dy = true, .normalizes_rows = true};
  /// Like LayerNorm: the input enters through (x - mean) * rstd alone, with exact statistics.
  using input_codecs = CodecList<Int4Outlier, Int8Outlier, Bf16>;
  static constexpr double input_sensitivity = 0.065;

  constexpr Reads reads_when(Wanted wanted) const {
    return wanted.dx || wanted.parameter(0) || relu ? reads::input : reads::none;
  }

  constexpr LayerNeeds needs(Shape in, NeedsQuery query) const {
    if (!(epsilon > 0))
      return {.error = Error::say("group_norm: epsilon must be a number above 0")};
    if (const Error why = detail::check_pictures(name, in)) return {.error = why};
    if (groups == 0 || in.cols() % groups != 0)
      return {.error = Error::say("group_norm: ", groups, " groups do not divide ", in.cols(),
                                  " channels into equal parts")};
    std::size_t bytes = 0;
    if (!multiply(in[0], backward_rows * sizeof(double), bytes) ||
        !multiply(bytes, lanes_of(in.cols()), bytes) || bytes > most_tensor_bytes)
      return {.error = Error::say(name, ": ", in[0], " pictures of ", in.cols(),
                                  " channels need more workspace than can be addressed")};
    return {.aux = statistics_bytes(in[0], query.scalar) + (relu ? in[0] * gate_bytes(in) : 0),
            .workspace = workspace_bytes(in, query.scalar, query.pass)};
  }

  constexpr std::array<ParameterSpec, 2> parameters(Shape in) const {
    return {ParameterSpec{"weight", Shape(in.cols()), Init::constant(init_weight), false},
            ParameterSpec{"bias", Shape(in.cols()), Init::zeros(), false}};
  }

  template <class T>
  void forward(Cpu& cpu, const ForwardCall<T>& call) const {
    const std::size_t channels = call.x.cols(), elems = call.x.size() / call.x.shape()[0];
    cpu.parallel(call.x.shape()[0], [&](std::size_t b, int) {
      const Rows<T> rows(call.workspace, b, forward_rows, channels);
      T* const statistics = static_cast<T*>(static_cast<void*>(call.aux.data())) + b * 2 * groups;
      const T* const in = call.x.data() + b * elems;
      if (!call.aux_holds) find_statistics(rows, in, elems, statistics);
      spread_scales(rows, call.params, statistics);
      const T* const __restrict mean = rows.row(means);
      const T* const __restrict scale = rows.row(scales);
      const T* const __restrict shift = rows.row(biases);
      T* const __restrict out = call.y.data() + b * elems;
      rows.for_each_run(elems, [&](std::size_t i, std::size_t n) {
        if (relu)
          for (std::size_t l = 0; l < n; ++l) {
            const T v = (in[i + l] - mean[l]) * scale[l] + shift[l];
            out[i + l] = v < 0 ? T(0) : v;  // a NaN stays one
          }
        else
          for (std::size_t l = 0; l < n; ++l)
            out[i + l] = (in[i + l] - mean[l]) * scale[l] + shift[l];
      });
      if (relu && !call.again)
        keep_gates(out, elems, gates_of<T>(call.aux.data(), call.x.shape(), b));
    });
  }

  template <class T>
  void backward(Cpu& cpu, const BackwardCall<T>& call) const {
    const std::size_t batch = call.dy.shape()[0], channels = call.dy.cols(),
                      elems = call.dy.size() / batch;
    const std::size_t count = call.dx.empty() ? sum_rows : backward_rows;
    cpu.parallel(batch, [&](std::size_t b, int) {
      const Rows<T> rows(call.workspace, b, count, channels);
      const T* const statistics =
          static_cast<const T*>(static_cast<const void*>(call.aux.data())) + b * 2 * groups;
      const T* const in = call.x.empty() ? nullptr : call.x.data() + b * elems;
      T* const down = call.dx.empty() ? nullptr : call.dx.data() + b * elems;
      spread_scales(rows, call.params, statistics);
      const T* const up = call.dy.data() + b * elems;
      const auto run = [&](auto gates) {
        picture_backward<decltype(gates)::value>(rows, elems, statistics, in, up, down,
                                                 gates_of<T>(call.aux.data(), call.dy.shape(), b));
      };
      if (!relu) run(Known<Gates::open>{});
      else if (call.exact_input) run(Known<Gates::of_input>{});
      else run(Known<Gates::kept>{});
    });
    for (std::size_t b = 0; b < batch; ++b) {  // in order, however the batch is cut
      const Rows<T> rows(call.workspace, b, count, channels);
      for (std::size_t c = 0; c < channels; ++c) {
        if (!call.dparams[0].empty()) call.dparams[0][c] += rows.row(sum_x)[c];
        if (!call.dparams[1].empty()) call.dparams[1][c] += rows.row(sum)[c];
      }
    }
  }

 private:
  /// How backward knows whether the ReLU passes an element.
  enum class Gates { open, of_input, kept };
  template <Gates gates>
  using Known = std::integral_constant<Gates, gates>;

  constexpr std::size_t statistics_bytes(std::size_t pictures, Dtype scalar) const {
    return 2 * pictures * groups * bytes_of(scalar);
  }
  /// Bytes with the gates of a picture.
  static constexpr std::size_t gate_bytes(Shape in) { return div_up(in.elems() / in[0], 8); }

  /// The gates of picture b, behind the statistics of all.
  template <class T, class Byte>
  Byte* gates_of(Byte* aux, Shape in, std::size_t b) const {
    return aux + statistics_bytes(in[0], dtype_of<T>) + b * gate_bytes(in);
  }

  /// Bit e: whether element e passes. A NaN does.
  template <class T>
  static void keep_gates(const T* y, std::size_t elems, std::byte* gates) {
    for (std::size_t i = 0; i < elems; i += 8) {
      const std::size_t count = elems - i < 8 ? elems - i : 8;
      std::uint32_t bits = 0;
      for (std::size_t k = 0; k < count; ++k) bits |= (y[i + k] <= 0 ? 0U : 1U) << k;
      gates[i / 8] = static_cast<std::byte>(bits);
    }
  }

  /// For every picture a few rows of `lanes` numbers (Rows).
  constexpr std::size_t workspace_bytes(Shape in, Dtype scalar, Pass pass) const {
    const std::size_t rows = pass == Pass::forward               ? forward_rows
                             : pass == Pass::backward_without_dx ? sum_rows
                                                                 : backward_rows;
    return in[0] * rows * lanes_of(in.cols()) * bytes_of(scalar);
  }

  enum Row { means, scales, biases, sum, sum_x, parts, parts_x };
  /// Lanes summed on the stack by loops.
  static constexpr std::size_t most_lanes = 64;
  static constexpr std::size_t forward_rows = 4, sum_rows = 5, backward_rows = 7;

  /// With few channels several pixels lie side by side in a row, so that vectors are full.
  static constexpr std::size_t lanes_of(std::size_t channels) {
    std::size_t lanes = channels;
    while (lanes < 64) lanes *= 2;
    return lanes;
  }

  /// A picture's rows in the workspace.
  template <class T>
  struct Rows {
    T* data;
    std::size_t channels, lanes;

    Rows(Bytes workspace, std::size_t picture, std::size_t rows, std::size_t count)
        : channels(count), lanes(lanes_of(count)) {
      data = static_cast<T*>(static_cast<void*>(workspace.data())) + picture * rows * lanes;
    }
    T* row(Row which) const { return data + static_cast<std::size_t>(which) * lanes; }
    /// Row `which` becomes value(c) in all of channel c's lanes.
    template <class Value>
    void spread(Row which, const Value& value) const {
      for (std::size_t c = 0; c < channels; ++c) row(which)[c] = value(c);
      for (std::size_t l = channels; l < lanes; ++l) row(which)[l] = row(which)[l - channels];
    }
    /// Row `sum` becomes the sums of term(element, lane) over all runs; some lanes at a time, in sums that provably
    /// alias no array.
    template <class Term>
    void sum_runs(const T* in, std::size_t elems, const Term& term) const {
      for (std::size_t first = 0; first < lanes; first += most_lanes) {
        T total[most_lanes] = {};
        const std::size_t some = lanes - first < most_lanes ? lanes - first : most_lanes;
        std::size_t i = first;
        for (; i - first + lanes <= elems; i += lanes)
          for (std::size_t j = 0; j < some; ++j) total[j] += term(in[i + j], first + j);
        for (std::size_t j = 0; j < some && i + j < elems; ++j)
          total[j] += term(in[i + j], first + j);
        for (std::size_t j = 0; j < some; ++j) row(sum)[first + j] = total[j];
      }
    }
    /// The sums of a channel's lanes, in the first of them.
    void fold(Row which) const {
      for (std::size_t l = channels; l < lanes; ++l) row(which)[l % channels] += row(which)[l];
    }
    /// body(first element, elements) for a picture's elements, as many as a row has lanes.
    template <class Body>
    void for_each_run(std::size_t elems, const Body& body) const {
      for (std::size_t i = 0; i < elems; i += lanes) body(i, elems - i < lanes ? elems - i : lanes);
    }
  };

  constexpr std::size_t group_of(std::size_t c, std::size_t channels) const {
    return c / (channels / groups);
  }

  /// From the sums of lanes, the mean over each group's elements.
  template <class T>
  void mean_of_groups(const Rows<T>& rows, std::size_t elems, T* mean) const {
    rows.fold(sum);
    for (std::size_t g = 0; g < groups; ++g) mean[g] = 0;
    for (std::size_t c = 0; c < rows.channels; ++c)
      mean[group_of(c, rows.channels)] += rows.row(sum)[c];
    for (std::size_t g = 0; g < groups; ++g) mean[g] /= static_cast<T>(elems / groups);
  }

  /// Mean and rstd of each group of a picture.
  template <class T>
  void find_statistics(const Rows<T>& rows, const T* in, std::size_t elems, T* mean) const {
    rows.sum_runs(in, elems, [](T v, std::size_t) { return v; });
    mean_of_groups(rows, elems, mean);
    rows.spread(means, [&](std::size_t c) { return mean[group_of(c, rows.channels)]; });
    rows.sum_runs(in, elems, [center = rows.row(means)](T v, std::size_t l) {
      return (v - center[l]) * (v - center[l]);
    });
    T* const rstd = mean + groups;
    mean_of_groups(rows, elems, rstd);
    for (std::size_t g = 0; g < groups; ++g)
      rstd[g] = 1 / std::sqrt(rstd[g] + static_cast<T>(epsilon));
  }

  template <class T>
  void spread_scales(const Rows<T>& rows, Params<const T> params, const T* statistics) const {
    const T* const rstd = statistics + groups;
    const auto group = [&](std::size_t c) { return group_of(c, rows.channels); };
    rows.spread(means, [&](std::size_t c) { return statistics[group(c)]; });
    rows.spread(scales, [&](std::size_t c) { return rstd[group(c)] * params[0][c]; });
    rows.spread(biases, [&](std::size_t c) { return params[1][c]; });
  }

  /// dy behind the ReLU: zero if y is not positive, NaN if y is NaN. open: the kept gate.
  template <Gates gates, class T>
  static T passed(T up, T in, T mean, T scale, T bias, [[maybe_unused]] bool open) {
    if constexpr (gates == Gates::open) return up;
    // Both values are there before either is chosen, so that loops have no branches and are vectorized.
    const T out = (in - mean) * scale + bias;
    if constexpr (gates == Gates::kept) {
      const T above = std::isnan(out) ? out : up;
      return open ? above : T(0);
    } else {
      const T above = out > 0 ? up : out;
      return out <= 0 ? T(0) : above;
    }
  }
  /// Gate e of a picture.
  template <Gates gates>
  static bool is_open([[maybe_unused]] const std::byte* kept, [[maybe_unused]] std::size_t e) {
    if constexpr (gates == Gates::kept)
      return (static_cast<unsigned>(kept[e / 8]) >> e % 8 & 1U) != 0;
    else return true;
  }

  /// Sums of dy and of dy x^ per channel, and dx unless it is null.
  template <Gates gates, class T>
  void picture_backward(const Rows<T>& rows, std::size_t elems, const T* statistics, const T* in,
                        const T* up, T* down, const std::byte* kept) const {
    const std::size_t channels = rows.channels;
    const T* const __restrict mean = rows.row(means);
    const T* const __restrict scale = rows.row(scales);
    const T* const __restrict shift = rows.row(biases);
    T* const sums = rows.row(sum);
    T* const sums_x = rows.row(sum_x);
    // Sums that provably alias no array, some lanes of all runs at a time.
    for (std::size_t first = 0; first < rows.lanes; first += most_lanes) {
      T total[most_lanes] = {}, total_x[most_lanes] = {};
      const std::size_t some = rows.lanes - first < most_lanes ? rows.lanes - first : most_lanes;
      rows.for_each_run(elems, [&](std::size_t i, std::size_t n) {
        const std::size_t count = n <= first ? 0 : n - first < some ? n - first : some;
        const T* const dy = up + i + first;
        if (in == nullptr) {
          for (std::size_t j = 0; j < count; ++j) total[j] += dy[j];
          return;
        }
        const T* const x = in + i + first;
        for (std::size_t j = 0; j < count; ++j) {
          const T centred = x[j] - mean[first + j];
          const T g = passed<gates>(dy[j], x[j], mean[first + j], scale[first + j],
                                    shift[first + j], is_open<gates>(kept, i + first + j));
          total[j] += g;
          total_x[j] += g * centred;
        }
      });
      for (std::size_t j = 0; j < some; ++j) sums[first + j] = total[j];
      for (std::size_t j = 0; j < some; ++j) sums_x[first + j] = total_x[j];
    }
    rows.fold(sum);
    rows.fold(sum_x);
    const T* const rstd = statistics + groups;
    for (std::size_t c = 0; c < channels; ++c) sums_x[c] *= rstd[group_of(c, channels)];
    if (down == nullptr) return;

    const T count = static_cast<T>(elems / groups);
    const std::size_t wide = channels / groups;
    const auto part_of = [&](const T* of_channels, T factor, std::size_t g) {
      T all = 0;  // sum of weight times `of_channels`; a scale is rstd times a weight
      for (std::size_t c = g * wide; c < (g + 1) * wide; ++c) all += of_channels[c] * scale[c];
      return all / count * factor;
    };
    rows.spread(parts, [&](std::size_t c) { return part_of(sums, T(1), group_of(c, channels)); });
    rows.spread(parts_x, [&](std::size_t c) {
      return part_of(sums_x, rstd[group_of(c, channels)], group_of(c, channels));
    });
    const T* const __restrict part = rows.row(parts);
    const T* const __restrict part_x = rows.row(parts_x);
    rows.for_each_run(elems, [&](std::size_t i, std::size_t n) {
      for (std::size_t first = 0; first < n; first += most_lanes) {
        // A copy that provably does not alias dx, which may be dy.
        T result[most_lanes];
        const std::size_t some = n - first < most_lanes ? n - first : most_lanes;
        for (std::size_t j = 0; j < some; ++j) {
          const std::size_t l = first + j;
          const T v = in[i + l];
          const T g =
              passed<gates>(up[i + l], v, mean[l], scale[l], shift[l], is_open<gates>(kept, i + l));
          result[j] = g * scale[l] - part[l] - (v - mean[l]) * part_x[l];
        }
        for (std::size_t j = 0; j < some; ++j) down[i + first + j] = result[j];
      }
    });
  }
};

}}  // namespace adacc::v0_1
