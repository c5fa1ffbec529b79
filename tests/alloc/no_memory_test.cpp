// SPDX-License-Identifier: MIT
/// Readers of files, and what is set up from what they read, end in an error value whichever of their
/// allocations fails: each one is refused in turn, until a run succeeds.
///
/// Without exceptions `new` has no way to say so, and ends the program: nothing is tested then.
#include <doctest/doctest.h>

#include <adacc/codec/int8_outlier.hpp>
#include <adacc/core/number_text.hpp>
#include <adacc/io/evolution_text.hpp>
#include <adacc/io/pipeline_text.hpp>
#include <adacc/io/plan_text.hpp>
#include <adacc/io/profile_text.hpp>
#include <adacc/io/text.hpp>
#include <adacc/io/weights/adapters.hpp>
#include <adacc/io/weights/bert.hpp>
#include <adacc/io/weights/gpt2.hpp>
#include <adacc/io/weights/llama.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/plan/pipeline/planner.hpp>
#include <adacc/plan/planner.hpp>
#include <adacc/train/make.hpp>
#include <adacc/train/save.hpp>

#include <support/count_allocations.hpp>
#include <support/wordpiece/wordpiece.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include "../train/support.hpp"

using namespace adacc;
using train_test::Folder;

#ifdef __cpp_exceptions
namespace {

/// Runs `call` until it succeeds, each time with one allocation more, or, from the 100th on, a share of them.
template <class Call>
void refuse_each(const char* what, const Call& call, long share = LONG_MAX) {
  CAPTURE(std::string(what));
  for (long allowed = 0; allowed < 1000000; allowed += 1 + (allowed < 100 ? 0 : allowed / share)) {
    Error why;
    bool thrown = false;
    most_allocations = allocations + allowed;
    try {
      why = call();
    } catch (...) {
      thrown = true;
    }
    most_allocations = LONG_MAX;
    REQUIRE_FALSE(thrown);
    if (!why) {
      MESSAGE(std::string(what) << ": " << allowed << " allocations");
      CHECK(allowed > 0);
      return;
    }
    const std::string text = why.text();
    CAPTURE(text);
    CHECK(text.find("memory") != std::string::npos);
  }
  CHECK(false);
}

constexpr gpt::Config config{2, 2, 8, 8, 20};
const LlmcHeader header{8, 20, 2, 2, 8, 20};

template <class T>
Error error_of_result(const Result<T>& result) {
  return result.error;
}

}  // namespace

TEST_CASE("a model that is read, and trained, ends in an error value where memory ends") {
  const Folder folder;
  const auto net = gpt::make<gpt::PlannedSet>(config);
  const auto graph = make_graph(net, Shape(1, 8));
  REQUIRE(graph);
  std::vector<float> numbers(graph->parameter_elems, 0.5F);
  const View<float> params(numbers.data(), Shape(numbers.size()));
  REQUIRE_FALSE(write_gpt2<Graph, float>(folder.path, header, *graph, params));
  const std::string path = folder.path, file = folder / "model.safetensors";
  refuse_each("config.json", [&] { return error_of_result(read_gpt2_config(path)); });
  refuse_each("safetensors", [&] { return error_of_result(SafeTensors::open(file)); });
  refuse_each("parameters", [&] { return read_gpt2_parameters(path, *graph, 2, params); });
  refuse_each("graph", [&] { return error_of_result(make_graph(net, Shape(1, 8))); });
  refuse_each("training", [&] { return error_of_result(Training<>::make(net, Shape(1, 8))); });

  auto training = Training<>::make(net, Shape(1, 8));
  REQUIRE_MESSAGE(training, training.error.text());
  const std::string saved = folder / "saved";
  REQUIRE_FALSE(training->save(saved));
  refuse_each("checkpoint", [&] { return error_of_result(read_checkpoint_info(saved)); });
  refuse_each("load", [&] { return error_of_result(training->load(saved)); });

  const std::string profile = folder / "profile";
  const ProfileSource source{"a machine", "a model", 1};
  REQUIRE_FALSE(save_profile(profile, *graph, estimated_profile(*graph), source));
  refuse_each("profile", [&] { return error_of_result(load_profile(profile, *graph, source)); });
}

TEST_CASE("plans, and texts of what planning goes on with, do so when they are called directly") {
  gpt::Config small{1, 2, 8, 8, 20};
  small.tied_head = false;  // so that it can be cut
  const auto net = gpt::make<gpt::PlannedSet>(small);
  const Graph graph = *make_graph(net, Shape(4, 8));
  const CostProfile profile = estimated_profile(graph);
  const auto retained = make_program(graph, retain_all(graph));
  REQUIRE_MESSAGE(retained, retained.error.text());
  PlanRequest request;
  request.budget_bytes = retained->peak_bytes();
  const auto smallest = smallest_peak(graph, profile, request);
  REQUIRE_MESSAGE(smallest, smallest.error.text());
  request.budget_bytes = (*smallest + retained->peak_bytes()) / 2;
  refuse_each(
      "a plan", [&] { return error_of_result(make_plan(graph, profile, request)); }, 16);
  refuse_each(
      "a budget", [&] { return error_of_result(smallest_peak(graph, profile, request)); }, 16);
  PlanRequest offloading = request;
  offloading.link = {1e9, 1e9};
  offloading.budget_bytes = *smallest;
  refuse_each(
      "transfers", [&] { return error_of_result(make_plan(graph, profile, offloading)); }, 16);

  const auto planned = make_plan(graph, profile, request);
  REQUIRE_MESSAGE(planned, planned.error.text());
  const std::string plan = plan_text(graph, planned->plan);
  const Array<const CodecInfo*> codecs = codecs_of(graph);
  refuse_each("its text", [&] { return error_of_result(parse_plan(plan, graph, codecs)); });
  const ProfileSource source{"a machine", "a model", 1};
  const std::string costs = profile_text(graph, profile, source);
  refuse_each("costs", [&] { return error_of_result(parse_profile(costs, graph, source)); });

  const auto evolution = Evolution::start(graph, profile, request, make_plan);
  REQUIRE_MESSAGE(evolution, evolution.error.text());
  const auto nothing = [](const auto&) {};
  const std::string evolved = evolution_text(*evolution, nothing);
  refuse_each("what evolved", [&] {
    // Copies are the caller's.
    const long allowed = most_allocations - allocations;
    most_allocations = LONG_MAX;
    Graph of = graph;
    Plan now = evolution->plan();
    most_allocations = allocations + allowed;
    return error_of_result(parse_evolution(evolved, static_cast<Graph&&>(of),
                                           static_cast<Plan&&>(now), request, make_plan, {},
                                           nothing));
  });

  PipelineRequest stages;
  for (int s = 0; s < 2; ++s) stages.stages.push_back({.memory_bytes = MiB});
  stages.micro_batches = 2;
  refuse_each(
      "stages", [&] { return error_of_result(plan_pipeline(graph, profile, stages)); }, 16);
  const auto cut = plan_pipeline(graph, profile, stages);
  REQUIRE_MESSAGE(cut, cut.error.text());
  const std::string pipeline = pipeline_text(graph, *cut, stages.micro_batches);
  refuse_each("their text", [&] { return error_of_result(parse_pipeline(pipeline, graph)); });
}

TEST_CASE("other readers do so, too") {
  const Folder folder;
  const std::string path = folder.path;
  const std::string sizes =
      R"("num_hidden_layers":2,"num_attention_heads":2,"hidden_size":8,"intermediate_size":16,)"
      R"("max_position_embeddings":16,"vocab_size":40,)";
  train_test::write_file(folder / "config.json", R"({"model_type":"llama",)" + sizes +
                                                     R"("rope_parameters":{"rope_theta":1e4}})");
  refuse_each("llama", [&] { return error_of_result(llama::read_config(path)); });
  train_test::write_file(folder / "config.json",
                         R"({"model_type":"bert",)" + sizes + R"("layer_norm_eps":1e-12})");
  refuse_each("bert", [&] { return error_of_result(bert::read_config(path)); });
  train_test::write_file(folder / "vocab.txt",
                         "[UNK]\n[CLS]\n[SEP]\na piece that is longer than others\n");
  const std::string vocabulary = folder / "vocab.txt";
  refuse_each("vocabulary", [&] { return error_of_result(support::WordPiece::open(vocabulary)); });
  refuse_each("text", [&] { return error_of_result(read_text(vocabulary)); });

  const auto tuned = make_graph(gpt::make_lora(config, {2, 0.5F}), Shape(1, 8));
  REQUIRE_MESSAGE(tuned, tuned.error.text());
  std::vector<float> numbers(tuned->parameter_elems, 0.5F);
  const View<float> params(numbers.data(), Shape(numbers.size()));
  const std::string adapters = folder / "adapters";
  REQUIRE_FALSE(write_adapters<float>(adapters, *tuned, params, {2, 0.5F}));
  refuse_each("their shape", [&] { return error_of_result(read_adapter_shape(adapters)); });
  refuse_each("adapters", [&] { return read_adapters(adapters, *tuned, params); });
}
#else
TEST_CASE("without exceptions there is nothing to test") {}
#endif
