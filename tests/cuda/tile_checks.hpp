// SPDX-License-Identifier: MIT
/// Tiles of a head that are chosen for a budget: the choice, its bits, and checkpoints that know it. And how often the host
/// waits in a step.
#pragma once

#include <adacc/train.cuh>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 2810  // nvcc takes the assignment of a Result for one that is ignored
#include <adacc/train/make.hpp>
#include <adacc/train/save.hpp>
#include <adacc/train/tile_rows.hpp>
#pragma nv_diagnostic pop

#include "device_checks.hpp"
#include "steps_cases.hpp"

namespace ptxrun {
/// Of support/ptxrun/counters.hpp, where the program is linked with the executor.
__attribute__((weak)) std::uint64_t waits();
}  // namespace ptxrun

namespace steps {

/// A head whose 512 rows are one tile or two.
struct Pages : Texts<256> {
  static auto network(std::size_t tile_rows) {
    CrossEntropyHead head{.vocab = vocab};
    head.device_tile_rows = tile_rows;
    return Network{
        Sequential{layer<Planned>(Embedding{.vocab = vocab, .context = time, .channels = 16}),
                   layer<Planned>(LayerNorm{}), layer<Planned>(Linear{.out = 16}),
                   layer<Planned>(Gelu{})},
        head};
  }
};

struct TileChecks : DeviceChecks {
  using Trained = Training<float, Cuda>;
  using Net = decltype(Pages::network(0));

  void all() const {
    choice();
    bits();
    checkpoints();
    waits();
  }

 private:
  /// For a GPT-2 of two layers, whose logits are the largest part of what its plans cannot do without.
  void choice() const {
    using Options = TrainingOptions<Cuda, AdamW>;
    const auto net = gpt::make<gpt::PlannedSet>({12, 12, 768, 1024, 50257});
    Options options;
    options.context = context();
    const auto chosen = [&](std::size_t budget, std::size_t total = 0, std::size_t batch = 8) {
      options.budget_bytes = budget, options.total_bytes = total;
      const auto rows = choose_tile_rows<bfloat16>(net, Shape(batch, 1024), options);
      return fine(rows.error) ? *rows : 0;
    };
    const auto graph_of = [&](std::size_t rows) {
      auto one = net;
      one.loss.device_tile_rows = rows;
      auto graph = make_graph<Cuda>(one, Shape(8, 1024), {.scalar = Dtype::bf16});
      set_parameters(*graph, ParameterForm::with_copies);
      return std::move(*graph);
    };
    expect(chosen(0) == 4096 && chosen(0, 0, 32) == 8192 && chosen(0, 0, 1) == 2048,
           "without a budget, the head's tile is not half of the rows");
    const Graph large = graph_of(8192), small = graph_of(256);
    expect(large.loss.tile_rows == 8192 && small.loss.tile_rows == 256,
           "a graph does not know the rows of its head's tile");
    expect(large.on_device && estimated_profile(large).nodes[2].forward ==
                                  estimated_profile(large, device_rates).nodes[2].forward,
           "a device's layers are estimated at another machine's rates");
    const std::size_t retain = peak_bytes(large, retain_all(large));
    expect(chosen(retain) == 8192, "a budget with room for all has no large tile");
    PlanRequest request;
    request.budget_bytes = retain;
    const auto least = smallest_peak(small, estimated_profile(small), request);
    if (!fine(least.error)) return;
    const std::size_t tight = chosen(*least);
    expect(tight < 8192, "the least budget has room for the largest tile");
    expect(chosen(*least) == tight, "a choice is not the same again");
    request.budget_bytes = *least;
    const Graph fits = graph_of(tight);
    expect(!make_plan(fits, estimated_profile(fits), request).error, "a chosen tile does not fit");
    expect(chosen(1) == 256, "no budget at all has another tile than the smallest");
    const auto held = memory_beside_arena(large, AdamW{});
    if (!fine(held.error)) return;
    expect(chosen(0, held->total() + retain) == 8192,
           "a total with room for all has no large tile");
    expect(chosen(0, held->total() + *least) == tight, "a total is not the budget that it leaves");
    expect(chosen(0, 1) == 256, "no total at all has another tile than the smallest");
  }

  Result<Trained> made(const Net& net, const Policy& policy) const {
    auto graph = make_graph<Cuda>(net, Pages::shape());
    if (!graph) return graph.error;
    Plan plan = plan_from_types(*graph, policy);
    return Trained::make(net, *make_program(std::move(*graph), std::move(plan)), context());
  }

  struct Seen {
    std::vector<double> losses;
    std::vector<float> params;
  };

  /// Two steps.
  Seen trained(std::size_t rows, const Policy& policy) const {
    Seen seen;
    const Net net = Pages::network(rows);
    auto training = made(net, policy);
    if (!fine(training.error)) return seen;
    for (std::uint32_t s = 0; s < 2; ++s) {
      Batch batch(*this, s);
      const auto outcome = training->step(batch.x(), batch.y(), rate);
      if (fine(outcome.error)) seen.losses.push_back(outcome->loss);
    }
    fine(training->read_parameters([&](View<const float> all) {
      seen.params.assign(all.begin(), all.end());
      return Error();
    }));
    return seen;
  }

  /// Whatever the plan is, a tile's bits are the same; another tile's are near.
  void bits() const {
    const Seen one = trained(512, retain()), again = trained(512, recompute());
    const Seen two = trained(256, retain()), rule = trained(0, retain());
    const auto same = [](const Seen& a, const Seen& b) {
      return a.losses == b.losses && a.params.size() == b.params.size() &&
             std::memcmp(a.params.data(), b.params.data(), a.params.size() * sizeof(float)) == 0;
    };
    expect(one.losses.size() == 2 && same(one, again),
           "recomputing changes bits beside a large tile");
    expect(same(two, rule), "the layer's own tile of 512 rows has other bits than one of 256");
    expect(!same(one, two), "two tiles have the bits of one: the test sees no tile");
    bool near = one.params.size() == two.params.size();
    for (std::size_t i = 0; near && i < one.params.size(); ++i)
      near = std::fabs(one.params[i] - two.params[i]) <= 1e-4F;
    for (std::size_t s = 0; near && s < 2; ++s)
      near = std::fabs(one.losses[s] - two.losses[s]) <= 1e-5;
    expect(near, "tiles differ in more than last digits");
  }

  /// A plan of another tile does not go on; its numbers do.
  void checkpoints() const {
    const std::string file = (std::filesystem::temp_directory_path() /
                              ("adacc_tiles_" + std::to_string(std::random_device()())))
                                 .string();
    const Net one = Pages::network(512), two = Pages::network(256);
    auto large = Trained::make(one, Pages::shape(), {.context = context()});
    auto small = Trained::make(two, Pages::shape(), {.context = context()});
    if (!fine(large.error) || !fine(small.error)) return;
    fine(small->save(file));
    fine(small->load(file).error);
    const auto refused = large->load(file);
    expect(refused.error && std::strstr(refused.error.text(), "device_tile_rows to 256") != nullptr,
           "a checkpoint of another tile goes on with other digits, and nobody says so");
    fine(large->load(file, Restore::numbers).error);
    std::filesystem::remove(file);
  }

  /// The host waits once for a step's loss and norm, and for both of them where batches are accumulated.
  void waits() const {
    if (ptxrun::waits == nullptr) return;
    const Net net = Pages::network(0);
    auto training = made(net, retain());
    if (!fine(training.error)) return;
    Batch batch(*this, 1);
    for (int s = 0; s < 3; ++s) {
      const std::uint64_t before = ptxrun::waits();
      const auto outcome = training->step(batch.x(), batch.y(), rate);
      const std::uint64_t taken = ptxrun::waits() - before;
      if (!fine(outcome.error)) return;
      expect(taken == 1, s < 2 ? "the host does not wait once in a step"
                               : "the host does not wait once in a captured step");
      expect(outcome->grad_norm > 0, "a step has no norm");
    }
    expect(training->captured_steps() > 0, "no step was captured");
    // What is accumulated has the norm of a step.
    const auto loaded = [&](const auto& make) {
      auto other = made(net, retain());
      return fine(other.error) ? make(*other) : 0.0;
    };
    const double stepped = loaded([&](Trained& one) {
      const auto outcome = one.step(batch.x(), batch.y(), rate);
      return fine(outcome.error) ? outcome->grad_norm : 0.0;
    });
    const double added = loaded([&](Trained& one) {
      const std::uint64_t before = ptxrun::waits();
      fine(one.accumulate(batch.x(), batch.y()).error);
      const auto outcome = one.update(rate);
      expect(ptxrun::waits() - before == 2,
             "the host does not wait twice to accumulate and update");
      return fine(outcome.error) ? outcome->grad_norm : 0.0;
    });
    expect(stepped > 0 && stepped == added, "norms differ between step() and update()");
  }

  struct Batch {
    DeviceBlock<std::int32_t> blocks[2];

    Batch(const TileChecks& checks, std::uint32_t step) {
      Cuda cuda = checks.context();
      const std::vector<std::int32_t> from[2] = {Pages::inputs(step), Pages::targets(step)};
      for (int i = 0; i < 2; ++i) {
        blocks[i] = static_cast<DeviceBlock<std::int32_t>&&>(
            *DeviceBlock<std::int32_t>::make(from[i].size(), "a batch"));
        checks.fine(copy_to_device(cuda,
                                   View<const std::int32_t>(from[i].data(), Shape(from[i].size())),
                                   blocks[i].view()));
      }
    }
    View<const std::int32_t> x() const { return {blocks[0].data(), Pages::shape()}; }
    View<const std::int32_t> y() const { return {blocks[1].data(), Pages::shape()}; }
  };
};

}  // namespace steps
