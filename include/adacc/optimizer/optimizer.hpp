// SPDX-License-Identifier: MIT
/// The optimizer contract: how a Training uses any object that turns gradients into an update.
///
/// An optimizer is a plain struct of options. It names its state for a parameter and updates a range of one; memory,
/// threads, checkpoints and the order of ranges are the library's:
///
///     static constexpr const char* name = "SGD";     // checkpoints of others are refused
///     static constexpr std::size_t state_count = 1;  // tensors of state per parameter
///     StateSpec state(std::size_t i, const ParameterSpec&) const;  // tensor i; omitted if there are none
///     template <class T> void update(const ParameterRange<T>&, const UpdateTerms&) const;
///
/// `update` reads terms.scale * gradient, changes values and state of its range, and leaves zeros in the gradient.
/// Ranges run at once and in any order, so no range may write memory that another reads. State is zero before the
/// first update. A rate of 0 changes no value, and keeps gradients and state that are zero. The bits depend on the
/// arguments alone; random numbers for rounding come from range.key.
///
/// An optimizer with sums over the parameter (Adafactor) runs in passes, each after the whole pass before, and
/// defines how each is cut. The last pass clears the gradient:
///
///     static constexpr int passes = 2;                             // else 1
///     UpdateCut cut(const ParameterSpec&, int pass) const;         // else elements, 32768 at a time
///
/// An optimizer may be elementwise: the update of an element depends on nothing but this element's value, gradient
/// and state. Then a parameter can be updated in pieces, whose state is in memory by turns (stored_moments.hpp). A
/// range then begins `range.begin` elements into its parameter; `values`, `gradient` and state belong to the piece,
/// which has elems() elements; random numbers are drawn for element range.begin + i. for_lanes() and for_moment() do
/// all this. An elementwise optimizer has one pass and no cut(); each tensor of state has as many numbers as the
/// parameter, or none:
///
///     static constexpr bool elementwise = true;                    // else false
///
/// An optimizer may name its numbers: ranks that train together compare them (ranks/asked.hpp), and a number that is
/// not finite is refused. Other mistakes are refused in the optimizer's own words:
///
///     template <class Visit>
///     void each_option(const Visit& visit) const { visit("momentum", momentum); }
///     const char* mistake() const;                                 // null: there is none
///
/// The library calls `update` with the instructions of the program's level (core/vector_target.hpp).
///
/// An update gets the gradient of the whole parameter, summed over micro-batches. It does not get other parameters,
/// nor the norm of all gradients: the trainer clips by this norm, through terms.scale. So an update may directly
/// follow a parameter's last gradient.
///
/// Optimizers are AdamW, Sgd, Lion and Adafactor (docs/writing_an_optimizer.md). testing::OptimizerArchetype has no
/// more than this contract, and testing::check_optimizer tests any optimizer.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../core/context.hpp"
#include "../core/error.hpp"
#include "../core/random.hpp"
#include "../core/vector_target.hpp"
#include "../model/parameter.hpp"
#include "moments.hpp"

namespace adacc { inline namespace v0_1 {

/// A tensor of an optimizer's state for a parameter. Name, form and sign must be the same for all
/// parameters.
struct StateSpec {
  const char* name = "";
  std::size_t elems = 0;  ///< 0: no state for this parameter
  StateForm form = StateForm::full;
  bool non_negative = false;  ///< never below 0: 8 bits need no sign
};

/// The cut of a pass over a parameter: `items`, at most `tile` of them in a range.
struct UpdateCut {
  std::size_t items = 0, tile = 1;

  constexpr std::size_t tiles() const { return div_up(items, tile); }
};

/// A range of a parameter to update.
template <class T>
struct ParameterRange {
  const ParameterSpec& parameter;
  T* values;    ///< values of the whole parameter (or piece)
  T* gradient;  ///< gradients of these values
  std::byte* state_memory;
  const std::size_t* state_at;
  int pass;
  std::size_t first, count;  ///< items of this pass: elements, unless cut() says otherwise
  RandomKey key;             ///< for this update of this parameter; streams of elements
  std::size_t begin = 0;     ///< elements of the parameter before the piece
  std::size_t extent = 0;    ///< elements of the piece

  /// Elements of values, gradient and state: of the parameter, or of its piece.
  std::size_t elems() const { return extent; }
  /// Tensor i of the parameter's state.
  std::byte* state(std::size_t i) const { return state_memory + state_at[i]; }
  /// Tensor i of the state, if it has the full form.
  T* numbers(std::size_t i) const { return static_cast<T*>(static_cast<void*>(state(i))); }
};

/// The terms of an update.
struct UpdateTerms {
  std::uint64_t number = 1;  ///< number of the update, counted from 1
  double rate = 0;
  double scale = 1;  ///< factor of the gradients: clipping, and the mean over micro-batches
  RandomKey key{};   ///< seed and step
  /// On a device: gradients may stay as they are, for the next step writes them (Step::write_gradients).
  bool keeps_gradients = false;
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
constexpr StateSpec state_of(const Optimizer& optimizer, std::size_t i,
                             const ParameterSpec& parameter) {
  if constexpr (requires { optimizer.state(i, parameter); }) {
    return optimizer.state(i, parameter);
  } else {
    static_assert(Optimizer::state_count == 0,
                  "adacc: an optimizer whose state_count is not 0 says what it keeps: StateSpec "
                  "state(std::size_t i, const ParameterSpec&) const");
    return {};
  }
}

/// Calls visit(i, key) for each entry i of a table of parameters that is updated: not frozen, and the owner of its
/// storage. key: number of the trained parameter, from `first_key` on, for random numbers.
template <class Table, class Visit>
constexpr void each_trained_owner(const Table& table, std::uint32_t first_key, const Visit& visit) {
  std::uint32_t key = first_key;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].frozen) continue;
    if (table[i].owner) visit(i, key);
    ++key;
  }
}

/// Calls visit(name, value) for the optimizer's numbers, if it names them.
template <class Optimizer, class Visit>
void each_option(const Optimizer& optimizer, const Visit& visit) {
  if constexpr (requires { optimizer.each_option(visit); }) optimizer.each_option(visit);
}

/// The mistake in the optimizer's numbers that it names itself, if there is one; else null.
template <class Optimizer>
const char* mistake_of(const Optimizer& optimizer) {
  if constexpr (requires { optimizer.mistake(); }) return optimizer.mistake();
  else return nullptr;
}

/// Refuses an optimizer's numbers that would spoil parameters.
template <class Optimizer>
Error check_options(const Optimizer& optimizer) {
  const char *mistake = nullptr, *rest = " must be a finite number";
  each_option(optimizer, [&](const char* option, double value) {
    if (mistake == nullptr && !std::isfinite(value)) mistake = option;
  });
  if (mistake == nullptr) mistake = mistake_of(optimizer), rest = "";
  return mistake == nullptr ? Error() : Error::say(optimizer.name, ": ", mistake, rest);
}

/// Refuses options and a rate with which an update would spoil parameters.
template <class Optimizer>
Error check_update(const Optimizer& optimizer, double rate) {
  if (!std::isfinite(static_cast<float>(rate)))
    return Error::misuse("the rate of an update must be a finite number: nothing was updated");
  return check_options(optimizer);
}

/// Whether a decay of moments forgets the past, as it must to be divided by 1 - beta^t.
constexpr bool is_decay(float beta) { return beta >= 0 && beta < 1; }

/// The mistake in two such decays, if there is one; else null.
constexpr const char* mistake_of_betas(float beta1, float beta2) {
  return is_decay(beta1) && is_decay(beta2) ? nullptr
                                            : "beta1 and beta2 must be 0 or more, and below 1";
}

}  // namespace detail

/// Elements per step of forms: a constant, so compilers see whole vectors.
using MomentLanes = std::integral_constant<std::size_t, moment_lanes>;

ADACC_TARGET_CODE_BEGIN
/// Splits a range into moment_lanes elements at a time: calls step(first, count, random) with random bits for these
/// elements, drawn only if a form among `Forms` rounds. `count` is MomentLanes or, at the end, a std::size_t.
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

/// for_lanes() for one moment, tensor 0 of the state, in the form `Moments`: calls step(count, p, g, m) with pointers
/// to values, gradients and moments. `non_negative` must be that of the StateSpec.
template <class Moments, bool non_negative = false, class T, class Step>
void for_moment(const ParameterRange<T>& range, const Step& step) {
  for_lanes<Moments>(range, [&](std::size_t i, auto count, const auto& random) {
    T buffer[moment_lanes];
    T* m = Moments::template open<non_negative>(range.state(0), range.elems(), i, count, buffer);
    step(count, range.values + i, range.gradient + i, m);
    Moments::template close<non_negative, 0>(range.state(0), range.elems(), i, count, m, random);
  });
}

namespace detail {
template <class Optimizer, class T>
void call_update(const Optimizer& optimizer, const ParameterRange<T>& range,
                 const UpdateTerms& terms) {
  optimizer.update(range, terms);
}
}  // namespace detail
ADACC_TARGET_CODE_END

namespace detail {
/// optimizer.update() with the instructions of the program's level.
template <class Optimizer, class T>
void update_at_level(const Optimizer& optimizer, const ParameterRange<T>& range,
                     const UpdateTerms& terms) {
  call_at_level<call_update<Optimizer, T>>(optimizer, range, terms);
}
}  // namespace detail

}}  // namespace adacc::v0_1
