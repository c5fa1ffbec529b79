// SPDX-License-Identifier: MIT
#include "adacc/io/file.hpp"

#include <doctest/doctest.h>

#include <cstring>

#include "../train/support.hpp"
#include "adacc/io/mapped_file.hpp"

namespace file_test { namespace {

using namespace adacc;
using train_test::Folder;
using train_test::read_file;
using train_test::says;
using train_test::write_file;

Error save(const std::string& path, const std::string& text) {
  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file) return file.error;
  if (Error error = file->write(text.data(), text.size())) return error;
  return file->commit();
}

TEST_CASE("a file is replaced whole, and nothing else is left behind") {
  const Folder folder;
  const std::string path = folder / "model";
  CHECK(!save(path, "first"));
  CHECK(read_file(path) == "first");
  CHECK(!save(path, "second, longer"));
  CHECK(!save(path, "third"));
  CHECK(read_file(path) == "third");
  CHECK(folder.entries() == 1);
}

TEST_CASE("without a commit the old file stays and no new one appears") {
  const Folder folder;
  const std::string path = folder / "model";
  {
    Result<AtomicFile> file = AtomicFile::create(path);
    REQUIRE(file);
    CHECK(!file->write("abc", 3));
    CHECK(!std::filesystem::exists(path));
  }
  CHECK(folder.entries() == 0);
  write_file(path, "old");
  {
    Result<AtomicFile> file = AtomicFile::create(path);
    REQUIRE(file);
    CHECK(!file->write("abc", 3));
    CHECK(read_file(path) == "old");
  }
  CHECK(read_file(path) == "old");
  CHECK(folder.entries() == 1);
}

TEST_CASE("what a killed saver left is taken over") {
  const Folder folder;
  const std::string path = folder / "model";
  write_file(path + ".adacc-saving", std::string(1000, 'h'));
  CHECK(!save(path, "new"));
  CHECK(read_file(path) == "new");
  CHECK(folder.entries() == 1);
}

TEST_CASE("two savers at once do not mix") {
  const Folder folder;
  const std::string path = folder / "model";
  {
    Result<AtomicFile> first = AtomicFile::create(path);
    REQUIRE(first);
    CHECK(!first->write("first", 5));
    CHECK(says(save(path, "second").text(), path.c_str(), "somebody else is saving"));
    CHECK(!first->commit());
  }
  CHECK(read_file(path) == "first");
  CHECK(!save(path, "third"));
  CHECK(folder.entries() == 1);
}

TEST_CASE("reading past the end is an error that says where") {
  const Folder folder;
  write_file(folder / "short", "12345");
  Result<InputFile> file = InputFile::open(folder / "short", "ten bytes");
  REQUIRE(file);
  CHECK(file->size() == 5);
  char buffer[10];
  CHECK(!file->read(buffer, 3));
  CHECK(says(file->read(buffer, 7).text(), "truncated", "ends after 5 bytes", "5 bytes too early",
             "expected ten bytes"));
  file->seek(1);
  CHECK(!file->read(buffer, 1));
  CHECK(buffer[0] == '2');
}

TEST_CASE("names as long as the file system allows can be saved to") {
  const Folder folder;
  for (const std::size_t size : {1U, 241U, 242U, 243U, 254U, 255U}) {
    CAPTURE(size);
    const std::string path = folder / std::string(size, 'n').c_str();
#if defined(_WIN32)
    if (path.size() + std::string(".adacc-saving").size() > 259) continue;  // MAX_PATH
#endif
    for (const char* text : {"old", "new"}) {
      const Error why = adacc::write_file(path, text);
      CHECK_MESSAGE(!why, std::string(why.text()));
      CHECK(train_test::read_file(path) == text);
    }
    CHECK(folder.entries() == 1);
    // Two savers to one long name still notice each other.
    const auto one = AtomicFile::create(path);
    REQUIRE(one);
    CHECK(says(AtomicFile::create(path).error.text(), "somebody else is saving"));
    std::remove(path.c_str());
  }
  CHECK(adacc::write_file(folder / std::string(256, 'n').c_str(), "x"));
}

TEST_CASE("names that lead to no file are refused in words") {
  const Folder folder;
  write_file(folder / "file", "x");
  const std::string gone = folder / "gone";
  CHECK(says(InputFile::open(gone, "a model").error.text(), gone.c_str(),
             "No such file or directory", "expected a model"));
  CHECK(says(InputFile::open(folder.path, "a model").error.text(), "is a folder"));
  CHECK(says(MappedFile::open(gone, "a model").error.text(), "No such file or directory"));
  CHECK(says(save(folder / "missing/model", "x").text(), "missing/model",
             "No such file or directory"));
  CHECK(says(save(folder.path, "x").text(), folder.path.c_str(), "Is a directory"));
  CHECK(save("", "x"));
  CHECK(folder.entries() == 1);
}

TEST_CASE("a file is found by each of its names") {
  const Folder folder;
  const std::string file = folder / "file", other = folder / "other";
  write_file(file, "x");
  CHECK(same_file(file, folder / "./file"));
  CHECK_FALSE(same_file(file, other));
  write_file(other, "x");
  CHECK_FALSE(same_file(file, other));
  CHECK(same_file(folder / "new", folder / "./new"));
  CHECK_FALSE(same_file(folder / "new", folder / "newer"));
  CHECK(is_folder(folder.path));
  CHECK_FALSE(is_folder(file));
  CHECK(is_there(file));
  CHECK_FALSE(is_there(folder / "new"));
  CHECK(folder_of(file) == folder.path + "/");
}

TEST_CASE("bytes are neither translated nor cut, and names are UTF-8") {
  const Folder folder;
  const std::string path = folder / "Modell-\xC3\xA4\xE6\xA8\xA1";
  std::string bytes;
  for (int i = 0; i < 100000; ++i)
    bytes += static_cast<char>(i % 7 == 0 ? '\n' : i % 11 == 0 ? 26 : i);
  CHECK(!save(path, bytes));
  CHECK(is_there(path));
  Result<InputFile> file = InputFile::open(path, "bytes");
  REQUIRE(file);
  REQUIRE(file->size() == bytes.size());
  std::string read(bytes.size(), '\0');
  CHECK(!file->read(read.data(), read.size()));
  CHECK(read == bytes);
  Result<MappedFile> mapped = MappedFile::open(path, "bytes");
  REQUIRE(mapped);
  REQUIRE(mapped->bytes().size() == bytes.size());
  CHECK(std::memcmp(mapped->bytes().data(), bytes.data(), bytes.size()) == 0);
}

TEST_CASE("a file that is being read is replaced, or the old one stays and the error says so") {
  const Folder folder;
  const std::string path = folder / "model";
  write_file(path, "old");
  const auto replaced = [&] {
    const Error why = save(path, "new");
    CHECK(read_file(path) == (why ? "old" : "new"));
    if (why) CHECK(says(why.text(), path.c_str(), "cannot be replaced"));
    CHECK(folder.entries() == 1);
    return !why;
  };
#if defined(_WIN32)
  constexpr bool always = false;
#else
  constexpr bool always = true;
#endif
  {
    Result<InputFile> reader = InputFile::open(path, "a model");
    REQUIRE(reader);
    CHECK((replaced() || !always));
    char text[3];
    CHECK(!reader->read(text, 3));
    CHECK(std::string(text, 3) == "old");
  }
  write_file(path, "old");
  {
    Result<MappedFile> reader = MappedFile::open(path, "a model");
    REQUIRE(reader);
    CHECK((replaced() || !always));
    CHECK(std::memcmp(reader->bytes().data(), "old", 3) == 0);
  }
  CHECK(replaced());
}

}}  // namespace file_test
