// SPDX-License-Identifier: MIT
/// Files: reading with every failure explained, and replacing a file whole.
///
/// The calls of the operating system are in core/system_file.hpp. A message is one line that begins with the file's
/// name and ends with the expected contents.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "../core/bytes.hpp"
#include "../core/error.hpp"
#include "../core/number_text.hpp"
#include "../core/system_file.hpp"

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

/// The place in `path` at which the name of the file begins, behind its folder.
inline std::size_t name_begin(const std::string& path) {
#if defined(_WIN32)
  const std::size_t slash = path.find_last_of("/\\:");
#else
  const std::size_t slash = path.rfind('/');
#endif
  return slash == std::string::npos ? 0 : slash + 1;
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
    const int reason = detail::system::open_to_read(path, file.fd_);
    if (reason != 0)
      return file.fault("cannot be opened (", detail::system::reason_words(reason).c_str(), ")");
    const detail::FileStatus status = detail::system::examine(file.fd_.get());
    if (status.kind == detail::FileKind::nothing)
      return file.fault("cannot be examined (", detail::system::reason_words(status.reason).c_str(),
                        ")");
    if (status.kind == detail::FileKind::folder) return file.fault("is a folder");
    if (status.kind != detail::FileKind::file) return file.fault("is not a regular file");
    if (status.bytes > static_cast<std::size_t>(-1) / 2)
      return file.fault("is larger than this machine can address");
    file.size_ = static_cast<std::size_t>(status.bytes);
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
    std::size_t got = 0;
    const int reason = detail::read_all_at(fd_.get(), position_, to, bytes, got);
    position_ += got;
    if (reason != 0)
      return fault("cannot be read (", detail::system::reason_words(reason).c_str(), ")");
    if (got < bytes)
      return fault("is truncated: it ends after ", shown(position_), ", ", shown(bytes - got),
                   " too early");
    return {};
  }

  /// The next read starts at byte `position`.
  void seek(std::size_t position) { position_ = position; }

 private:
  friend class MappedFile;

  std::string path_;
  const char* expected_ = "";
  detail::FileHandle fd_;
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
        fd_(static_cast<detail::FileHandle&&>(other.fd_)), position_(other.position_) {}
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile() { abandon(); }

  static Result<AtomicFile> create(const std::string& path) {
    Result<AtomicFile> made;
    if (Error error = made->begin(path)) made.error = error;
    return made;
  }

  Error write(const void* data, std::size_t bytes) {
    const int reason =
        fd_.is_open() ? detail::write_all_at(fd_.get(), position_, data, bytes) : EBADF;
    position_ += bytes;
    return reason == 0 ? Error{} : fail("cannot be written", reason);
  }

  /// Flushes, closes and renames the file, and flushes the folder. After an error there is nothing left to commit.
  Error commit() {
    if (!fd_.is_open()) return fail("cannot be written", EBADF);
    if (const int reason = detail::system::flush(fd_.get()))
      return fail("cannot be flushed to the disk", reason);
    // Renamed before closing, which releases the lock.
    if (const int reason = detail::system::replace(temporary_, path_))
      return fail("cannot be replaced", reason);
    temporary_.clear();
    if (const int reason = fd_.close()) return fail("cannot be closed", reason);
    const std::size_t name = detail::name_begin(path_);
    if (const int reason = detail::system::flush_folder(name == 0 ? "." : path_.substr(0, name)))
      return fail("was replaced, but its folder cannot be flushed to the disk", reason);
    return {};
  }

 private:
  Error begin(const std::string& path) {
    path_ = path;
    if (const int reason = detail::system::follow_link(path_))  // the target is replaced
      return fail("is a link that leads nowhere", reason);
    const detail::FileStatus found = detail::system::examine(path_);
    const bool there = found.kind != detail::FileKind::nothing;
    if (!there && found.reason != ENOENT) return fail("cannot be written", found.reason);
    if (found.kind == detail::FileKind::folder) return fail("cannot be written", EISDIR);
    if (found.kind == detail::FileKind::other)
      return Error::say(one_line(path).c_str(),
                        ": is not a regular file; expected a file to "
                        "save to, or none of that name");
    const std::string name = saving_name(path_);
    const int reason = detail::system::open_to_save(name, fd_);
    if (reason == EBUSY) {
      fd_.close();
      return Error::say(one_line(path).c_str(), ": somebody else is saving to it just now");
    }
    if (reason != 0) return fail("cannot be written", reason);
    temporary_ = name;
    // Keeps the mode, so that a file only for its owner stays so.
    if (const int refused = there ? detail::system::set_mode(fd_.get(), found.mode) : 0)
      return fail("cannot be given the mode of the file that it replaces", refused);
    return {};
  }

  /// Always the same for one path: the file of a killed process is taken over.
  static std::string saving_name(const std::string& path) {
    constexpr std::size_t longest = 255;  // name, on nearly all file systems
    const std::string suffix = ".adacc-saving";
    const std::size_t first = detail::name_begin(path);
    if (path.size() - first + suffix.size() <= longest) return path + suffix;
    std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
    for (std::size_t i = first; i < path.size(); ++i)
      hash = (hash ^ static_cast<unsigned char>(path[i])) * 0x100000001b3U;
    return path.substr(0, first) + "." + NumberText::hexadecimal(hash).c_str() + suffix;
  }

  Error fail(const char* what, int reason) {
    abandon();
    return Error::say(one_line(path_).c_str(), ": ", what, " (",
                      detail::system::reason_words(reason).c_str(), ")");
  }

  void abandon() {
    if (!temporary_.empty()) detail::system::remove(temporary_);
    temporary_.clear();
    fd_.close();
  }

  std::string path_;
  std::string temporary_;
  detail::FileHandle fd_;
  std::uint64_t position_ = 0;
};

/// Whether there is a file, folder or anything else of this name.
inline bool is_there(const std::string& path) {
  return detail::system::examine(path).kind != detail::FileKind::nothing;
}

/// Whether two names lead to one file: the existing one, through links, or a future one.
inline bool same_file(const std::string& a, const std::string& b) {
  const auto examine = [](const std::string& path) { return detail::system::examine(path); };
  const bool has_a = is_there(a), has_b = is_there(b);
  if (has_a && has_b) return detail::same_place(examine(a), examine(b));
  if (has_a != has_b) return false;
  const std::size_t name_a = detail::name_begin(a), name_b = detail::name_begin(b);
  return a.substr(name_a) == b.substr(name_b) &&
         detail::same_place(examine(a.substr(0, name_a) + "."), examine(b.substr(0, name_b) + "."));
}

inline bool is_folder(const std::string& path) {
  return detail::system::examine(path).kind == detail::FileKind::folder;
}

/// The text before the name of a file in the folder `path`, or beside the file `path`.
inline std::string folder_of(const std::string& path) {
  return is_folder(path) ? path + "/" : path.substr(0, detail::name_begin(path));
}

/// Writes all of `text` to `path`, beside the old file first: the old file stays until all is written.
inline Error write_file(const std::string& path, std::string_view text) {
  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file) return file.error;
  if (Error why = file->write(text.data(), text.size())) return why;
  return file->commit();
}

}}  // namespace adacc::v0_1
