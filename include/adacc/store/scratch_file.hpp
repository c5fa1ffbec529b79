// SPDX-License-Identifier: MIT
/// A store on a disk: one file without a name, past the page cache, gone with the process.
///
/// Three things matter on a real disk. Access past the page cache, whose copies would take the very memory to be saved,
/// and cost as much as encoding. No name that lasts: nothing is left behind, whatever ends the process. Room taken at
/// set-up: a full disk is an error before training starts. Transfers go through io_uring, or through a thread if the
/// system or a container refuses io_uring. Linux and Windows; make() refuses elsewhere. Bytes on the disk are not
/// encrypted: see docs/offload.md.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "linux_scratch.hpp"
#include "no_scratch.hpp"
#include "thread_transfers.hpp"
#include "uring_transfers.hpp"
#include "windows_scratch.hpp"

namespace adacc { inline namespace v0_1 {

#if !defined(__linux__) && !defined(_WIN32)
namespace detail {

inline Error open_scratch(const std::string& folder, FileHandle&, std::size_t&) {
  return no_scratch(folder, "adacc has none for this operating system, only for Linux and Windows");
}
inline Error take_scratch_room(const std::string&, NativeFile, std::size_t) { return {}; }

}  // namespace detail
#endif

/// How a ScratchFile moves bytes.
enum class FileEngine : unsigned char { automatic, io_uring, thread };

class ScratchFile {
 public:
  ScratchFile() = default;

  /// A file of `bytes` bytes in `folder`, which must lie on a disk with room for the file. `automatic` takes io_uring
  /// if available. Do not move the object while lent.
  static Result<ScratchFile> make(const std::string& folder, std::size_t bytes,
                                  FileEngine engine = FileEngine::automatic) {
    ScratchFile scratch;
    scratch.folder_ = folder;
    if (Error why = detail::open_scratch(folder, scratch.file_, scratch.alignment_)) return why;
    if (Error why = scratch.grow(bytes)) return why;
    if (Error why = scratch.start(engine)) return why;
    return static_cast<ScratchFile&&>(scratch);
  }

  /// Makes the file larger: `bytes` in all. The contents stay, and on an error the size, too. No transfer may be under
  /// way.
  Error grow(std::size_t bytes) {
    if (bytes > static_cast<std::size_t>(-1) / 2)
      return fault("a file of ", shown(bytes), " is larger than any can be");
    const std::size_t larger = div_up(bytes, alignment_) * alignment_;
    if (larger <= bytes_) return {};
    if (Error why = detail::take_scratch_room(folder_, file_.get(), larger)) return why;
    bytes_ = larger;
    return {};
  }

  std::size_t bytes() const { return bytes_; }
  std::size_t alignment() const { return alignment_; }
  const std::string& folder() const { return folder_; }
  /// "io_uring", or "a thread, because ..." in words.
  const char* engine() const { return engine_.c_str(); }
  detail::NativeFile file() const { return file_.get(); }

  Error prepare(int tickets, Bytes) {
    if (uring_) uring_->prepare(tickets);
    else thread_->prepare(tickets);
    return {};
  }
  void begin(int ticket, const StoreTransfer& request) {
    if (uring_) uring_->begin(ticket, request);
    else thread_->begin(ticket, request);
  }
  bool done(int ticket) { return uring_ ? uring_->done(ticket) : thread_->done(ticket); }
  Error wait(int ticket) {
    const int reason = uring_ ? uring_->wait(ticket) : thread_->wait(ticket);
    if (reason == 0) return {};
    return Error::say("the scratch file in ", folder_.c_str(),
                      " failed: ", detail::system::reason_words(reason).c_str());
  }

 private:
  template <class... Pieces>
  Error fault(const Pieces&... pieces) const {
    return detail::no_scratch(folder_, pieces...);
  }

  Error start(FileEngine engine) {
    int refused = 0;
    if (engine != FileEngine::thread) {
      auto uring = std::make_unique<detail::UringTransfers>(file_.get());
      refused = uring->refused();
      if (refused == 0) {
        uring_ = static_cast<std::unique_ptr<detail::UringTransfers>&&>(uring);
        engine_ = "io_uring";
        return {};
      }
      if (engine == FileEngine::io_uring)
        return fault("the system refuses io_uring: ",
                     detail::system::reason_words(refused).c_str());
    }
    thread_ = std::make_unique<detail::ThreadTransfers>(file_.get());
    engine_ = "a thread";
    if (refused != 0)
      engine_ +=
          ", because the system refuses io_uring (" + detail::system::reason_words(refused) + ")";
    return {};
  }

  std::string folder_;
  std::size_t bytes_ = 0;
  std::size_t alignment_ = 0;
  std::string engine_;
  detail::FileHandle file_;
  std::unique_ptr<detail::UringTransfers> uring_;
  std::unique_ptr<detail::ThreadTransfers> thread_;
};

}}  // namespace adacc::v0_1
