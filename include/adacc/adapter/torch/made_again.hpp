// SPDX-License-Identifier: MIT
/// MadeAgain: the form "run the operator again" of a saved storage, for operators whose inputs are saved anyway.
///
/// The operator's inputs are parameters, which live on, storages saved by the operator itself, and tensors with recipes of
/// such inputs (a norm's output behind autocast's cast, say). An input keeps no more memory alive than
/// without hooks: its saver's backward runs behind those of all readers of the output.
///
/// An input may wait with a loss. The readers of the output then read the loss, too, if their demands are not on single
/// values. An input before its encoding takes over the demands of these readers. Behind an encoded input, an output runs
/// again only if the readers tolerate as much. Under a budget, plans decide (step_memory.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/core/Storage.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include "recipes.hpp"
#include "saved_entries.hpp"
#include "saved_storage.hpp"
#include "step_record.hpp"
#include "tolerance.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

struct MadeAgain {
  /// One of three.
  struct Source {
    std::optional<at::Storage> parameter;
    SavedEntry saved;
    std::shared_ptr<const MadeAgain> made;
    StepSource::Form least =
        StepSource::Form::any;  ///< that `saved` may wait in, where plans choose
  };
  std::shared_ptr<const Recipe> recipe;
  std::vector<Source> sources;  ///< for each given tensor
  bool exact = true;            ///< no source waits with a loss, now or later
};

/// The given tensor, in memory whose first element had the number `first` in the tensor's storage.
inline at::Tensor given_in(const at::Storage& memory, const GivenTensor& given,
                           std::size_t first = 0) {
  return at::empty({0}, at::TensorOptions().dtype(given.type).device(given.device))
      .set_(memory, given.offset - static_cast<std::int64_t>(first), given.sizes, given.strides);
}

/// The operator's output with the same bits, made of the inputs of `input`(given, source). Where an input is made by an
/// operator, too, the given tensor may be a view of that operator's output.
template <class Input>
at::Tensor run_again(const MadeAgain& made, const Input& input) {
  const Recipe& recipe = *made.recipe;
  const at::AutoDispatchBelowADInplaceOrView plain;
  const c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
  ::torch::jit::Stack stack = recipe.arguments;
  for (std::size_t i = 0; i < recipe.given.size(); ++i) {
    const GivenTensor& given = recipe.given[i];
    const MadeAgain::Source& source = made.sources[i];
    stack[given.place] = source.made != nullptr
                             ? given_in(run_again(*source.made, input).storage(), given)
                             : input(given, source);
  }
  recipe.called.callBoxed(stack);
  at::Tensor output = stack.front().toTensor();
  TORCH_INTERNAL_ASSERT(output.storage().nbytes() == recipe.bytes);
  return output;
}

/// call(source) for each saved source.
template <class Call>
void each_saved(const MadeAgain& made, const Call& call) {
  for (const MadeAgain::Source& source : made.sources) {
    if (source.made != nullptr) each_saved(*source.made, call);
    if (source.saved != nullptr) call(source);
  }
}
/// The same operators without a hold on the saved tensors.
inline std::shared_ptr<const MadeAgain> without_saved(const MadeAgain& made) {
  auto mine = std::make_shared<MadeAgain>(made);
  for (MadeAgain::Source& source : mine->sources) {
    source.parameter.reset();
    source.saved.reset();
    if (source.made != nullptr) source.made = without_saved(*source.made);
  }
  return mine;
}

/// Whether readers with these demands may read what `recipe` makes of inputs with a loss: demands on single values are
/// met by an encoding of the output, and by none of an input; and GELU and SiLU make small rows of large ones.
inline bool may_lose(const Tolerated& readers, const Recipe& recipe) {
  const Demands& all = readers.demands;
  const std::string_view name = recipe.name;
  const bool bends = name == "aten::gelu" || name == "aten::silu";
  return !reads_sign(readers.tolerance) && !all.gates && !all.complement && all.mean_square == 0 &&
         all.step == 0 && (all.rows == 0 || !bends);
}
/// Whether these readers tolerate as much as the input's own readers.
inline bool tolerates(const Tolerated& readers, const Tolerated& input) {
  const std::uint16_t mine = readers.demands.rows, rows = input.demands.rows;
  return readers.tolerance >= input.tolerance && (mine == 0 || (rows != 0 && rows <= mine));
}

/// Finds where the inputs of recipes are.
class SourcesOf {
 public:
  /// For `output`, which waits no more.
  SourcesOf(const SavedStorage& output, std::shared_ptr<const Recipe> recipe,
            const SavedEntries& entries)
      : output_(output), recipe_(std::move(recipe)), entries_(entries) {}

  /// Null: an input is missing. Otherwise inputs before their encoding take over the demands of the output's readers.
  std::shared_ptr<const MadeAgain> find() {
    if (output_.kept->nbytes() != recipe_->bytes) return nullptr;
    std::shared_ptr<const MadeAgain> made = of(recipe_, /*nested=*/false);
    if (made == nullptr) return nullptr;
    for (SavedStorage* const input : told_) {
      const SavedTensor& readers = output_.what;
      input->what.savers.insert(input->what.savers.end(), readers.savers.begin(),
                                readers.savers.end());
      input->what.roles.insert(input->what.roles.end(), readers.roles.begin(), readers.roles.end());
    }
    return made;
  }

 private:
  std::shared_ptr<const MadeAgain> of(const std::shared_ptr<const Recipe>& recipe, bool nested) {
    auto made = std::make_shared<MadeAgain>();
    made->recipe = recipe;
    for (const GivenTensor& given : recipe->given) {
      MadeAgain::Source source;
      if (given.changed()) return nullptr;
      if (given.is_parameter) {
        auto alive = given.storage.lock();
        if (!alive) return nullptr;
        source.parameter = at::Storage(std::move(alive));
      } else if (source.saved = saved_by(*recipe, given); source.saved != nullptr) {
        made->exact = made->exact && is_exact(*source.saved);
        if (output_.observer != nullptr) source.least = least_form(*source.saved, *recipe, nested);
      } else if (given.recipe != nullptr) {
        source.made = of(given.recipe, /*nested=*/true);
        if (source.made == nullptr) return nullptr;
        made->exact = made->exact && source.made->exact;
      } else {
        return nullptr;
      }
      made->sources.push_back(std::move(source));
    }
    return made;
  }

  /// The entry of `given`, if saved by the operator and readable for the output; otherwise null.
  SavedEntry saved_by(const Recipe& recipe, const GivenTensor& given) {
    // The weak pointer reserves the address, also when the memory has gone.
    const c10::StorageImpl* const storage = given.storage._unsafe_get_target();
    SavedEntry entry = entries_.find(storage);
    if (entry == nullptr || entry.get() == &output_ || entry->what.type != given.type ||
        entry->stream != output_.stream || entry->identity._unsafe_get_target() != storage)
      return nullptr;
    const bool observed = output_.observer != nullptr;
    if (observed ? entry->number < 0 || entry->step != output_.step
                 : entry->dropped || entry->sent != nullptr)
      return nullptr;
    const auto [first, end] = given.extent();
    // Another call of the same operator may have saved the input, and its backward may come before that of the output's
    // readers: the input would live longer than without hooks.
    const auto is_in = [](const auto& all, const auto& one) {
      return std::find(all.begin(), all.end(), one) != all.end();
    };
    if (first < entry->first || end > entry->end || entry->saved_version != given.given_version ||
        !is_in(entry->what.savers, recipe.name) || !is_in(entry->calls, recipe.call))
      return nullptr;
    if (observed || is_exact(*entry)) return entry;
    const Tolerated readers = tolerance_of(output_.what);
    if (!may_lose(readers, *recipe_) || !may_lose(readers, recipe)) return nullptr;
    if (entry->waiting) told_.push_back(entry.get());
    else if (!tolerates(readers, tolerance_of(entry->what))) return nullptr;
    return entry;
  }
  /// The form that `entry` may wait in, as far as the output's readers tolerate.
  StepSource::Form least_form(const SavedStorage& entry, const Recipe& recipe, bool nested) const {
    const Tolerated readers = tolerance_of(output_.what);
    if (nested) return StepSource::Form::retained;
    return may_lose(readers, *recipe_) && may_lose(readers, recipe) &&
                   tolerates(readers, tolerance_of(entry.what))
               ? StepSource::Form::any
               : StepSource::Form::exact;
  }
  static bool is_exact(const SavedStorage& entry) {
    if (entry.waiting) return false;
    return entry.again != nullptr ? entry.again->exact : entry.form.codec() == nullptr;
  }

  const SavedStorage& output_;
  const std::shared_ptr<const Recipe> recipe_;
  const SavedEntries& entries_;
  std::vector<SavedStorage*> told_;
};

}}}}  // namespace adacc::v0_1::torch::detail
