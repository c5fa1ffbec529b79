// SPDX-License-Identifier: MIT
/// Reports of checked rows (side_rows.hpp). A device writes reports into pinned memory of the host. Nothing waits for a
/// report: the host looks later.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "keep.hpp"
#include "side_rows.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

/// The pinned memory of the whole process. Each report has a place. A place is used again once the report has come.
class RowReports {
 public:
  struct Place {
    RowReport* at = nullptr;
    std::uint32_t stamp = 0;

    /// The report; none: the device has not written the report yet.
    std::optional<RowReport> read() const {
      const volatile std::uint32_t& written = at->stamp;
      if (written != stamp) return std::nullopt;
      std::atomic_thread_fence(std::memory_order_acquire);
      return *at;
    }
  };

  static RowReports& of_process() {
    static auto* const all = new RowReports;  // devices write as long as the process lives
    return *all;
  }

  /// A place; while a graph is captured, none if there is no free one.
  Place take(bool is_captured) {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      std::erase_if(late_, [&](const Place& one) {
        const bool has_come = one.read().has_value();
        if (has_come) free_.push_back(one.at);
        return has_come;
      });
    }
    if (free_.empty() && is_captured) return {};
    if (free_.empty()) grow();
    RowReport* const at = free_.back();
    free_.pop_back();
    stamp_ = std::max(1U, stamp_ + 1);
    return {at, stamp_};
  }
  /// Nobody reads the place anymore.
  void give_back(const Place& place) {
    const std::lock_guard lock(mutex_);
    if (place.read()) free_.push_back(place.at);
    else late_.push_back(place);
  }

 private:
  static constexpr std::size_t at_once = 1024;

  void grow() {
    slabs_.push_back(at::empty({static_cast<std::int64_t>(at_once * sizeof(RowReport))},
                               at::TensorOptions().dtype(at::kByte).pinned_memory(true)));
    void* const data = slabs_.back().data_ptr();
    std::memset(data, 0, at_once * sizeof(RowReport));
    for (std::size_t i = at_once; i-- > 0;) free_.push_back(static_cast<RowReport*>(data) + i);
  }

  std::mutex mutex_;
  std::vector<at::Tensor> slabs_;
  std::vector<RowReport*> free_;
  std::vector<Place> late_;  // given back before their reports came
  std::uint32_t stamp_ = 0;
};

/// The outcome of the check of a storage.
struct RowsFound {
  std::size_t failed = 0;  ///< rows
  std::size_t kept = 0;    ///< exactly, of these
  bool stands = true;      ///< the form meets all demands
};

/// A storage encoded on a device, and the place where its report is awaited.
class CheckedStorage {
 public:
  /// Without a place nothing is reported. A captured graph writes its report in each replay.
  explicit CheckedStorage(bool is_captured)
      : place_(RowReports::of_process().take(is_captured)), is_captured_(is_captured) {}
  CheckedStorage(CheckedStorage&& other) noexcept { *this = std::move(other); }
  CheckedStorage& operator=(CheckedStorage&& other) noexcept {
    std::swap(place_, other.place_);
    std::swap(is_captured_, other.is_captured_);
    std::swap(saver, other.saver), std::swap(module, other.module);
    form = other.form, room = other.room, rows = other.rows, most_of_all = other.most_of_all;
    bytes = other.bytes, number = other.number;
    return *this;
  }
  ~CheckedStorage() {
    if (place_.at != nullptr && !is_captured_) RowReports::of_process().give_back(place_);
  }

  const RowReports::Place& place() const { return place_; }
  bool is_captured() const { return is_captured_; }

  /// The outcome; none: the device has not come so far. Nothing waits.
  std::optional<RowsFound> found() const {
    if (place_.at == nullptr) return RowsFound{};
    const std::optional<RowReport> report = place_.read();
    if (!report) return std::nullopt;
    if (is_captured_) place_.at->stamp = 0;  // of the next replay
    RowsFound found;
    found.failed = report->failed;
    found.kept = std::min(found.failed, room);
    found.stands = found.failed <= room &&
                   !(report->square > 0 && !(report->noise / report->square <= most_of_all));
    return found;
  }
  std::string in_words(const RowsFound& found) const {
    std::string words = "a tensor saved by " + (saver.empty() ? "an unknown operator" : saver) +
                        (module.empty() ? "" : " in " + module) + " does not bear " +
                        form.codec()->info->name;
    if (found.failed > room)
      words += ": " + std::to_string(found.failed) + " of its " + std::to_string(rows) +
               " rows fail, and " + std::to_string(room) + " are kept exactly beside it";
    else words += ": the error of all is too large";
    return words;
  }

  std::string saver, module;
  Keep form;
  std::size_t room = 0, rows = 0;
  double most_of_all = 0;  ///< the largest error of the whole storage, squared, by the square
  std::size_t bytes = 0;   ///< of the storage before encoding
  int number = -1;         ///< in the budget's step; -1: none

 private:
  RowReports::Place place_;
  bool is_captured_ = false;
};

/// The storages whose reports are awaited.
class CheckedStorages {
 public:
  CheckedStorages() = default;
  CheckedStorages(const CheckedStorages&) = delete;
  CheckedStorages& operator=(const CheckedStorages&) = delete;

  void add(CheckedStorage one) { waiting_.push_back(std::move(one)); }
  bool empty() const { return waiting_.empty(); }
  std::size_t size() const { return waiting_.size(); }
  /// visit(storage, its outcome) for each whose report has come.
  template <class Visit>
  void read(const Visit& visit) {
    std::erase_if(waiting_, [&](CheckedStorage& one) {
      const std::optional<RowsFound> found = one.found();
      if (found) visit(one, *found);
      return found && !one.is_captured();
    });
  }
  /// Takes those of `others` over.
  void take(CheckedStorages& others) {
    for (CheckedStorage& one : others.waiting_) waiting_.push_back(std::move(one));
    others.waiting_.clear();
  }

 private:
  std::vector<CheckedStorage> waiting_;
};

/// Checked storages of stores with an end before the reports. The first failure is a warning.
class LeftBehind {
 public:
  static void take(CheckedStorages& others) noexcept {
    if (others.empty()) return;
    try {
      const std::lock_guard lock(all().mutex);
      all().storages.take(others);
    } catch (...) {}
  }
  /// Warns of the failures known by now.
  static void read() {
    std::string words;
    {
      const std::lock_guard lock(all().mutex);
      all().storages.read([&](const CheckedStorage& one, const RowsFound& found) {
        if (!found.stands && words.empty()) words = one.in_words(found);
      });
    }
    if (!words.empty()) warn(words);
  }
  static void warn(const std::string& words) {
    TORCH_WARN_ONCE("adacc: on a device, ", words,
                    ". Gradients of that step may be off by more than is tolerated; a policy may "
                    "take a milder form for it. This is said once; statistics count "
                    "`uncertified`");
  }

 private:
  struct All {
    std::mutex mutex;
    CheckedStorages storages;
  };
  static All& all() {
    static auto* const mine = new All;
    return *mine;
  }
};

}}}}  // namespace adacc::v0_1::torch::detail
