// SPDX-License-Identifier: MIT
// expect: Compress<Codec> takes a codec: a type with a static
#include <adacc/policy/compress.hpp>

struct Half {
  static constexpr const char* name = "half";
#ifndef SHOULD_FAIL
  static constexpr std::size_t encoded_bytes(std::size_t rows, std::size_t cols, adacc::Dtype) {
    return rows * cols * 2;
  }
#endif
};

constexpr adacc::Policy policy() { return adacc::Compress<Half>::value; }
