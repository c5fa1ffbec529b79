// SPDX-License-Identifier: MIT
/// The operators running on this thread, and their arguments. Hooks are not told which operator saves a tensor, nor
/// for which argument, and the losses tolerated by a tensor depend on both.
///
/// libtorch's profiler (at::RecordFunction) calls a thread-local callback at the beginning and end of operators. The
/// cost beside a training step is too small to measure. A saved tensor with the storage of an argument is this
/// argument, and any other a result. (Storages are compared by address: an operator's arguments live until the
/// operator ends, and no other storage gets their addresses.)
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/core/StorageImpl.h>

#include "../../core/config.hpp"
#include "plain_tensor.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

namespace detail {

/// function.inputs(). Without NDEBUG, the member function asserts something that libtorch notes only if compiled
/// without NDEBUG, too. (An explicit instantiation may name private members.)
template <class Tag, auto Member>
struct NamedMember {
  friend auto member_of(Tag) { return Member; }
};
struct OperatorInputs {
  friend auto member_of(OperatorInputs);
};
template struct NamedMember<OperatorInputs, &at::RecordFunction::inputs_>;

inline auto inputs_of(const at::RecordFunction& function) {
  return function.*member_of(OperatorInputs());
}

struct OperatorFunction {
  friend auto member_of(OperatorFunction);
};
template struct NamedMember<OperatorFunction, &at::RecordFunction::fn_>;

/// The schema of the operator; null if there is none. function.operator_schema() would copy all of its strings and
/// types, for an eighth of the instructions that a saved tensor costs.
inline const c10::FunctionSchema* schema_of(const at::RecordFunction& function) {
  using Reference = std::reference_wrapper<const c10::FunctionSchema>;
  const auto* const schema = get_if<Reference>(&(function.*member_of(OperatorFunction())));
  return schema == nullptr ? nullptr : &schema->get();
}

}  // namespace detail

/// During its lifetime, this thread knows running operators. Must end on the thread where it began.
class RunningOperators {
 public:
  RunningOperators() {
    if (watchers()++ > 0) return;
    handle() = at::addThreadLocalCallback(
        at::RecordFunctionCallback(
            [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
              begin(function);
              return nullptr;
            },
            [](const at::RecordFunction&, at::ObserverContext*) { end(); })
            .needsInputs(true)
            .scopes({at::RecordScope::FUNCTION}));
  }
  ~RunningOperators() {
    if (--watchers() > 0) return;
    at::removeCallback(handle());
    running() = {};
  }
  RunningOperators(const RunningOperators&) = delete;
  RunningOperators& operator=(const RunningOperators&) = delete;

  /// The innermost operator, such as "aten::native_layer_norm"; empty if none is known. Valid until the operator
  /// ends.
  static const char* innermost() {
    const Running& all = running();
    return all.operators.empty() ? "" : all.operators.back().name;
  }

  /// The number of the innermost operator's call among those of this thread that autograd sees: its node's sequence
  /// number, if the call makes a node. -1: unknown.
  static std::int64_t innermost_call() {
    const Running& all = running();
    return all.operators.empty() ? -1 : all.operators.back().function->seqNr();
  }

  /// The roles of `tensor` for the innermost operator: names of the arguments with the tensor's storage ("input",
  /// "mat1"). Without such arguments: "statistic" if the tensor has fewer dimensions than the first argument, or one
  /// column where the first argument has several, and "result" otherwise. Empty if unknown. The base of a power is
  /// "whole_base" if the exponent is a whole number of 2 or more.
  static std::vector<std::string> roles_of(const at::Tensor& tensor) {
    const Running& all = running();
    if (all.operators.empty()) return {};
    const Operator& operation = all.operators.back();
    const c10::FunctionSchema* const schema = detail::schema_of(*operation.function);
    if (schema == nullptr) return {};
    const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    std::vector<std::string> roles;
    for (std::size_t i = operation.first_argument; i < all.arguments.size(); ++i) {
      const Argument& argument = all.arguments[i];
      if (argument.storage != storage || argument.place >= schema->arguments().size()) continue;
      // An in-place operator returns the first argument.
      std::string role = argument.place == 0 && std::string_view(operation.name).ends_with('_')
                             ? "result"
                         : argument.place == 0 && operation.whole_power
                             ? "whole_base"
                             : schema->arguments()[argument.place].name();
      if (std::find(roles.begin(), roles.end(), role) == roles.end())
        roles.push_back(std::move(role));
    }
    if (!roles.empty()) return roles;
    const bool reduced =
        tensor.dim() < operation.dimensions || columns_of(tensor) < operation.least_columns;
    roles.emplace_back(reduced ? "statistic" : "result");
    return roles;
  }

  /// Whether `tensor` is the weight or bias of any running operator: the product within a linear layer has another
  /// name for the layer's weight.
  static bool is_weight(const at::Tensor& tensor) {
    const Running& all = running();
    const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    for (std::size_t i = all.operators.size(), end = all.arguments.size(); i-- > 0;) {
      const Operator& operation = all.operators[i];
      for (std::size_t a = operation.first_argument; a < end; ++a)
        if (all.arguments[a].storage == storage && names_weight(operation, all.arguments[a].place))
          return true;
      end = operation.first_argument;
    }
    return false;
  }

  /// Whether the innermost operator runs in a linear layer: there the first factor is the input.
  static bool in_linear() {
    for (const Operator& each : running().operators)
      if (std::string_view(each.name) == "aten::linear") return true;
    return false;
  }

 private:
  struct Argument {
    const c10::StorageImpl* storage;
    std::size_t place;  ///< in the schema
  };
  struct Operator {
    const at::RecordFunction* function;
    const char* name;
    std::size_t first_argument;
    std::int64_t dimensions = 0, least_columns = 0;  ///< result's, from the first tensor
    bool whole_power = false;
  };
  struct Running {
    std::vector<Operator> operators;
    std::vector<Argument> arguments;  ///< all operators'
  };
  static Running& running() {
    thread_local Running mine;
    return mine;
  }

  static void begin(const at::RecordFunction& function) {
    Running& all = running();
    Operator operation{&function, function.name(), all.arguments.size()};
    bool first = true;
    const auto take = [&](const at::Tensor& tensor, std::size_t place) {
      if (!is_plain(tensor)) return;
      if (std::exchange(first, false)) {
        operation.dimensions = tensor.dim();
        operation.least_columns = columns_of(tensor) > 1 ? 2 : 0;
      }
      all.arguments.push_back({tensor.storage().unsafeGetStorageImpl(), place});
    };
    const auto given = detail::inputs_of(function);
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (given[i].isTensor()) {
        take(given[i].toTensor(), i);
      } else if (given[i].isTensorList()) {
        for (const at::Tensor& tensor : given[i].toTensorVector()) take(tensor, i);
      } else if (given[i].isList()) {  // some are optional
        for (const c10::IValue& each : given[i].toListRef())
          if (each.isTensor()) take(each.toTensor(), i);
      }
    }
    const std::string_view name = operation.name;
    if (given.size() > 1 && (name == "aten::pow" || name == "aten::pow_"))
      operation.whole_power = is_whole(given[1]);
    all.operators.push_back(operation);
  }
  static std::int64_t columns_of(const at::Tensor& tensor) {
    return tensor.dim() == 0 ? 1 : tensor.size(-1);
  }
  static void end() {
    Running& all = running();
    if (all.operators.empty()) return;
    all.arguments.resize(all.operators.back().first_argument);
    all.operators.pop_back();
  }
  static bool is_whole(const c10::IValue& exponent) {
    if (exponent.isInt()) return exponent.toInt() >= 2;
    if (!exponent.isDouble()) return false;
    const double value = exponent.toDouble();
    return value >= 2 && std::floor(value) == value;
  }
  static bool names_weight(const Operator& of, std::size_t place) {
    const c10::FunctionSchema* const schema = detail::schema_of(*of.function);
    if (schema == nullptr || place >= schema->arguments().size()) return false;
    const std::string& name = schema->arguments()[place].name();
    return name == "weight" || name == "bias";
  }

  static int& watchers() {
    thread_local int count = 0;
    return count;
  }
  static at::CallbackHandle& handle() {
    thread_local at::CallbackHandle mine = at::INVALID_CALLBACK_HANDLE;
    return mine;
  }
};

}}}  // namespace adacc::v0_1::torch
