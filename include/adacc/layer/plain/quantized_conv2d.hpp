// SPDX-License-Identifier: MIT
/// Convolutions over pictures in int8 that a small device may go on training.
///
/// Forward is a quantized network's: pixels and weights of 8 bits, sums of 32, brought to the output's scale by an
/// integer multiplication and a shift (int8_grid.hpp). Weights have a scale for each output channel. Between layers
/// each T stands for a q of 8 bits, which the next layer finds again exactly, even if a codec has changed T by less
/// than half a step: Bf16 and codes of 8 bits lose nothing.
///
/// Backward computes with T. Rounding counts as the identity (the straight-through estimator of Bengio et al., 2013),
/// and clipping is honoured: dy passes where the output lay inside of its range, one bit in aux, kept by forward. So
/// the gradients of input and bias read neither x nor y, and the gradient of the weight reads x. This makes sparse
/// updates on devices possible (Lin et al., "On-device training under 256KB memory", 2022): most layers keep their int8
/// weights and learn their biases, and a few learn weights.
///
/// Lin et al. train the int8 weights themselves and scale their gradients to make up for each tensor's scale
/// (quantization-aware scaling). Here a trained weight has a copy in T, in the units of the real number, which needs no
/// such scaling, and is rounded to int8 at each call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "../../core/bytes.hpp"
#include "../../model/contract.hpp"
#include "../mask.hpp"
#include "../math/picture.hpp"
#include "../math/shapes.hpp"
#include "int8_grid.hpp"
#include "int8_rows.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Common to both layers.
struct Int8Convolution {
  Window window;
  std::size_t out, groups;
  plain::Int8Grid from, to;

  /// Taps of an output: at most so many, for no sum to leave int32.
  static constexpr std::size_t most_taps = std::size_t{1} << 15;

  constexpr std::size_t taps(Shape in) const { return window.kernel.area() * in.cols() / groups; }
  constexpr Shape output_shape(Shape in) const {
    const Extents places = window.places(in);
    return Shape(in[0], places.height, places.width, out);
  }

  constexpr Error examine(const char* layer, Shape in) const {
    if (const Error why = check_convolution(layer, window, out, groups, in)) return why;
    for (const bool input : {true, false}) {
      const plain::Int8Grid& grid = input ? from : to;
      if (grid.scale > 0 && grid.scale <= 3.4e38F && grid.zero >= plain::Int8Grid::lowest &&
          grid.zero <= plain::Int8Grid::highest)
        continue;
      return Error::say(layer, ": the ", input ? "input" : "output", "'s grid has zero at ",
                        grid.zero, "; expected a scale above 0, and zero from -128 to 127");
    }
    if (taps(in) <= most_taps) return {};
    return Error::say(layer, ": an output sums up ", taps(in), " products; at most ", most_taps,
                      " fit int32");
  }

  /// Forward's constants of an output channel.
  struct Channel {
    FixedPoint factor;
    std::int32_t bias = 0;
    std::int32_t is_number = 0;  ///< bias and weights are
  };

  constexpr std::size_t picture_bytes(Shape in) const { return in[1] * in[2] * in[3]; }

  /// Pixels as int8; false if one is a NaN.
  template <class T>
  bool quantize_picture(const T* pixels, std::size_t count, std::int8_t* q) const {
    bool numbers = true;
    for (std::size_t i = 0; i < count; ++i) {
      const bool nan = is_nan(pixels[i]);
      numbers = numbers && !nan;
      q[i] = nan ? static_cast<std::int8_t>(from.zero) : from.quantize(pixels[i]);
    }
    return numbers;
  }

  template <class T>
  void forward(const std::int8_t* weight, const float* scales, View<const T> bias, View<const T> x,
               View<T> y, Bytes aux, Bytes workspace) const {
    const View<Channel> channels = carve<Channel>(workspace, out);
    const Shape in = x.shape(), shape = y.shape();
    const View<std::int8_t> q = carve<std::int8_t>(workspace, picture_bytes(in));
    for (std::size_t o = 0; o < out; ++o) channels[o] = channel(scales[o], bias[o]);
    for (std::byte& bits : aux) bits = std::byte{0};
    const std::size_t of_group = out / groups, size = taps(in);
    for (std::size_t b = 0; b < shape[0]; ++b) {
      const bool numbers = quantize_picture(x.data() + b * q.size(), q.size(), q.data());
      for (std::size_t i = 0; i < shape[1]; ++i)
        for (std::size_t j = 0; j < shape[2]; ++j) {
          const WindowPixels pixels(window, in, i, j);
          const std::size_t first = ((b * shape[1] + i) * shape[2] + j) * out;
          for (std::size_t o = 0, count = 0; o < out; o += count) {
            const std::int8_t* rows[plain::sums::rows_a_turn];
            std::int32_t sums[plain::sums::rows_a_turn];
            const std::size_t end = (o / of_group + 1) * of_group;
            for (count = 0; count < plain::sums::rows_a_turn && o + count < end; ++count) {
              rows[count] = weight + (o + count) * size;
              sums[count] = channels[o + count].bias;
            }
            for_each_run(pixels, in, o / of_group,
                         [&](std::size_t element, std::size_t offset, std::size_t length) {
                           plain::sums::add_products(sums, q.data() + element, from.zero, rows,
                                                     count, offset, length);
                         });
            for (std::size_t k = 0; k < count; ++k)
              put(channels[o + k], sums[k], numbers, first + o + k, y, aux);
          }
        }
    }
  }

  /// Empty gradients are left out. x is read for dweight alone.
  template <class T>
  void backward(const std::int8_t* weight, const float* scales, View<const T> x, View<const T> dy,
                View<T> dx, View<T> dweight, View<T> dbias, ConstBytes aux, Bytes workspace) const {
    for (T& element : dx) element = 0;
    const auto passes = [&](std::size_t e) {
      return (static_cast<unsigned>(aux[e / 8]) >> e % 8 & 1U) != 0;
    };
    if (!dbias.empty())
      for (std::size_t e = 0; e < dy.size(); ++e)
        if (passes(e)) dbias[e % out] += dy[e];
    if (dx.empty() && dweight.empty()) return;
    const Shape in = dx.empty() ? x.shape() : dx.shape();
    const Shape picture(1, in[1], in[2], in[3]), shape = dy.shape();
    const std::size_t of_group = out / groups, size = taps(in);
    const View<std::int8_t> q =
        dweight.empty() ? View<std::int8_t>() : carve<std::int8_t>(workspace, picture_bytes(in));
    for (std::size_t b = 0; b < shape[0]; ++b) {
      if (!q.empty()) (void)quantize_picture(x.data() + b * q.size(), q.size(), q.data());
      T* const down = dx.empty() ? nullptr : dx.data() + b * picture.elems();
      for (std::size_t i = 0; i < shape[1]; ++i)
        for (std::size_t j = 0; j < shape[2]; ++j) {
          const WindowPixels pixels(window, picture, i, j);
          const std::size_t first = ((b * shape[1] + i) * shape[2] + j) * out;
          for (std::size_t o = 0; o < out;) {
            // The next outputs of a group whose dy passes.
            const std::size_t group = o / of_group;
            const std::int8_t* rows[plain::sums::rows_a_turn];
            T* gradients[plain::sums::rows_a_turn];
            T to_rows[plain::sums::rows_a_turn], to_gradients[plain::sums::rows_a_turn];
            std::size_t count = 0;
            for (; o < (group + 1) * of_group && count < plain::sums::rows_a_turn; ++o) {
              if (!passes(first + o)) continue;
              const T up = dy[first + o];
              if (!q.empty()) {
                gradients[count] = dweight.data() + o * size;
                to_gradients[count] = up * static_cast<T>(from.scale);
              }
              if (down != nullptr) {
                rows[count] = weight + o * size;
                to_rows[count] = up * static_cast<T>(scales[o]);
              }
              ++count;
            }
            if (count == 0) continue;
            for_each_run(pixels, picture, group,
                         [&](std::size_t element, std::size_t offset, std::size_t length) {
                           if (!q.empty())
                             plain::sums::add_to_rows(gradients, to_gradients, q.data() + element,
                                                      from.zero, count, offset, length);
                           if (down != nullptr)
                             plain::sums::add_rows(down + element, to_rows, rows, count, offset,
                                                   length);
                         });
          }
        }
    }
  }

 private:
  /// body(element, offset, length) for the runs of elements of a picture that lie one behind the other in a window and
  /// in the weights of an output of `group`: a row of pixels, or a pixel's channels.
  template <class Body>
  void for_each_run(const WindowPixels& pixels, Shape in, std::size_t group,
                    const Body& body) const {
    const std::size_t depth = in.cols() / groups, last = pixels.cols.last;
    const bool joined = groups == 1 && window.dilation.width == 1;
    const std::size_t run = joined ? last - pixels.cols.first : 1;
    for (std::size_t r = pixels.rows.first; r < pixels.rows.last; ++r)
      for (std::size_t s = pixels.cols.first; s < last; s += run)
        body(pixels.element(in, 0, r, s) + group * depth, (r * window.kernel.width + s) * depth,
             run * depth);
  }

  /// Writes element e of y, and whether its gradient passes.
  template <class T>
  void put(const Channel& channel, std::int32_t sum, bool numbers, std::size_t e, View<T> y,
           Bytes aux) const {
    const std::int64_t unclipped = channel.factor.times(sum) + to.zero;
    const bool number = numbers && channel.is_number != 0;
    const bool inside =
        unclipped >= plain::Int8Grid::lowest && unclipped <= plain::Int8Grid::highest;
    const auto clipped =
        static_cast<std::int32_t>(inside                                ? unclipped
                                  : unclipped < plain::Int8Grid::lowest ? plain::Int8Grid::lowest
                                                                        : plain::Int8Grid::highest);
    y[e] = number ? to.real<T>(clipped) : quiet_nan<T>();
    if (inside || !number) aux[e / 8] |= static_cast<std::byte>(1U << e % 8);
  }

  template <class T>
  Channel channel(float scale, T bias) const {
    const double unit = static_cast<double>(from.scale) * static_cast<double>(scale);
    constexpr double most = 1 << 30;
    const double whole = static_cast<double>(bias) / unit;
    Channel made;
    made.is_number = is_number(scale) && !is_nan(bias);
    made.factor = FixedPoint::of(unit / static_cast<double>(to.scale));
    if (made.is_number == 0) return made;
    made.bias = static_cast<std::int32_t>(whole >= most    ? most
                                          : whole <= -most ? -most
                                          : whole < 0      ? whole - 0.5
                                                           : whole + 0.5);
    return made;
  }
};

}  // namespace detail

namespace plain {

/// A convolution whose weights are int8 constants; its bias may be trained. x (B, H, W, C) to y (B, H', W', out), both
/// within their grids: numbers beyond are clipped. H' and W' as in Conv2d. Parameter: "bias" (out).
///
/// `weight` (out, kernel height, kernel width, C / groups) and `weight_scale` (out) lie in memory that
/// outlives the network, in flash say: element i of channel o stands for weight_scale[o] * weight[i].
///
/// A NaN in a picture makes its whole output NaN; a NaN in a bias, the output of its channel.
struct QuantizedConv2d {
  std::size_t out = 0;
  const std::int8_t* weight = nullptr;
  const float* weight_scale = nullptr;
  Int8Grid from{}, to{};  ///< grids of input and output
  Extents kernel = 3;
  Extents stride = 1;
  Extents padding = 0;  ///< pixels of zeros on every side
  Extents dilation = 1;
  std::size_t groups = 1;

  static constexpr const char* name = "plain_quantized_conv2d";
  static constexpr auto backward_reads = reads::none;
  static constexpr auto split = Split::batch;

  constexpr Reads reads_when(Wanted) const { return reads::none; }
  constexpr Shape output_shape(Shape in) const { return shared().output_shape(in); }
  constexpr LayerNeeds needs(Shape in, NeedsQuery query) const {
    if (weight == nullptr || weight_scale == nullptr)
      return {.error = Error::say(
                  name, ": there are no weights; expected int8 and a scale for each output")};
    if (const Error why = shared().examine(name, in)) return {.error = why};
    return {.aux = detail::mask_bytes(output_shape(in).elems()),
            .workspace = workspace_bytes(in, query.pass),
            .operations = operations(in)};
  }

  constexpr std::array<ParameterSpec, 1> parameters(Shape) const {
    return {ParameterSpec{"bias", Shape(out), Init::zeros(), false}};
  }
  template <class Context, class T>
  void forward(Context&, const ForwardCall<T>& call) const {
    shared().forward(weight, weight_scale, call.params[0], call.x, call.y, call.aux,
                     call.workspace);
  }
  template <class Context, class T>
  void backward(Context&, const BackwardCall<T>& call) const {
    shared().backward(weight, weight_scale, call.x, call.dy, call.dx, View<T>(), call.dparams[0],
                      call.aux, call.workspace);
  }

 private:
  constexpr std::size_t workspace_bytes(Shape in, Pass pass) const {
    if (pass != Pass::forward) return 0;
    return carved_bytes<detail::Int8Convolution::Channel>(out) + shared().picture_bytes(in);
  }

  constexpr double operations(Shape in) const {
    const Shape to_shape = output_shape(in);
    return static_cast<double>(to_shape.elems()) * static_cast<double>(shared().taps(in));
  }

  constexpr detail::Int8Convolution shared() const {
    return {{kernel, stride, padding, dilation}, out, groups, from, to};
  }
};

/// QuantizedConv2d with a trained weight: Conv2d's, with its parameters, in int8. Each call rounds the weight to int8:
/// the network computes the same as one with these int8 constants.
///
/// Parameters: "weight" (out, kernel height, kernel width, C / groups), which starts uniform in +-1/sqrt(kernel area *
/// C / groups), and "bias" (out). A channel with a weight that is no number has NaN for its output.
struct QuantizedTrainedConv2d {
  std::size_t out = 0;
  Int8Grid from{}, to{};
  Extents kernel = 3;
  Extents stride = 1;
  Extents padding = 0;
  Extents dilation = 1;
  std::size_t groups = 1;

  static constexpr const char* name = "plain_quantized_trained_conv2d";
  static constexpr double input_sensitivity = 0;  // backward puts x on its grid again
  static constexpr auto backward_reads = reads::input;
  static constexpr auto split = Split::batch;

  constexpr Reads reads_when(Wanted wanted) const {
    return wanted.parameter(0) ? reads::input : reads::none;
  }
  constexpr Shape output_shape(Shape in) const { return shared().output_shape(in); }
  constexpr LayerNeeds needs(Shape in, NeedsQuery query) const {
    if (const Error why = shared().examine(name, in)) return {.error = why};
    return {.aux = detail::mask_bytes(output_shape(in).elems()),
            .workspace = workspace_bytes(in, query.pass)};
  }

  constexpr std::array<ParameterSpec, 2> parameters(Shape in) const {
    const float width = detail::reciprocal_root(static_cast<double>(shared().taps(in)));
    return {ParameterSpec{"weight", Shape(out, kernel.height, kernel.width, in.cols() / groups),
                          Init::uniform(width)},
            ParameterSpec{"bias", Shape(out), Init::zeros(), false}};
  }
  template <class Context, class T>
  void forward(Context&, const ForwardCall<T>& call) const {
    Bytes workspace = call.workspace;
    const View<float> scales = carve<float>(workspace, out);
    const View<std::int8_t> weight = carve<std::int8_t>(workspace, call.params[0].size());
    quantize_rows(call.params[0].data(), out, call.params[0].size() / out, weight.data(),
                  scales.data());
    shared().forward(weight.data(), scales.data(), call.params[1], call.x, call.y, call.aux,
                     workspace);
  }
  template <class Context, class T>
  void backward(Context&, const BackwardCall<T>& call) const {
    Bytes workspace = call.workspace;
    View<float> scales;
    View<std::int8_t> weight;
    if (!call.dx.empty()) {
      scales = carve<float>(workspace, out);
      weight = carve<std::int8_t>(workspace, call.params[0].size());
      quantize_rows(call.params[0].data(), out, call.params[0].size() / out, weight.data(),
                    scales.data());
    }
    shared().backward(weight.data(), scales.data(), call.x, call.dy, call.dx, call.dparams[0],
                      call.dparams[1], call.aux, workspace);
  }

 private:
  constexpr std::size_t workspace_bytes(Shape in, Pass pass) const {
    const std::size_t picture = shared().picture_bytes(in);
    const std::size_t weights = carved_bytes<float>(out) + carved_bytes<std::int8_t>(size(in));
    switch (pass) {
      case Pass::forward:
        return weights + carved_bytes<detail::Int8Convolution::Channel>(out) + picture;
      case Pass::backward: return weights + picture;
      case Pass::backward_without_dx: return picture;
    }
    return 0;
  }

  constexpr detail::Int8Convolution shared() const {
    return {{kernel, stride, padding, dilation}, out, groups, from, to};
  }
  constexpr std::size_t size(Shape in) const { return out * shared().taps(in); }
};

}  // namespace plain
}}  // namespace adacc::v0_1
