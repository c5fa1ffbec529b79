// SPDX-License-Identifier: MIT
/// The layer contract: a functor's calls and declarations.
///
/// The smallest functor (T is the scalar type, float or double; members may be templates):
///
///     struct Gelu {
///       static constexpr auto backward_reads = adacc::reads::input;
///       void forward (Cpu&, View<const T> x, View<T> y) const;
///       void backward(Cpu&, View<const T> x, View<const T> dy, View<T> dx) const;
///     };
///
/// Before dy, backward receives the tensor named by backward_reads: x, y, or neither. Every other
/// functor takes its arguments by name (call.hpp): one with parameters, one whose backward reads both
/// x and y, one with aux or workspace. Parameters and their gradients are of Wide<T> (float, where a
/// device computes in bfloat16):
///
///     void forward (Cpu&, const ForwardCall<T, X>& call) const;    // X: only if not T
///     void backward(Cpu&, const BackwardCall<T, X>& call) const;
///
/// Forward overwrites y and aux, also if it runs again; only if `aux_holds` may it leave aux alone, and numbers in it
/// that are to be those of the first forward if `again`.
/// Backward overwrites dx, and adds to dparams. Neither may keep state, allocate, throw or print.
/// Optional declarations of a functor:
///
///     constexpr Reads reads_when(Wanted) const;        // the part of backward_reads needed for the
///                                                      // wanted gradients
///     using input_type = std::int32_t;                 // X: token ids, which have no dx (empty)
///     static constexpr const char* name = "gelu";      // for reports
///     static constexpr LayerFacts facts{.draws_numbers = true};  // yes or no: all members of
///                                                      // LayerFacts; default: no
///     using input_codecs = CodecList<Codec...>;        // codecs tolerated on x by backward
///     using output_codecs = CodecList<Codec...>;       // codecs tolerated on y (codec_traits.hpp)
///     static constexpr double input_sensitivity = 0.1; // their harm; also output_sensitivity
///     constexpr Shape output_shape(Shape in) const;    // default: in
///     constexpr std::array<ParameterSpec, N> parameters(Shape in) const;
///     constexpr LayerNeeds needs(Shape in, NeedsQuery query) const;
///                                              // an error for `in`, bytes, items: all members of
///                                              // LayerNeeds; default: none
///     static constexpr auto split = Split::rows;       // cuts into parts (split.hpp)
///
/// A twin, kernel<Functor, Context>, may take over residual sums beside the layer, and save them a pass over memory. Each
/// sum is then formed in the twin's call, under all plans:
///
///     static constexpr bool adds_residual = true;      // forward adds call.added to y
///     static constexpr bool adds_gradient = true;      // backward adds call.added to dx
///
/// A twin may write gradients that hold nothing yet, and save a pass of zeros:
///
///     static constexpr bool writes_gradients = true;   // dparams[i] is written if call.begins(i)
///
/// The gradient of a bias is the sums of the columns of dy, which the layer behind has just made as its dx. Its twin may
/// form them beside dx, in the order in which the layer in front would: so they have the same bits whoever forms them.
///
///     static constexpr bool sums_dx = true;            // backward adds them to call.dx_sums, if not null
///     static constexpr int dy_sums(const Functor&);    // the parameter with this gradient, or -1; backward
///                                                      // leaves it out if call.dy_is_summed
///
/// Gradients of frozen parameters are not wanted; nor is dx, if nothing before the layer is trained.
/// A layer with `reads_when` makes use of this: tensors it does not name are empty and need not be
/// kept, and for each empty dparams[i] or dx it leaves out the work. Every other layer gets memory
/// for every gradient, whether anybody reads the gradient or not. Wanted gradients have the same bits
/// either way. A loss may declare `reads_when`, too, for the sake of dparams alone: a loss always
/// reads x, and dx is always wanted.
///
/// aux lives from forward to backward; workspace is scratch for one call. Both start 64-byte aligned
/// and count in the peak: declare no unused byte. A lossy codec may have changed x and y: see
/// `exact_input` and `exact_output`. A loss ends the network, and returns the mean loss:
///
///     using target_type = std::int32_t;                // default: T
///     double forward(Cpu&, const LossCall<T, target_type>& call) const;
///     double forward_backward(Cpu&, const LossCall<T, target_type>& call) const;
///     constexpr Shape target_shape(Shape in) const;    // default: in
///     constexpr std::size_t target_classes(Shape in) const;
///                                              // targets are std::int32_t below this number, or
///                                              // ignored: the runner checks and counts them, and the
///                                              // loss divides by detail::loss_divisor(call)
///
/// beside `name`, `facts`, `needs` and `parameters` as above. A loss with `split` (rows or
/// batch) is called with some of the rows. The call returns their share of the mean over
/// `call.part.whole` items, and writes dx to match. Instead of returning the share, the call may take
/// a `Cpu::Loss&` as its last argument and add the share of one row after the other: then the loss
/// has the same bits however rows are cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../core/view.hpp"
#include "call.hpp"
#include "class_targets.hpp"
#include "codec_traits.hpp"
#include "parameter.hpp"
#include "split.hpp"

namespace adacc { inline namespace v0_1 {

class CudaAttention;  // layer/cuda/lent_attention.cuh

/// Tensors of a layer's forward read by the layer's backward.
enum class Reads : std::uint8_t { none = 0, input = 1, output = 2, both = 3 };

namespace reads {
inline constexpr Reads none = Reads::none;
inline constexpr Reads input = Reads::input;
inline constexpr Reads output = Reads::output;
inline constexpr Reads both = Reads::both;
}  // namespace reads

constexpr bool reads_input(Reads reads) { return (static_cast<int>(reads) & 1) != 0; }
constexpr bool reads_output(Reads reads) { return (static_cast<int>(reads) & 2) != 0; }

/// The gradients wanted from one layer's backward.
struct Wanted {
  bool dx = true;  ///< the input's
  /// Bit i: parameter i. Parameters from the 64th on share the last bit.
  std::uint64_t parameters = ~std::uint64_t{0};

  constexpr bool parameter(std::size_t i) const {
    return (parameters >> (i < 63 ? i : 63) & 1) != 0;
  }
  constexpr bool everything() const { return dx && parameters == ~std::uint64_t{0}; }
};

/// The call whose needs are asked for. backward_without_dx: only of a layer with `reads_when`, if nobody
/// wants dx.
enum class Pass : std::uint8_t { forward, backward, backward_without_dx };

/// More about the call whose needs are asked for.
struct NeedsQuery {
  Dtype scalar = Dtype::f32;  ///< type of activations
  int workers = 1;            ///< threads of the call
  Pass pass = Pass::forward;
  CudaAttention* attention = nullptr;  ///< lent to the contexts of steps (GraphOptions::attention)
};

/// The needs of one call of a layer or a loss, for an input of shape `in`: a part's, if the work is cut.
struct LayerNeeds {
  Error error{};              ///< why `in` is refused; all other members then mean nothing
  std::size_t aux = 0;        ///< bytes kept from forward to backward; the same in each pass
  std::size_t workspace = 0;  ///< bytes of scratch, for one call
  /// Bytes of numbers made of parameters alone: without this memory, each part would make them again
  /// (ForwardCall::packed).
  std::size_t packed = 0;
  /// If parameters are in bfloat16, or in a file: bytes of the rows read at a time, by Params::rows(), bf16_row() or
  /// stored(). By default the layer gets a decoded copy of all parameters.
  std::size_t decode_room = all_parameters;
  /// If frozen parameters are in a file: bytes of tiles in which products decode matrices, read by Params::matrix()
  /// alone. Copies of vectors are decoded before the call. 0: copies of matrices, too, but for layers with a decode_room.
  std::size_t decode_tiles = 0;
  /// Of a device's layer: bytes of the workspace for copies of parameters in bfloat16. They are not part of it if the
  /// call's parameters have copies (Params::copy). A loss may count rows behind its only parameter, which is a matrix.
  std::size_t copies = 0;
  /// Of a loss: rows whose gradients of parameters are summed at once, if the number is not one for all machines.
  std::size_t tile_rows = 0;
  /// Bytes of state for each position of a sequence, carried from pass to pass (KernelCall::carried).
  std::size_t carried = 0;
  /// Number of items to be cut by `split`. 0: as counted by split.hpp; Split::own has to give a number.
  std::size_t split_items = 0;
  /// For Split::own: number of neighbouring items that make up an entry of the first extent. 0: none do.
  std::size_t entry_items = 0;
  /// Additions and multiplications of forward in products of matrices (estimate.hpp). Below 0: as many as
  /// products of the input with each matrix among the parameters have.
  double operations = -1;

  static constexpr std::size_t all_parameters = static_cast<std::size_t>(-1);
};

/// Yes or no, about a layer or a loss. Members are in alphabetical order.
struct LayerFacts {
  bool draws_numbers = false;     ///< results depend on Cpu::key
  bool dx_overwrites_dy = false;  ///< of a layer: dx and dy may be one buffer
  bool dx_overwrites_x = false;   ///< of a loss: dx and x may be one buffer
  /// Forward of later positions alone gives what forward of all gives there, by the help of KernelCall::carried.
  /// So does every layer with Split::rows.
  bool extends_sequences = false;
  /// Parameters are the loss's, in a network without it, for GraphOptions::stored.
  bool in_place_of_loss = false;
  /// Backward reads each row of x, or a few of them, on a scale of its own: a codec's for_unlike_rows is at hand
  /// (codec.hpp).
  bool normalizes_rows = false;
  bool reads_lengths = false;    ///< rows behind KernelCall::lengths count nowhere
  bool reads_positions = false;  ///< KernelCall::positions keep documents apart
  /// Functions on the host take T = bfloat16: they compute in float, and round results.
  bool runs_in_bf16 = false;
};

namespace detail {

/// Whether F declares a member of LayerFacts by a member of its own, which nobody would read.
template <class F>
inline constexpr bool has_facts_apart = (requires { F::draws_numbers; }) ||
                                        (requires { F::dx_overwrites_dy; }) ||
                                        (requires { F::dx_overwrites_x; }) ||
                                        (requires { F::extends_sequences; }) ||
                                        (requires { F::in_place_of_loss; }) ||
                                        (requires { F::normalizes_rows; }) ||
                                        (requires { F::reads_lengths; }) ||
                                        (requires { F::reads_positions; }) ||
                                        (requires { F::runs_in_bf16; });

/// The answer of parameters() is a list.
template <class Specs>
constexpr void require_list(const Specs& specs) {
  static_assert(
      requires { specs.size(), specs[0].shape; },
      "adacc: parameters(Shape in) returns a list of ParameterSpec, such as "
      "std::array<ParameterSpec, 1>");
}

/// Whether F says what its backward reads.
template <class F>
inline constexpr bool declares_reads = requires(void (*take)(Reads)) {
  take(F::backward_reads);
};

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

/// A functor's declarations, with defaults for missing ones.
template <class F>
struct layer_traits {
  static constexpr bool takes_tokens = requires { typename F::input_type; };
  static constexpr bool has_reads_when = requires(const F& f, Wanted wanted) {
    Reads{f.reads_when(wanted)};
  };
  static constexpr LayerFacts facts() {
    static_assert(
        !detail::has_facts_apart<F>,
        "adacc: a layer's declarations of yes or no are one value: write static constexpr "
        "LayerFacts facts{.dx_overwrites_dy = true}, in place of a member for each "
        "(model/contract.hpp)");
    LayerFacts facts;
    if constexpr (requires { F::facts; }) facts = F::facts;
    facts.extends_sequences = facts.extends_sequences || split() == Split::rows;
    return facts;
  }
  /// Whether rows behind the end of a sequence leave all others alone (KernelCall::lengths).
  static constexpr bool takes_padding() {
    return split() == Split::rows || facts().reads_positions || facts().reads_lengths;
  }
  /// Whether the functor's functions in `Context` may be asked for in the type of activations T. Twins for devices
  /// have each type of their own.
  template <class Context, class T>
  static constexpr bool runs = dtype_of<T> != Dtype::bf16 || context_traits<Context>::own_memory ||
                               facts().runs_in_bf16;

  static constexpr bool has_output_shape = requires(const F& f, Shape in) { f.output_shape(in); };
  static constexpr bool has_parameters = requires(const F& f, Shape in) { f.parameters(in); };
  static constexpr bool has_target_shape = requires(const F& f, Shape in) { f.target_shape(in); };
  static constexpr bool has_target_classes = requires(const F& f, Shape in) {
    f.target_classes(in);
  };
  static constexpr bool has_needs = requires(const F& f, Shape in) { f.needs(in, NeedsQuery{}); };
  /// Whether needs are declared: in needs(), or in several functions, which is an error.
  static constexpr bool says_needs = has_needs || (requires { &F::validate; }) ||
                                     (requires { &F::aux_bytes; }) ||
                                     (requires { &F::workspace_bytes; });

  /// Whether a member of the contract is there, but cannot be called as the contract says: nobody would call it.
  static constexpr bool has_uncallable =
      (!has_reads_when && requires { &F::reads_when; }) ||
      (!has_output_shape && requires { &F::output_shape; }) ||
      (!has_parameters && requires { &F::parameters; }) ||
      (!has_target_classes && requires { &F::target_classes; }) ||
      (!has_target_shape && requires { &F::target_shape; }) ||
      (!has_needs && requires { &F::needs; });

  static constexpr const char* name() {
    static_assert(!has_uncallable,
                  "adacc: a member of this functor is not as in model/contract.hpp, and would "
                  "never be called: they are "
                  "constexpr and const, output_shape(Shape in), parameters(Shape in), needs(Shape "
                  "in, NeedsQuery query), "
                  "reads_when(Wanted wanted), and of a loss target_shape(Shape in), "
                  "target_classes(Shape in)");
    if constexpr (requires { F::name; }) return F::name;
    else return "layer";
  }
  static constexpr Split split() {
    if constexpr (requires { F::split; }) return F::split;
    else return Split::none;
  }
  static constexpr Reads backward_reads() {
    static_assert(detail::declares_reads<F>,
                  "adacc: a layer functor must say what its backward reads: static constexpr auto "
                  "backward_reads = adacc::reads::input (or output, both, none)");
    if constexpr (detail::declares_reads<F>) return F::backward_reads;
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
    if constexpr (has_target_shape) return f.target_shape(in);
    else return in;
  }
  /// 0: targets are no classes.
  static constexpr std::size_t target_classes(const F& f, Shape in) {
    if constexpr (has_target_classes) return f.target_classes(in);
    else return 0;
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
      detail::require_list(specs);
      for (std::size_t i = 0; i < specs.size(); ++i) visit(specs[i]);
    }
  }
};

/// A functor's functions in a context. No header can add members to a class, so a device twin
/// specializes this template for its context: static functions with the names of the functor's members,
/// and the functor as first argument. Without a twin the functor's own members run, inlined even in
/// debug builds: a network may have hundreds of functors.
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

namespace detail {

/// Whether the layer's forward (backward) in Context forms residual sums beside it.
template <class F, class Context>
inline constexpr bool adds_residual = requires {
  requires kernel<F, Context>::adds_residual;
};
template <class F, class Context>
inline constexpr bool adds_gradient = requires {
  requires kernel<F, Context>::adds_gradient;
};
/// Whether the layer's backward in Context forms sums of the columns of dx.
template <class F, class Context>
inline constexpr bool sums_dx = requires {
  requires kernel<F, Context>::sums_dx;
};
/// The parameter whose gradient in Context is the sums of the columns of dy; -1: none.
template <class F, class Context>
constexpr signed char dy_sums_of(const F& f) {
  if constexpr (requires { kernel<F, Context>::dy_sums(f); })
    return static_cast<signed char>(kernel<F, Context>::dy_sums(f));
  else return -1;
}
/// Whether the layer's (the loss's) backward in Context writes gradients that hold nothing yet.
template <class F, class Context>
inline constexpr bool writes_gradients = requires {
  requires kernel<F, Context>::writes_gradients;
};

}  // namespace detail

/// Runs a layer's forward in `context`, in the layer's form, or in its twin's.
template <class F, class Context, class T, class X>
[[gnu::always_inline]] inline void call_forward(const F& f, Context& context,
                                                const ForwardCall<T, X>& call) {
  using runs = kernel<F, Context>;
  if constexpr (requires { runs::forward(f, context, call); }) {
    runs::forward(f, context, call);
  } else if constexpr (requires { runs::forward(f, context, call.x, call.y); }) {
    static_assert(
        !layer_traits<F>::has_parameters,
        "adacc: a layer with parameters gets them in a call: write forward(Context&, const "
        "ForwardCall<T>& call) const, in place of forward(Context&, View<const T> x, View<T> y) "
        "const");
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

/// Runs a layer's backward in `context`, in the layer's form, or in its twin's.
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
    constexpr bool declared = detail::declares_reads<F>;  // else one message is enough
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

/// Adds the mean loss, or a part's share, to `into`.
template <class F, class Context, class T, class Target, class Loss>
void call_loss(const F& f, Context& context, const LossCall<T, Target>& call, Loss& into) {
  detail::add_loss(
      into, [&](auto&... sum) -> decltype(kernel<F, Context>::forward(f, context, call, sum...)) {
        return kernel<F, Context>::forward(f, context, call, sum...);
      });
}

/// Adds the loss to `into`, writes dx, and adds to dparams.
template <class F, class Context, class T, class Target, class Loss>
void call_loss_gradient(const F& f, Context& context, const LossCall<T, Target>& call, Loss& into) {
  detail::add_loss(into,
                   [&](auto&... sum) -> decltype(kernel<F, Context>::forward_backward(
                                         f, context, call, sum...)) {
                     return kernel<F, Context>::forward_backward(f, context, call, sum...);
                   });
}

}}  // namespace adacc::v0_1
