// SPDX-License-Identifier: MIT
/// What several of these tests need: a folder that vanishes, files of given bytes, batches, threads, state.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "adacc/core/array.hpp"
#include "adacc/core/bytes.hpp"
#include "adacc/core/cpu.hpp"
#include "adacc/core/error.hpp"
#include "adacc/core/number_text.hpp"
#include "adacc/core/random.hpp"
#include "adacc/core/view.hpp"
#include "adacc/model/parameter.hpp"

namespace train_test {

/// A fresh folder, removed with all in it at the end of the scope.
struct Folder {
  Folder() {
    std::random_device random;
    const auto temporary = std::filesystem::temp_directory_path();
    do
      path = (temporary / ("adacc_test_" + std::string(adacc::NumberText::hexadecimal(random()))))
                 .string();
    while (!std::filesystem::create_directory(path));
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string operator/(const char* name) const { return path + "/" + name; }
  /// Files, folders and links directly in it.
  std::size_t entries() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path))
      count += !entry.path().empty();
    return count;
  }
  std::string path;
};

inline void write_file(const std::string& path, const std::string& bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return;
  std::fwrite(bytes.data(), 1, bytes.size(), file);
  std::fclose(file);
}

inline std::string read_file(const std::string& path) {
  std::string bytes;
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return bytes;
  char buffer[4096];
  for (std::size_t got; (got = std::fread(buffer, 1, sizeof buffer, file)) > 0;)
    bytes.append(buffer, got);
  std::fclose(file);
  return bytes;
}

/// The memory of some numbers, as the contents of a file.
template <class T>
std::string bytes_of(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

/// True if `text` is one line that contains all of `pieces`.
template <class... Pieces>
bool says(const char* text, const Pieces&... pieces) {
  return std::strchr(text, '\n') == nullptr && ((std::strstr(text, pieces) != nullptr) && ...);
}

/// Tokens below `vocab` and their targets, which follow from the number alone.
struct TokenBatch {
  adacc::Shape shape;
  std::vector<std::int32_t> x, y;

  TokenBatch(std::size_t number, adacc::Shape of, std::size_t vocab) : shape(of) {
    for (std::size_t i = 0; i < shape.elems(); ++i) {
      const std::size_t at = number * shape.elems() + i;
      x.push_back(static_cast<std::int32_t>(adacc::random_word({.seed = 1}, at) % vocab));
      y.push_back(static_cast<std::int32_t>(adacc::random_word({.seed = 2}, at) % vocab));
    }
  }
  adacc::View<const std::int32_t> input() const { return {x.data(), shape}; }
  adacc::View<const std::int32_t> targets() const { return {y.data(), shape}; }
};

/// All state of a training's optimizer, as the host sees it. Ends the program where it cannot be read.
template <class Trained>
std::vector<std::byte> state_of(const Trained& training) {
  std::vector<std::byte> state(training.table().bytes());
  const adacc::Error why =
      training.copy_state(adacc::Bytes(state.data(), adacc::Shape(state.size())));
  if (why) {
    std::fprintf(stderr, "the optimizer's state: %s\n", why.text());
    std::abort();
  }
  return state;
}

/// Runs tiles in reverse order on three made-up worker ids.
struct Backwards {
  int workers() const { return 3; }
  void run(std::size_t tiles, adacc::TileFn tile) const {
    for (std::size_t i = tiles; i-- > 0;) tile(i, static_cast<int>(i) % 3);
  }
};

/// Executor over `count` threads that take tiles in whatever order they come.
struct Threads {
  int count = 1;
  int workers() const { return count; }
  void run(std::size_t tiles, adacc::TileFn tile) const {
    std::atomic<std::size_t> next{0};
    const auto work = [&](int worker) {
      for (std::size_t i = next++; i < tiles; i = next++) tile(i, worker);
    };
    std::vector<std::thread> threads;
    for (int worker = 1; worker < count; ++worker) threads.emplace_back(work, worker);
    work(0);
    for (std::thread& thread : threads) thread.join();
  }
};

/// Adds a parameter of `shape` to a table whose block has `elems` elements so far.
inline adacc::Parameter& add_parameter(adacc::Array<adacc::Parameter>& table, std::size_t& elems,
                                       adacc::Shape shape, int node = 0) {
  adacc::Parameter parameter;
  parameter.name = "weight";
  parameter.shape = shape;
  parameter.node = node;
  parameter.offset = elems;
  elems += adacc::align_up(shape.elems() * sizeof(float)) / sizeof(float);
  table.push_back(parameter);
  return table.back();
}

}  // namespace train_test
