// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <adacc/adacc.hpp>
#include <adacc/io/plan_text.hpp>

#include <string>

namespace plan_text_test {

using namespace adacc;

namespace {

struct Plain {
  static constexpr const char* name = "plain";
  static constexpr auto backward_reads = reads::input;
};
struct Loss {};
struct Halve {
  static constexpr const char* name = "halve";
  static constexpr std::size_t encoded_bytes(std::size_t rows, std::size_t cols, Dtype) {
    return rows * cols * 2;
  }
};

using Net =
    Network<Sequential<Layer<Plain, Recompute>, Layer<Plain, Compress<Halve>>, Layer<Plain>>, Loss>;

}  // namespace

TEST_CASE("a plan survives the way through text") {
  const auto graph = make_graph(Net{}, Shape(2, 4));
  REQUIRE(graph);
  const Plan plan = plan_from_types(*graph);
  const std::string text = plan_text(*graph, plan);
  CHECK(text == "0 plain recompute\n1 plain halve\n2 plain retain\n");
  Array<const CodecInfo*> codecs;
  codecs.push_back(&codec_info<Halve>);
  const auto parsed = parse_plan(text, *graph, codecs);
  REQUIRE_MESSAGE(parsed, parsed.error.text());
  for (int i = 0; i < 3; ++i) CHECK((*parsed)[i] == plan[i]);
}

TEST_CASE("numbers of runs survive, each with a number of its own among ranks") {
  const auto graph = make_graph(Net{}, Shape(2, 4));
  REQUIRE(graph);
  for (int runs = 1; runs <= most_runs; ++runs) {
    Plan plan = plan_from_types(*graph);
    plan.policies[1] = recompute(runs);
    plan.policies[2] = recompute(most_runs + 1 - runs);
    const std::string text = plan_text(*graph, plan);
    const auto parsed = parse_plan(text, *graph, {});
    REQUIRE_MESSAGE(parsed, parsed.error.text());
    for (int i = 0; i < 3; ++i) CHECK((*parsed)[i] == plan[i]);
    for (int other = 1; other <= most_runs; ++other)
      CHECK((recompute(other).number() == recompute(runs).number()) == (other == runs));
    CHECK(recompute(runs).number() % 2 == 1);
  }
  CHECK(parse_plan("0 plain recompute_3\n1 plain retain\n2 plain retain\n", *graph, {}));
  CHECK_FALSE(parse_plan("0 plain recompute_9\n1 plain retain\n2 plain retain\n", *graph, {}));
}

TEST_CASE("a plan that sends activations away survives with its room") {
  const auto graph = make_graph(Net{}, Shape(2, 4));
  REQUIRE(graph);
  Plan plan = plan_from_types(*graph);
  plan.policies[1] = keep(Form{&codec_info<Halve>, Place::store});
  plan.policies[2] = offload();
  plan.room_bytes = 4096;
  const std::string text = plan_text(*graph, plan);
  CHECK(text == "room 4096\n0 plain recompute\n1 plain offload_halve\n2 plain offload\n");
  Array<const CodecInfo*> codecs;
  codecs.push_back(&codec_info<Halve>);
  const auto parsed = parse_plan(text, *graph, codecs);
  REQUIRE_MESSAGE(parsed, parsed.error.text());
  CHECK(parsed->room_bytes == 4096);
  for (int i = 0; i < 3; ++i) CHECK((*parsed)[i] == plan[i]);
}

TEST_CASE("a plan names the tile of its loss, and goes on with no other") {
  auto graph = make_graph(Net{}, Shape(2, 4));
  REQUIRE(graph);
  const Plan plan = plan_from_types(*graph, retain());
  const std::string host = plan_text(*graph, plan);
  graph->loss.tile_rows = 256;
  const std::string text = plan_text(*graph, plan);
  CHECK(text == "tile 256\n" + host);
  Array<const CodecInfo*> codecs;
  codecs.push_back(&codec_info<Halve>);
  const auto why = [&](const std::string& of) {
    return std::string(parse_plan(of, *graph, codecs).error.text());
  };
  CHECK(why(text) == "");
  CHECK(why(host) == "");  // made where sums do not depend on it
  CHECK(why("tile x\n" + host) == "the plan's tile is \"x\"; expected a number of rows");
  CHECK(why("tile 0\n" + host) == "the plan's tile is \"0\"; expected a number of rows");
  CHECK(
      why("tile 512\n" + host) ==
      "the plan's head takes 512 rows at a time, and this graph's 256, whose sums have other last "
      "digits: set device_tile_rows to 512");
  graph->loss.tile_rows = 0;
  CHECK(why(text) == "");
}

TEST_CASE("every form has a name and a number of its own, and is read by its name") {
  const auto graph = make_graph(Net{}, Shape(2, 4));
  REQUIRE(graph);
  Array<const CodecInfo*> codecs;
  codecs.push_back(&codec_info<Halve>);
  Array<Policy> policies;
  policies.push_back(recompute());
  for (const CodecInfo* codec : {static_cast<const CodecInfo*>(nullptr), codecs[0]})
    each_form(codec, [&](const Form& form) { policies.push_back(keep(form)); });
  CHECK(policies.size() == 5);
  for (const Policy& policy : policies) {
    CAPTURE(std::string(name_of(policy)));
    const std::string line = std::string("plain ") + name_of(policy) + "\n";
    const auto parsed =
        parse_plan("0 " + line + "1 plain retain\n2 plain retain\n", *graph, codecs);
    REQUIRE_MESSAGE(parsed, parsed.error.text());
    CHECK((*parsed)[0] == policy);
    for (const Policy& other : policies) {
      CHECK((std::string(name_of(policy)) == name_of(other)) == (policy == other));
      CHECK((policy.number() == other.number()) == (policy == other));
    }
  }
}

TEST_CASE("text that is no plan of this graph is refused with its line") {
  const auto graph = make_graph(Net{}, Shape(2, 4));
  const Array<const CodecInfo*> none;
  const auto why = [&](const char* text) {
    return std::string(parse_plan(text, *graph, none).error.text());
  };
  CHECK(why("0 plain retain\n1 plain halve\n") ==
        "line 2 of the plan names the policy \"halve\"; expected retain, offload, recompute or the "
        "name of a known codec");
  CHECK(why("0 plain retain\n") == "the plan has 1 policies, and the graph has 3 activations");
  CHECK(why("0 gelu retain\n").find("expected \"0 plain POLICY\"") != std::string::npos);
  CHECK(why("0 plain retain") == "the plan's last line is cut off");
  CHECK(
      why("0 plain retain\n1 plain retain\n2 plain retain\n3 plain retain\n").find("more lines") !=
      std::string::npos);
  CHECK(why("") != "");
  CHECK(why("room 12x\n") == "the plan's room is \"12x\"; expected a number of bytes");
}

TEST_CASE("a plan of another graph is refused by its fingerprint, whatever its lines say") {
  const auto graph = make_graph(Net{}, Shape(2, 4)), other = make_graph(Net{}, Shape(8, 4));
  Array<const CodecInfo*> codecs;
  codecs.push_back(&codec_info<Halve>);
  const std::string text = plan_text(*other, plan_from_types(*other));
  CHECK(parse_plan(text, *other, codecs, other->fingerprint));
  CHECK(parse_plan(text, *graph, codecs));  // nobody says what it was made for
  const auto refused = parse_plan(text, *graph, codecs, other->fingerprint);
  CHECK(std::string(refused.error.text()).find("the plan was made for another graph") == 0);
}

}  // namespace plan_text_test
