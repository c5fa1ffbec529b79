// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <adacc/adacc.hpp>
#include <adacc/codec/bit_mask.hpp>

#include <string>

namespace plan_test {

using namespace adacc;

namespace {

/// Asks only whether its output is positive, as ReLU does.
struct Asks {
  static constexpr const char* name = "asks";
  static constexpr auto backward_reads = reads::output;
  using output_codecs = CodecList<BitMask, Bf16>;
};
/// Reads nothing, or its input's values.
struct Ignores {
  static constexpr const char* name = "ignores";
  static constexpr auto backward_reads = reads::none;
};
struct Wants {
  static constexpr const char* name = "wants";
  static constexpr auto backward_reads = reads::input;
};
struct Loss {};

template <class Next, class NextPolicy>
std::string why() {
  using Net = Network<
      Sequential<Layer<Asks, Compress<BitMask>>, Layer<Next, NextPolicy>, Layer<Wants, Retain>>,
      Loss>;
  return make_program(Net{}, Shape(64, 8)).error.text();
}

}  // namespace

TEST_CASE("a codec that keeps no values serves only readers that ask for no more") {
  CHECK(why<Ignores, Retain>() == "");
  CHECK(why<Wants, Retain>() ==
        "the codec bit_mask keeps no values, and a layer whose backward reads activation 0 (asks) "
        "needs them");
  CHECK(why<Ignores, Recompute>() ==
        "the codec bit_mask keeps no values, and activation 1 (ignores) is recomputed from "
        "activation 0 (asks): keep one of them otherwise");

  // A sum that is recomputed reads its source, too.
  using Sum = Network<
      Sequential<Layer<Asks, Compress<BitMask>>,
                 Residual<Layer<Ignores, Retain>, Layer<Ignores, Recompute>>, Layer<Wants, Retain>>,
      Loss>;
  CHECK(std::string(make_program(Sum{}, Shape(64, 8)).error.text())
            .find("is recomputed from "
                  "activation 0") != std::string::npos);
}

}  // namespace plan_test
