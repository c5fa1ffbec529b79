// SPDX-License-Identifier: MIT
/// What train_gpt shows and writes while it runs: progress bar or plain lines, and the JSON log.
#pragma once

#include <adacc/core/bytes.hpp>
#include <adacc/core/error.hpp>
#include <adacc/core/steady_clock.hpp>
#include <adacc/io/declined_text.hpp>
#include <adacc/io/file.hpp>

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/// "96.0 MiB"
inline std::string mebibytes(std::size_t bytes) {
  char text[48];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / adacc::MiB);
  return text;
}

/// "of 3 activations, over all steps: 2 kept exactly, 1 left with rows over the bound"
inline std::string lost_rows_text(const adacc::DeclinedCounts& declined) {
  return "of " + std::to_string(declined.total()) +
         " activations, over all steps: " + adacc::declined_text(declined);
}

/// What one step has to tell.
struct StepRecord {
  std::uint64_t step = 0;
  double loss = 0, grad_norm = 0, ms = 0, tokens_per_s = 0;
  std::size_t activation_peak_bytes = 0;  ///< 0: not measured, as the plan changed before it
  std::size_t offloaded_bytes = 0;        ///< written to the store by the step, and read back
  double stall_ms = 0;                    ///< that the step waited for the store
  std::size_t plan_version = 1;           ///< grows with every change of the plan
  adacc::DeclinedCounts declined;         ///< activations whose codecs lost rows
  std::optional<double> val_loss;

  /// Of a step over so many tokens that began at `start`, in seconds, and has just ended as `outcome`
  /// says.
  template <class Outcome>
  static StepRecord of(std::uint64_t step, const Outcome& outcome, double start,
                       std::size_t tokens) {
    StepRecord record;
    record.step = step;
    record.loss = outcome.loss;
    record.grad_norm = outcome.grad_norm;
    record.declined = outcome.declined;
    record.ms = 1e3 * (adacc::steady_seconds() - start);
    record.tokens_per_s = 1000.0 * static_cast<double>(tokens) / record.ms;
    return record;
  }
};

/// One JSON object a line, written as it happens.
class Log {
 public:
  /// Opens `path`; an empty one logs nothing. A resumed run keeps the lines of the steps before
  /// `first_step` and drops those that it is about to do again.
  adacc::Error open(const std::string& path, std::uint64_t first_step) {
    path_ = path;
    if (path.empty()) return {};
    struct stat status {};
    const bool rewritten =
        first_step > 0 && ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
    if (rewritten) {
      std::string kept;
      std::ifstream old(path);
      for (std::string line; std::getline(old, line);) {
        const auto entry = nlohmann::json::parse(line, nullptr, false);
        if (!entry.is_object() || !entry.contains("step")) continue;
        const auto& step = entry["step"];
        if (step.is_number_unsigned() && step.get<std::uint64_t>() < first_step)
          kept += line + '\n';
      }
      if (adacc::Error why = adacc::write_file(path, kept))
        return adacc::Error::say("--log ", why.text());
    }
    file_ = std::fopen(path.c_str(), rewritten ? "a" : "w");
    return file_ == nullptr ? failure("cannot be written") : adacc::Error{};
  }

  /// Writes no more.
  void close() {
    if (file_ != nullptr) std::fclose(file_);
    file_ = nullptr;
  }

  Log() = default;
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  ~Log() { close(); }

  adacc::Error write(const StepRecord& record) {
    if (file_ == nullptr) return {};
    nlohmann::ordered_json line = {{"step", record.step},
                                   {"loss", record.loss},
                                   {"grad_norm", record.grad_norm},
                                   {"ms", record.ms},
                                   {"tokens_per_s", record.tokens_per_s},
                                   {"activation_peak_bytes", record.activation_peak_bytes},
                                   {"offload_written_bytes", record.offloaded_bytes},
                                   {"offload_read_bytes", record.offloaded_bytes},
                                   {"offload_stall_ms", record.stall_ms},
                                   {"plan_version", record.plan_version},
                                   {"declined_kept_exactly", record.declined.exactly},
                                   {"declined_kept_milder", record.declined.milder},
                                   {"declined_over_bound", record.declined.over_bound}};
    if (record.activation_peak_bytes == 0) line["activation_peak_bytes"] = nullptr;
    if (record.val_loss) line["val_loss"] = *record.val_loss;
    if (std::fprintf(file_, "%s\n", line.dump().c_str()) < 0 || std::fflush(file_) != 0)
      return failure("cannot be written");
    return {};
  }

 private:
  adacc::Error failure(const char* what) const {
    return adacc::Error::say("--log ", adacc::one_line(path_).c_str(), ": ", what, " (",
                             std::strerror(errno), ")");
  }

  std::string path_;
  std::FILE* file_ = nullptr;
};

/// On a terminal one line that rewrites itself; elsewhere a plain line now and then.
class Progress {
 public:
  Progress(std::uint64_t first, std::uint64_t last) : first_(first), last_(last) {}

  void show(const StepRecord& record) {
    const double now = adacc::steady_seconds();
    const bool final = record.step + 1 == last_ || record.val_loss.has_value();
    const double since = now - shown_;
    smooth_ = smooth_ == 0 ? record.tokens_per_s : 0.9 * smooth_ + 0.1 * record.tokens_per_s;
    ms_ = ms_ == 0 ? record.ms : 0.9 * ms_ + 0.1 * record.ms;
    if (!final && since < (terminal_ ? 0.1 : 5.0) && record.step != first_) return;
    shown_ = now;
    if (terminal_) bar(record);
    else plain(record);
  }

  /// A line of its own between the others.
  void say(const std::string& line) {
    finish();
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  }

  /// Ends the rewriting line, so that what follows starts on its own.
  void finish() {
    if (terminal_ && started_) std::printf("\n");
    started_ = false;
    std::fflush(stdout);
  }

 private:
  void plain(const StepRecord& record) {
    std::printf("step %llu/%llu  loss %.4f  grad norm %.3f  %.0f ms  %.0f tokens/s",
                static_cast<unsigned long long>(record.step + 1),
                static_cast<unsigned long long>(last_), record.loss, record.grad_norm, record.ms,
                record.tokens_per_s);
    if (record.val_loss) std::printf("  val loss %.4f", *record.val_loss);
    std::printf("\n");
    std::fflush(stdout);
  }

  void bar(const StepRecord& record) {
    const double part = last_ > first_ ? static_cast<double>(record.step + 1 - first_) /
                                             static_cast<double>(last_ - first_)
                                       : 1;
    const double left = ms_ / 1000 * static_cast<double>(last_ - record.step - 1);
    char tail[192];
    const int length = std::snprintf(
        tail, sizeof tail, " %llu/%llu  loss %.4f  %.0f tok/s  %s left  %s",
        static_cast<unsigned long long>(record.step + 1), static_cast<unsigned long long>(last_),
        record.loss, smooth_, clock(left).c_str(), mebibytes(record.activation_peak_bytes).c_str());
    const int room = width() - length - 3;
    const int cells = room < 0 ? 0 : room > 30 ? 30 : room;
    const int full = static_cast<int>(part * cells);
    std::string cells_text;
    for (int i = 0; i < cells; ++i) cells_text += i < full ? "█" : "░";
    if (record.val_loss) {
      std::printf("\r\x1b[Kstep %llu  val loss %.4f\n",
                  static_cast<unsigned long long>(record.step + 1), *record.val_loss);
    }
    std::printf("\r\x1b[K%s%s", cells_text.c_str(), tail);
    std::fflush(stdout);
    started_ = true;
  }

  static std::string clock(double seconds) {
    char text[48];
    const auto s = static_cast<long long>(seconds + 0.5);
    if (s >= 3600) std::snprintf(text, sizeof text, "%lldh%02lldm", s / 3600, s / 60 % 60);
    else std::snprintf(text, sizeof text, "%lldm%02llds", s / 60, s % 60);
    return text;
  }

  static int width() {
    winsize size{};
    return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  }

  std::uint64_t first_, last_;
  double shown_ = 0;
  double smooth_ = 0, ms_ = 0;
  /// Launchers of ranks give each a terminal of its own, whatever their own output goes to.
  static bool launched() {
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
      if (std::getenv(name) != nullptr) return true;
    return false;
  }

  bool terminal_ = ::isatty(STDOUT_FILENO) != 0 && !launched();
  bool started_ = false;
};
