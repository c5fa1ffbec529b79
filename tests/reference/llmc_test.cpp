// SPDX-License-Identifier: MIT
/// Agreement with llm.c: the same model, data and optimizer must give the same losses.
///
/// Takes the folder of the reference run; without one it says so and exits with 77 (skipped).
#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/io/weights/llmc.hpp>
#include <adacc/io/weights/llmc_tokens.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/train/training.hpp>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

using namespace adacc;

namespace {

struct Row {
  int step = 0;
  double loss = 0, grad_norm = 0;
};

std::vector<Row> read_rows(const std::string& path) {
  std::vector<Row> rows;
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  for (Row row; std::getline(file, line) &&
                std::sscanf(line.c_str(), "%d,%lf,%lf", &row.step, &row.loss, &row.grad_norm) == 3;)
    rows.push_back(row);
  return rows;
}

int fail(const char* what) {
  std::fprintf(stderr, "reference_llmc: %s\n", what);
  return 1;
}

int fail(const Error& why) { return fail(why.text()); }

/// Runs the reference's steps under `policy`; the largest relative deviations, and the last loss's.
int compare(const std::string& folder, const char* policy, const std::vector<Row>& rows,
            double& worst_loss, double& worst_norm, double& last_loss) {
  constexpr std::size_t batch = 4, seq = 64;
  const std::string model = folder + "/gpt2_L4_H4_C128_V256.bin";
  const auto header = read_llmc_header(model);
  if (!header) return fail(header.error);
  const gpt::Config config{static_cast<int>(header->layers), header->heads, header->channels,
                           header->max_seq_len, header->vocab_size};
  const auto tokens = read_llmc_tokens(folder + "/shakespeare_bytes_train.bin", header->vocab_size);
  if (!tokens) return fail(tokens.error);
  EigenPool pool(2);
  const auto net = gpt::make(config);
  const auto graph = gpt::graph(config, batch, seq, 2);
  if (!graph) return fail(graph.error);
  auto program = make_program(*graph, gpt::named_plan(policy, config, batch, seq));
  if (!program) return fail(program.error);
  auto dispatch = make_dispatch<float, Cpu>(net);
  dispatch.add_codec<Int8Outlier>();
  auto training =
      Training<>::make(std::move(dispatch), std::move(*program), Cpu{ExecutorRef(pool)});
  if (!training) return fail(training.error);
  if (const Error why = read_llmc_parameters(model, *graph, training->params())) return fail(why);
  std::vector<std::int32_t> inputs(batch * seq), targets(batch * seq);
  const Shape shape(batch, seq);
  worst_loss = worst_norm = 0;
  for (const Row& row : rows) {
    if (const Error why =
            tokens->batch(training->updates(), batch, seq, {inputs.data(), Shape(batch * seq)},
                          {targets.data(), Shape(batch * seq)}))
      return fail(why);
    const auto outcome = training->step(View<const std::int32_t>(inputs.data(), shape),
                                        View<const std::int32_t>(targets.data(), shape), 1e-3);
    if (!outcome) return fail(outcome.error);
    last_loss = std::abs(outcome->loss - row.loss) / row.loss;
    worst_loss = std::max(worst_loss, last_loss);
    worst_norm = std::max(worst_norm, std::abs(outcome->grad_norm - row.grad_norm) / row.grad_norm);
  }
  std::printf("%-10s largest relative deviation: loss %.2e, gradient norm %.2e; last loss %.2e\n",
              policy, worst_loss, worst_norm, last_loss);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "";
  const std::vector<Row> rows = read_rows(folder + "/losses_B4_T64_lr1e-3.csv");
  if (folder.empty() || rows.empty()) {
    std::printf("SKIPPED: no reference run; pass its folder with -DADACC_REFERENCE_DIR=...\n");
    return 77;
  }
  if (rows.size() != 40) return fail("the reference has other than 40 steps");
  double loss = 0, norm = 0, last = 0;
  for (const char* policy : {"retain", "recompute"}) {
    if (compare(folder, policy, rows, loss, norm, last) != 0) return 1;
    if (!(loss <= 1e-3) || !(norm <= 1e-3)) return fail("more than 1e-3 away");
  }
  for (const char* policy : {"int8", "mixed"}) {
    if (compare(folder, policy, rows, loss, norm, last) != 0) return 1;
    if (!(last <= 1e-2)) return fail("the last loss is more than 1 % away");
  }
  return 0;
}
