// SPDX-License-Identifier: MIT
/// The layer contract: what a functor says about itself, and how it is called.
///
/// The smallest functor (T is the scalar type, float or double; members may be templates):
///
///     struct Gelu {
///       static constexpr auto backward_reads = adacc::reads::input;
///       void forward (Cpu&, View<const T> x, View<T> y) const;
///       void backward(Cpu&, View<const T> x, View<const T> dy, View<T> dx) const;
///     };
///
/// Backward receives, before dy, the tensor that backward_reads names: x, y, or neither. A functor
/// that has parameters, reads both, or wants anything else of a call takes its arguments by name
/// (call.hpp); parameters and their gradients are of Wide<T> where a device computes in bfloat16:
///
///     void forward (Cpu&, const ForwardCall<T, X>& call) const;    // X: if it is not T
///     void backward(Cpu&, const BackwardCall<T, X>& call) const;
///
/// Backward overwrites dx and accumulates into dparams. A forward that runs again writes aux again,
/// unless `aux_holds` tells that it would write the bits that are there. Neither may keep state,
/// allocate, throw or print. What else a functor may declare:
///
///     constexpr Reads reads_when(Wanted) const;        // what backward reads of what backward_reads
///                                                      // names, if not all gradients are wanted
///     using input_type = std::int32_t;                 // X: token ids, which have no dx (empty)
///     static constexpr const char* name = "gelu";      // for reports
///     static constexpr bool dx_overwrites_dy = true;   // dx and dy may be one buffer
///     static constexpr bool draws_numbers = true;      // what it computes depends on Cpu::key
///     static constexpr bool normalizes_rows = true;    // backward reads each row of x, or a few of
///                                                      // them, on a scale of its own: a codec's
///                                                      // for_unlike_rows is at hand (codec.hpp)
///     using input_codecs = CodecList<Codec...>;        // what backward tolerates on x, and, as
///     using output_codecs = CodecList<Codec...>;       // this, on y (codec_traits.hpp)
///     static constexpr double input_sensitivity = 0.1; // ... and how much that costs it, likewise
///     constexpr Shape output_shape(Shape in) const;    // default: in
///     constexpr std::array<ParameterSpec, N> parameters(Shape in) const;
///     constexpr LayerNeeds needs(Shape in, NeedsQuery query) const;
///                                              // what is wrong with `in`, bytes, items: all that
///                                              // LayerNeeds lists; default: nothing
///     static constexpr auto split = Split::rows;       // how it may be called in parts (split.hpp)
///
/// If parameters are frozen, backward is not asked for their gradients; nor, if nothing before the
/// layer is trained, for dx. A layer that declares `reads_when` knows that: what it does not name is
/// then empty and need not be kept, and if dparams[i] or dx are empty it does without the work
/// for them. All others get memory for every gradient, whether anybody reads it or not. What is
/// wanted has the same bits either way. A loss may declare `reads_when`, too, for the sake of
/// dparams alone: it always reads x, and its dx is always wanted.
///
/// aux lives from forward to backward; workspace is scratch for one call; both start 64-byte
/// aligned and count in the peak, so declare no byte that is not used. A lossy codec may have
/// changed x and y: `exact_input` and `exact_output` tell. A loss ends the network and has a contract
/// of its own (its result is the mean loss):
///
///     using target_type = std::int32_t;                // default: T
///     double forward(Cpu&, const LossCall<T, target_type>& call) const;
///     double forward_backward(Cpu&, const LossCall<T, target_type>& call) const;
///     constexpr Shape target_shape(Shape in) const;    // default: in
///     static constexpr bool dx_overwrites_x = true;    // dx and x may be one buffer
///
/// beside `name`, `needs`, `parameters` and `draws_numbers` as above. One that declares
/// `split` (rows or batch) returns, for the rows it is given, their share of the mean over
/// `call.part.whole` items, and dx to match. It may instead return nothing, take a `Cpu::Loss&` as
/// its last argument and add the share of one row after the other: then the loss has the same bits
/// however its rows are cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../core/view.hpp"
#include "call.hpp"
#include "codec_traits.hpp"
#include "parameter.hpp"
#include "split.hpp"

namespace adacc { inline namespace v0_1 {

/// Which of its own forward's tensors a layer's backward reads.
enum class Reads : std::uint8_t { none = 0, input = 1, output = 2, both = 3 };

namespace reads {
inline constexpr Reads none = Reads::none;
inline constexpr Reads input = Reads::input;
inline constexpr Reads output = Reads::output;
inline constexpr Reads both = Reads::both;
}  // namespace reads

constexpr bool reads_input(Reads reads) { return (static_cast<int>(reads) & 1) != 0; }
constexpr bool reads_output(Reads reads) { return (static_cast<int>(reads) & 2) != 0; }

/// The gradients that one layer's backward is asked for.
struct Wanted {
  bool dx = true;  ///< that of the input
  /// Bit i: that of parameter i. All from the 64th on share the last bit.
  std::uint64_t parameters = ~std::uint64_t{0};

  constexpr bool parameter(std::size_t i) const {
    return (parameters >> (i < 63 ? i : 63) & 1) != 0;
  }
  constexpr bool everything() const { return dx && parameters == ~std::uint64_t{0}; }
};

/// The call that needs are asked for. A layer with `reads_when` is asked for a backward without dx
/// if nobody wants that.
enum class Pass : std::uint8_t { forward, backward, backward_without_dx };

/// The call that a layer is asked about.
struct NeedsQuery {
  Dtype scalar = Dtype::f32;  ///< of activations
  int workers = 1;            ///< threads that run the call
  Pass pass = Pass::forward;
};

/// What a layer or a loss needs for an input of some shape: that of a part, if its work is cut.
struct LayerNeeds {
  Error error{};              ///< why it cannot take that input; the rest then says nothing
  std::size_t aux = 0;        ///< bytes from forward to backward; the same in each pass
  std::size_t workspace = 0;  ///< bytes of scratch, for the call alone
  /// Bytes of what is made of parameters alone, and would be made again in each part of the work
  /// (ForwardCall::packed).
  std::size_t packed = 0;
  /// If parameters are held in bfloat16: the bytes of those rows that the layer reads at a time, by
  /// Params::rows() or bf16_row(). By default it gets a copy of all parameters.
  std::size_t parameter_window = all_parameters;
  /// Items that `split` cuts. 0: those that split.hpp counts; Split::own has to say how many.
  std::size_t split_items = 0;
  /// For Split::own: so many items, one after the other, make up an entry of the first extent. 0: none do.
  std::size_t entry_items = 0;
  /// Of forward, in products of matrices (estimate.hpp). Below 0: those of the input with each
  /// matrix among the parameters.
  double operations = -1;

  static constexpr std::size_t all_parameters = static_cast<std::size_t>(-1);
};

namespace detail {

template <class F, class T>
struct InputOf {
  using type = T;
};
template <class F, class T>
  requires requires { typename F::input_type; }
struct InputOf<F, T> {
  using type = typename F::input_type;
};

template <class F, class T>
struct TargetOf {
  using type = T;
};
template <class F, class T>
  requires requires { typename F::target_type; }
struct TargetOf<F, T> {
  using type = typename F::target_type;
};

}  // namespace detail

/// The element type of a functor's input, if activations are of type T.
template <class F, class T>
using input_type_of = typename detail::InputOf<F, T>::type;

/// The element type of a loss's targets, if activations are of type T.
template <class F, class T>
using target_type_of = typename detail::TargetOf<F, T>::type;

/// A functor's declarations, with the defaults for those it leaves out.
template <class F>
struct layer_traits {
  static constexpr bool takes_tokens = requires { typename F::input_type; };
  static constexpr bool dx_overwrites_dy = requires { requires F::dx_overwrites_dy; };
  static constexpr bool dx_overwrites_x = requires { requires F::dx_overwrites_x; };
  static constexpr bool has_reads_when = requires(const F& f, Wanted wanted) {
    Reads{f.reads_when(wanted)};
  };
  static constexpr bool draws_numbers = requires { requires F::draws_numbers; };
  static constexpr bool normalizes_rows = requires { requires F::normalizes_rows; };

  static constexpr bool has_output_shape = requires(const F& f, Shape in) { f.output_shape(in); };
  static constexpr bool has_parameters = requires(const F& f, Shape in) { f.parameters(in); };
  static constexpr bool has_needs = requires(const F& f, Shape in) { f.needs(in, NeedsQuery{}); };
  /// In one function, or in several, which is an error.
  static constexpr bool says_needs = has_needs || (requires { &F::validate; }) ||
                                     (requires { &F::aux_bytes; }) ||
                                     (requires { &F::workspace_bytes; });

  static constexpr const char* name() {
    if constexpr (requires { F::name; }) return F::name;
    else return "layer";
  }
  static constexpr Split split() {
    if constexpr (requires { Split{F::split}; }) return F::split;
    else return Split::none;
  }
  static constexpr Reads backward_reads() {
    constexpr bool declared = requires { Reads{F::backward_reads}; };
    static_assert(declared,
                  "adacc: a layer functor must say what its backward reads: static constexpr auto "
                  "backward_reads = adacc::reads::input (or output, both, none)");
    if constexpr (declared) return F::backward_reads;
    else return Reads::both;
  }
  static constexpr Reads reads_when(const F& f, Wanted wanted) {
    if constexpr (has_reads_when) return f.reads_when(wanted);
    else return backward_reads();
  }
  static constexpr Shape output_shape(const F& f, Shape in) {
    if constexpr (has_output_shape) return f.output_shape(in);
    else return in;
  }
  static constexpr Shape target_shape(const F& f, Shape in) {
    if constexpr (requires { f.target_shape(in); }) return f.target_shape(in);
    else return in;
  }
  static constexpr LayerNeeds needs(const F& f, Shape in, NeedsQuery query) {
    static_assert(has_needs || !says_needs,
                  "adacc: a layer says what it needs in one function: write constexpr LayerNeeds "
                  "needs(Shape in, NeedsQuery query) const, which returns {.error, .aux, "
                  ".workspace, ...}, in place of validate(), aux_bytes() and workspace_bytes() "
                  "(model/contract.hpp)");
    if constexpr (has_needs) return f.needs(in, query);
    else return {};
  }
  /// Calls visit(spec) for every parameter.
  template <class Visitor>
  static constexpr void parameters(const F& f, Shape in, Visitor&& visit) {
    if constexpr (has_parameters) {
      const auto specs = f.parameters(in);
      for (std::size_t i = 0; i < specs.size(); ++i) visit(specs[i]);
    }
  }
};

/// How a functor runs in a context. A device twin specializes this for its context, because no header
/// can add members to a class: its static functions have the names of the functor's members and take
/// the functor first. Without a twin the functor's own members run, inlined even in debug builds: a
/// network may have hundreds of functors.
template <class F, class Context>
struct kernel {
  template <class Self, class... Args>
  [[gnu::always_inline]] static auto forward(const Self& f, Context& context, Args&... args)
      -> decltype(f.forward(context, args...)) {
    return f.forward(context, args...);
  }
  template <class Self, class... Args>
  [[gnu::always_inline]] static auto backward(const Self& f, Context& context, Args&... args)
      -> decltype(f.backward(context, args...)) {
    return f.backward(context, args...);
  }
  template <class Self, class... Args>
  [[gnu::always_inline]] static auto forward_backward(const Self& f, Context& context,
                                                      Args&... args)
      -> decltype(f.forward_backward(context, args...)) {
    return f.forward_backward(context, args...);
  }
};

/// Runs a layer's forward in `context`, in the form that the layer or its twin has.
template <class F, class Context, class T, class X>
[[gnu::always_inline]] inline void call_forward(const F& f, Context& context,
                                                const ForwardCall<T, X>& call) {
  using runs = kernel<F, Context>;
  if constexpr (requires { runs::forward(f, context, call); }) {
    runs::forward(f, context, call);
  } else if constexpr (requires { runs::forward(f, context, call.x, call.y); }) {
    runs::forward(f, context, call.x, call.y);
  } else {
    constexpr bool one_by_one = requires {
      runs::forward(f, context, call.params, call.x, call.y, call.aux, call.workspace);
    };
    static_assert(
        !one_by_one,
        "adacc: this layer's forward takes its arguments one by one; write forward(Context&, "
        "const ForwardCall<T>& call) const, and in it call.params, call.x, call.y, "
        "call.aux and call.workspace (model/call.hpp)");
    static_assert(one_by_one,
                  "adacc: a layer functor needs a const member forward(Context&, View<const T> x, "
                  "View<T> y), or forward(Context&, const ForwardCall<T>& call)");
  }
}

/// Runs a layer's backward in `context`, in the form that the layer or its twin has.
template <class F, class Context, class T, class X>
[[gnu::always_inline]] inline void call_backward(const F& f, Context& context,
                                                 const BackwardCall<T, X>& call) {
  using runs = kernel<F, Context>;
  constexpr Reads reads = layer_traits<F>::backward_reads();
  if constexpr (requires { runs::backward(f, context, call); }) {
    runs::backward(f, context, call);
  } else if constexpr (reads == Reads::input &&
                       requires { runs::backward(f, context, call.x, call.dy, call.dx); }) {
    runs::backward(f, context, call.x, call.dy, call.dx);
  } else if constexpr (reads == Reads::output &&
                       requires { runs::backward(f, context, call.y, call.dy, call.dx); }) {
    runs::backward(f, context, call.y, call.dy, call.dx);
  } else if constexpr (reads == Reads::none &&
                       requires { runs::backward(f, context, call.dy, call.dx); }) {
    runs::backward(f, context, call.dy, call.dx);
  } else {
    constexpr bool declared = requires { Reads{F::backward_reads}; };  // else one message is enough
    constexpr bool one_by_one = requires {
      runs::backward(f, context, call.params, call.x, call.y, call.dy, call.dx, call.dparams,
                     call.aux, call.workspace);
    };
    static_assert(!one_by_one,
                  "adacc: this layer's backward takes its nine arguments one by one; write "
                  "backward(Context&, const BackwardCall<T>& call) const, and in it call.params, "
                  "call.x, call.y, call.dy, call.dx, call.dparams, call.aux and call.workspace "
                  "(model/call.hpp)");
    static_assert(one_by_one || !declared,
                  "adacc: a layer functor needs a const member backward(Context&, [x or y,] "
                  "View<const T> dy, View<T> dx) with x or y as its backward_reads names it, or "
                  "backward(Context&, const BackwardCall<T>& call)");
  }
}

namespace detail {

/// Adds to `into` the loss that run() returns, or lets run(into) do so.
template <class Loss, class Run>
void add_loss(Loss& into, const Run& run) {
  if constexpr (requires { run(into); }) run(into);
  else if constexpr (requires { into.add(run()); }) into.add(run());
  else
    static_assert(!std::is_same_v<Loss, Loss>,
                  "adacc: a loss needs const members double forward(Context&, const LossCall<T, "
                  "target_type>& call) and double forward_backward(Context&, const LossCall<T, "
                  "target_type>& call); the second writes call.dx and adds to call.dparams");
}

}  // namespace detail

/// Adds the mean loss, or of a part its share, to `into`.
template <class F, class Context, class T, class Target, class Loss>
void call_loss(const F& f, Context& context, const LossCall<T, Target>& call, Loss& into) {
  detail::add_loss(
      into, [&](auto&... sum) -> decltype(kernel<F, Context>::forward(f, context, call, sum...)) {
        return kernel<F, Context>::forward(f, context, call, sum...);
      });
}

/// The same; writes dx, and accumulates into dparams.
template <class F, class Context, class T, class Target, class Loss>
void call_loss_gradient(const F& f, Context& context, const LossCall<T, Target>& call, Loss& into) {
  detail::add_loss(into,
                   [&](auto&... sum) -> decltype(kernel<F, Context>::forward_backward(
                                         f, context, call, sum...)) {
                     return kernel<F, Context>::forward_backward(f, context, call, sum...);
                   });
}

}}  // namespace adacc::v0_1
