/// From nodes back to functors: what the runner calls, with the types erased.
///
/// One entry per layer of the model (copies of a repeated block share it): a pointer to the user's
/// functor and two function pointers, so that the runner is templated on the scalar type and the
/// context alone, and a functor used in many layers is compiled once.
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "../model/codec_traits.hpp"
#include "../model/contract.hpp"
#include "../model/graph.hpp"
#include "../policy/policy.hpp"

namespace adacc::inline v0_1 {

/// The tensors of one call. x is void because token layers take another element type.
template <class T>
struct KernelArgs {
  Params<const T> params;
  Params<T> dparams;
  const void* x = nullptr;
  Shape x_shape;
  View<const T> y;  ///< in backward
  View<T> out;      ///< y in forward, dx in backward
  View<const T> dy;
  Bytes aux;
  Bytes workspace;
  const void* targets = nullptr;
  Shape targets_shape;
};

template <class T, class Context>
struct LayerDispatch {
  const void* functor = nullptr;
  void (*forward)(const void*, Context&, const KernelArgs<T>&) = nullptr;
  void (*backward)(const void*, Context&, const KernelArgs<T>&) = nullptr;
  const detail::LayerSignature* signature = nullptr;  ///< null: unchecked
};

template <class T, class Context>
struct LossDispatch {
  const void* functor = nullptr;
  double (*loss)(const void*, Context&, const KernelArgs<T>&) = nullptr;
  double (*loss_gradient)(const void*, Context&, const KernelArgs<T>&) = nullptr;
};

template <class T, class Context>
struct CodecDispatch {
  const CodecInfo* info = nullptr;
  Error (*encode)(Context&, View<const T>, Bytes, Part) = nullptr;
  Error (*decode)(Context&, ConstBytes, View<T>, Part) = nullptr;
  /// What encode saw, from its blob; null where the codec does not say, or not in this context.
  CodecStatistics (*statistics)(ConstBytes, std::size_t rows, std::size_t cols, Dtype) = nullptr;
};

namespace detail {

/// How a codec runs in a context.
template <class Codec, class T, class Context>
constexpr CodecDispatch<T, Context> codec_dispatch() {
  using kernel = codec_kernel<Codec, Context>;
  CodecDispatch<T, Context> calls{
      &codec_info<Codec>,
      [](Context& context, View<const T> x, Bytes blob, Part part) {
        if constexpr (requires { kernel::template encode<T>(context, x, blob, part); })
          return kernel::template encode<T>(context, x, blob, part);
        else return part.first == 0 ? kernel::template encode<T>(context, x, blob) : Error();
      },
      [](Context& context, ConstBytes blob, View<T> x, Part part) {
        if constexpr (requires { kernel::template decode<T>(context, blob, x, part); })
          return kernel::template decode<T>(context, blob, x, part);
        else return part.first == 0 ? kernel::template decode<T>(context, blob, x) : Error();
      },
      nullptr};
  if constexpr (requires(ConstBytes blob) { kernel::statistics(blob, 1, 1, Dtype::f32); })
    calls.statistics = &kernel::statistics;
  return calls;
}

/// The same if it can, else nothing.
template <class Codec, class T, class Context>
constexpr CodecDispatch<T, Context> codec_dispatch_if_any() {
  constexpr bool runs = [] {
    using kernel = codec_kernel<Codec, Context>;
    if constexpr (requires { bool{kernel::template runs<T>}; }) return kernel::template runs<T>;
    else return true;  // a twin that says nothing
  }();
  if constexpr (runs) return codec_dispatch<Codec, T, Context>();
  else return {};
}

/// How the codecs of a list run. Those that cannot are empty entries; without any there is one.
template <class List, class T, class Context>
inline constexpr CodecDispatch<T, Context> codec_twins[] = {{}};
template <class First, class... Rest, class T, class Context>
inline constexpr CodecDispatch<T, Context> codec_twins<CodecList<First, Rest...>, T, Context>[] = {
    codec_dispatch_if_any<First, T, Context>(), codec_dispatch_if_any<Rest, T, Context>()...};

}  // namespace detail

/// All that a network's steps can call in a context.
template <class T, class Context>
struct Dispatch {
  Array<LayerDispatch<T, Context>> layers;  ///< indexed by Node::layer
  LossDispatch<T, Context> loss;
  /// Those that the policies name, those that the layers tolerate, and added ones.
  Array<CodecDispatch<T, Context>> codecs;

  const CodecDispatch<T, Context>* find(const CodecInfo* info) const {
    for (const CodecDispatch<T, Context>& codec : codecs)
      if (codec.info == info) return &codec;
    return nullptr;
  }

  /// Makes `Codec` available to plans that are not fixed in types.
  template <class Codec>
  void add_codec() {
    add_codec(detail::codec_dispatch<Codec, T, Context>());
  }
  void add_codec(const CodecDispatch<T, Context>& codec) {
    if (codec.info != nullptr && find(codec.info) == nullptr) codecs.push_back(codec);
  }
};

namespace detail {

/// An error that says how `node` of `graph` differs from what a layer of this signature lowers to.
inline Error differences(const LayerSignature& signature, const void* object, const Graph& graph,
                         const Node& node) {
  const AnyFunctor functor{object};
  const Shape output = signature.output_for(functor, node.input);
  ParameterSpec spec;
  std::size_t count = 0;
  bool same =
      signature.reads == node.reads && signature.split == node.cut.split && output == node.output;
  for (; signature.parameter != nullptr && signature.parameter(functor, node.input, count, spec);
       ++count)
    same = same && count < node.parameter_count &&
           graph.parameters[node.first_parameter + count].shape == spec.shape;
  if (same && count == node.parameter_count) return {};
  return Error::say("a layer ", node.name, ", ", node.input, " to ", node.output, " with ",
                    node.parameter_count, " parameters, and the network has ", signature.name, ", ",
                    node.input, " to ", output, " with ", count);
}

/// Visits a model once, each repeated block once, in the order in which GraphBuilder numbers
/// layers.
template <class T, class Context>
class DispatchBuilder {
 public:
  explicit DispatchBuilder(Dispatch<T, Context>& dispatch) : dispatch_(dispatch) {}

  template <class PolicyType, class Functor>
  [[gnu::always_inline]] void layer(const Functor& functor) {
    using tolerated = ToleratedBy<Functor>;
    constexpr Reads reads = layer_signature<Functor>.reads;
    add(&functor, &forward<Functor>, &backward<Functor>, layer_signature<Functor>);
    if constexpr (requires { typename PolicyType::codec; })
      dispatch_.template add_codec<typename PolicyType::codec>();
    if constexpr (reads_input(reads)) add(codec_twins<typename tolerated::Inputs, T, Context>);
    if constexpr (reads_output(reads)) add(codec_twins<typename tolerated::Outputs, T, Context>);
  }

  template <class Block>
  void repeat(int, const Block& block) {
    block.visit(*this);
  }
  int current() const { return 0; }
  void add(int) {}

  template <class Loss>
  void loss(const Loss& functor) {
    dispatch_.loss = {&functor, &loss_forward<Loss>, &loss_gradient<Loss>};
  }

 private:
  template <class X>
  static View<const X> input(const KernelArgs<T>& args) {
    return {static_cast<const X*>(args.x), args.x_shape};
  }
  template <class F, class X = target_type_of<F, T>>
  static View<const X> targets(const KernelArgs<T>& args) {
    return {static_cast<const X*>(args.targets), args.targets_shape};
  }

  using Call = void (*)(const void*, Context&, const KernelArgs<T>&);
  void add(const void* functor, Call forth, Call back, const LayerSignature& signature) {
    dispatch_.layers.push_back({functor, forth, back, &signature});
  }
  template <std::size_t count>
  void add(const CodecDispatch<T, Context> (&codecs)[count]) {
    for (const CodecDispatch<T, Context>& codec : codecs) dispatch_.add_codec(codec);
  }

  template <class F>
  static void forward(const void* functor, Context& context, const KernelArgs<T>& args) {
    kernel<F, Context>::template forward<T>(*static_cast<const F*>(functor), context, args.params,
                                            input<input_type_of<F, T>>(args), args.out, args.aux,
                                            args.workspace);
  }
  template <class F>
  static void backward(const void* functor, Context& context, const KernelArgs<T>& args) {
    kernel<F, Context>::template backward<T>(*static_cast<const F*>(functor), context, args.params,
                                             input<input_type_of<F, T>>(args), args.y, args.dy,
                                             args.out, args.dparams, args.aux, args.workspace);
  }
  template <class F>
  static double loss_forward(const void* functor, Context& context, const KernelArgs<T>& args) {
    return kernel<F, Context>::template loss<T>(*static_cast<const F*>(functor), context,
                                                args.params, input<input_type_of<F, T>>(args),
                                                targets<F>(args), args.workspace);
  }
  template <class F>
  static double loss_gradient(const void* functor, Context& context, const KernelArgs<T>& args) {
    return kernel<F, Context>::template loss_gradient<T>(
        *static_cast<const F*>(functor), context, args.params, input<input_type_of<F, T>>(args),
        targets<F>(args), args.out, args.dparams, args.workspace);
  }

  Dispatch<T, Context>& dispatch_;
};

}  // namespace detail

/// The dispatch table of `network`, which must outlive it. `dispatch` may bring arrays over memory
/// of the caller's.
template <class T, class Context, class Network>
Dispatch<T, Context> make_dispatch(const Network& network, Dispatch<T, Context> dispatch = {}) {
  detail::DispatchBuilder<T, Context> builder(dispatch);
  network.model.visit(builder);
  builder.loss(network.loss);
  return dispatch;
}

}  // namespace adacc::inline v0_1
