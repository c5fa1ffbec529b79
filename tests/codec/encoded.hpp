// SPDX-License-Identifier: MIT
/// What tests of codecs do over and over: encode a matrix, decode a blob, on some threads.
#pragma once

#include <doctest/doctest.h>

#include <adacc/core/cpu.hpp>
#include <adacc/core/dtype.hpp>
#include <adacc/core/error.hpp>

#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "sample.hpp"

namespace sample {

/// Threads of its own for every run: the plainest executor there is.
struct Threads {
  int count;
  int workers() const { return count; }
  void run(std::size_t tiles, adacc::TileFn tile) const {
    std::vector<std::thread> threads;
    for (int w = 0; w < count; ++w)
      threads.emplace_back([=, this] {
        for (std::size_t i = static_cast<std::size_t>(w); i < tiles;
             i += static_cast<std::size_t>(count))
          tile(i, w);
      });
    for (std::thread& thread : threads) thread.join();
  }
};

template <class Codec, class T>
Blob encoded(const Matrix<T>& x, unsigned char pattern = 0xA5, adacc::Cpu cpu = {}) {
  Blob blob(Codec::encoded_bytes(x.rows, x.cols, adacc::dtype_of<T>), pattern);
  const adacc::Error error = Codec::template encode<T>(cpu, x.view(), blob.view());
  CHECK(std::string(error.text()) == "");
  REQUIRE(blob.guards_hold());
  return blob;
}

template <class Codec, class T>
Matrix<T> decoded(const Blob& blob, std::size_t rows, std::size_t cols) {
  adacc::Cpu cpu;
  Matrix<T> x(rows, cols);
  const adacc::Error error = Codec::template decode<T>(cpu, blob.view(), x.view());
  CHECK(std::string(error.text()) == "");
  REQUIRE(x.guards_hold());
  return x;
}

template <class Codec, class T>
Matrix<T> round_trip(const Matrix<T>& x) {
  return decoded<Codec, T>(encoded<Codec>(x), x.rows, x.cols);
}

}  // namespace sample
