/// Agreement with llm.c: the same model, data and optimizer must give the same losses.
///
/// Takes the folder of the reference run; without one it says so and exits with 77 (skipped).
#include <adacc/io/llmc_tokens.hpp>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "../../examples/train_gpt/trainer.hpp"

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

/// Runs the reference's steps under `policy`; the largest relative deviations, and the last loss's.
int compare(const std::string& folder, const char* policy, const std::vector<Row>& rows,
            double& worst_loss, double& worst_norm, double& last_loss) {
  Options options;
  options.model = folder + "/gpt2_L4_H4_C128_V256.bin";
  options.tokens = folder + "/shakespeare_bytes_train.bin";
  options.batch = 4;
  options.seq = 64;
  options.threads = 2;
  options.steps = rows.size();
  const auto header = adacc::read_llmc_header(options.model);
  if (!header) return fail(header.error.text());
  options.network = {static_cast<int>(header->layers), header->heads, header->channels,
                     header->max_seq_len, header->vocab_size};
  const auto tokens = adacc::read_llmc_tokens(options.tokens, header->vocab_size);
  if (!tokens) return fail(tokens.error.text());
  options.policy = policy;
  Trainer trainer(options);
  if (const adacc::Error why = trainer.set_up("", *tokens)) return fail(why.text());
  const adacc::LearningRate rate{.lr = 1e-3};
  worst_loss = worst_norm = 0;
  for (const Row& row : rows) {
    const auto outcome = trainer.step(*tokens, rate);
    if (!outcome) return fail(outcome.error.text());
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
