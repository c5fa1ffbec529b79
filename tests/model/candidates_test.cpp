// SPDX-License-Identifier: MIT
/// Which codecs an activation's readers agree on.
#include <doctest/doctest.h>

#include <adacc/adacc.hpp>

#include <string>

namespace candidates_test {

using namespace adacc;

namespace {

/// A codec in name: `Share` per cent of the tensor's bytes, but nothing with one column.
template <char Name, std::size_t Share>
struct Codec {
  static constexpr char text[] = {Name, '\0'};
  static constexpr const char* name = text;
  static constexpr std::size_t encoded_bytes(std::size_t rows, std::size_t cols, Dtype dtype) {
    return cols == 1 ? 0 : rows * cols * bytes_of(dtype) * Share / 100;
  }
};
using A = Codec<'a', 10>;
using B = Codec<'b', 20>;
using C = Codec<'c', 99>;
using Useless = Codec<'u', 100>;
/// As A, and keeps something more.
struct More : A {
  static constexpr const char* name = "more";
  using tolerated_as = A;
};

template <Reads R, class Input, class Output = CodecList<>>
struct Reader {
  static constexpr auto backward_reads = R;
  using input_codecs = Input;
  using output_codecs = Output;
};
struct Silent {
  static constexpr auto backward_reads = reads::input;
};
struct Blind {
  static constexpr auto backward_reads = reads::none;
};
struct Theirs {
  static constexpr auto backward_reads = reads::input;
};
struct Narrow {
  static constexpr auto backward_reads = reads::none;
  constexpr Shape output_shape(Shape in) const { return in.with_cols(1); }
};
struct Loss {};

template <class... Functors>
constexpr Result<Graph> lower() {
  return make_graph(Network<Sequential<Layer<Functors>...>, Loss>{}, Shape(100, 8));
}

std::string candidates(const Result<Graph>& graph, int activation) {
  REQUIRE_MESSAGE(graph, graph.error.text());
  std::string names;
  const CodecSpan span = graph->candidates_of(graph->node(activation));
  for (std::size_t i = 0; i < span.count; ++i) names += span[i]->name;
  return names;
}

using In = Reader<Reads::input, CodecList<A, B, C>>;
using Out = Reader<Reads::output, CodecList<>, CodecList<C, B>>;

}  // namespace
}  // namespace candidates_test

template <>
struct adacc::codec_traits<candidates_test::Theirs> {
  using input = adacc::CodecList<candidates_test::C, candidates_test::A>;
  using output = adacc::CodecList<>;
};

namespace candidates_test {

TEST_CASE("candidates are what all readers in backward tolerate, in the first one's order") {
  const auto graph = lower<Blind, In, Out, In, Blind, Blind, Theirs, Silent>();
  CHECK(candidates(graph, 0) == "abc");  // read by In
  CHECK(candidates(graph, 1) == "");     // by nobody: Out reads its own output only
  CHECK(candidates(graph, 2) == "cb");   // by Out and In
  CHECK(candidates(graph, 3) == "");
  CHECK(candidates(graph, 4) == "");
  CHECK(candidates(graph, 5) == "ca");         // the specialization
  CHECK(candidates(graph, 6) == "bf16");       // the default
  CHECK(candidates(graph, 7) == "");           // the loss reads in forward
  CHECK(candidates(lower<Out>(), 0) == "cb");  // the last layer's own output
}

TEST_CASE("a codec that keeps more than another is tolerated by whoever tolerates that one") {
  using Asks = Reader<Reads::output, CodecList<>, CodecList<More, C>>;
  CHECK(candidates(lower<Asks, In>(), 0) == "morec");
  CHECK(candidates(lower<Asks, Reader<Reads::input, CodecList<B>>>(), 0) == "");
  CHECK(candidates(lower<Asks, Reader<Reads::input, CodecList<More>>>(), 0) == "more");
  // Nobody asks for it: it is no candidate.
  CHECK(candidates(lower<Blind, In>(), 0) == "abc");
  // Who asks for it does not tolerate the other one.
  CHECK(candidates(lower<Reader<Reads::output, CodecList<>, CodecList<A>>,
                         Reader<Reads::input, CodecList<More>>>(),
                   0) == "");
  // Two layers read the activation beside the one that asks.
  const auto beside = []<class Shortcut>(Shortcut) {
    const Network<Sequential<Layer<Asks>, ProjectedResidual<Layer<Shortcut>, Layer<In>>>, Loss>
        net{};
    return candidates(make_graph(net, Shape(100, 8)), 0);
  };
  CHECK(beside(In{}) == "morec");
  CHECK(beside(Reader<Reads::input, CodecList<A>>{}) == "more");
  CHECK(beside(Reader<Reads::input, CodecList<B>>{}) == "");
}

TEST_CASE("readers that agree on nothing leave no candidate") {
  CHECK(candidates(lower<Reader<Reads::output, CodecList<>, CodecList<A>>,
                         Reader<Reads::input, CodecList<B>>>(),
                   0) == "");
  CHECK(candidates(lower<Blind, Reader<Reads::input, CodecList<>>>(), 0) == "");
}

TEST_CASE("what cannot encode an activation, or does not make it smaller, is no candidate") {
  using Any = Reader<Reads::input, CodecList<Useless, B>>;
  CHECK(candidates(lower<Blind, Any>(), 0) == "b");
  CHECK(candidates(lower<Narrow, Any>(), 0) == "");
}

TEST_CASE("copies of a block have candidates of their own") {
  using Block = Residual<Layer<Blind>, Layer<In>>;
  const Network<Sequential<Repeat<Block>, Layer<Theirs>>, Loss> net{{{3, {}}, {}}, {}};
  const auto graph = make_graph(net, Shape(100, 8));
  for (int copy = 0; copy < 3; ++copy) CHECK(candidates(graph, 2 * copy) == "abc");
  CHECK(candidates(graph, 1) == "");    // read by Blind
  CHECK(candidates(graph, 5) == "ca");  // the last copy's, by Theirs
}

TEST_CASE("Compress<Tolerated> is the first candidate, or retains") {
  using Policies =
      Sequential<Layer<Blind, Compress<Tolerated>>, Layer<In, Compress<Tolerated>>,
                 Layer<Reader<Reads::input, CodecList<>>, Compress<Tolerated>>, Layer<Out, Retain>>;
  constexpr auto first = [] {
    return make_graph(Network<Policies, Loss>{}, Shape(100, 8))->node(0).policy;
  };
  static_assert(first() == compress(&codec_info<A>));
  const auto graph = make_graph(Network<Policies, Loss>{}, Shape(100, 8));
  REQUIRE(graph);
  CHECK(graph->node(1).policy == retain());
  CHECK(graph->node(2).policy == retain());
  CHECK_FALSE(examine(*graph, plan_from_types(*graph)));
}

}  // namespace candidates_test
