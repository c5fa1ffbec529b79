// SPDX-License-Identifier: MIT
/// The costs of --profile: read from its file, or measured for it and written there.
#pragma once

#include <adacc/evolve/evolution.hpp>
#include <adacc/io/profile_text.hpp>
#include <adacc/train/training.hpp>

#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>

class ProfileFile {
 public:
  explicit ProfileFile(std::string path) : path_(std::move(path)) {}

  /// The costs of `graph`, if the file has them of `source`, or else the wish that they are measured. A
  /// file that is there and no profile is somebody's: the error says that it stays.
  template <class TrainingOptions>
  adacc::Error read(const adacc::Graph& graph, adacc::ProfileSource source, TrainingOptions& how) {
    if (path_.empty()) return {};
    source_ = std::move(source);
    auto loaded = adacc::load_profile(path_, graph, source_);
    if (loaded) {
      how.planning.profile = std::move(*loaded);
      costs_ = "read from " + adacc::one_line(path_);
      return {};
    }
    if (const adacc::Error why = may_become_profile(loaded.error)) return why;
    how.planning.profile_at_start = kept_ = true;
    if (::access(path_.c_str(), F_OK) == 0) refused_ = loaded.error.text();
    return {};
  }

  /// After the training was prepared, which took so many seconds: where its costs are from, in words, and
  /// the file. `measured` is how ("measured"), `with_it` what else was found if a profile is kept.
  adacc::Error settle(const adacc::PlanBoundary& boundary, const adacc::Evolution& evolution,
                      const char* measured, double seconds, const char* with_it) {
    if (boundary.measured) {
      char text[96];
      std::snprintf(text, sizeof text, "%s in %.1f s%s", measured, seconds, kept_ ? with_it : "");
      costs_ = text;
    } else if (boundary.looked) {
      costs_ = "estimated, because the budget leaves no room to measure";
      kept_ = false;
    }
    if (!refused_.empty()) costs_ += "; " + refused_;
    if (!kept_) return {};
    if (const adacc::Error why = save(evolution)) return why;
    costs_ += "; written to " + adacc::one_line(path_);
    return {};
  }

  /// Writes what is known of costs by now, if they were measured for the file.
  adacc::Error save(const adacc::Evolution& evolution) const {
    if (!kept_ || !writes) return {};
    return adacc::save_profile(path_, evolution.graph(), evolution.profile(), source_);
  }

  /// Where costs are from, in words.
  const std::string& costs() const { return costs_; }
  void set_costs(const char* text) { costs_ = text; }

  bool writes = true;  ///< one of several ranks does

 private:
  adacc::Error may_become_profile(const adacc::Error& why) const {
    if (::access(path_.c_str(), F_OK) != 0) return {};
    const std::string_view title = adacc::detail::profile_title;
    std::string start(title.size(), '\0');
    auto file = adacc::InputFile::open(path_, "an adacc cost profile");
    if (!file) return file.error;
    if (file->size() == 0) return {};
    if (file->size() < title.size() || file->read(start.data(), start.size()) || start != title)
      return adacc::Error::say("--profile ", why.text(), "; it stays as it is");
    return {};
  }

  std::string path_, costs_, refused_;
  adacc::ProfileSource source_;
  bool kept_ = false;
};
