// SPDX-License-Identifier: MIT
/// Use of gradients as soon as they are complete: a function lent to a Step by an optimizer, or by ranks summing
/// gradients.
///
/// In steps of a graph whose updates are announced (Graph::updates), each layer's gradients are handed over right
/// behind the last backward adding to them, while backward goes on with the layers before:
///
///     auto use = [&](Cpu& cpu, const CompleteGradients<float>& complete) {
///       for (std::size_t i = 0; i < complete.size(); ++i)
///         descend(cpu, complete.parameter(i), complete.gradient(i));
///     };
///     step.lend_updates(use);   // `use` outlives the steps
#pragma once

#include <cstddef>
#include <type_traits>

#include "../core/error.hpp"
#include "../core/view.hpp"
#include "../model/graph.hpp"

namespace adacc { inline namespace v0_1 {

/// Gradients to which nothing more is added in this step, nor does anything more read the values of
/// their parameters: both may change. If updates are fused, gradients are gone behind the call.
template <class T>
class CompleteGradients {
 public:
  /// Gradients completed by the same node, from number `first` of `graph.gradients` on. `gradients` is the block of all
  /// gradients; if updates are fused, the arena, with the gradients at `places`, in bytes.
  CompleteGradients(const Graph& graph, std::size_t first, T* gradients, const std::size_t* places)
      : graph_(graph), first_(first), gradients_(gradients), places_(places) {
    while (first + size_ < graph.gradients.size() &&
           graph.gradients[first + size_].complete == graph.gradients[first].complete)
      ++size_;
  }

  std::size_t size() const { return size_; }
  /// The number of gradient i in Graph::gradients. Numbers of one call are consecutive; calls come in the order of
  /// backward.
  std::size_t number(std::size_t i) const { return first_ + i; }
  /// The number in Graph::parameters of gradient i's parameter.
  std::size_t parameter_number(std::size_t i) const {
    return static_cast<std::size_t>(graph_.gradients[first_ + i].parameter);
  }
  const Parameter& parameter(std::size_t i) const { return graph_.parameters[parameter_number(i)]; }
  View<T> gradient(std::size_t i) const {
    const std::size_t at =
        graph_.fuses_updates() ? places_[number(i)] / sizeof(T) : parameter(i).offset;
    return {gradients_ + at, parameter(i).shape};
  }
  /// All of them in one piece, with the padding between them, which holds zeros: a part of the block of
  /// gradients. Empty if updates are fused: then they lie apart.
  View<T> range() const {
    if (graph_.fuses_updates()) return {};
    const Parameter& last = parameter(size_ - 1);
    const std::size_t begin = parameter(0).offset;
    return {gradients_ + begin,
            Shape(last.offset + padded_elems(last.shape, graph_.scalar) - begin)};
  }
  const Graph& graph() const { return graph_; }

 private:
  const Graph& graph_;
  std::size_t first_ = 0, size_ = 0;
  T* gradients_ = nullptr;
  const std::size_t* places_ = nullptr;
};

/// A reference to a callable (Context&, const CompleteGradients<T>&), which returns an Error or nothing; empty by
/// default. The callable finds the key of the step in the context, may set `key.activation`, and allocates nothing if
/// steps are not to. An error ends no step, but is returned by the step at its end. No ownership.
///
/// Once something has failed in a step (a codec, a transfer, the callable itself) gradients are worth nothing, and the
/// callable is called no more until the next step. A callable that others wait for must be called all the same, and
/// declares: `static constexpr bool even_if_failed = true;`.
template <class T, class Context>
class UpdateRef {
 public:
  constexpr UpdateRef() = default;
  template <class Use>
    requires(!std::is_same_v<std::remove_const_t<Use>, UpdateRef> &&
             requires(Use & use, Context& context, const CompleteGradients<T>& complete) {
               use(context, complete);
             })
  constexpr UpdateRef(Use& use)                                      // implicit: a parameter type
      : object_(const_cast<void*>(static_cast<const void*>(&use))),  // cast back below
        call_([](void* object, Context& context, const CompleteGradients<T>& complete) -> Error {
          Use& call = *static_cast<Use*>(object);
          if constexpr (std::is_void_v<decltype(call(context, complete))>)
            return call(context, complete), Error();
          else return call(context, complete);
        }) {
    if constexpr (requires { Use::even_if_failed; }) even_if_failed_ = Use::even_if_failed;
  }

  constexpr explicit operator bool() const { return call_ != nullptr; }
  constexpr bool even_if_failed() const { return even_if_failed_; }
  Error operator()(Context& context, const CompleteGradients<T>& complete) const {
    return call_(object_, context, complete);
  }

 private:
  void* object_ = nullptr;
  Error (*call_)(void*, Context&, const CompleteGradients<T>&) = nullptr;
  bool even_if_failed_ = false;
};

namespace detail {

/// For steps run for their times, or their last gradients, alone.
struct UseNoGradients {
  template <class T, class Context>
  void operator()(Context&, const CompleteGradients<T>&) const {}
};
inline constexpr UseNoGradients use_no_gradients;

}  // namespace detail

}}  // namespace adacc::v0_1
