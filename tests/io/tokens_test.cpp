// SPDX-License-Identifier: MIT
#include "adacc/io/tokens.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "../train/support.hpp"
#include "adacc/io/weights/llmc_tokens.hpp"

namespace tokens_test { namespace {

using namespace adacc;
using train_test::bytes_of;
using train_test::Folder;
using train_test::says;
using train_test::write_file;

/// Tokens 0, 1, 2, …
Tokens counting(std::size_t count) {
  Block<std::uint16_t> ids = *Block<std::uint16_t>::make(count, "tokens");
  for (std::size_t i = 0; i < count; ++i) ids[i] = static_cast<std::uint16_t>(i);
  return Tokens("somewhere.bin", static_cast<Block<std::uint16_t>&&>(ids));
}

std::string token_file(std::int32_t magic, std::int32_t version, std::int32_t count,
                       const std::vector<std::uint16_t>& tokens) {
  std::vector<std::int32_t> words(256);
  words[0] = magic;
  words[1] = version;
  words[2] = count;
  return bytes_of(words) + bytes_of(tokens);
}

std::string read_error(const std::string& bytes, std::size_t vocabulary = 256) {
  const Folder folder;
  write_file(folder / "train.bin", bytes);
  const Result<Tokens> tokens = read_llmc_tokens(folder / "train.bin", vocabulary);
  CHECK(!tokens);
  CHECK(says(tokens.error.text(), "train.bin: ", "expected"));
  return tokens.error.text();
}

TEST_CASE("batches follow the file, targets are shifted by one") {
  const Tokens tokens = counting(100);
  std::int32_t inputs[6], targets[6];
  const View<std::int32_t> x(inputs, Shape(2, 3)), y(targets, Shape(2, 3));
  CHECK(!tokens.batch(0, 2, 3, x, y));
  CHECK(inputs[0] == 0);
  CHECK(inputs[5] == 5);
  CHECK(targets[0] == 1);
  CHECK(targets[5] == 6);
  CHECK(!tokens.batch(4, 2, 3, x, y));
  CHECK(inputs[0] == 24);
  CHECK(targets[5] == 30);
}

TEST_CASE("the file begins again as in llm.c's loader, for every length") {
  for (std::size_t count = 7; count <= 40; ++count) {
    CAPTURE(count);
    const Tokens tokens = counting(count);
    std::size_t position = 0;  // the loader, step by step
    for (std::uint64_t step = 0; step < 30; ++step) {
      if (position + 6 + 1 > count) position = 0;
      CHECK(tokens.position(step, 2, 3) == position);
      std::int32_t inputs[6], targets[6];
      CHECK(!tokens.batch(step, 2, 3, {inputs, Shape(6)}, {targets, Shape(6)}));
      CHECK(inputs[0] == static_cast<std::int32_t>(position));
      CHECK(targets[5] == static_cast<std::int32_t>(position + 6));
      position += 6;
    }
  }
  CHECK(counting(13).batches(2, 3) == 2);
  CHECK(counting(12).batches(2, 3) == 1);
  CHECK(counting(6).batches(2, 3) == 0);
}

TEST_CASE("fewer tokens than one batch, and batches that make no sense, are refused") {
  CHECK(!counting(7).check_batch(2, 3));
  CHECK(says(counting(6).check_batch(2, 3).text(), "somewhere.bin", "6 tokens", "at least 7"));
  CHECK(says(counting(0).check_batch(2, 3).text(), "somewhere.bin", "is empty"));
  CHECK(counting(7).check_batch(0, 3));
  CHECK(counting(7).check_batch(2, 0));
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  CHECK(says(counting(7).check_batch(most, 3).text(), "makes no sense"));
  CHECK(says(counting(7).check_batch(most, 1).text(), "makes no sense"));
  CHECK(counting(7).batches(most, 3) == 0);
  std::int32_t room[6];
  CHECK(counting(6).batch(0, 2, 3, {room, Shape(6)}, {room, Shape(6)}));
  CHECK(says(counting(7).batch(0, 2, 3, {room, Shape(5)}, {room, Shape(6)}).text(), "room for 5"));
}

TEST_CASE("a token file is read as written") {
  const Folder folder;
  write_file(folder / "train.bin", token_file(20240520, 1, 4, {7, 0, 255, 3}));
  const Result<Tokens> tokens = read_llmc_tokens(folder / "train.bin", 256);
  REQUIRE(tokens);
  CHECK(tokens->size() == 4);
  CHECK((*tokens)[0] == 7);
  CHECK((*tokens)[2] == 255);
  CHECK(tokens->source() == folder / "train.bin");
}

TEST_CASE("an id beyond the vocabulary is named with its place") {
  CHECK(says(read_error(token_file(20240520, 1, 4, {7, 0, 300, 301})).c_str(), "token 2", "id 300",
             "vocabulary of 256"));
  CHECK(says(read_error(token_file(20240520, 1, 1, {5}), 5).c_str(), "token 0", "id 5"));
}

TEST_CASE("damaged and foreign token files are refused") {
  const std::string good = token_file(20240520, 1, 4, {1, 2, 3, 4});
  CHECK(says(read_error(good.substr(0, good.size() - 1)).c_str(), "truncated", "4 tokens"));
  CHECK(says(read_error(good + "x").c_str(), "too long", "4 tokens"));
  CHECK(says(read_error(good.substr(0, 700)).c_str(), "truncated", "700 bytes"));
  CHECK(says(read_error(good.substr(0, 3)).c_str(), "truncated", "3 bytes"));
  CHECK(says(read_error("").c_str(), "is empty"));
  CHECK(says(read_error(token_file(20240326, 3, 4, {1, 2, 3, 4})).c_str(), "20240326",
             "llm.c model checkpoint"));
  CHECK(
      says(read_error(token_file(20240520, 2, 4, {1, 2, 3, 4})).c_str(), "version 2", "version 1"));
  CHECK(
      says(read_error(token_file(20240520, 1, 5, {1, 2, 3, 4})).c_str(), "truncated", "5 tokens"));
  CHECK(says(read_error(token_file(20240520, 1, 3, {1, 2, 3, 4})).c_str(), "too long", "3 tokens"));
  CHECK(says(read_error(token_file(20240520, 1, -3, {1, 2, 3, 4})).c_str(), "-3 tokens"));
  CHECK(says(read_error(token_file(20240520, 1, 0, {})).c_str(), "no tokens"));
  CHECK(says(
      read_error(token_file(20240520, 1, std::numeric_limits<std::int32_t>::max(), {1})).c_str(),
      "truncated"));
  const Folder folder;
  CHECK(says(read_llmc_tokens(folder / "none", 256).error.text(), "/none: ", "No such file"));
  CHECK(says(read_llmc_tokens(folder.path, 256).error.text(), "is a folder"));
}

}}  // namespace tokens_test
