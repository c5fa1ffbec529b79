// SPDX-License-Identifier: MIT
/// What a mistake of the calling code does in a debug build whose ADACC_ASSERT is the program's
/// own: it is called with the words of the error, and the error is returned all the same.
#include <cstdio>
#include <cstring>

namespace {

int calls = 0;
char words[400] = "";

void on_mistake(bool holds, const char* text) {
  if (holds) return;
  ++calls;
  std::strncpy(words, text, sizeof words - 1);
}

}  // namespace

#define ADACC_ASSERT(holds, text) on_mistake(holds, text)

#include <adacc/adacc.hpp>
#include <adacc/cost/estimate.hpp>
#include <adacc/evolve/evolution.hpp>
#include <adacc/model/stage.hpp>
#include <adacc/plan/make_plan.hpp>
#include <adacc/plan/pipeline/planner.hpp>
#include <adacc/program/in_flight.hpp>
#include <adacc/stash/stash.hpp>

using namespace adacc;

namespace {

struct Copy {
  static constexpr auto backward_reads = reads::none;
  void forward(Cpu&, View<const float> x, View<float> y) const {
    std::memcpy(y.data(), x.data(), x.size() * sizeof(float));
  }
  void backward(Cpu& cpu, View<const float> dy, View<float> dx) const { forward(cpu, dy, dx); }
};
struct Zero {
  double forward(Cpu&, const LossCall<float>&) const { return 0; }
  double forward_backward(Cpu&, const LossCall<float>&) const { return 0; }
};

// Mistakes in constant expressions are errors alone: the hook cannot run there.
constexpr Network<Sequential<Layer<Copy>>, Zero> net{};
static_assert(!make_program(*make_graph(net, Shape(2, 4)), Plan{}));

alignas(64) std::byte memory[4096];

/// Whether `why` is a mistake that the hook was told of, once and in the same words.
bool told(const Error& why, const char* what) {
  const bool once = calls == 1 && std::strcmp(words, why.text()) == 0;
  if (!once || std::strstr(words, what) == nullptr)
    return std::printf("%d calls for \"%s\": %s\n", calls, what, words), false;
  calls = 0;
  return true;
}

bool step_tells() {
  const auto program = make_program(net, Shape(2, 4));
  auto step = Step<>::make(net, *program);
  if (!program || !step || calls != 0) return false;  // all is well so far
  return told(step->bind(Bytes(memory, Shape(1)), {}), "needs an arena");
}

bool stash_tells() {
  StashModel<> wrong;
  wrong.fix(3, retain());
  if (!told(wrong.graph().error, "no activation 3")) return false;

  StashModel<> model;
  const int x = model.add("x", Shape(4, 16), {1}), y = model.add("y", Shape(4, 16), {0});
  const auto graph = model.graph();
  if (!graph || !told(Stash<>::make(model, Plan{}).error, "0 policies")) return false;
  auto stash = Stash<>::make(model, retain_all(*graph));
  const View<const float> value(reinterpret_cast<const float*>(memory + 2048), Shape(4, 16));
  Cpu cpu;
  if (!told(stash->begin(cpu), "bind()") ||
      !told(stash->bind(Bytes(memory, Shape(1))), "needs an arena") ||
      !told(stash->bind(Bytes(nullptr, Shape(2048))), "no address") ||
      stash->bind(Bytes(memory, Shape(2048))) || !told(stash->put(x, value), "before begin()") ||
      stash->begin(cpu) || !told(stash->put(y, value), "before x") ||
      !told(stash->put(7, value), "activations 0 to 1") ||
      !told(stash->put(x, View<const float>(value.data(), Shape(16, 4))), "registered as f32") ||
      !told(stash->put(x, View<const float>(nullptr, Shape(4, 16))), "no address") ||
      !told(stash->enter(1), "forward is not over") || stash->put(x, value) ||
      stash->put(y, value) || !told(stash->enter(2), "there is no backward stage 2") ||
      !told(stash->get(x).error, "no backward stage is on") || stash->enter(1) || !stash->get(x) ||
      !told(stash->get(y).error, "stage 1 is on") || stash->enter(0) ||
      !told(stash->enter(1), "comes before backward stage 0") || !told(stash->get_bytes(9).error, "0 to 1"))
    return false;
  return calls == 0;
}

/// A graph without layers is the same mistake to all that are handed one.
bool empty_graphs_tell() {
  const char* const what = "the graph has no layers";
  const Graph empty;
  PlanRequest request;
  request.budget_bytes = 1 << 20;
  PipelineRequest stages;
  stages.stages.push_back({1 << 20});
  const CostProfile profile = estimated_profile(empty);
  if (calls != 1 || std::strcmp(words, what) != 0 || !profile.nodes.empty())
    return std::printf("estimated_profile: %d calls\n", calls), false;
  calls = 0;
  return told(make_program(empty, Plan{}).error, what) &&
         told(make_in_flight_program(empty, Plan{}).error, what) &&
         told(stage_of(empty, 0, 0).error, what) &&
         told(make_plan(empty, profile, request).error, what) &&
         told(smallest_peak(empty, profile, request).error, what) &&
         told(plan_exhaustively(empty, profile, request).error, what) &&
         told(plan_chain(empty, profile, request).error, what) &&
         told(plan_pipeline(empty, profile, stages).error, what) &&
         told(Evolution::start(empty, profile, request, make_plan).error, what) &&
         told(Evolution::resume(empty, Plan{}, {}, request, make_plan, {},
                                [](Evolution&) { return Error(); })
                  .error,
              what);
}

}  // namespace

int main() { return step_tells() && stash_tells() && empty_graphs_tell() ? 0 : 1; }
