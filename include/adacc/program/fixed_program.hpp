// SPDX-License-Identifier: MIT
/// A program that the compiler has made, in static storage: for devices without a heap.
///
/// make_program works on arrays that grow, which a constant expression may use but not keep. Here
/// its result is copied, while compiling, into arrays of just the right size. The planner, the
/// scheduler and the layout are then not in the binary, and set-up allocates nothing:
///
///     constexpr auto make = [] { return adacc::make_program(net, adacc::Shape(16, 64, 3)); };
///     constinit adacc::FixedProgram<decltype(make)> fixed;
///     adacc::FixedDispatch<float, adacc::Cpu, fixed.layer_count> dispatch;
///     using Step = adacc::Step<float, adacc::Cpu, decltype(fixed)::Abilities>;  // or Step<>, which is larger
///     auto step = Step::make(dispatch.make(net), fixed.program());
///
/// The objects must outlive the step, which works in their memory.
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
  T items[size == 0 ? 1 : size]{};

  constexpr void store(const Array<T>& from) {
    for (std::size_t i = 0; i < from.size(); ++i) items[i] = from[i];
  }
  constexpr Array<T> lend() { return Array<T>::over(items, size, size == 0 ? 1 : size); }
};

template <class T>
T element_of(const Array<T>&);
template <std::size_t index>
using ProgramElement = decltype(element_of(array_of<index>(std::declval<Program&>())));

}  // namespace detail

/// `Make` is the type of a function object without state whose constexpr call returns
/// Result<Program>.
template <class Make>
class FixedProgram {
  using Indices = std::make_index_sequence<detail::array_count>;

  struct Sizes {
    bool made = false;
    std::size_t of[detail::array_count] = {};
    std::size_t layers = 0, peak_bytes = 0, parameter_elems = 0, gradient_elems = 0;
    bool transfers = false, updates = false, parts = false, bf16 = false;
  };
  template <std::size_t... index>
  static constexpr Sizes count(std::index_sequence<index...>) {
    Result<Program> result = Make{}();
    Sizes found;
    found.made = static_cast<bool>(result);
    if (!found.made) return found;
    ((found.of[index] = detail::array_of<index>(*result).size()), ...);
    found.peak_bytes = result->peak_bytes();
    found.parameter_elems = result->graph.parameter_elems;
    found.gradient_elems = result->graph.gradient_elems;
    found.transfers = detail::needs_transfers(*result);
    found.updates = detail::needs_updates(*result);
    found.parts = detail::needs_parts(*result);
    found.bf16 = detail::needs_bf16_parameters(*result);
    for (const Node& node : result->graph.nodes) {
      const auto layers = static_cast<std::size_t>(node.layer) + 1;
      if (layers > found.layers) found.layers = layers;
    }
    return found;
  }
  static constexpr Sizes sizes = count(Indices{});
  static_assert(sizes.made,
                "adacc: make_program returns an error for this network, input and plan; print the "
                "error of the same call to see which");

  template <class>
  struct Storage;
  template <std::size_t... index>
  struct Storage<std::index_sequence<index...>>
      : detail::FixedArray<index, detail::ProgramElement<index>, sizes.of[index]>... {
    template <std::size_t i>
    using At = detail::FixedArray<i, detail::ProgramElement<i>, sizes.of[i]>;

    constexpr void store(Program& program) {
      (At<index>::store(detail::array_of<index>(program)), ...);
    }
    constexpr void lend(Program& program) {
      ((detail::array_of<index>(program) = At<index>::lend()), ...);
    }
  };

 public:
  /// What a step of it must have code for.
  using Abilities = StepAbilities<sizes.transfers, sizes.updates, sizes.parts, sizes.bf16>;

  static constexpr std::size_t peak_bytes = sizes.peak_bytes;  ///< of the arena
  static constexpr std::size_t parameter_elems = sizes.parameter_elems;
  static constexpr std::size_t gradient_elems = sizes.gradient_elems;
  static constexpr std::size_t parameter_count = sizes.of[3];
  static constexpr std::size_t instruction_count = sizes.of[5];
  static constexpr std::size_t layer_count = sizes.layers;

  constexpr FixedProgram() {
    Result<Program> result = Make{}();
    storage_.store(*result);
    storage_.lend(*result);
    program_ = static_cast<Program&&>(*result);
  }
  FixedProgram(const FixedProgram&) = delete;
  FixedProgram& operator=(const FixedProgram&) = delete;

  /// The program, over the arrays in here: one at a time.
  Program program() {
    storage_.lend(program_);
    return static_cast<Program&&>(program_);  // which leaves all but the arrays as it is
  }

 private:
  Storage<Indices> storage_{};
  Program program_{};
};

}}  // namespace adacc::v0_1
