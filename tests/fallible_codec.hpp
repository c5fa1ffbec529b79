// SPDX-License-Identifier: MIT
/// A codec that fails when it is told to.
#pragma once

#include <adacc/core/bytes.hpp>
#include <adacc/core/cpu.hpp>
#include <adacc/core/dtype.hpp>
#include <adacc/core/error.hpp>
#include <adacc/core/view.hpp>

#include <cstddef>
#include <cstring>

/// Keeps floats as they are, until its thread, which runs a rank, is told to fail.
struct Fallible {
  static inline thread_local bool fails = false;
  static constexpr const char* name = "fallible";
  static constexpr bool lossless = true;
  static constexpr std::size_t encoded_bytes(std::size_t rows, std::size_t cols,
                                             adacc::Dtype dtype) {
    return rows * cols * adacc::bytes_of(dtype) - 4;  // smaller, so that a graph lists it
  }
  template <class T>
  static adacc::Error encode(adacc::Cpu&, adacc::View<const T> x, adacc::Bytes blob) {
    std::memcpy(blob.data(), x.data(), blob.size());
    return {};
  }
  template <class T>
  static adacc::Error decode(adacc::Cpu&, adacc::ConstBytes blob, adacc::View<T> x) {
    if (fails) return adacc::Error::say("this codec was told to fail");
    std::memcpy(x.data(), blob.data(), blob.size());
    return {};
  }
};
