// SPDX-License-Identifier: MIT
// What the programs draw has numbers with a point, in a locale with a decimal comma, too.
#include <doctest/doctest.h>

#include <cstdio>
#include <string>

#include <support/draw/svg.hpp>

namespace svg_test {

TEST_CASE("pieces of SVG are printf's, with a point in numbers") {
  char host[16];
  std::snprintf(host, sizeof host, "%.1f", 0.5);
  CHECK(std::string(host) == "0,5");  // as the locale of all tests has it
  CHECK(draw::print("M%.1f,%.2f H%g %s 100%%", 0.5, -12.345, 1e-7, "a,b") ==
        "M0.5,-12.35 H1e-07 a,b 100%");
  CHECK(draw::print("%6.2f|%-5zu|%c|%d%%", 3.0, std::size_t{7}, 'x', -4) == "  3.00|7    |x|-4%");
  CHECK(draw::print("no values, 50%%") == "no values, 50%");
  CHECK(draw::shown_bytes(1536) == "1.5 KiB");
}

}  // namespace svg_test
