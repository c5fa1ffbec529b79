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
  /// Whether the graph's node is this layer's: an error that says what differs.
  Error (*matches)(const void*, const Graph&, const Node&) = nullptr;
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
    if (find(&codec_info<Codec>) != nullptr) return;
    using kernel = codec_kernel<Codec, Context>;
    codecs.push_back(
        {&codec_info<Codec>,
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
         nullptr});
    if constexpr (requires(ConstBytes blob) { kernel::statistics(blob, 1, 1, Dtype::f32); })
      codecs.back().statistics = &kernel::statistics;
  }
};

namespace detail {

/// What a graph must say of a layer to have been made from it.
struct LayerLooks {
  const char* name;
  Reads reads;
  Split split;
  Shape output;
  std::size_t parameters = 0;
  bool same_shapes = true;

  void parameter(const Graph& graph, const Node& node, Shape shape) {
    same_shapes = same_shapes && parameters < node.parameter_count &&
                  graph.parameters[node.first_parameter + parameters].shape == shape;
    ++parameters;
  }

  Error differ_from(const Node& node) const {
    if (reads == node.reads && split == node.cut.split && output == node.output && same_shapes &&
        parameters == node.parameter_count)
      return {};
    return Error::say("a layer ", node.name, ", ", node.input, " to ", node.output, " with ",
                      node.parameter_count, " parameters, and the network has ", name, ", ",
                      node.input, " to ", output, " with ", parameters);
  }
};

/// Visits a model once, each repeated block once, in the order in which GraphBuilder numbers
/// layers.
template <class T, class Context>
class DispatchBuilder {
 public:
  explicit DispatchBuilder(Dispatch<T, Context>& dispatch) : dispatch_(dispatch) {}

  template <class PolicyType, class Functor>
  void layer(const Functor& functor) {
    dispatch_.layers.push_back(
        {&functor, &forward<Functor>, &backward<Functor>, &matches<Functor>});
    if constexpr (requires { typename PolicyType::codec; })
      dispatch_.template add_codec<typename PolicyType::codec>();
    constexpr Reads reads = layer_traits<Functor>::backward_reads();
    if constexpr (reads_input(reads)) ToleratedBy<Functor>::Input::visit(*this);
    if constexpr (reads_output(reads)) ToleratedBy<Functor>::Output::visit(*this);
  }

  /// A codec that some layer tolerates, if it runs in this context.
  template <class Codec>
  void codec() {
    constexpr bool runs = [] {
      using kernel = codec_kernel<Codec, Context>;
      if constexpr (requires { bool{kernel::template runs<T>}; }) return kernel::template runs<T>;
      else return true;  // a twin that says nothing
    }();
    if constexpr (runs) dispatch_.template add_codec<Codec>();
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
  template <class F, class X = input_type_of<F, T>>
  static View<const X> input(const KernelArgs<T>& args) {
    return {static_cast<const X*>(args.x), args.x_shape};
  }
  template <class F, class X = target_type_of<F, T>>
  static View<const X> targets(const KernelArgs<T>& args) {
    return {static_cast<const X*>(args.targets), args.targets_shape};
  }

  template <class F>
  static Error matches(const void* functor, const Graph& graph, const Node& node) {
    using traits = layer_traits<F>;
    const F& f = *static_cast<const F*>(functor);
    LayerLooks looks{traits::name(), traits::backward_reads(), traits::split(),
                     traits::output_shape(f, node.input)};
    traits::parameters(f, node.input, [&](const ParameterSpec& spec) {
      looks.parameter(graph, node, spec.shape);
    });
    return looks.differ_from(node);
  }
  template <class F>
  static void forward(const void* functor, Context& context, const KernelArgs<T>& args) {
    kernel<F, Context>::template forward<T>(*static_cast<const F*>(functor), context, args.params,
                                            input<F>(args), args.out, args.aux, args.workspace);
  }
  template <class F>
  static void backward(const void* functor, Context& context, const KernelArgs<T>& args) {
    kernel<F, Context>::template backward<T>(*static_cast<const F*>(functor), context, args.params,
                                             input<F>(args), args.y, args.dy, args.out,
                                             args.dparams, args.aux, args.workspace);
  }
  template <class F>
  static double loss_forward(const void* functor, Context& context, const KernelArgs<T>& args) {
    return kernel<F, Context>::template loss<T>(*static_cast<const F*>(functor), context,
                                                args.params, input<F>(args), targets<F>(args),
                                                args.workspace);
  }
  template <class F>
  static double loss_gradient(const void* functor, Context& context, const KernelArgs<T>& args) {
    return kernel<F, Context>::template loss_gradient<T>(
        *static_cast<const F*>(functor), context, args.params, input<F>(args), targets<F>(args),
        args.out, args.dparams, args.workspace);
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
