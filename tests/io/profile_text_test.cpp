// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <adacc/adacc.hpp>
#include <adacc/io/profile_text.hpp>

#include <cstring>
#include <string>

#include "../train/support.hpp"

namespace profile_text_test {

using namespace adacc;
using train_test::Folder;
using train_test::says;

namespace {

struct Wide {
  static constexpr const char* name = "wide";
  static constexpr auto backward_reads = reads::input;
  using input_codecs = CodecList<Bf16>;
};
struct Loss {};
struct Halve {
  static constexpr const char* name = "halve";
  static constexpr std::size_t encoded_bytes(std::size_t rows, std::size_t cols, Dtype) {
    return rows * cols * 2;
  }
};
using Net =
    Network<Sequential<Layer<Wide, Compress<Halve>>,
                       Repeat<Sequential<Layer<Wide>, Layer<Wide, Recompute>>>, Layer<Wide>>,
            Loss>;

Graph graph_of(Shape shape, int copies = 3) {
  Net net{};
  net.model = {{}, {copies, {}}, {}};
  auto graph = make_graph(net, shape);
  REQUIRE_MESSAGE(graph, graph.error.text());
  return *graph;
}

CostProfile profile_of(const Graph& graph, bool equal_copies) {
  CostProfile profile = empty_profile(graph);
  for (int k = 0; k < graph.node_count(); ++k) {
    const double x = equal_copies ? graph.node(k).layer : k;
    profile.nodes[static_cast<std::size_t>(k)] = {1e-3 + x / 3, 2e-3 + x / 7, 1e-9 * x, 0};
    for (std::size_t c = 0; c < profile.codecs.size(); ++c)
      profile.codec_cost(k, static_cast<int>(c)) = {x / 11, 1e-5, 1e-300 * x, x * 1e8};
  }
  profile.loss = 0.1;
  profile.rest = 1.0 / 3;
  return profile;
}

bool same(const CostProfile& a, const CostProfile& b) {
  const auto equal = [](const auto& x, const auto& y) {
    return x.size() == y.size() &&
           (x.size() == 0 || std::memcmp(x.data(), y.data(), x.size() * sizeof x[0]) == 0);
  };
  return equal(a.nodes, b.nodes) && equal(a.codecs, b.codecs) &&
         equal(a.codec_costs, b.codec_costs) && a.loss == b.loss && a.rest == b.rest;
}

std::size_t count(const std::string& text, const char* what) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++found;
  return found;
}

/// `text` with `from` replaced, and a checksum that is right again.
std::string altered(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  text.replace(at, from.size(), to);
  text.resize(text.rfind("checksum "));
  return text + adacc::detail::checksum_line(text);
}

const ProfileSource source{"A Processor @ 2 GHz", "a model of 3 blocks", 2};

}  // namespace

TEST_CASE("a profile survives the way through text to the bit, with a row for each layer") {
  const Graph graph = graph_of(Shape(64, 6));
  for (const bool equal : {true, false}) {
    CAPTURE(equal);
    const CostProfile profile = profile_of(graph, equal);
    REQUIRE_FALSE(examine(graph, profile));
    const std::string text = profile_text(graph, profile, source);
    const auto parsed = parse_profile(text, graph, source);
    REQUIRE_MESSAGE(parsed, parsed.error.text());
    CHECK(same(*parsed, profile));
    CHECK(count(text, "\nlayer ") == 4);
    CHECK(count(text, "\nnode ") == (equal ? 0 : 4));
  }
}

TEST_CASE("the text is what its documentation says") {
  const Graph graph = graph_of(Shape(64, 6));
  const std::string text = profile_text(graph, profile_of(graph, true), source);
  CHECK(text.find("adacc cost profile, version 1\nmachine A Processor @ 2 GHz\nthreads 2\n"
                  "input f32 (64, 6)\nscalar f32\nmodel a model of 3 blocks\nnodes 8\n"
                  "codec bf16\ncodec halve\nloss 0.1\nrest 0.3333333333333333\n"
                  "layer 0 wide 0.001 0.002 0 0 0 1e-05 0 0 0 1e-05 0 0\n") == 0);
}

TEST_CASE("a profile of something else is refused with the reason") {
  const Graph graph = graph_of(Shape(64, 6));
  const std::string text = profile_text(graph, profile_of(graph, false), source);
  const auto why = [](const std::string& read, const Graph& of, const ProfileSource& from) {
    return std::string(parse_profile(read, of, from).error.text());
  };
  CHECK(why(text, graph, {"B", source.model, 2}) ==
        "was measured with another machine: there \"A Processor @ 2 GHz\", here \"B\"");
  CHECK(why(text, graph, {source.machine, "b", 2}).find("another model") != std::string::npos);
  CHECK(why(text, graph, {source.machine, source.model, 3}).find("another number of threads") !=
        std::string::npos);
  CHECK(parse_profile(text, graph, {source.machine, source.model, 3, true}));
  CHECK(why(text, graph, {"B", source.model, 3, true}).find("another machine") !=
        std::string::npos);
  CHECK(why(altered(text, "threads 2", "threads"), graph, {source.machine, source.model, 2, true})
            .find("threads") != std::string::npos);
  CHECK(why(text, graph_of(Shape(64, 8)), source).find("another input") != std::string::npos);
  CHECK(why(text, graph_of(Shape(64, 6), 4), source).find("another nodes") == std::string::npos);
  CHECK(why(text, graph_of(Shape(64, 6), 4), source).find("number of nodes") != std::string::npos);
  CHECK(why(altered(text, "version 1", "version 2"), graph, source) ==
        "is of version 2; this program reads version 1");
  CHECK(why(altered(text, "codec bf16", "codec bf17"), graph, source) ==
        "has costs of the codec bf17, which this model's layers do not tolerate");
  CHECK(why(altered(text, "codec bf16", "codec halve"), graph, source) ==
        "lists the codec halve twice");
  CHECK(why(altered(text, "layer 1 wide", "layer 1 gelu"), graph, source).find("line 13") !=
        std::string::npos);
  CHECK(why("", graph, source).find("is not an adacc cost profile") == 0);
  CHECK(why("0 plain retain\n", graph, source) ==
        "is not an adacc cost profile: it starts with \"0 plain retain\"");
}

TEST_CASE("damage and nonsense are refused, wherever they are") {
  const Graph graph = graph_of(Shape(64, 6));
  const std::string text = profile_text(graph, profile_of(graph, false), source);
  for (std::size_t size = 0; size < text.size(); ++size) {
    CAPTURE(size);
    CHECK_FALSE(parse_profile(text.substr(0, size), graph, source));
  }
  for (std::size_t at = 0; at < text.size(); ++at)
    for (const int flip : {1, 2, 16}) {
      std::string damaged = text;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      CHECK_FALSE(parse_profile(damaged, graph, source));
    }
  const auto why = [&](const char* from, const char* to) {
    return std::string(parse_profile(altered(text, from, to), graph, source).error.text());
  };
  CHECK(why("loss 0.1", "loss nan").find("finite and not negative") != std::string::npos);
  CHECK(why("loss 0.1", "loss -1").find("finite and not negative") != std::string::npos);
  CHECK(why("loss 0.1", "loss inf").find("finite and not negative") != std::string::npos);
  CHECK(why("loss 0.1", "loss 0.1x").find("is wrong in line 10") == 0);
  CHECK(why("loss 0.1", "loss").find("is wrong in line 10") == 0);
  CHECK(why("layer 0 wide 0.001 ", "layer 0 wide 0 ").find("takes no time") != std::string::npos);
  CHECK(why("layer 0 wide 0.001 ", "layer 0 wide -1 ").find("not negative") != std::string::npos);
  CHECK(why("layer 0 wide 0.001 ", "layer 0 wide ").find("12 numbers") != std::string::npos);
  CHECK(why("node 1 ", "node 9 ").find("a node from 0 to 7") != std::string::npos);
  CHECK(why("threads 2\n", "threads\n").find("is wrong in line 3") == 0);
  CHECK(why("codec bf16\n", "").find("numbers") != std::string::npos);
}

TEST_CASE("files: saved whole, loaded, and refused with their name") {
  const Folder folder;
  const Graph graph = graph_of(Shape(64, 6));
  const CostProfile profile = profile_of(graph, false);
  const std::string path = folder / "profile.txt";
  REQUIRE_FALSE(save_profile(path, graph, profile, source));
  CHECK(folder.entries() == 1);
  const auto loaded = load_profile(path, graph, source);
  REQUIRE_MESSAGE(loaded, loaded.error.text());
  CHECK(same(*loaded, profile));
  CHECK(
      says(load_profile(path, graph, {"B", "", 1}).error.text(), path.c_str(), "another machine"));
  CHECK(says(load_profile(folder / "none", graph, source).error.text(), "cannot be opened",
             "expected an adacc cost profile"));
  const std::string before = train_test::read_file(path);
  CostProfile nonsense = profile;
  nonsense.nodes[2].forward = -1;
  CHECK(says(save_profile(path, graph, nonsense, source).text(), "not written"));
  CHECK(train_test::read_file(path) == before);
  train_test::write_file(path, before.substr(0, before.size() / 2));
  CHECK(says(load_profile(path, graph, source).error.text(), path.c_str(), "is cut off"));
}

TEST_CASE("the machine's name is the processor's, or unknown") {
  const Folder folder;
  train_test::write_file(folder / "a",
                         "processor\t: 0\nmodel name\t: Some CPU @ 3 GHz \nflags : x\n");
  train_test::write_file(folder / "b", "processor : 0\nmodel name :\n");
  CHECK(machine_name(folder / "a") == "Some CPU @ 3 GHz");
  CHECK(machine_name(folder / "b") == "unknown");
  CHECK(machine_name(folder / "none") == "unknown");
  CHECK(machine_name() != "");
}

TEST_CASE("text of the source cannot break lines") {
  const Graph graph = graph_of(Shape(64, 6));
  const ProfileSource odd{"a\nthreads 9", "b\r\n", 1};
  const auto parsed = parse_profile(profile_text(graph, profile_of(graph, true), odd), graph, odd);
  REQUIRE_MESSAGE(parsed, parsed.error.text());
}

}  // namespace profile_text_test
