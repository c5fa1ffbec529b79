// SPDX-License-Identifier: MIT
/// A convolution over pictures.
///
///     y[b][i][j][o] = bias[o] + sum over r, s, c of
///         x[b][i * stride + r * dilation - padding][j * stride + s * dilation - padding][c]
///         * weight[o][r][s][c]
///
/// Forward, dx and dweight are products with windows, read in place from the picture (window_product.hpp); a kernel of
/// one pixel is a linear layer, and one per channel (groups = channels = out) a direct loop (depthwise.hpp).
#pragma once

#include <cstddef>
#include <initializer_list>

#include "../codec/bf16.hpp"
#include "../codec/int4_outlier.hpp"
#include "../codec/int8_outlier.hpp"
#include "../core/cpu.hpp"
#include "../model/contract.hpp"
#include "depthwise.hpp"
#include "linear.hpp"
#include "math/picture.hpp"
#include "math/shapes.hpp"
#include "math/window_product.hpp"

namespace adacc { inline namespace v0_1 {

/// x (B, H, W, C) to y (B, H', W', out), with H' = (H + 2 padding - dilation (kernel - 1) - 1) / stride + 1, rounded
/// down, and W' by the same formula. With `groups`, output channels see the channels of their own group alone.
/// Parameters: "weight" (out, kernel height, kernel width, C / groups), in the memory order of PyTorch's channels_last,
/// and, if wanted, "bias" (out), which starts at zero and does not decay.
struct Conv2d {
  std::size_t out = 0;
  Extents kernel = 3;
  Extents stride = 1;
  Extents padding = 0;  ///< pixels of zeros on every side
  Extents dilation = 1;
  std::size_t groups = 1;
  bool bias = true;
  /// Standard deviation of the normal distribution of the initial weight. 0: uniform in +-1/sqrt(kernel area * C /
  /// groups), as in PyTorch.
  float init_stddev = 0;

  static constexpr const char* name = "conv2d";
  static constexpr auto backward_reads = reads::input;
  static constexpr auto split = Split::batch;
  /// Like Linear: the input's error meets dy in a sum over all windows, and averages out there.
  using input_codecs = CodecList<Int4Outlier, Int8Outlier, Bf16>;
  static constexpr double input_sensitivity = 0.037;

  /// dx and the bias's gradient are made of dy alone.
  constexpr Reads reads_when(Wanted wanted) const {
    return wanted.parameter(0) ? reads::input : reads::none;
  }

  constexpr Shape output_shape(Shape in) const {
    const Extents places = window().places(in);
    return Shape(in[0], places.height, places.width, out);
  }

  constexpr LayerNeeds needs(Shape in, NeedsQuery query) const {
    if (const Error why = detail::check_convolution(name, window(), out, groups, in))
      return {.error = why};
    std::size_t bytes = sizeof(double);
    for (const std::size_t factor : {out, kernel.height, kernel.width, in.cols() / groups})
      if (!multiply(bytes, factor, bytes))
        return {.error = Error::say("conv2d: a weight of ", out, " x ", kernel.height, " x ",
                                    kernel.width, " x ", in.cols() / groups,
                                    " has more bytes than fit std::size_t")};
    if (!(init_stddev >= 0))
      return {.error = Error::say(
                  "conv2d: init_stddev is negative or not a number; expected 0 or more")};
    return {.workspace = query.scalar == Dtype::f64
                             ? workspace_for<double>(in, query.workers, query.pass)
                             : workspace_for<float>(in, query.workers, query.pass)};
  }

  constexpr Linear::Specs parameters(Shape in) const {
    const std::size_t group = in.cols() / groups;
    const Init init =
        init_stddev > 0
            ? Init::normal(init_stddev)
            : Init::uniform(detail::reciprocal_root(static_cast<double>(kernel.area() * group)));
    return {{{"weight", Shape(out, kernel.height, kernel.width, group), init},
             {"bias", Shape(out), Init::zeros(), false}},
            bias ? std::size_t{2} : std::size_t{1}};
  }

 private:
  constexpr detail::Window window() const { return {kernel, stride, padding, dilation}; }

  /// One pixel after the other, no others.
  constexpr bool is_linear() const { return kernel == 1 && stride == 1 && padding == 0; }
  constexpr bool depthwise(std::size_t channels) const {
    return groups == channels && groups == out;
  }

  /// body(taps down, taps right, the first pixel) for every residue of pixels modulo the stride: the same taps of the
  /// kernel read all of these pixels.
  template <class Body>
  constexpr void for_each_phase(Shape in, Shape places, const Body& body) const {
    for (std::size_t i = 0; i < stride.height && i < in[1]; ++i)
      for (std::size_t j = 0; j < stride.width && j < in[2]; ++j)
        body(detail::Taps::backward(in[1], places[1], kernel.height, stride.height, padding.height,
                                    dilation.height, i),
             detail::Taps::backward(in[2], places[2], kernel.width, stride.width, padding.width,
                                    dilation.width, j),
             Extents(i, j));
  }

  template <class T>
  constexpr std::size_t workspace_for(Shape in, int workers, Pass pass) const {
    const std::size_t from = in.cols() / groups, to = out / groups, area = kernel.area();
    const Shape places = output_shape(in);
    const std::size_t windows = places.rows();
    if (depthwise(in.cols())) return area * in.cols() * sizeof(T);
    if (pass == Pass::forward)
      return is_linear() ? gemm_workspace_bytes<T>(windows, to, from, workers)
                         : detail::multiply_windows_bytes<T>(windows, to, area * from, from);
    std::size_t most = gemm_workspace_bytes<T>(to, area * from, windows, workers);
    if (pass == Pass::backward_without_dx) return most;
    const auto need = [&](std::size_t bytes) { most = bytes > most ? bytes : most; };
    if (is_linear()) need(gemm_workspace_bytes<T>(windows, from, to, workers));
    else
      for_each_phase(in, places, [&](const detail::Taps& y, const detail::Taps& x, Extents) {
        need(detail::multiply_windows_bytes<T>(in[0] * y.grid * x.grid, from,
                                               y.count * x.count * to, to));
      });
    return most;
  }

 public:
  template <class T>
  void forward(Cpu& cpu, const ForwardCall<T>& call) const {
    const T* const biases = bias ? call.params[1].data() : nullptr;
    const std::size_t channels = call.x.cols();
    if (depthwise(channels))
      return detail::depthwise_forward(cpu, window(), call.params[0], biases, call.x, call.y,
                                       call.workspace);
    const std::size_t from = channels / groups, to = out / groups, k = kernel.area() * from;
    for (std::size_t g = 0; g < groups; ++g) {
      const Operand<T> weight{call.params[0].data() + g * to * k, 1, k};
      const T* const start = biases == nullptr ? nullptr : biases + g * to;
      if (is_linear()) {
        gemm<T>(cpu, call.x.rows(), to, from, {call.x.data() + g * from, channels, 1}, weight,
                call.y.data() + g * to, out, Accumulate::no, call.workspace, start);
        continue;
      }
      detail::multiply_windows<T>(
          cpu, call.x.shape()[0], to, windows_of(call.x, call.y.shape(), g),
          {call.y.data() + g * to, call.y.shape()[1], call.y.shape()[2], out}, start,
          call.workspace,
          [&](std::size_t p, std::size_t depth, std::size_t j, std::size_t count, T* panel) {
            detail::pack_panel(count, depth, weight.at(p, j), panel);
          });
    }
  }

  template <class T>
  void backward(Cpu& cpu, const BackwardCall<T>& call) const {
    if (!call.dx.empty()) input_gradient(cpu, call.params[0], call.dy, call.dx, call.workspace);
    if (!call.dparams[0].empty())
      weight_gradient(cpu, call.x, call.dy, call.dparams[0], call.workspace);
    if (bias && !call.dparams[1].empty())
      detail::add_column_sums(cpu, call.dy, call.dparams[1].data());
  }

 private:
  template <class T>
  detail::Windows<T> windows_of(View<const T> x, Shape places, std::size_t group) const {
    const Shape in = x.shape();
    const std::size_t from = in.cols() / groups;
    return {x.data() + group * from,
            in.cols(),
            from,
            detail::Taps::forward(in[1], places[1], kernel.height, stride.height, padding.height,
                                  dilation.height),
            detail::Taps::forward(in[2], places[2], kernel.width, stride.width, padding.width,
                                  dilation.width),
            nullptr};
  }

  template <class T>
  void input_gradient(Cpu& cpu, View<const T> weights, View<const T> dy, View<T> dx,
                      Bytes workspace) const {
    const Shape in = dx.shape();
    const std::size_t channels = in.cols(), from = channels / groups, to = out / groups;
    if (depthwise(channels)) return detail::depthwise_dx(cpu, window(), weights, dy, dx, workspace);
    const std::size_t k = kernel.area() * from;
    for (std::size_t g = 0; g < groups; ++g) {
      const T* const weight = weights.data() + g * to * k;
      if (is_linear()) {
        gemm<T>(cpu, dx.rows(), from, to, {dy.data() + g * to, out, 1}, {weight, k, 1},
                dx.data() + g * from, channels, Accumulate::no, workspace);
        continue;
      }
      for_each_phase(
          in, dy.shape(), [&](const detail::Taps& y, const detail::Taps& x, Extents phase) {
            // Row (tap, o) of B is the weight of output o at this tap.
            const auto pack = [&](std::size_t p, std::size_t depth, std::size_t j,
                                  std::size_t count, T* panel) {
              for (const std::size_t end = p + depth; p < end;) {
                const std::size_t tap = p / to, o = p % to, run = detail::least(to - o, end - p);
                const auto r =
                    y.first_tap + static_cast<std::ptrdiff_t>(tap / x.count) * y.tap_step;
                const auto s =
                    x.first_tap + static_cast<std::ptrdiff_t>(tap % x.count) * x.tap_step;
                const std::size_t at =
                    static_cast<std::size_t>(r) * kernel.width + static_cast<std::size_t>(s);
                detail::pack_panel<T>(count, run, {weight + o * k + at * from + j, k, 1}, panel);
                panel += run * detail::round_up(count, detail::GemmBlocks<T>::width);
                p += run;
              }
            };
            detail::multiply_windows<T>(cpu, in[0], from,
                                        {dy.data() + g * to, out, to, y, x, nullptr},
                                        {dx.data() + g * from, in[1], in[2], channels,
                                         stride.height, phase.height, stride.width, phase.width},
                                        nullptr, workspace, pack);
          });
    }
  }

  template <class T>
  void weight_gradient(Cpu& cpu, View<const T> x, View<const T> dy, View<T> dweight,
                       Bytes workspace) const {
    const std::size_t channels = x.cols(), from = channels / groups, to = out / groups;
    if (depthwise(channels))
      return detail::depthwise_dweight(cpu, window(), x, dy, dweight, workspace);
    const std::size_t k = kernel.area() * from;
    for (std::size_t g = 0; g < groups; ++g) {
      const Operand<T> up{dy.data() + g * to, 1, out};
      T* const sums = dweight.data() + g * to * k;
      if (is_linear())
        gemm<T>(cpu, to, from, x.rows(), up, {x.data() + g * from, channels, 1}, sums, k,
                Accumulate::yes, workspace);
      else
        detail::accumulate_windows<T>(cpu, to, x.shape()[0], up, windows_of(x, dy.shape(), g), sums,
                                      k, workspace);
    }
  }
};

}}  // namespace adacc::v0_1
