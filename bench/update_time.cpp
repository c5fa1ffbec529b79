// SPDX-License-Identifier: MIT
/// What an update costs by optimizer and form of its moments, as multiples of AdamW's in fp32.
///
/// Contestants take turns, and ratios are of medians, because machines are shared. Memory binds where
/// the numbers of all parameters exceed the caches by far.
#include <CLI/CLI.hpp>

#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/core/block.hpp>
#include <adacc/core/cpu.hpp>
#include <adacc/core/steady_clock.hpp>
#include <adacc/optimizer/adafactor.hpp>
#include <adacc/optimizer/any_optimizer.hpp>
#include <adacc/optimizer/lion.hpp>
#include <adacc/optimizer/sgd.hpp>
#include <adacc/optimizer/update_table.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

namespace {

using adacc::AnyOptimizer;
using adacc::Block;
using adacc::Error;
using adacc::UpdateTable;

struct Contestant {
  const char* name;
  AnyOptimizer optimizer;
  UpdateTable table;
  Block<std::byte> state;
  std::vector<double> seconds;
};

template <class Optimizer>
void add(std::vector<Contestant>& all, const char* name, const Optimizer& optimizer) {
  all.push_back({name, optimizer, {}, {}, {}});
}

int fail(const Error& why) {
  std::fprintf(stderr, "update_time: %s\n", why.text());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t rows = 16384, cols = 1024;
  int threads = 2, rounds = 15;
  CLI::App app("Times updates by optimizer and form of its moments.", "update_time");
  app.option_defaults()->always_capture_default();
  app.add_option("--rows", rows)->check(CLI::Range(1, 1 << 20));
  app.add_option("--cols", cols)->check(CLI::Range(1, 1 << 20));
  app.add_option("--threads", threads)->check(CLI::Range(1, 256));
  app.add_option("--rounds", rounds)->check(CLI::Range(1, 10000));
  CLI11_PARSE(app, argc, argv);

  std::vector<Contestant> all;
  add(all, "adamw fp32", adacc::AdamW{});
  add(all, "adamw bf16", adacc::AdamWWith<adacc::Bf16Moments>{});
  add(all, "adamw int8", adacc::AdamWWith<adacc::Int8Moments>{});
  add(all, "sgd fp32", adacc::Sgd{});
  add(all, "sgd bf16", adacc::SgdWith<adacc::Bf16Moments>{});
  add(all, "sgd int8", adacc::SgdWith<adacc::Int8Moments>{});
  add(all, "lion fp32", adacc::Lion{});
  add(all, "lion bf16", adacc::LionWith<adacc::Bf16Moments>{});
  add(all, "lion int8", adacc::LionWith<adacc::Int8Moments>{});
  add(all, "adafactor", adacc::Adafactor{});

  adacc::Array<adacc::Parameter> parameters(1);
  parameters[0].shape = adacc::Shape(rows, cols);
  const std::size_t elems = rows * cols;
  auto params = Block<float>::make(elems, "parameters");
  auto gradients = Block<float>::make(elems, "gradients");
  if (!params || !gradients) return fail(params ? gradients.error : params.error);
  for (Contestant& contestant : all) {
    auto table = UpdateTable::make(contestant.optimizer, parameters, adacc::Dtype::f32);
    if (!table) return fail(table.error);
    contestant.table = std::move(*table);
    auto state = Block<std::byte>::make(contestant.table.bytes(), "state");
    if (!state) return fail(state.error);
    contestant.state = std::move(*state);
  }
  adacc::EigenPool pool(threads);
  adacc::Cpu cpu{adacc::ExecutorRef(pool)};
  for (int round = 0; round < rounds; ++round)
    for (Contestant& contestant : all) {
      for (std::size_t i = 0; i < elems; ++i)
        (*gradients)[i] = 1e-3F * static_cast<float>(static_cast<int>(i * 2654435761U >> 8) % 1000);
      const auto number = static_cast<std::uint64_t>(round + 1);
      const adacc::UpdateTerms terms{number, 1e-3, 1, {1, static_cast<std::uint32_t>(number)}};
      const adacc::UpdateMemory<float> memory{params->view(), gradients->view(),
                                              contestant.state.view()};
      const double start = adacc::steady_seconds();
      contestant.table.update(contestant.optimizer, cpu, parameters, memory, terms);
      contestant.seconds.push_back(adacc::steady_seconds() - start);
    }
  const auto median = [](std::vector<double> seconds) {
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  };
  const double reference = median(all[0].seconds);
  std::printf("%zu x %zu parameters, %d threads, medians of %d\n", rows, cols, threads, rounds);
  std::printf("%-12s %10s %12s %14s\n", "optimizer", "of fp32", "ns a number", "bytes of state");
  for (const Contestant& contestant : all) {
    const double seconds = median(contestant.seconds);
    std::printf("%-12s %10.3f %12.3f %14.3f\n", contestant.name, seconds / reference,
                1e9 * seconds / static_cast<double>(elems),
                static_cast<double>(contestant.state.size()) / static_cast<double>(elems));
  }
  return 0;
}
