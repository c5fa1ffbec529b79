// SPDX-License-Identifier: MIT
/// Files on POSIX systems: full disks, devices, pipes, links, modes.
#include "adacc/io/file.hpp"

#include <doctest/doctest.h>

#include <sys/resource.h>
#include <csignal>

#include "../train/support.hpp"

namespace posix_file_test { namespace {

using namespace adacc;
using train_test::Folder;
using train_test::read_file;
using train_test::says;
using train_test::write_file;

/// No file may grow beyond `bytes` in this scope: stands in for a disk that fills.
struct FileSizeLimit {
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before);
    rlimit limit = before;
    limit.rlim_cur = bytes;
    handler = std::signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
  }
  rlimit before{};
  void (*handler)(int) = nullptr;
};

Error save(const std::string& path, const std::string& text) {
  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file) return file.error;
  if (Error error = file->write(text.data(), text.size())) return error;
  return file->commit();
}

TEST_CASE("a disk that fills leaves the old file, removes the new one, and says why") {
  const Folder folder;
  const std::string path = folder / "model";
  write_file(path, "old");
  const std::string large(100000, 'x');
  Error error;
  {
    const FileSizeLimit limit(65536);
    error = save(path, large);
  }
  CHECK(says(error.text(), path.c_str(), "cannot be written", "File too large"));
  CHECK(read_file(path) == "old");
  CHECK(folder.entries() == 1);
  CHECK(!save(path, large));
  CHECK(read_file(path) == large);
}

TEST_CASE("a write to a full device is noticed") {
  const detail::FileHandle full(::open("/dev/full", O_WRONLY));
  if (!full.is_open()) {
    MESSAGE("there is no /dev/full here");
    return;
  }
  CHECK(detail::write_all_at(full.get(), 0, "abc", 3) == ENOSPC);
}

TEST_CASE("after a failed write nothing can be committed") {
  const Folder folder;
  const std::string path = folder / "model";
  write_file(path, "old");
  {
    const std::string large(100000, 'x');
    Result<AtomicFile> file = AtomicFile::create(path);
    REQUIRE(file);
    {
      const FileSizeLimit limit(65536);
      CHECK(file->write(large.data(), large.size()));
    }
    CHECK(file->write("x", 1));
    CHECK(file->commit());
  }
  CHECK(read_file(path) == "old");
  CHECK(folder.entries() == 1);
}

TEST_CASE("places that cannot be saved to are refused before anything is written") {
  const Folder folder;
  CHECK(says(save(folder / "missing/model", "x").text(), "missing/model", "No such file"));
  CHECK(says(save(folder.path, "x").text(), folder.path.c_str(), "Is a directory"));
  write_file(folder / "file", "");
  CHECK(says(save(folder / "file/model", "x").text(), "Not a directory"));
  CHECK(says(save("/dev/null", "x").text(), "/dev/null", "not a regular file"));
  CHECK(save("", "x"));
  CHECK(std::filesystem::is_character_file("/dev/null"));
  CHECK(folder.entries() == 1);
}

TEST_CASE("a link stays a link: what it points to is replaced") {
  const Folder folder;
  write_file(folder / "target", "old");
  std::filesystem::create_symlink("target", folder / "link");
  CHECK(!save(folder / "link", "new"));
  CHECK(std::filesystem::is_symlink(folder / "link"));
  CHECK(read_file(folder / "target") == "new");
  CHECK(folder.entries() == 2);
  std::filesystem::create_symlink("nowhere", folder / "dangling");
  CHECK(says(save(folder / "dangling", "x").text(), "dangling", "leads nowhere"));
}

TEST_CASE("what cannot be read as a file is explained in one line") {
  const Folder folder;
  const std::string pipe = folder / "pipe", gone = folder / "gone";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(says(InputFile::open(gone, "a model").error.text(), gone.c_str(), "No such file",
             "expected a model"));
  CHECK(says(InputFile::open(folder.path, "a model").error.text(), "is a folder"));
  CHECK(says(InputFile::open(pipe, "a model").error.text(), "not a regular file"));
  CHECK(says(InputFile::open("/dev/zero", "a model").error.text(), "not a regular file"));
  const std::string long_name = folder.path + "/two\nlines" + std::string(200, 'x');
  const Error error = InputFile::open(long_name, "a model").error;
  CHECK(says(error.text(), "xxx: cannot be opened", "expected a model"));
}

TEST_CASE("a file that is replaced keeps its mode") {
  const Folder folder;
  const std::string path = folder / "private";
  const auto mode = [&] {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
  };
  for (const mode_t wanted : {0600U, 0640U, 0400U, 0755U}) {
    train_test::write_file(path, "old");
    REQUIRE(::chmod(path.c_str(), wanted) == 0);
    REQUIRE_FALSE(adacc::write_file(path, "new"));
    CHECK(mode() == wanted);
    CHECK(train_test::read_file(path) == "new");
    std::remove(path.c_str());
  }
  REQUIRE_FALSE(adacc::write_file(path, "first"));
  const mode_t mask = ::umask(0);
  ::umask(mask);
  CHECK(mode() == (0666 & ~mask));
}

TEST_CASE("one file has many names") {
  const Folder folder;
  const std::string file = folder / "file", other = folder / "other";
  train_test::write_file(file, "x");
  REQUIRE(::symlink(file.c_str(), (folder / "link").c_str()) == 0);
  REQUIRE(::link(file.c_str(), (folder / "hard").c_str()) == 0);
  for (const char* name : {"file", "./file", "link", "hard"}) CHECK(same_file(file, folder / name));
  CHECK_FALSE(same_file(file, other));
  train_test::write_file(other, "x");
  CHECK_FALSE(same_file(file, other));
  // Neither is there yet.
  CHECK(same_file(folder / "new", folder / "./new"));
  CHECK_FALSE(same_file(folder / "new", folder / "newer"));
  CHECK_FALSE(same_file("new", folder / "new"));
  CHECK(same_file("new", "./new"));
}

}}  // namespace posix_file_test
