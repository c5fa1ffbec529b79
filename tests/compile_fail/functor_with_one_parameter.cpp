// SPDX-License-Identifier: MIT
// expect: parameters(Shape in) returns a list of ParameterSpec
#include <adacc/model/contract.hpp>

#include <array>

using namespace adacc;

struct Scale {
#ifdef SHOULD_FAIL
  constexpr ParameterSpec parameters(Shape) const { return {.name = "w", .shape = Shape(1)}; }
#else
  constexpr std::array<ParameterSpec, 1> parameters(Shape) const {
    return {ParameterSpec{.name = "w", .shape = Shape(1)}};
  }
#endif
};

constexpr bool counted = [] {
  int count = 0;
  layer_traits<Scale>::parameters(Scale{}, Shape(2, 3), [&](const auto&) { ++count; });
  return count == 1;
}();
static_assert(counted);
