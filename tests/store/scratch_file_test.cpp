// SPDX-License-Identifier: MIT
/// The store on a disk: contract, page cache, and what a folder can be wrong in.
#include <doctest/doctest.h>
#include <adacc/core/random.hpp>
#include <adacc/store/scratch_file.hpp>
#include <adacc/testing/store_check.hpp>

#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "on_disk.hpp"

namespace scratch_file_test { namespace {

using namespace adacc;
using sample::scratch_files_possible;

/// A folder on a disk, where the build runs.
std::string folder() { return "."; }

bool says(const Error& error, const char* words) {
  const bool found = std::strstr(error.text(), words) != nullptr;
  if (!found) MESSAGE(std::string(error.text()));
  return found;
}

int entries(const std::string& path) {
  DIR* const open = ::opendir(path.c_str());
  REQUIRE(open != nullptr);
  int count = 0;
  while (::readdir(open) != nullptr) ++count;
  ::closedir(open);
  return count;
}

TEST_CASE("a scratch file keeps the contract, by io_uring and by a thread") {
  if (!scratch_files_possible()) return;
  for (const FileEngine engine : {FileEngine::automatic, FileEngine::thread}) {
    auto file = ScratchFile::make(folder(), 24 << 20, engine);
    REQUIRE_MESSAGE(file, file.error.text());
    INFO(file->engine());
    CHECK(file->bytes() == 24 << 20);
    CHECK(file->alignment() >= 512);
    // Pieces of io_uring's are smaller than the largest transfers.
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
      const Error why = testing::check_store(*file, {.transfers = 200, .tickets = 6, .seed = seed});
      CHECK_MESSAGE(!why, why.text());
    }
  }
}

TEST_CASE("a scratch file grows, and keeps its contents") {
  if (!scratch_files_possible()) return;
  constexpr std::size_t page = 4096;
  for (const FileEngine engine : {FileEngine::automatic, FileEngine::thread}) {
    auto file = ScratchFile::make(folder(), page, engine);
    REQUIRE(file);
    alignas(page) static std::byte memory[2 * page];
    REQUIRE_FALSE(file->prepare(1, Bytes(memory, Shape(2 * page))));
    const auto transfer = [&](StoreTransfer::Direction direction, std::size_t offset) {
      file->begin(0, {direction, offset, Bytes(memory, Shape(page))});
      return file->wait(0);
    };
    for (std::byte& one : memory) one = std::byte{7};
    REQUIRE_FALSE(transfer(StoreTransfer::Direction::write, 0));
    REQUIRE_FALSE(file->grow(3 * page));
    CHECK(file->bytes() == 3 * page);
    REQUIRE_FALSE(transfer(StoreTransfer::Direction::write, 2 * page));
    memory[0] = memory[page - 1] = std::byte{0};
    REQUIRE_FALSE(transfer(StoreTransfer::Direction::read, 0));
    CHECK(memory[0] == std::byte{7});
    CHECK(memory[page - 1] == std::byte{7});
    CHECK_FALSE(file->grow(page));  // smaller: nothing to do
    CHECK(file->bytes() == 3 * page);
    CHECK(file->grow(static_cast<std::size_t>(-1)));
    CHECK(file->bytes() == 3 * page);
  }
}

TEST_CASE("large transfers, more of them than the kernel's queue holds") {
  if (!scratch_files_possible()) return;
  auto file = ScratchFile::make(folder(), 96 << 20);
  REQUIRE(file);
  const std::size_t bytes = std::size_t{96} << 20;
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(4096, bytes));
  REQUIRE_FALSE(file->prepare(96, Bytes(memory, Shape(bytes))));
  const auto each = [&](StoreTransfer::Direction direction) {
    for (int i = 0; i < 96; ++i) {
      const std::size_t at = static_cast<std::size_t>(i) << 20;
      file->begin(i, {direction, at, Bytes(memory + at, Shape(1 << 20))});
    }
    for (int i = 0; i < 96; ++i) REQUIRE_FALSE(file->wait(i));
  };
  for (std::size_t b = 0; b < bytes; ++b) memory[b] = static_cast<std::byte>(b >> 12);
  each(StoreTransfer::Direction::write);
  std::memset(memory, 0, bytes);
  each(StoreTransfer::Direction::read);
  std::size_t wrong = 0;
  for (std::size_t b = 0; b < bytes; ++b) wrong += memory[b] != static_cast<std::byte>(b >> 12);
  CHECK(wrong == 0);
  // Past the page cache: none of its pages is there.
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file->file(), 0);
  REQUIRE(mapped != MAP_FAILED);
  std::string resident(bytes / 4096, 0);
  REQUIRE(::mincore(mapped, bytes, reinterpret_cast<unsigned char*>(resident.data())) == 0);
  std::size_t cached = 0;
  for (const char page : resident) cached += (page & 1) != 0;
  CHECK(cached == 0);
  ::munmap(mapped, bytes);
  std::free(memory);
}

/// Writes until it is killed; says on `ready` that it begins to.
[[noreturn]] void write_for_ever(const char* name, FileEngine engine, int ready) {
  constexpr std::size_t bytes = 8 << 20;
  auto file = ScratchFile::make(name, bytes, engine);
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(4096, bytes));
  if (!file || memory == nullptr || file->prepare(2, Bytes(memory, Shape(bytes)))) ::_exit(1);
  std::memset(memory, 1, bytes);
  if (::write(ready, "x", 1) != 1) ::_exit(1);
  for (;;) {
    for (int half = 0; half < 2; ++half) {
      const std::size_t at = static_cast<std::size_t>(half) * bytes / 2;
      file->begin(half,
                  {StoreTransfer::Direction::write, at, Bytes(memory + at, Shape(bytes / 2))});
    }
    if (file->wait(0) || file->wait(1)) ::_exit(1);
  }
}

TEST_CASE("nothing is left behind when the process is killed while it writes" *
          doctest::test_suite("one_thread")) {
  if (!scratch_files_possible()) return;
  const bool uring = static_cast<bool>(ScratchFile::make(folder(), 4096, FileEngine::io_uring));
  if (!uring) MESSAGE("io_uring is refused here: threads alone write");
  char name[] = "scratch_XXXXXX";
  REQUIRE(::mkdtemp(name) != nullptr);
  const int before = entries(name);
  for (std::uint64_t round = 0; round < 30; ++round) {
    CAPTURE(round);
    const FileEngine engine = uring && round % 2 == 0 ? FileEngine::io_uring : FileEngine::thread;
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    const pid_t child = ::fork();
    if (child == 0) write_for_ever(name, engine, ready[1]);
    ::close(ready[1]);
    char byte = 0;
    CHECK(::read(ready[0], &byte, 1) == 1);
    // Anywhere in the first writes, or in one of those that follow.
    ::usleep(static_cast<useconds_t>(random_word({.seed = 9}, round) % 5000));
    REQUIRE(::kill(child, SIGKILL) == 0);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    ::close(ready[0]);
    CHECK(entries(name) == before);
  }
  CHECK(::rmdir(name) == 0);
}

TEST_CASE("folders that are none, or no disk, or full") {
  CHECK(says(ScratchFile::make("no/such/folder", 1 << 20).error, "No such file or directory"));
  CHECK(says(ScratchFile::make("/dev/null", 1 << 20).error, "Not a directory"));
  if (::access("/dev/shm", W_OK) == 0)
    CHECK(says(ScratchFile::make("/dev/shm", 1 << 20).error, "it lies in memory (tmpfs)"));
  if (!scratch_files_possible()) return;
  const auto huge = ScratchFile::make(folder(), std::size_t{1} << 50);
  CHECK(says(huge.error, "it needs 1048576.0 GiB"));
  CHECK(says(huge.error, "are free"));
  CHECK(says(ScratchFile::make(folder(), std::size_t(-1) / 2 + 1).error, "larger than any can be"));
}

/// Whether `body` says so in a process of its own.
template <class Body>
bool holds_in_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// The same where no file may be written beyond `limit` bytes.
template <class Body>
bool holds_with_limit(std::size_t limit, const Body& body) {
  return holds_in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit most{limit, limit};
    return ::setrlimit(RLIMIT_FSIZE, &most) == 0 && body();
  });
}

TEST_CASE("a folder that may not be written" * doctest::test_suite("one_thread")) {
  if (!scratch_files_possible()) return;
  char name[] = "folder_XXXXXX";
  REQUIRE(::mkdtemp(name) != nullptr);
  // Root may write anywhere, so it becomes nobody; from inside, whatever the folders above allow.
  const auto error_is = [&](const char* words) {
    return holds_in_child([&] {
      if (::chdir(name) != 0) return false;
      if (::geteuid() == 0 && (::setegid(65534) != 0 || ::seteuid(65534) != 0)) return false;
      const Error why = ScratchFile::make(".", 1 << 20).error;
      return *words == 0 ? !why : std::strstr(why.text(), words) != nullptr;
    });
  };
  REQUIRE(::chmod(name, 0777) == 0);
  CHECK(error_is(""));
  REQUIRE(::chmod(name, 0555) == 0);
  CHECK(error_is("Permission denied"));
  CHECK(::rmdir(name) == 0);
}

TEST_CASE("a write that the system refuses is an error value, and the store can be used on" *
          doctest::test_suite("one_thread")) {
  if (!scratch_files_possible()) return;
  for (const FileEngine engine : {FileEngine::automatic, FileEngine::thread}) {
    auto file = ScratchFile::make(folder(), 4 << 20, engine);
    REQUIRE(file);
    INFO(file->engine());
    // Beyond 1 MiB: the second piece of the transfer fails, behind a short write or at once. A
    // thread or ring of the parent's does not live in the child, so the child opens its own.
    CHECK(holds_with_limit(1 << 20, [&] {
      auto mine = ScratchFile::make(folder(), 1 << 20, engine);
      auto* const memory = static_cast<std::byte*>(std::aligned_alloc(4096, 4 << 20));
      if (!mine || memory == nullptr || mine->prepare(2, Bytes(memory, Shape(4 << 20))))
        return false;
      mine->begin(0, {StoreTransfer::Direction::write, 512 << 10, Bytes(memory, Shape(2 << 20))});
      const Error failed = mine->wait(0);
      if (std::strstr(failed.text(), "File too large") == nullptr) return false;
      mine->begin(1, {StoreTransfer::Direction::write, 0, Bytes(memory, Shape(512 << 10))});
      return !mine->wait(1);
    }));
    // Reading behind the end: the file is shorter than it was made.
    auto* const memory = static_cast<std::byte*>(std::aligned_alloc(4096, 1 << 20));
    REQUIRE_FALSE(file->prepare(1, Bytes(memory, Shape(1 << 20))));
    REQUIRE(::ftruncate(file->file(), 0) == 0);
    file->begin(0, {StoreTransfer::Direction::read, 0, Bytes(memory, Shape(1 << 20))});
    CHECK(says(file->wait(0), "Input/output error"));
    std::free(memory);
  }
}

}}  // namespace scratch_file_test
