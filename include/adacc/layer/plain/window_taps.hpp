// SPDX-License-Identifier: MIT
/// The loop of plain convolutions over outputs and taps.
#pragma once

#include <cstddef>

#include "../math/picture.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// body(element of y, its channel, element of x, tap) for all taps of `window` within the pictures of shape `in`; the
/// channels of the output's group lie from the element of x on. `to` is y's shape.
template <class Body>
void for_each_tap(const Window& window, std::size_t groups, Shape in, Shape to, const Body& body) {
  const std::size_t from = in.cols() / groups, of_group = to.cols() / groups;
  std::size_t e = 0;
  for (std::size_t b = 0; b < to[0]; ++b)
    for (std::size_t i = 0; i < to[1]; ++i)
      for (std::size_t j = 0; j < to[2]; ++j) {
        const WindowPixels pixels(window, in, i, j);
        for (std::size_t o = 0; o < to.cols(); ++o, ++e)
          for (std::size_t r = pixels.rows.first; r < pixels.rows.last; ++r)
            for (std::size_t s = pixels.cols.first; s < pixels.cols.last; ++s)
              body(e, o, pixels.element(in, b, r, s) + o / of_group * from,
                   r * window.kernel.width + s);
      }
}

}}}  // namespace adacc::v0_1::detail
