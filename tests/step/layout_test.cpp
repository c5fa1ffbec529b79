#include <doctest/doctest.h>

#include "random_model.hpp"

using namespace adacc;

namespace {

using random_model::Bump;
using random_model::HalfSquare;
using random_model::Narrow;
using random_model::Shift;
using random_model::Softsign;
using random_model::Verbatim;
using random_model::Widen;

using Small = Network<Sequential<Layer<Widen, Recompute>, Layer<Softsign, Compress<Verbatim>>,
                                 Residual<Layer<Bump, Recompute>, Layer<Shift>>, Layer<Narrow>>,
                      HalfSquare>;

// The same functions, at compile time …
constexpr std::size_t small_peak = peak_bytes<Small>(Shape(8, 16));
static_assert(small_peak > 0 && small_peak <= 16 * KiB);

}  // namespace

TEST_CASE("the peak of a small network: the compiler's number, the run time's, and by hand") {
  const auto program = make_program(Small{}, Shape(8, 16));
  REQUIRE(program);
  CHECK(program->peak_bytes() == small_peak);

  // One retained layer, by hand: x is the caller's; y 512 bytes, aux 8 + 3, workspaces
  // 16 * 5 + 1 + 7 (forward), loss 16 + 1 in place, dx 512 beside dy, workspace 81 (backward).
  using One = Network<Sequential<Layer<Bump, Retain>>, HalfSquare>;
  const auto one = make_program(One{}, Shape(8, 16));
  REQUIRE(one);
  CHECK(one->layout.live_bytes == 512 + 512 + 64 + 128);
}

TEST_CASE("layouts waste little over the largest sum of live bytes") {
  double worst = 1, sum = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    const auto network = random_model::draw(seed, true);
    const auto program = make_program(network, Shape(16, 64), Dtype::f32, 2);
    REQUIRE(program);
    const double ratio = static_cast<double>(program->layout.arena_bytes) /
                         static_cast<double>(program->layout.live_bytes);
    worst = ratio > worst ? ratio : worst;
    sum += ratio;
  }
  MESSAGE("arena over live bytes, 300 random chains: mean " << sum / 300 << ", worst " << worst);
  CHECK(sum / 300 <= 1.01);
  CHECK(worst <= 1.15);
}
