// SPDX-License-Identifier: MIT
#include "adacc/io/text.hpp"

#include <doctest/doctest.h>

#include <sys/stat.h>

#include "../train/support.hpp"

namespace text_test { namespace {

using namespace adacc;
using train_test::Folder;
using train_test::says;
using train_test::write_file;

std::string contents(const Tokens& tokens) {
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) text += static_cast<char>(tokens[i]);
  return text;
}

TEST_CASE("a file is its bytes, whatever they are") {
  const Folder folder;
  std::string bytes;
  for (int i = 0; i < 40000; ++i) bytes += static_cast<char>(i % 256);
  write_file(folder / "text", bytes);
  const Result<Tokens> tokens = read_text(folder / "text");
  REQUIRE(tokens);
  CHECK(contents(*tokens) == bytes);
  CHECK((*tokens)[255] == 255);
  CHECK(!tokens->check_vocabulary(256));
  CHECK(says(tokens->check_vocabulary(128).text(), "token 128", "id 128"));
}

TEST_CASE("a folder is its regular files in the order of their paths") {
  const Folder folder;
  std::filesystem::create_directories(folder / "b/deep");
  write_file(folder / "c", "3");
  write_file(folder / "a", "1");
  write_file(folder / "b/deep/z", "2");
  write_file(folder / "b/empty", "");
#if !defined(_WIN32) && !defined(__EMSCRIPTEN__)
  const std::string pipe = folder / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  std::filesystem::create_symlink("nowhere", folder / "dangling");
  std::filesystem::create_directory_symlink("..", folder / "b/loop");
#endif
  const Result<Tokens> tokens = read_text(folder.path);
  REQUIRE(tokens);
  CHECK(contents(*tokens) == "123");
}

TEST_CASE("where there is no text, one line says so") {
  const Folder folder;
  CHECK(says(read_text(folder / "none").error.text(), "/none: ", "No such file", "expected text"));
  CHECK(says(read_text(folder.path).error.text(), folder.path.c_str(), "no files"));
  write_file(folder / "a", "");
  CHECK(says(read_text(folder / "a").error.text(), "/a: is empty"));
  write_file(folder / "b", "");
  CHECK(says(read_text(folder.path).error.text(), folder.path.c_str(), "all files", "empty"));
#if !defined(_WIN32) && !defined(__EMSCRIPTEN__)
  CHECK(says(read_text("/dev/zero").error.text(), "/dev/zero", "not a regular file"));
#endif
  CHECK(!read_text(""));
}

}}  // namespace text_test
