// SPDX-License-Identifier: MIT
/// A program made by the compiler, in static storage: for devices without a heap.
///
/// make_program works on arrays that grow, which a constant expression may use but not keep. Here
/// the compiler copies its result into arrays of just the right size. Planner, scheduler and layout
/// are then not in the binary, and set-up allocates nothing:
///
///     constexpr auto make = [] { return adacc::make_program(net, adacc::Shape(16, 64, 3)); };
///     constinit adacc::FixedProgram<decltype(make)> fixed;
///     adacc::FixedDispatch<float, adacc::Cpu, fixed.layer_count> dispatch;
///     using Step = adacc::Step<float, adacc::Cpu, decltype(fixed)::Abilities>;  // or Step<>, which is larger
///     auto step = Step::make(dispatch.make(net), fixed.program());
///
/// The objects must outlive the step, which works in their memory. A device for training and inference
/// holds the network's graph, most of a program, once:
///
///     constinit adacc::FixedMode<decltype(fixed), adacc::Mode::infer> inference(fixed);
#pragma once

#include <cstddef>
#include <utility>

#include "abilities.hpp"
#include "program.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Storage for one of a program's arrays.
template <std::size_t index, class T, std::size_t size>
struct FixedArray {
  T items[size]{};

  constexpr void store(const Array<T>& from) {
    for (std::size_t i = 0; i < size; ++i) items[i] = from[i];
  }
  constexpr void lend(Array<T>& to) { to = Array<T>::over(items, size, size); }
};
/// An empty array is lent no memory.
template <std::size_t index, class T>
struct FixedArray<index, T, 0> {
  constexpr void store(const Array<T>&) {}
  constexpr void lend(Array<T>&) {}
};

template <class T>
T element_of(const Array<T>&);
template <std::size_t index>
using ProgramElement = decltype(element_of(array_of<index>(std::declval<Program&>())));

/// Sizes and needs of the program from `Make`, for the compiler to know before storing it.
template <class Make>
struct FixedSizes {
  bool made = false;
  std::size_t of[array_count] = {};
  std::size_t layers = 0, peak_bytes = 0, parameter_elems = 0, gradient_elems = 0;
  bool transfers = false, updates = false, parts = false, decoded = false, declining = false;

  template <std::size_t... index>
  static constexpr FixedSizes count(std::index_sequence<index...>) {
    Result<Program> result = Make{}();
    FixedSizes found;
    found.made = static_cast<bool>(result);
    if (!found.made) return found;
    ((found.of[index] = array_of<index>(*result).size()), ...);
    found.peak_bytes = result->peak_bytes();
    found.parameter_elems = result->graph.parameter_elems;
    found.gradient_elems = result->graph.gradient_elems;
    found.transfers = needs_transfers(*result);
    found.updates = needs_updates(*result);
    found.parts = needs_parts(*result);
    found.decoded = needs_decoded_parameters(*result);
    found.declining = needs_declining(*result);
    for (const Node& node : result->graph.nodes) {
      const auto layers = static_cast<std::size_t>(node.layer) + 1;
      if (layers > found.layers) found.layers = layers;
    }
    return found;
  }
};

/// The program from `Make`, and storage for the program's arrays from number `first` on.
template <class Make, std::size_t first>
class FixedArrays {
  static constexpr FixedSizes<Make> sizes =
      FixedSizes<Make>::count(std::make_index_sequence<array_count>{});
  static_assert(sizes.made,
                "adacc: make_program returns an error for this network, input and plan; print the "
                "error of the same call to see which");

  template <class>
  struct Storage;
  template <std::size_t... index>
  struct Storage<std::index_sequence<index...>>
      : FixedArray<first + index, ProgramElement<first + index>, sizes.of[first + index]>... {
    template <std::size_t i>
    using At = FixedArray<i, ProgramElement<i>, sizes.of[i]>;

    constexpr void store(Program& program) {
      (At<first + index>::store(array_of<first + index>(program)), ...);
    }
    template <std::size_t i>
    constexpr void lend(Program& program) {
      At<i>::lend(array_of<i>(program));
    }
  };

 public:
  /// The abilities a step of the program needs.
  using Abilities =
      StepAbilities<sizes.transfers, sizes.updates, sizes.parts, sizes.decoded, sizes.declining>;

  static constexpr std::size_t peak_bytes = sizes.peak_bytes;  ///< the arena
  static constexpr std::size_t parameter_elems = sizes.parameter_elems;
  static constexpr std::size_t gradient_elems = sizes.gradient_elems;
  static constexpr std::size_t parameter_count = sizes.of[3];
  static constexpr std::size_t instruction_count = sizes.of[6];
  static constexpr std::size_t layer_count = sizes.layers;

  constexpr FixedArrays() {
    Result<Program> result = Make{}();
    storage_.store(*result);
    program_ = static_cast<Program&&>(*result);
    drop_arrays(std::make_index_sequence<array_count>{});
  }
  FixedArrays(const FixedArrays&) = delete;
  FixedArrays& operator=(const FixedArrays&) = delete;

 protected:
  /// Lends `program` its arrays of numbers begin … begin + sizeof...(index) - 1.
  template <std::size_t begin, std::size_t... index>
  void lend(Program& program, std::index_sequence<index...>) {
    (storage_.template lend<begin + index>(program), ...);
  }

 private:
  template <std::size_t... index>
  constexpr void drop_arrays(std::index_sequence<index...>) {
    ((array_of<index>(program_) = {}), ...);
  }

 protected:
  Storage<std::make_index_sequence<array_count - first>> storage_{};
  Program program_{};
};

/// The program from `Make`, in another mode.
template <class Make, Mode mode>
struct MakeInMode {
  constexpr Result<Program> operator()() const {
    Result<Program> program = Make{}();
    if (!program) return program;
    return make_program(static_cast<Graph&&>(program->graph), static_cast<Plan&&>(program->plan),
                        mode);
  }
};

}  // namespace detail

/// `Make` is the type of a function object without state whose constexpr call returns
/// Result<Program>.
template <class MakeProgram>
class FixedProgram : public detail::FixedArrays<MakeProgram, 0> {
 public:
  using Make = MakeProgram;

  /// The program, over the arrays in here: one at a time.
  Program program() {
    this->template lend<0>(this->program_, std::make_index_sequence<detail::array_count>{});
    return static_cast<Program&&>(this->program_);  // all but the arrays stays behind
  }
  /// Lends `program` the arrays of its graph, which nobody may change.
  void lend_graph(Program& program) {
    this->template lend<0>(program, std::make_index_sequence<detail::graph_array_count>{});
  }
};

/// The network and the plan of `Fixed`, a FixedProgram, in another mode, on the graph of `Fixed`.
template <class Fixed, Mode mode>
class FixedMode : public detail::FixedArrays<detail::MakeInMode<typename Fixed::Make, mode>,
                                             detail::graph_array_count> {
 public:
  /// `graph_of` must outlive the FixedMode.
  constexpr explicit FixedMode(Fixed& graph_of) : graph_of_(&graph_of) {}

  /// The program, over the arrays in here and the graph's there: one at a time.
  Program program() {
    constexpr std::size_t shared = detail::graph_array_count;
    this->template lend<shared>(this->program_,
                                std::make_index_sequence<detail::array_count - shared>{});
    graph_of_->lend_graph(this->program_);
    return static_cast<Program&&>(this->program_);
  }

 private:
  Fixed* graph_of_;
};

}}  // namespace adacc::v0_1
