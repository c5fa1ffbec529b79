// SPDX-License-Identifier: MIT
/// From a network's types to a dispatch table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../model/frozen.hpp"
#include "../model/graph.hpp"
#include "../model/network.hpp"
#include "dispatch_table.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// An error that tells the differences between `node` of `graph` and a layer of this signature.
inline Error differences(const LayerSignature& signature, const void* object, const Graph& graph,
                         const Node& node) {
  const AnyFunctor functor{object};
  const Shape output = signature.output_for(functor, node.input);
  ParameterSpec spec;
  std::size_t count = 0;
  const Reads reads = node.runs_backward ? signature.reads_for(functor, node.wanted) : Reads::none;
  bool same = reads == node.reads && signature.split == node.cut.split && output == node.output;
  for (; signature.parameter != nullptr && signature.parameter(functor, node.input, count, spec);
       ++count)
    same = same && count < node.parameters.count &&
           graph.parameters[node.parameters.first + count].shape == spec.shape;
  if (same && count == node.parameters.count) return {};
  return Error::say("a layer ", node.name, ", ", node.input, " to ", node.output, " with ",
                    node.parameters.count, " parameters, and the network has ", signature.name,
                    ", ", node.input, " to ", output, " with ", count);
}

/// Visits a model once, each repeated block once, in the order of GraphBuilder's layer numbers. declines: steps may
/// keep activations otherwise than planned, by codecs that no layer lists.
template <class T, class Context, bool declines>
class DispatchBuilder {
 public:
  explicit DispatchBuilder(Dispatch<T, Context>& dispatch) : dispatch_(dispatch) {}

  template <class PolicyType, class Functor>
  [[gnu::always_inline]] void layer(const Functor& functor) {
    using tolerated = ToleratedBy<Functor>;
    constexpr Reads reads = layer_signature<Functor>.reads;
    // The lowering has refused a layer that does not run.
    if constexpr (layer_traits<Functor>::template runs<Context, T>)
      dispatch_.layers.push_back({&functor, &forward<Functor>, &backward<Functor>,
                                  &layer_signature<Functor>, adds_residual<Functor, Context>,
                                  adds_gradient<Functor, Context>, beside(functor)});
    else dispatch_.layers.push_back({&functor, nullptr, nullptr, &layer_signature<Functor>});
    if constexpr (layer_traits<Functor>::facts().reads_positions)
      dispatch_.check_positions = &check_positions<Context>;
    if constexpr (requires { typename PolicyType::codec; })
      add_codecs<CodecList<typename PolicyType::codec>>();
    if constexpr (reads_input(reads)) add_codecs<typename tolerated::Inputs>();
    if constexpr (reads_output(reads)) add_codecs<typename tolerated::Outputs>();
    if constexpr (declines && reads_input(reads) && layer_traits<Functor>::facts().normalizes_rows)
      dispatch_.template add_for_unlike_rows<typename tolerated::Inputs>();
  }

  template <class Block>
  void repeat(int, const Block& block) {
    block.visit(*this);
  }
  int current() const { return 0; }
  void add(int) {}
  void branch(int) {}

  void loss(const NoLoss&) {}
  template <class Loss, Freeze what>
  void loss(const Frozen<Loss, what, false>& frozen) {
    loss(frozen.loss);
  }
  template <class Loss>
  void loss(const Loss& functor) {
    if constexpr (layer_traits<Loss>::template runs<Context, T>) {
      dispatch_.loss = {&functor, &loss_forward<Loss>, &loss_gradient<Loss>};
      dispatch_.loss.beside = beside(functor);
      if constexpr (!context_traits<Context>::own_memory && layer_traits<Loss>::has_target_classes)
        dispatch_.loss.count = &count_classes;
    }
  }

 private:
  template <class F>
  static constexpr DeviceWorkIn<Context> beside(const F& f) {
    if constexpr (context_traits<Context>::own_memory)
      return {writes_gradients<F, Context>, sums_dx<F, Context>, dy_sums_of<F, Context>(f)};
    else return static_cast<void>(f), DeviceWorkIn<Context>{};
  }

  template <class List>
  void add_codecs() {
    dispatch_.add_codecs(codec_twins<List, T, Context>);
  }

  template <class F>
  static void forward(const void* functor, Context& context, const ForwardCall<T>& call) {
    using X = input_type_of<F, T>;
    const F& f = *static_cast<const F*>(functor);
    if constexpr (std::is_same_v<X, T>) call_forward(f, context, call);
    else call_forward(f, context, with_input<X>(call));
  }
  template <class F>
  static void backward(const void* functor, Context& context, const BackwardCall<T>& call) {
    using X = input_type_of<F, T>;
    const F& f = *static_cast<const F*>(functor);
    if constexpr (std::is_same_v<X, T>) call_backward(f, context, call);
    else call_backward(f, context, with_input<X>(call));
  }
  template <class F>
  static void loss_forward(const void* functor, Context& context, const LossCall<T>& call,
                           typename Context::Loss& into) {
    call_loss(*static_cast<const F*>(functor), context, with_targets<target_type_of<F, T>>(call),
              into);
  }
  template <class F>
  static void loss_gradient(const void* functor, Context& context, const LossCall<T>& call,
                            typename Context::Loss& into) {
    call_loss_gradient(*static_cast<const F*>(functor), context,
                       with_targets<target_type_of<F, T>>(call), into);
  }

  static Error count_classes(const LossNode& loss, const void* targets, TargetCount& count) {
    const View<const std::int32_t> ids(static_cast<const std::int32_t*>(targets), loss.targets);
    count = count_targets(ids);
    return check_targets(loss.name, ids, loss.classes);
  }

  Dispatch<T, Context>& dispatch_;
};

}  // namespace detail

/// The dispatch table of `network`, which must outlive the table. `dispatch` may bring arrays over memory of the
/// caller's. declines: with codecs for unlike rows, which layers do not list.
template <class T, class Context, bool declines = true, class Network>
Dispatch<T, Context> make_dispatch(const Network& network, Dispatch<T, Context> dispatch = {}) {
  detail::DispatchBuilder<T, Context, declines> builder(dispatch);
  network.model.visit(builder);
  builder.loss(network.loss);
  return dispatch;
}

}}  // namespace adacc::v0_1
