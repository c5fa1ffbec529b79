// SPDX-License-Identifier: MIT
/// A store on a disk: one file without a name, past the page cache, gone with the process.
///
/// Three things matter on a real disk. O_DIRECT: copies in the page cache would take the very memory to be saved, and
/// cost as much as encoding. O_TMPFILE: nothing is left behind, whatever ends the process. Room taken at set-up: a
/// full disk is an error before training starts. Transfers go through io_uring, or through a thread if the kernel or
/// a container refuses io_uring. Linux only. Bytes on the disk are not encrypted: see docs/offload.md.
#pragma once

#include <fcntl.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>

#include "thread_transfers.hpp"
#include "uring_transfers.hpp"

namespace adacc { inline namespace v0_1 {

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
    if (Error why = scratch.open()) return why;
    if (Error why = scratch.take_room(bytes)) return why;
    if (Error why = scratch.start(engine)) return why;
    return scratch;
  }

  std::size_t bytes() const { return bytes_; }
  std::size_t alignment() const { return alignment_; }
  const std::string& folder() const { return folder_; }
  /// "io_uring", or "a thread, because ..." in words.
  const char* engine() const { return engine_.c_str(); }
  int file() const { return file_.get(); }

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
    return Error::say("the scratch file in ", folder_.c_str(), " failed: ", std::strerror(reason));
  }

 private:
  /// An open file, closed by the destructor.
  class Handle {
   public:
    Handle() = default;
    explicit Handle(int file) : file_(file) {}
    Handle(Handle&& other) noexcept : file_(other.file_) { other.file_ = -1; }
    Handle& operator=(Handle&& other) noexcept {
      const int file = file_;
      file_ = other.file_;
      other.file_ = file;
      return *this;
    }
    ~Handle() {
      if (file_ >= 0) ::close(file_);
    }
    int get() const { return file_; }

   private:
    int file_ = -1;
  };

  template <class... Pieces>
  Error fault(const Pieces&... pieces) const {
    return Error::say("no scratch file in ", folder_.c_str(), ": ", pieces...);
  }

  Error open() {
    file_ = Handle(::open(folder_.c_str(), O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600));
    if (file_.get() < 0) {
      const int reason = errno;
      if (reason == EISDIR || reason == EOPNOTSUPP || reason == EINVAL)
        return fault(
            "its file system has no files without a name, or no direct access to the disk "
            "(O_TMPFILE, O_DIRECT); choose a folder on ext4, xfs or btrfs");
      return fault(std::strerror(reason));
    }
    struct statfs system {};
    constexpr auto tmpfs = 0x01021994, ramfs = static_cast<int>(0x858458f6);
    const bool in_memory =
        ::fstatfs(file_.get(), &system) == 0 &&
        (static_cast<int>(system.f_type) == tmpfs || static_cast<int>(system.f_type) == ramfs);
    struct statx status {};
    const bool asked =
        ::syscall(SYS_statx, file_.get(), "", AT_EMPTY_PATH, dio_align, &status) == 0;
    const bool answered = asked && (status.stx_mask & dio_align) != 0;
    if (in_memory || (answered && status.stx_dio_offset_align == 0))
      return fault(
          "it lies in memory (tmpfs) or can't be accessed past the page cache: offloading "
          "there takes the memory that it is to save; choose a folder on a disk");
    alignment_ = 4096;  // older kernels do not tell the alignment: at most a page
    if (answered) {
      const std::size_t memory = status.stx_dio_mem_align, places = status.stx_dio_offset_align;
      alignment_ = memory > places ? memory : places;
      if (alignment_ < adacc::alignment) alignment_ = adacc::alignment;
    }
    return {};
  }

  Error take_room(std::size_t bytes) {
    bytes_ = div_up(bytes, alignment_) * alignment_;
    const auto size = static_cast<off_t>(bytes_);
    if (size < 0) return fault("a file of ", shown(bytes), " is larger than any can be");
    struct statvfs before {};  // a request that does not fit first takes all room there is
    const bool known = ::fstatvfs(file_.get(), &before) == 0;
    int reason = bytes_ == 0 || ::fallocate(file_.get(), 0, 0, size) == 0 ? 0 : errno;
    if (reason == EOPNOTSUPP) reason = ::ftruncate(file_.get(), size) == 0 ? 0 : errno;
    if (reason == ENOSPC || reason == EFBIG || reason == EDQUOT) {
      const std::size_t room =
          known ? static_cast<std::size_t>(before.f_bavail) * before.f_frsize : 0;
      return fault("it needs ", shown(bytes_), ", and ", shown(room), " are free (",
                   std::strerror(reason), ")");
    }
    if (reason != 0) return fault(std::strerror(reason));
    return {};
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
        return fault("the system refuses io_uring: ", std::strerror(refused));
    }
    thread_ = std::make_unique<detail::ThreadTransfers>(file_.get());
    engine_ = "a thread";
    if (refused != 0)
      engine_ +=
          std::string(", because the system refuses io_uring (") + std::strerror(refused) + ")";
    return {};
  }

  static constexpr unsigned dio_align = 0x2000;  // STATX_DIOALIGN, which older headers lack

  std::string folder_;
  std::size_t bytes_ = 0;
  std::size_t alignment_ = 0;
  std::string engine_;
  Handle file_;
  std::unique_ptr<detail::UringTransfers> uring_;
  std::unique_ptr<detail::ThreadTransfers> thread_;
};

}}  // namespace adacc::v0_1
