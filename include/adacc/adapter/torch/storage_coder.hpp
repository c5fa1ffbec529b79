// SPDX-License-Identifier: MIT
/// StorageCoder: encodes the storages held by autograd alone, or lets an operator make them again, and decodes those
/// that backward reads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>

#include "elements.hpp"
#include "made_again.hpp"
#include "module_name.hpp"
#include "policy.hpp"
#include "row_reports.hpp"
#include "saved_entries.hpp"
#include "saved_statistics.hpp"
#include "saved_storage.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

/// All functions are called behind the store's mutex.
class StorageCoder {
 public:
  /// `policy` is asked if there is no `observer`.
  StorageCoder(ChoosingFunction policy, std::shared_ptr<SavedObserver> observer)
      : policy_(std::move(policy)), observer_(std::move(observer)) {}
  ~StorageCoder() { LeftBehind::take(checked_); }
  StorageCoder(const StorageCoder&) = delete;
  StorageCoder& operator=(const StorageCoder&) = delete;

  /// Encodes the storages held by autograd alone, smaller forms first: for a moment, a form lies beside the elements.
  /// `unpacking` is not encoded again yet.
  void encode_released(const SavedStorage* unpacking = nullptr) {
    std::vector<Released> released;
    std::vector<SavedEntry> again;
    std::exception_ptr
        why;  // the first exception: a policy is asked once about a storage, which is retained then
    const auto attempt = [&why](const auto& call) {
      try {
        call();
      } catch (...) {
        if (!why) why = std::current_exception();
      }
    };
    const bool defers = observer_ != nullptr && observer_->defers();
    entries_.leave_waiting_if([&](const SavedEntry& entry) {
      if (entry->kept->use_count() > 1) return false;
      if (entry->in_place) {
        if (entry.get() == unpacking) return false;
        again.push_back(entry);
        return true;
      }
      if (defers) {
        observer_->released(*entry);
        return false;
      }
      if (why) return false;
      entry->waiting = false;
      attempt([&] { released.push_back(ask(entry)); });
      return true;
    });
    std::stable_sort(released.begin(), released.end(),
                     [](const Released& a, const Released& b) { return a.bytes < b.bytes; });
    for (const SavedEntry& entry : again) attempt([&] { encode_again(*entry); });
    for (const Released& one : released) attempt([&] { encode(*one.entry, one.asked); });
    if (observer_ != nullptr && !(released.empty() && again.empty())) observer_->settled();
    if (why) std::rethrow_exception(why);
  }

  /// Brings `entry` back from the store; then the entry is as before sending.
  void fetch(const SavedEntry& entry) {
    at::Storage storage = entry->sent->take();
    entry->sent.reset();
    observer_->comes_back(*entry);
    if (entry->encoded.left()) return entry->encoded.come_back(std::move(storage));
    entry->identity = storage.getWeakStorageImpl();
    entry->decoded_memory = storage.getWeakStorageImpl();
    entries_.remember(storage, entry);
    entry->kept = std::move(storage);
  }

  /// The decoded elements of `entry` stay, until encoded again unless this is the `last` unpacking. The form goes.
  void decode_in_place(const SavedEntry& entry, bool last) {
    at::Storage storage = decode(entry, /*stays=*/true);
    entry->identity = storage.getWeakStorageImpl();
    entry->version = c10::VariableVersion(0);
    entry->saved_version = 0;
    entry->kept_first = entry->first;
    entry->kept = std::move(storage);
    entry->encoded = EncodedElements();
    entry->again.reset();
    if (observer_ != nullptr) observer_->settled();
    if (last) return;
    entry->in_place = true;
    entries_.wait(entry);
  }

  at::Storage decode(const SavedEntry& entry, bool stays = false) {
    if (auto alive = entry->decoded.lock()) return at::Storage(std::move(alive));
    // OptionalStreamGuard has another optional before torch 2.1.
    std::optional<c10::StreamGuard> on;
    if (entry->stream) on.emplace(*entry->stream);
    at::Storage storage = entry->again != nullptr ? made_again(*entry->again) : decoded(*entry);
    entry->decoded_memory = storage.getWeakStorageImpl();
    if (observer_ != nullptr) {
      observer_->settled();
      if (!stays && observer_->watches(*entry)) storage = watched(std::move(storage), *entry);
    }
    entry->decoded = storage.getWeakStorageImpl();
    entries_.remember(storage, entry);
    return storage;
  }

  /// Counts the finished reports of checked rows. Nothing waits.
  void read_reports() {
    std::string words;
    checked_.read([&](const CheckedStorage& one, const RowsFound& found) {
      counts_.exact_rows += found.kept;
      if (found.stands) return;
      ++counts_.uncertified;
      if (words.empty()) words = one.in_words(found);
    });
    most_checked_ = 2 * checked_.size() + 64;
    if (!words.empty()) LeftBehind::warn(words);
    LeftBehind::read();
  }

  SavedEntries& entries() { return entries_; }
  const std::shared_ptr<SavedObserver>& observer() const { return observer_; }  ///< may be null
  SavedStatistics& counts() { return counts_; }
  const SavedStatistics& counts() const { return counts_; }
  const std::vector<ModuleBytes>& modules() const { return modules_; }

 private:
  /// A storage held by autograd alone, and the form asked for.
  struct Released {
    SavedEntry entry;
    Keep asked;
    std::size_t bytes;  ///< of the form; 0 without a codec
  };

  Released ask(const SavedEntry& entry) {
    counts_.raw_bytes += entry->bytes();
    entry->what.bytes = entry->bytes();
    if (!entry->is_whole()) return {entry, Keep::as_is(), 0};
    if (observer_ != nullptr && entry->recipe != nullptr && entry->bytes() == entry->kept->nbytes())
      look_for_sources(*entry);
    const Keep asked = observer_ != nullptr ? observer_->form_of(*entry, entry->elements())
                       : entry->is_weight   ? Keep::as_is()
                                            : policy_(entry->what);
    // An operator may have been chosen by a plan that holds no more.
    entry->form =
        entry->is_exact_source && asked.codec() != nullptr && !asked.runs_again() ? Keep() : asked;
    if (entry->form.codec() == nullptr || entry->form.runs_again()) return {entry, entry->form, 0};
    return {
        entry, asked,
        EncodedElements::bytes_under(*asked.codec(), entry->what.type, entry->end - entry->first,
                                     entry->columns, entry->device())};
  }

  void encode(SavedStorage& entry, Keep asked) {
    const bool whole = entry.is_whole();
    if (whole) {
      if (observer_ != nullptr && observer_->drops(entry)) {
        entry.kept.reset();
        entry.again.reset();
        entry.dropped = true;
        return;
      }
      const bool again = runs_again(entry);
      if (!again && entry.stream) encode_on_its_stream(entry);
      else if (!again) encode_on_the_cpu(entry);
      if (observer_ != nullptr) observer_->takes_form(entry, asked, again ? asked : entry.form);
      if (again) return;
    }
    const std::size_t waiting = entry.encoded.empty() ? entry.bytes() : entry.encoded.bytes();
    counts_.encoded_bytes += waiting;
    add_to_module(modules_, entry.what.module, entry.bytes(), waiting);
    if (entry.encoded.empty()) {
      if (is_opaque(entry.what)) counts_.opaque_bytes += entry.bytes();
    } else {
      ++counts_.encoded;
      entry.kept.reset();
    }
    if (observer_ == nullptr || !whole) return;
    entry.sent = observer_->send(entry, entry.kept ? *entry.kept : entry.encoded.storage());
    if (entry.sent == nullptr) return;
    if (entry.kept) entry.kept.reset();
    else entry.encoded.leave();
  }

  /// For observers with a choice: an operator may make the elements again.
  void look_for_sources(SavedStorage& entry) const {
    entry.again = SourcesOf(entry, entry.recipe, entries_).find();
  }
  /// Drops the elements if an operator can make them again.
  bool runs_again(SavedStorage& entry) {
    const auto recipe = std::exchange(entry.recipe, nullptr);
    if (observer_ != nullptr) {
      const bool chosen = entry.form.runs_again();
      if (chosen) entry.form = Keep::as_is();
      if (!chosen || entry.again == nullptr || !takes_sources(entry)) entry.again.reset();
    } else if (recipe != nullptr && (!entry.form.untouched() || entry.is_weight)) {
      entry.again = SourcesOf(entry, recipe, entries_).find();
    }
    if (entry.again == nullptr) return false;
    ++counts_.again;
    add_to_module(modules_, entry.what.module, entry.bytes(), 0);
    entry.first = 0;
    entry.end = entry.kept->nbytes() / entry.elem_bytes();
    entry.form = Keep();
    entry.kept.reset();
    return true;
  }
  /// Whether all saved sources are there; then they stay as exact as needed.
  bool takes_sources(const SavedStorage& output) const {
    const auto may_lose = [&](const MadeAgain::Source& source) {
      return observer_->least_form(output, *source.saved, source.least) == StepSource::Form::any;
    };
    bool all = true;
    each_saved(*output.again, [&](const MadeAgain::Source& source) {
      const SavedStorage& entry = *source.saved;
      all = all && !entry.dropped && entry.sent == nullptr && (may_lose(source) || is_exact(entry));
    });
    if (!all) return false;
    each_saved(*output.again, [&](const MadeAgain::Source& source) {
      if (!may_lose(source)) hold_exact(*source.saved);
      else if (source.least != StepSource::Form::any) source.saved->loses_as_planned = true;
    });
    return true;
  }
  /// Whether nothing is lost of `entry`, or need be.
  static bool is_exact(const SavedStorage& entry) {
    if (entry.waiting) return true;
    if (entry.again == nullptr) return entry.encoded.empty() || entry.encoded.lossless();
    bool all = true;
    each_saved(*entry.again, [&](const auto& source) { all = all && is_exact(*source.saved); });
    return all;
  }
  static void hold_exact(SavedStorage& entry) {
    if (entry.waiting) entry.is_exact_source = true;
    else if (entry.again != nullptr)
      each_saved(*entry.again, [](const auto& source) { hold_exact(*source.saved); });
  }
  at::Storage made_again(const MadeAgain& made) {
    return run_again(made, [this](const auto&... given) { return tensor_of(given...); }).storage();
  }
  at::Tensor tensor_of(const GivenTensor& given, const MadeAgain::Source& source) {
    TORCH_CHECK(
        source.parameter == std::nullopt || !given.changed(),
        "adacc: an operator is to run again in backward on a parameter that was changed after "
        "forward; take again=false for this model");
    at::Storage storage = source.saved == nullptr          ? *source.parameter
                          : source.saved->kept.has_value() ? *source.saved->kept
                                                           : passing(*source.saved);
    std::size_t first = 0;
    if (source.saved != nullptr) {
      check_version(source.saved->kept && source.saved->changed(), given.type, given.sizes);
      first = source.saved->kept ? source.saved->kept_first : source.saved->first;
    }
    TORCH_CHECK(
        storage.nbytes() >= (given.extent().second - first) * c10::elementSize(given.type),
        "adacc: an operator is to run again in backward, and the memory of a parameter of sizes ",
        given.sizes, " has gone; take again=false for this model");
    return given_in(storage, given, first);
  }
  /// The decoded elements for an operator's second run, their only reader.
  at::Storage passing(SavedStorage& entry) {
    if (auto alive = entry.decoded.lock()) return at::Storage(std::move(alive));
    return entry.again != nullptr ? made_again(*entry.again) : decoded(entry);
  }
  at::Storage decoded(SavedStorage& entry) {
    const at::Tensor fresh =
        at::empty({static_cast<std::int64_t>(entry.end - entry.first)}, entry.options());
    if (entry.stream) entry.encoded.decode_on(DeviceWork(*entry.stream), fresh.data_ptr());
    else entry.encoded.decode(fresh.data_ptr());
    ++counts_.decoded;
    return fresh.storage();
  }

  void encode_again(SavedStorage& entry) {
    entry.in_place = false;
    observer_->encodes_again(entry, /*is_over=*/false);
    if (!entry.encoded.encode(entry.form, entry.what.type, entry.kept->data(),
                              entry.end - entry.first, entry.columns, entry.demands()) ||
        entry.encoded.empty())
      return;
    entry.kept.reset();
    observer_->encodes_again(entry, /*is_over=*/true);
  }

  /// An observer's choice is among forms without a judge on the host.
  void encode_on_its_stream(SavedStorage& entry) {
    const c10::StreamGuard on(*entry.stream);
    const ElementDemands demands = entry.demands();
    if (observer_ == nullptr) entry.form = unjudged(entry.form, demands.what);
    std::optional<CheckedStorage> checked;
    entry.encoded.encode_on(DeviceWork(*entry.stream), entry.form, entry.what.type,
                            entry.elements(), entry.end - entry.first, entry.columns, demands,
                            &checked);
    if (!checked || checked->place().at == nullptr) return;
    checked->form = entry.form;
    checked->saver = entry.what.savers.front();
    checked->module = entry.what.module;
    checked->bytes = entry.bytes();
    if (observer_ != nullptr) return observer_->checks(entry, std::move(*checked));
    checked_.add(std::move(*checked));
    if (checked_.size() >= most_checked_) read_reports();
  }
  /// In the entry's form, or in the first milder form that meets the demands.
  void encode_on_the_cpu(SavedStorage& entry) {
    bool unlike_rows = false;
    while (!entry.encoded.encode(entry.form, entry.what.type, entry.elements(),
                                 entry.end - entry.first, entry.columns, entry.demands())) {
      ++counts_.declined;
      unlike_rows = entry.form.has_form_for_unlike_rows();
      entry.form = entry.form.milder();
    }
    if (unlike_rows && !entry.encoded.empty()) ++counts_.unlike_rows;
  }

  /// The memory of `of`; the observer is called before the end.
  at::Storage watched(at::Storage of, const SavedStorage& entry) const {
    void* const data = of.data_ptr().get();
    const std::size_t bytes = of.nbytes();
    const auto let_go = [observer = observer_, step = entry.step, number = entry.number,
                         memory = std::optional<at::Storage>(std::move(of))](void*) mutable {
      observer->lets_go(step, number);
      memory.reset();
      observer->settled();
    };
    return at::Storage(
        at::Storage::use_byte_size_t(), bytes,
        at::InefficientStdFunctionContext::makeDataPtr(data, let_go, entry.device()));
  }

  const ChoosingFunction policy_;
  const std::shared_ptr<SavedObserver> observer_;
  SavedEntries entries_;
  SavedStatistics counts_;
  CheckedStorages checked_;  // without an observer
  std::size_t most_checked_ = 0;
  std::vector<ModuleBytes> modules_;
};

}}}}  // namespace adacc::v0_1::torch::detail
