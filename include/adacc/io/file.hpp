// SPDX-License-Identifier: MIT
/// Files on a POSIX system: reading with every failure explained, and replacing a file whole.
///
/// Only this file and mapped_file.hpp call the operating system for file contents. A message is one line that begins
/// with the file's name and ends with the expected contents.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "../core/bytes.hpp"
#include "../core/error.hpp"
#include "../core/number_text.hpp"

namespace adacc { inline namespace v0_1 {

/// `text` in a form for one-line messages: control characters become '?', and a text longer than `most` characters
/// keeps its end, which for a path is the telling part.
inline std::string one_line(const std::string& text, std::size_t most = 140) {
  std::string line = text;
  if (line.size() > most) line = "..." + line.substr(line.size() - (most - 3));
  for (char& c : line)
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
  return line;
}

namespace detail {

/// An open file, closed by the destructor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    const int fd = fd_;
    fd_ = other.fd_;
    other.fd_ = fd;
    return *this;
  }
  ~FileDescriptor() { close(); }

  bool is_open() const { return fd_ >= 0; }
  int get() const { return fd_; }

  /// Closes the file; 0 or errno: a full disk may show only here.
  int close() {
    const int fd = fd_;
    fd_ = -1;
    return fd >= 0 && ::close(fd) != 0 ? errno : 0;
  }

 private:
  int fd_ = -1;
};

/// Writes all bytes; 0 or errno.
inline int write_all(int fd, const void* data, std::size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(fd, from, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    if (written == 0) return ENOSPC;
    from += written;
    bytes -= static_cast<std::size_t>(written);
  }
  return 0;
}

}  // namespace detail

/// A regular file, read from front to back.
class InputFile {
 public:
  /// `expected` names, for messages, the right contents: "an llm.c token file".
  static Result<InputFile> open(const std::string& path, const char* expected) {
    InputFile file;
    file.path_ = path;
    file.expected_ = expected;
    // A pipe without a writer must not hang the open; for regular files nothing changes.
    file.fd_ = detail::FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file.fd_.is_open()) return file.fault("cannot be opened (", std::strerror(errno), ")");
    struct stat status {};
    if (::fstat(file.fd_.get(), &status) != 0)
      return file.fault("cannot be examined (", std::strerror(errno), ")");
    if (S_ISDIR(status.st_mode)) return file.fault("is a folder");
    if (!S_ISREG(status.st_mode)) return file.fault("is not a regular file");
    file.size_ = static_cast<std::size_t>(status.st_size);
    return static_cast<InputFile&&>(file);  // nvcc would copy it
  }

  /// Bytes in the file when it was opened.
  std::size_t size() const { return size_; }
  const std::string& path() const { return path_; }

  /// "PATH: pieces…; expected EXPECTED".
  template <class... Pieces>
  Error fault(const Pieces&... pieces) const {
    return Error::say(one_line(path_).c_str(), ": ", pieces..., "; expected ", expected_);
  }

  /// Fills `to`; an early end of the file is an error.
  Error read(void* to, std::size_t bytes) {
    char* at = static_cast<char*>(to);
    while (bytes > 0) {
      const ssize_t got = ::read(fd_.get(), at, bytes);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return fault("cannot be read (", std::strerror(errno), ")");
      if (got == 0)
        return fault("is truncated: it ends after ", shown(position_), ", ", shown(bytes),
                     " too early");
      at += got;
      position_ += static_cast<std::size_t>(got);
      bytes -= static_cast<std::size_t>(got);
    }
    return {};
  }

  /// The next read starts at byte `position`.
  Error seek(std::size_t position) {
    if (::lseek(fd_.get(), static_cast<off_t>(position), SEEK_SET) < 0)
      return fault("cannot be read at ", shown(position), " (", std::strerror(errno), ")");
    position_ = position;
    return {};
  }

 private:
  friend class MappedFile;

  std::string path_;
  const char* expected_ = "";
  detail::FileDescriptor fd_;
  std::size_t size_ = 0;
  std::size_t position_ = 0;
};

/// A file that appears whole or not at all.
///
/// Bytes go to a file of the same name with ".adacc-saving" added (or, if this is too long, to a hidden file named
/// after a hash of the name). commit() flushes this file to the disk and renames it over the old one, whose mode it
/// has: a crash at any moment leaves either the old file or the new one. Without a commit the old file stays and the
/// temporary one is removed; after a killed process, the next save to the same name takes over the temporary file. A
/// lock keeps two savers apart. To learn early whether saving is possible, create one and drop it.
class AtomicFile {
 public:
  AtomicFile() = default;
  AtomicFile(AtomicFile&& other) noexcept
      : path_(static_cast<std::string&&>(other.path_)),
        temporary_(static_cast<std::string&&>(other.temporary_)),
        fd_(static_cast<detail::FileDescriptor&&>(other.fd_)) {}
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile() { abandon(); }

  static Result<AtomicFile> create(const std::string& path) {
    Result<AtomicFile> made;
    if (Error error = made->begin(path)) made.error = error;
    return made;
  }

  Error write(const void* data, std::size_t bytes) {
    const int reason = fd_.is_open() ? detail::write_all(fd_.get(), data, bytes) : EBADF;
    return reason == 0 ? Error{} : fail("cannot be written", reason);
  }

  /// Flushes, closes and renames the file, and flushes the folder. After an error there is nothing left to commit.
  Error commit() {
    if (!fd_.is_open()) return fail("cannot be written", EBADF);
    if (::fsync(fd_.get()) != 0) return fail("cannot be flushed to the disk", errno);
    // Renamed before closing, which releases the lock.
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) return fail("cannot be replaced", errno);
    temporary_.clear();
    if (const int reason = fd_.close()) return fail("cannot be closed", reason);
    const std::size_t slash = path_.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
    const detail::FileDescriptor held(::open(folder.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY));
    // Some file systems cannot flush a folder and say EINVAL: then renaming must suffice.
    if (held.is_open() && ::fsync(held.get()) != 0 && errno != EINVAL && errno != ENOTSUP)
      return fail("was replaced, but its folder cannot be flushed to the disk", errno);
    return {};
  }

 private:
  Error begin(const std::string& path) {
    path_ = path;
    struct stat status {};
    const bool there = ::lstat(path.c_str(), &status) == 0;
    if (there) {
      if (S_ISLNK(status.st_mode)) {  // the target is replaced, not the link
        char* target = ::realpath(path.c_str(), nullptr);
        if (target == nullptr) return fail("is a link that leads nowhere", errno);
        path_ = target;
        std::free(target);
        if (::stat(path_.c_str(), &status) != 0) return fail("cannot be examined", errno);
      }
      if (S_ISDIR(status.st_mode)) return fail("cannot be written", EISDIR);
      if (!S_ISREG(status.st_mode))
        return Error::say(one_line(path).c_str(),
                          ": is not a regular file; expected a file to "
                          "save to, or none of that name");
    } else if (errno != ENOENT) {
      return fail("cannot be written", errno);
    }
    const std::string name = saving_name(path_);
    for (;;) {
      fd_ = detail::FileDescriptor(
          ::open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
      if (!fd_.is_open()) return fail("cannot be written", errno);
      // If the file system has no locks, two savers at once are the user's own affair.
      if (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        fd_.close();
        return Error::say(one_line(path).c_str(), ": somebody else is saving to it just now");
      }
      // Between open and lock another saver may have renamed or removed the opened file.
      struct stat opened {
      }, named{};
      if (::fstat(fd_.get(), &opened) != 0) return fail("cannot be examined", errno);
      if (::stat(name.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
          opened.st_dev == named.st_dev)
        break;
      fd_.close();
    }
    temporary_ = name;
    if (::ftruncate(fd_.get(), 0) != 0) return fail("cannot be written", errno);
    // Keeps the mode, so that a file only for its owner stays so. Some file systems have no modes.
    if (there && ::fchmod(fd_.get(), status.st_mode & 07777) != 0 && errno != EPERM &&
        errno != ENOTSUP)
      return fail("cannot be given the mode of the file that it replaces", errno);
    return {};
  }

  /// Always the same for one path: the file of a killed process is taken over.
  static std::string saving_name(const std::string& path) {
    constexpr std::size_t longest = 255;  // name, on nearly all file systems
    const std::string suffix = ".adacc-saving";
    const std::size_t slash = path.rfind('/');
    const std::size_t first = slash == std::string::npos ? 0 : slash + 1;
    if (path.size() - first + suffix.size() <= longest) return path + suffix;
    std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
    for (std::size_t i = first; i < path.size(); ++i)
      hash = (hash ^ static_cast<unsigned char>(path[i])) * 0x100000001b3U;
    return path.substr(0, first) + "." + NumberText::hexadecimal(hash).c_str() + suffix;
  }

  Error fail(const char* what, int reason) {
    abandon();
    return Error::say(one_line(path_).c_str(), ": ", what, " (", std::strerror(reason), ")");
  }

  void abandon() {
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
    temporary_.clear();
    fd_.close();
  }

  std::string path_;
  std::string temporary_;
  detail::FileDescriptor fd_;
};

/// Whether two names lead to one file: the existing one, through links, or a future one.
inline bool same_file(const std::string& a, const std::string& b) {
  struct stat x {
  }, y{};
  const bool has_a = ::stat(a.c_str(), &x) == 0, has_b = ::stat(b.c_str(), &y) == 0;
  if (has_a && has_b) return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
  if (has_a != has_b) return false;
  const auto cut = [](const std::string& path) {  // behind the folder
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? 0 : slash + 1;
  };
  const auto folder = [&](const std::string& path) { return path.substr(0, cut(path)) + "."; };
  return a.substr(cut(a)) == b.substr(cut(b)) && ::stat(folder(a).c_str(), &x) == 0 &&
         ::stat(folder(b).c_str(), &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

inline bool is_folder(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

/// The text before the name of a file in the folder `path`, or beside the file `path`.
inline std::string folder_of(const std::string& path) {
  if (is_folder(path)) return path + "/";
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

/// Writes all of `text` to `path`, beside the old file first: the old file stays until all is written.
inline Error write_file(const std::string& path, std::string_view text) {
  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file) return file.error;
  if (Error why = file->write(text.data(), text.size())) return why;
  return file->commit();
}

}}  // namespace adacc::v0_1
