// SPDX-License-Identifier: MIT
// expect: and a type (using
#include <adacc/model/graph.hpp>

struct Gelu {
  static constexpr auto backward_reads = adacc::reads::input;
#ifdef SHOULD_FAIL
  static constexpr adacc::CodecList<adacc::Bf16> input_codecs{};
#else
  using input_codecs = adacc::CodecList<adacc::Bf16>;
#endif
};

adacc::CodecSpan codecs() { return adacc::detail::ToleratedBy<Gelu>::Input::span(); }
