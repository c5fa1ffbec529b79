// SPDX-License-Identifier: MIT
/// The optimizer contract: what a Training asks of whoever turns gradients into an update.
///
/// An optimizer is a plain struct of options. It says what it keeps of a parameter and updates a
/// range of one; memory, threads, checkpoints and the order of ranges are the library's:
///
///     static constexpr const char* name = "SGD";     // checkpoints of others are refused
///     static constexpr std::size_t state_count = 1;  // tensors that it keeps of a parameter
///     StateSpec state(std::size_t i, const ParameterSpec&) const;  // which; without any, none
///     template <class T> void update(const ParameterRange<T>&, const UpdateTerms&) const;
///
/// `update` reads terms.scale * gradient, changes values and state of its range, and leaves zeros in
/// the gradient. Ranges run at once and in any order, so one writes what no other reads. State is
/// zero before the first update. A rate of 0 changes no value, and keeps gradients and state that are
/// zero. The bits depend on the arguments alone; numbers to be rounded by come from range.key.
///
/// One whose update needs sums over the parameter runs in passes, each after the whole of the one
/// before (Adafactor), and says how each is cut. The gradient is cleared in the last:
///
///     static constexpr int passes = 2;                             // else 1
///     UpdateCut cut(const ParameterSpec&, int pass) const;         // else elements, 32768 at a time
///
/// One that does to an element what depends on nothing but that element's value, gradient and state
/// may say so: then a parameter can be updated in pieces, whose state is in memory by turns
/// (stored_moments.hpp). A range then begins `range.begin` elements into its parameter, `values`,
/// `gradient` and state are those of its piece, elems() says how many these are, and random numbers
/// are drawn for element range.begin + i; for_lanes() and for_moment() do all that. It has one pass
/// and no cut(), and keeps of a parameter as many numbers as that has, or none:
///
///     static constexpr bool elementwise = true;                    // else false
///
/// One may name its numbers; ranks that train together then compare them (ranks/asked.hpp):
///
///     template <class Visit>
///     void each_option(const Visit& visit) const { visit("momentum", momentum); }
///
/// What it may count on: the gradient of the whole parameter, summed over micro-batches. What it
/// cannot have: other parameters, and the gradients' norm over all of them; clipping by that is the
/// trainer's, and reaches it as terms.scale. So an update may follow a parameter's last gradient.
///
/// AdamW, Sgd, Lion and Adafactor are four (docs/writing_an_optimizer.md);
/// testing::OptimizerArchetype has no more than this asks for, testing::check_optimizer tries one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../core/context.hpp"
#include "../core/random.hpp"
#include "../model/parameter.hpp"
#include "moments.hpp"

namespace adacc { inline namespace v0_1 {

/// A tensor that an optimizer keeps of a parameter. Its name, form and sign are the same for all
/// parameters.
struct StateSpec {
  const char* name = "";
  std::size_t elems = 0;  ///< 0: nothing is kept of this parameter
  StateForm form = StateForm::full;
  bool non_negative = false;  ///< it never is below 0, and 8 bits need none for a sign
};

/// How a pass over a parameter is cut: `items`, at most `tile` of them in a range.
struct UpdateCut {
  std::size_t items = 0, tile = 1;

  constexpr std::size_t tiles() const { return div_up(items, tile); }
};

/// A range of a parameter that is to be updated.
template <class T>
struct ParameterRange {
  const ParameterSpec& parameter;
  T* values;    ///< of the whole parameter (of the piece, if there are any), as
  T* gradient;  ///< its gradient
  std::byte* state_memory;
  const std::size_t* state_at;
  int pass;
  std::size_t first, count;  ///< items of this pass: elements, unless cut() says otherwise
  RandomKey key;             ///< of this update of this parameter; streams of elements
  std::size_t begin = 0;     ///< of the parameter, before its piece
  std::size_t extent = 0;    ///< elements of the piece

  /// What values, gradient and state are of: the parameter's elements, or those of its piece.
  std::size_t elems() const { return extent; }
  /// Tensor i of the parameter's state.
  std::byte* state(std::size_t i) const { return state_memory + state_at[i]; }
  /// The same, if it is kept as it is.
  T* numbers(std::size_t i) const { return static_cast<T*>(static_cast<void*>(state(i))); }
};

/// What an update is told.
struct UpdateTerms {
  std::uint64_t number = 1;  ///< of the update, counted from 1
  double rate = 0;
  double scale = 1;  ///< of the gradients: clipping, and the mean over micro-batches
  RandomKey key{};   ///< seed and step
};

namespace detail {

inline constexpr std::size_t update_tile = 32768;
static_assert(update_tile % moment_lanes == 0);

template <class Optimizer>
int passes_of(const Optimizer& optimizer) {
  if constexpr (requires { optimizer.passes; }) return optimizer.passes;
  else return 1;
}

template <class Optimizer>
bool is_elementwise(const Optimizer& optimizer) {
  if constexpr (requires { optimizer.elementwise; }) return optimizer.elementwise;
  else return false;
}

template <class Optimizer>
UpdateCut cut_of(const Optimizer& optimizer, const ParameterSpec& parameter, int pass) {
  if constexpr (requires { optimizer.cut(parameter, pass); }) return optimizer.cut(parameter, pass);
  else return {parameter.shape.elems(), update_tile};
}

template <class Optimizer>
StateSpec state_of(const Optimizer& optimizer, std::size_t i, const ParameterSpec& parameter) {
  if constexpr (requires { optimizer.state(i, parameter); }) {
    return optimizer.state(i, parameter);
  } else {
    static_assert(Optimizer::state_count == 0,
                  "adacc: an optimizer whose state_count is not 0 says what it keeps: StateSpec "
                  "state(std::size_t i, const ParameterSpec&) const");
    return {};
  }
}

/// visit(name, value) of its numbers, if it names them.
template <class Optimizer, class Visit>
void each_option(const Optimizer& optimizer, const Visit& visit) {
  if constexpr (requires { optimizer.each_option(visit); }) optimizer.each_option(visit);
}

}  // namespace detail

/// As many elements as forms take at a time: a constant, so that compilers see whole vectors.
using MomentLanes = std::integral_constant<std::size_t, moment_lanes>;

/// Moments of a range, moment_lanes at a time: calls step(first, count, random) with the random bits
/// of these elements, which are drawn if a form among `Forms` rounds. `count` is MomentLanes or, in
/// the end, a std::size_t.
template <class... Forms, class T, class Step>
void for_lanes(const ParameterRange<T>& range, const Step& step) {
  const auto lanes = [&](std::size_t first, auto count) {
    if constexpr (((Forms::form == StateForm::full) && ...)) step(first, count, NearestHalves{});
    else step(first, count, RandomHalves(range.key, range.begin + first));
  };
  const std::size_t end = range.first + range.count;
  std::size_t first = range.first;
  for (; first + moment_lanes <= end; first += moment_lanes) lanes(first, MomentLanes{});
  if (first < end) lanes(first, end - first);
}

/// The same of one moment, tensor 0 of the state, kept in the form `Moments`: calls step(count, p, g, m)
/// with pointers to these elements' values, gradients and moments, which are `non_negative` or not as
/// the StateSpec says.
template <class Moments, bool non_negative = false, class T, class Step>
void for_moment(const ParameterRange<T>& range, const Step& step) {
  for_lanes<Moments>(range, [&](std::size_t i, auto count, const auto& random) {
    T buffer[moment_lanes];
    T* m = Moments::template open<non_negative>(range.state(0), range.elems(), i, count, buffer);
    step(count, range.values + i, range.gradient + i, m);
    Moments::template close<non_negative, 0>(range.state(0), range.elems(), i, count, m, random);
  });
}

}}  // namespace adacc::v0_1
