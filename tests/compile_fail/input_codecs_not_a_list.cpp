// SPDX-License-Identifier: MIT
// expect: is a CodecList<Codec...>
#include <adacc/model/graph.hpp>

struct Gelu {
  static constexpr auto backward_reads = adacc::reads::input;
#ifdef SHOULD_FAIL
  using input_codecs = adacc::Bf16;
#else
  using input_codecs = adacc::CodecList<adacc::Bf16>;
#endif
};

adacc::CodecSpan codecs() { return adacc::detail::ToleratedBy<Gelu>::Input::span(); }
