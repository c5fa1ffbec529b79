// SPDX-License-Identifier: MIT
/// Recipes: how a cheap operator made a tensor. With a recipe the operator can run again on its inputs, with equal bits.
///
/// A cast, GELU, SiLU, a product by element and a norm cost one pass over memory, no more than a codec does. Hooks do
/// not know the maker of a tensor; libtorch's profiler knows an operator's inputs and outputs (at::RecordFunction). A recipe
/// keeps no memory of activations alive: inputs are weak, and a search for saved inputs comes before a second run
/// (made_again.hpp).
///
/// The recipe of a changed tensor is void. Versions tell of changes, but `y.data` has a version of its own, so writing
/// operators are noted, too. Writes by anything else (NumPy) go unnoticed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/autograd/variable.h>

#include "operators.hpp"
#include "plain_tensor.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {
namespace detail {

struct Recipe;

/// An operator's tensor argument.
struct GivenTensor {
  std::size_t place;  ///< among the arguments
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset;
  c10::ScalarType type;
  c10::Device device;
  c10::VariableVersion version;
  std::uint32_t given_version;
  bool is_parameter;                     ///< a leaf with a gradient, which lives on
  std::shared_ptr<const Recipe> recipe;  ///< of this tensor; may be null

  bool changed() const { return version.current_version() != given_version; }
  /// The first element in the storage, and the end of the last.
  std::pair<std::size_t, std::size_t> extent() const {
    std::int64_t end = offset + 1;
    for (std::size_t d = 0; d < sizes.size(); ++d) end += (sizes[d] - 1) * strides[d];
    return {static_cast<std::size_t>(offset), static_cast<std::size_t>(end)};
  }
};

/// The call of an operator.
struct Recipe {
  c10::OperatorHandle called;
  const char* name;                    ///< such as "aten::gelu"
  std::vector<c10::IValue> arguments;  ///< nothing in the places of tensors
  std::vector<GivenTensor> given;
  std::int64_t call;      ///< RunningOperators::innermost_call() during the call
  std::size_t bytes = 0;  ///< of the output's storage, which holds nothing else
  int depth = 1;          ///< calls with recipes, one after the other

  /// Whether all tensors given are parameters.
  bool of_parameters() const {
    return std::all_of(given.begin(), given.end(),
                       [](const auto& one) { return one.is_parameter; });
  }
};

}  // namespace detail

/// During its lifetime, recipes of this thread's cheap operators are noted. Must end on the thread where it began.
class NotedRecipes {
 public:
  NotedRecipes() {
    Noted& mine = noted();
    if (mine.watchers++ > 0) return;
    mine.handle = at::addThreadLocalCallback(
        at::RecordFunctionCallback(
            [](const at::RecordFunction& function) { return begin(function); },
            [](const at::RecordFunction& function, at::ObserverContext* context) {
              if (context != nullptr) end(function, *static_cast<Call*>(context));
            })
            .needsInputs(true)
            .needsOutputs(true)
            .scopes({at::RecordScope::FUNCTION}));
  }
  ~NotedRecipes() {
    Noted& mine = noted();
    if (--mine.watchers > 0) return;
    at::removeCallback(mine.handle);
    mine.outputs.clear();
  }
  NotedRecipes(const NotedRecipes&) = delete;
  NotedRecipes& operator=(const NotedRecipes&) = delete;

  /// The recipe of the plain tensor's storage; null if unknown, or if the storage was changed since.
  static std::shared_ptr<const detail::Recipe> of(const at::Tensor& tensor) {
    const Noted& mine = noted();
    if (mine.outputs.empty()) return nullptr;
    const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
    const auto found = mine.outputs.find(storage);
    if (found == mine.outputs.end() || found->second.storage.expired() || tensor.is_inference() ||
        found->second.version != static_cast<std::uint32_t>(tensor._version()))
      return nullptr;
    return found->second.recipe;
  }

 private:
  static constexpr int most_depth = 2;

  struct Output {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // reserves the address
    std::uint32_t version;
    std::shared_ptr<const detail::Recipe> recipe;
  };
  struct Noted {
    int watchers = 0;
    at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
    std::unordered_map<const c10::StorageImpl*, Output> outputs;
    std::size_t most = 256;
  };
  static Noted& noted() {
    thread_local Noted mine;
    return mine;
  }
  struct Call final : at::ObserverContext {
    explicit Call(detail::Recipe of) : recipe(std::move(of)) {}
    detail::Recipe recipe;
  };

  static bool is_cheap(std::string_view name, std::string_view overload) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 6> all = {
        {{"aten::_to_copy", ""},
         {"aten::gelu", ""},
         {"aten::silu", ""},
         {"aten::mul", "Tensor"},
         {"aten::native_layer_norm", ""},
         {"aten::_fused_rms_norm", ""}}};
    return std::find(all.begin(), all.end(), std::pair(name, overload)) != all.end();
  }

  /// A search in the dispatcher takes as long as all else here.
  static const c10::OperatorHandle* operator_of(const c10::FunctionSchema& schema) {
    thread_local std::unordered_map<const c10::FunctionSchema*, c10::OperatorHandle> known;
    const auto found = known.find(&schema);
    if (found != known.end()) return &found->second;
    const auto handle = c10::Dispatcher::singleton().findSchema(schema.operator_name());
    return handle ? &known.emplace(&schema, *handle).first->second : nullptr;
  }

  /// An operator writes to the arguments marked in `schema`: their recipes are void.
  static void forget_written(const at::RecordFunction& function,
                             const c10::FunctionSchema& schema) {
    auto& all = noted().outputs;
    if (all.empty()) return;
    const auto forget = [&all](const at::Tensor& tensor) {
      if (is_plain(tensor)) all.erase(tensor.storage().unsafeGetStorageImpl());
    };
    const auto given = detail::inputs_of(function);
    const std::vector<c10::Argument>& arguments = schema.arguments();
    for (std::size_t i = 0; i < std::min(given.size(), arguments.size()); ++i) {
      const c10::AliasInfo* const alias = arguments[i].alias_info();
      if (alias == nullptr || !alias->isWrite()) continue;
      if (given[i].isTensor()) forget(given[i].toTensor());
      else if (given[i].isTensorList())
        for (const at::Tensor& tensor : given[i].toTensorVector()) forget(tensor);
    }
  }

  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    const c10::FunctionSchema* const schema = detail::schema_of(function);
    if (schema == nullptr) return nullptr;
    forget_written(function, *schema);
    if (!is_cheap(function.name(), schema->overload_name())) return nullptr;
    const c10::OperatorHandle* const handle = operator_of(*schema);
    if (handle == nullptr) return nullptr;
    detail::Recipe recipe{*handle, function.name(), {}, {}, function.seqNr()};
    const auto inputs = detail::inputs_of(function);
    recipe.arguments.reserve(inputs.size());
    recipe.given.reserve(inputs.size());
    for (const c10::IValue& argument : inputs) {
      const std::size_t place = recipe.arguments.size();
      if (!argument.isTensor() || !argument.toTensor().defined()) {
        recipe.arguments.push_back(argument);
        continue;
      }
      const at::Tensor& tensor = argument.toTensor();
      if (!is_plain(tensor) || tensor.is_inference() || tensor.numel() == 0) return nullptr;
      recipe.arguments.emplace_back();
      recipe.given.push_back({place, tensor.storage().getWeakStorageImpl(), tensor.sizes().vec(),
                              tensor.strides().vec(), tensor.storage_offset(), tensor.scalar_type(),
                              tensor.device(), ::torch::autograd::impl::version_counter(tensor),
                              static_cast<std::uint32_t>(tensor._version()),
                              tensor.is_leaf() && tensor.requires_grad(), of(tensor)});
      detail::GivenTensor& given = recipe.given.back();
      if (given.recipe != nullptr && given.recipe->depth >= most_depth) given.recipe = nullptr;
      if (given.recipe != nullptr) recipe.depth = std::max(recipe.depth, given.recipe->depth + 1);
    }
    return std::make_unique<Call>(std::move(recipe));
  }
  static void end(const at::RecordFunction& function, Call& call) {
    const auto outputs = function.outputs();
    if (outputs.empty() || !outputs.front().isTensor()) return;
    const at::Tensor& made = outputs.front().toTensor();
    if (!is_plain(made) || made.is_inference() || made.storage_offset() != 0) return;
    call.recipe.bytes = made.storage().nbytes();
    if (made.nbytes() != call.recipe.bytes) return;
    for (const detail::GivenTensor& given : call.recipe.given)
      if (given.device != made.device()) return;
    Noted& mine = noted();
    if (mine.outputs.size() > mine.most) {
      std::erase_if(mine.outputs, [](const auto& one) { return one.second.storage.expired(); });
      mine.most = 2 * mine.outputs.size() + 256;
    }
    // An inner operator with the same output came first: autograd saves its inputs.
    mine.outputs.try_emplace(
        made.storage().unsafeGetStorageImpl(),
        Output{made.storage().getWeakStorageImpl(), static_cast<std::uint32_t>(made._version()),
               std::make_shared<const detail::Recipe>(std::move(call.recipe))});
  }
};

}}}  // namespace adacc::v0_1::torch
