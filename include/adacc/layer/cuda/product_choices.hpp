// SPDX-License-Identifier: MIT
/// Algorithms of products that were chosen by time, as plain numbers: what one run measured, another one takes.
///
/// Algorithms differ in the order of sums, so choices by time differ in bits. Kept choices have the same bits from run to
/// run. They hold for one version of the library and one kind of device (io/product_choices.hpp keeps them in a file).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "../../core/array.hpp"

namespace adacc { inline namespace v0_1 {

/// The choice of an algorithm depends on these.
struct ProductKey {
  std::size_t m = 0, n = 0, k = 0, a_stride = 0, c_stride = 0;
  std::size_t room = 0;        ///< bytes of workspace that the product may use
  std::uint32_t boundary = 0;  ///< divides all addresses
  std::uint32_t flags = 0;     ///< types, transpositions and what is added (CudaProducts)
  bool operator==(const ProductKey&) const = default;
};

/// An algorithm in the library's own form.
struct ProductAlgorithm {
  static constexpr std::size_t words = 8;
  std::uint64_t word[words] = {};
  bool operator==(const ProductAlgorithm&) const = default;
};

struct ProductChoice {
  ProductKey key;
  ProductAlgorithm algorithm;
  int heuristic = 0;        ///< its number among the algorithms that were offered
  double microseconds = 0;  ///< of one product; 0: not known
  bool operator==(const ProductChoice&) const = default;
};

struct ProductChoices {
  std::string library, device;  ///< where they hold
  Array<ProductChoice> list;
};

}}  // namespace adacc::v0_1
