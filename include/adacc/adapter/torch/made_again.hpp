// SPDX-License-Identifier: MIT
/// MadeAgain: a saved storage that waits as "run that operator again", because the operator's inputs are saved anyway.
///
/// The operator's inputs are parameters, which live on, storages that the operator has saved itself, and tensors that
/// have recipes of such inputs (a norm's output that autocast casts, say). An input keeps no more memory alive than
/// without hooks: its saver's backward runs behind those of all readers of the output.
///
/// An input may wait with a loss. Then the readers of the output read that loss, too: an input that waits to be encoded
/// is told of them, and behind one that is encoded already, an output runs again only if its readers tolerate as much.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Storage.h>

#include "recipes.hpp"
#include "saved_entries.hpp"
#include "saved_storage.hpp"
#include "tolerance.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

struct MadeAgain {
  /// One of three.
  struct Source {
    std::optional<at::Storage> parameter;
    SavedEntry saved;
    std::shared_ptr<const MadeAgain> made;
  };
  std::shared_ptr<const Recipe> recipe;
  std::vector<Source> sources;  ///< for each given tensor
  bool exact = true;            ///< no source waits with a loss, now or later
};

/// Whether readers that tolerate `mine` may read what was made of an input that was encoded for `input`.
inline bool tolerates(const Tolerated& mine, const Tolerated& input) {
  const Demands &a = mine.demands, &b = input.demands;
  return mine.tolerance >= input.tolerance && !a.gates && !a.complement &&
         (a.rows == 0 || (b.rows != 0 && b.rows <= a.rows)) &&
         (a.mean_square == 0 || (b.mean_square != 0 && b.mean_square <= a.mean_square)) &&
         (a.step == 0 || (b.step != 0 && b.step <= a.step));
}

/// Finds where the inputs of recipes are.
class SourcesOf {
 public:
  /// For `output`, which waits no more.
  SourcesOf(const SavedStorage& output, const SavedEntries& entries)
      : output_(output), entries_(entries) {}

  /// Null: an input is not there. Otherwise inputs that wait to be encoded are told of the output's readers.
  std::shared_ptr<const MadeAgain> find() {
    const std::shared_ptr<const Recipe>& recipe = output_.recipe;
    if (output_.kept->nbytes() != recipe->bytes) return nullptr;
    std::shared_ptr<const MadeAgain> made = of(recipe);
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
  std::shared_ptr<const MadeAgain> of(const std::shared_ptr<const Recipe>& recipe) {
    auto made = std::make_shared<MadeAgain>();
    made->recipe = recipe;
    for (const GivenTensor& given : recipe->given) {
      MadeAgain::Source source;
      if (given.changed()) return nullptr;
      if (given.is_parameter) {
        auto alive = given.storage.lock();
        if (!alive) return nullptr;
        source.parameter = at::Storage(std::move(alive));
      } else if (SavedEntry saved = saved_by(*recipe, given)) {
        made->exact = made->exact && is_exact(*saved);
        source.saved = std::move(saved);
      } else if (given.recipe != nullptr) {
        source.made = of(given.recipe);
        if (source.made == nullptr) return nullptr;
        made->exact = made->exact && source.made->exact;
      } else {
        return nullptr;
      }
      made->sources.push_back(std::move(source));
    }
    return made;
  }

  /// The entry of `given` if the operator has saved it, and it may be read for the output; or null.
  SavedEntry saved_by(const Recipe& recipe, const GivenTensor& given) {
    // The weak pointer reserves the address, also when the memory has gone.
    const c10::StorageImpl* const storage = given.storage._unsafe_get_target();
    SavedEntry entry = entries_.find(storage);
    if (entry == nullptr || entry.get() == &output_ || entry->what.type != given.type ||
        entry->stream != output_.stream || entry->dropped || entry->sent != nullptr ||
        entry->identity._unsafe_get_target() != storage)
      return nullptr;
    const auto [first, end] = given.extent();
    const std::vector<std::string>& savers = entry->what.savers;
    if (first < entry->first || end > entry->end || entry->saved_version != given.given_version ||
        std::find(savers.begin(), savers.end(), recipe.name) == savers.end())
      return nullptr;
    if (entry->waiting) told_.push_back(entry.get());
    else if (!is_exact(*entry) && !tolerates(tolerance_of(output_.what), tolerance_of(entry->what)))
      return nullptr;
    return entry;
  }
  static bool is_exact(const SavedStorage& entry) {
    if (entry.waiting) return false;
    return entry.again != nullptr ? entry.again->exact : entry.form.codec() == nullptr;
  }

  const SavedStorage& output_;
  const SavedEntries& entries_;
  std::vector<SavedStorage*> told_;
};

}}}}  // namespace adacc::v0_1::torch::detail
