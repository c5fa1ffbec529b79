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
///     static constexpr bool accepts_empty_dx = true;   // skips dx if nobody wants it
///     static constexpr bool draws_numbers = true;      // what it computes depends on Cpu::key
///     static constexpr bool normalizes_rows = true;    // backward reads each row of x, or a few of
///                                                      // them, on a scale of its own: a codec's
///                                                      // for_unlike_rows is at hand (codec.hpp)
///     using input_codecs = CodecList<Codec...>;        // what backward tolerates on x, and, as
///     using output_codecs = CodecList<Codec...>;       // this, on y (codec_traits.hpp)
///     static constexpr double input_sensitivity = 0.1; // ... and how much that costs it, likewise
///     constexpr double operations(Shape in) const;     // of forward, in products of matrices, if
///                                                      // parameters do not tell (estimate.hpp)
///     constexpr Shape output_shape(Shape in) const;    // default: in
///     constexpr Error validate(Shape in) const;        // default: no error
///     constexpr std::array<ParameterSpec, N> parameters(Shape in) const;
///     constexpr std::size_t aux_bytes(Shape in, Dtype scalar) const;
///     constexpr std::size_t workspace_bytes(Shape in, Dtype scalar, int workers, Pass) const;
///     constexpr std::size_t packed_bytes(Shape in, Dtype scalar, Pass) const;
///                                              // what is made of parameters alone, and would be made
///                                              // again in each part of a call: `packed`
///     constexpr std::size_t parameter_window(Shape in, Dtype scalar, Pass) const;
///                                              // if parameters are in bfloat16 it has no copy of
///                                              // them all, but reads them by Params::rows() or
///                                              // bf16_row(): the bytes that these rows take
///
///     static constexpr auto split = Split::rows;       // how it may be called in parts,
///     constexpr std::size_t split_items(Shape in) const;   // for Split::own (split.hpp)
///     constexpr std::size_t entry_items(Shape in) const;   // likewise: how many of them, one after
///                                              // the other, make up an entry of the first extent
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
/// beside `name`, `validate`, `parameters`, `workspace_bytes` and `draws_numbers` as above. One that declares
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

/// The call a workspace is asked for. A layer that accepts an empty dx is asked for a backward
/// without one if it comes first.
enum class Pass : std::uint8_t { forward, backward, backward_without_dx };

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
  static constexpr bool accepts_empty_dx = has_reads_when || requires {
    requires F::accepts_empty_dx;
  };

  static constexpr bool draws_numbers = requires { requires F::draws_numbers; };
  static constexpr bool normalizes_rows = requires { requires F::normalizes_rows; };

  static constexpr bool has_output_shape = requires(const F& f, Shape in) { f.output_shape(in); };
  static constexpr bool has_validate = requires(const F& f, Shape in) { f.validate(in); };
  static constexpr bool has_parameters = requires(const F& f, Shape in) { f.parameters(in); };
  static constexpr bool has_split_items = requires(const F& f, Shape in) { f.split_items(in); };
  static constexpr bool has_entry_items = requires(const F& f, Shape in) { f.entry_items(in); };
  static constexpr bool has_operations = requires(const F& f, Shape in) { f.operations(in); };
  static constexpr bool has_aux_bytes = requires(const F& f, Shape in) {
    f.aux_bytes(in, Dtype::f32);
  };
  static constexpr bool has_workspace_bytes = requires(const F& f, Shape in) {
    f.workspace_bytes(in, Dtype::f32, 1, Pass::forward);
  };

  static constexpr const char* name() {
    if constexpr (requires { F::name; }) return F::name;
    else return "layer";
  }
  static constexpr Split split() {
    if constexpr (requires { Split{F::split}; }) return F::split;
    else return Split::none;
  }
  /// The items that `split` cuts, of a tensor of shape `in`.
  static constexpr std::size_t split_items(const F& f, Shape in) {
    if constexpr (has_split_items) return f.split_items(in);
    else return items_of(split(), in);
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
  static constexpr Error validate(const F& f, Shape in) {
    if constexpr (has_validate) return f.validate(in);
    else return {};
  }
  static constexpr std::size_t aux_bytes(const F& f, Shape in, Dtype scalar) {
    if constexpr (has_aux_bytes) return f.aux_bytes(in, scalar);
    else return 0;
  }
  static constexpr std::size_t workspace_bytes(const F& f, Shape in, Dtype scalar, int workers,
                                               Pass pass) {
    if constexpr (has_workspace_bytes) return f.workspace_bytes(in, scalar, workers, pass);
    else return 0;
  }
  static constexpr bool has_packed_bytes = requires(const F& f, Shape in) {
    f.packed_bytes(in, Dtype::f32, Pass::forward);
  };
  static constexpr bool has_parameter_window = requires(const F& f, Shape in) {
    f.parameter_window(in, Dtype::f32, Pass::forward);
  };
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

/// Adds the mean loss, or of a part its share, to `into`.
template <class F, class Context, class T, class Target, class Loss>
void call_loss(const F& f, Context& context, const LossCall<T, Target>& call, Loss& into) {
  using runs = kernel<F, Context>;
  if constexpr (requires { runs::forward(f, context, call, into); }) {
    runs::forward(f, context, call, into);
  } else if constexpr (requires { into.add(runs::forward(f, context, call)); }) {
    into.add(runs::forward(f, context, call));
  } else {
    constexpr bool one_by_one = requires {
      runs::forward(f, context, call.params, call.x, call.targets, call.workspace);
    }
    || requires {
      runs::forward(f, context, call.params, call.x, call.targets, call.workspace, into);
    };
    static_assert(!one_by_one,
                  "adacc: this loss's forward takes its arguments one by one; write double "
                  "forward(Context&, const LossCall<T, target_type>& call) const, and in it "
                  "call.params, call.x, call.targets and call.workspace (model/call.hpp)");
    static_assert(one_by_one,
                  "adacc: a loss needs a const member double forward(Context&, "
                  "const LossCall<T, target_type>& call)");
  }
}

/// The same; writes dx, and accumulates into dparams.
template <class F, class Context, class T, class Target, class Loss>
void call_loss_gradient(const F& f, Context& context, const LossCall<T, Target>& call, Loss& into) {
  using runs = kernel<F, Context>;
  if constexpr (requires { runs::forward_backward(f, context, call, into); }) {
    runs::forward_backward(f, context, call, into);
  } else if constexpr (requires { into.add(runs::forward_backward(f, context, call)); }) {
    into.add(runs::forward_backward(f, context, call));
  } else {
    static_assert(!std::is_same_v<Loss, Loss>,
                  "adacc: a loss needs a const member double forward_backward(Context&, "
                  "const LossCall<T, target_type>& call)");
  }
}

}}  // namespace adacc::v0_1
