// SPDX-License-Identifier: MIT
/// What the kernels of codecs, layers and AdamW do for each element, counted without a GPU:
/// cuda_counts [--kernels] [--check FILE | --write FILE] [--ptxas PROGRAM] [--arch sm_90].
///
/// The executor of support/ptxrun runs codecs on 256 x 1024 elements, layers in the steps of three small
/// networks (of products of matrices, which are cuBLASLt's, what is ours beside them), and counts; ptxas says
/// what machine code they become (machine_code.hpp). Columns:
///
///     issue   machine instructions per element, of one of 32 lanes; in brackets PTX instructions
///     ld, st  bytes of global memory that loads (stores) move per byte that they ask for: sectors of
///             32 bytes. More than 1: neighbours in a warp are not neighbours in memory
///     moved   all sectors per byte of tensor and blob; of layers, of the activations and gradients that they read
///             and write. What is read again counts again, from whatever cache it comes
///     banks   passes over shared memory per pass that would do without conflicts
///     regs    of the kernel that executes most; its spilled bytes; blocks that an SM holds (sm_90)
///     A100 …  issue slots per element while memory moves these bytes at 90 % of its bandwidth
///
/// A kernel that issues more than there are slots cannot reach that bandwidth. Slots per element are
///
///     SMs * 4 schedulers * 32 lanes * boost clock / (0.9 * bandwidth / (tensor + blob) bytes)
///
/// by NVIDIA's data sheets, of the SXM modules: A100 80 GB 108 SMs, 1.41 GHz, 2.039 TB/s; H100 132
/// SMs, 1.98 GHz, 3.35 TB/s; H200 132 SMs, 1.98 GHz, 4.8 TB/s. It is an upper limit: most
/// instructions on integers take two slots of a scheduler on all three.
///
/// --check compares with ceilings: a file of lines `name type encode|forward|… clean|outliers issue ld
/// st banks regs spilled blocks` behind a line `nvcc VERSION`. Counts do not depend on the machine, but on
/// the compiler: with another version of nvcc only ld, st and banks are compared. And it compares with
/// what the kernels are to reach whatever a file says (goals below), which a new file of ceilings does
/// not loosen. Products of bfloat16 have to meet cuBLAS's conditions for tensor cores. The table is left out,
/// unless --kernels asks for it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "counted.hpp"
#include "machine_code.hpp"

namespace {

using namespace cuda_counts;

struct Device {
  const char* name;
  double multiprocessors, clock, bandwidth;
  double slots(double bytes_per_element) const {
    return multiprocessors * 4 * 32 * clock / (0.9 * bandwidth / bytes_per_element);
  }
};
constexpr Device devices[] = {
    {"A100", 108, 1.41e9, 2.039e12}, {"H100", 132, 1.98e9, 3.35e12}, {"H200", 132, 1.98e9, 4.8e12}};

struct Options {
  bool kernels = false;
  std::string check, write, ptxas = ADACC_PTXAS, arch = "sm_90";
};

/// Machine code of all kernels that were counted. Each module is assembled once.
class Assembler {
 public:
  Assembler(const Options& options, const std::vector<Counted>& all) : options_(options) {
    for (const Counted& counted : all)
      for (const ptxrun::Counts& kernel : counted.kernels) wanted_.insert(kernel.name);
  }
  const MachineCode* of(const ptxrun::Counts& kernel) {
    const auto [module, fresh] = modules_.try_emplace(kernel.ptx.data());
    if (fresh) module->second = assemble(options_.ptxas, kernel.ptx, wanted_, options_.arch, why);
    const auto found = module->second.find(kernel.name);
    return found == module->second.end() ? nullptr : &found->second;
  }
  std::string why;

 private:
  const Options& options_;
  std::set<std::string> wanted_;
  std::map<const char*, std::map<std::string, MachineCode>> modules_;
};

struct Row {
  std::string name, type, direction, data;
  double issue = 0, ptx = 0, load = 0, store = 0, moved = 0, banks = 0;
  unsigned registers = 0, spilled = 0, blocks = 0;
  double bytes_per_element = 0;
  ptxrun::Products products{};
};

double over(std::uint64_t a, std::uint64_t b) {
  return b == 0 ? 0 : static_cast<double>(a) / static_cast<double>(b);
}

double issued(const ptxrun::Counts& kernel, const MachineCode& code) {
  double sum = 0;
  for (const auto& [line, instructions] : code.by_line)
    if (const auto found = kernel.by_line.find(line); found != kernel.by_line.end())
      sum += static_cast<double>(instructions) * static_cast<double>(found->second);
  return sum;
}

/// Of all kernels, or of one.
Row row_of(const Counted& counted, const std::vector<ptxrun::Counts>& kernels,
           Assembler& assembler) {
  Row row{counted.name, counted.type, counted.direction, counted.data};
  ptxrun::Traffic traffic[2];
  std::uint64_t passes = 0, ideal = 0, most = 0;
  const auto elements = static_cast<double>(counted.elements);
  for (const ptxrun::Counts& k : kernels) {
    for (int i = 0; i < 2; ++i) {
      traffic[i].sectors += k.traffic[i].sectors;
      traffic[i].bytes += k.traffic[i].bytes;
    }
    passes += k.shared_passes, ideal += k.shared_ideal;
    row.ptx += static_cast<double>(k.instructions) * 32 / elements;
    const MachineCode* code = assembler.of(k);
    if (!code) continue;
    row.issue += issued(k, *code) * 32 / elements;
    row.spilled = std::max(row.spilled, code->spilled_bytes);
    if (k.instructions < most) continue;
    most = k.instructions;
    constexpr unsigned shared_bytes_of_h100 = 228 * 1024;
    row.registers = code->registers;
    row.blocks = code->blocks_per_sm(k.threads, shared_bytes_of_h100, k.dynamic_shared);
  }
  row.load = over(32 * traffic[0].sectors, traffic[0].bytes);
  row.store = over(32 * traffic[1].sectors, traffic[1].bytes);
  row.moved = over(32 * (traffic[0].sectors + traffic[1].sectors), counted.bytes);
  row.banks = over(passes, ideal);
  row.products = counted.products;
  row.bytes_per_element = static_cast<double>(counted.bytes) / elements;
  return row;
}

void print(const Row& r, const char* kernel) {
  std::printf("%-30s %-4s %-13s %-8s %6.1f (%5.1f) %5.2f %5.2f %6.2f %6.2f %5u %6u %6u",
              r.name.c_str(), r.type.c_str(), r.direction.c_str(), r.data.c_str(), r.issue, r.ptx,
              r.load, r.store, r.moved, r.banks, r.registers, r.spilled, r.blocks);
  if (kernel) {
    std::printf("  %s\n", kernel);
    return;
  }
  for (const Device& d : devices) std::printf(" %5.1f", d.slots(r.bytes_per_element));
  std::printf("\n");
}

void print_table(const std::vector<Counted>& all, const std::vector<Row>& rows, bool kernels,
                 Assembler& assembler) {
  std::printf("%-30s %-4s %-13s %-8s %6s (%5s) %5s %5s %6s %6s %5s %6s %6s", "", "type", "",
              "numbers", "issue", "PTX", "ld", "st", "moved", "banks", "regs", "spills", "blocks");
  for (const Device& d : devices) std::printf(" %5s", d.name);
  std::printf("\n");
  for (std::size_t i = 0; i < all.size(); ++i) {
    print(rows[i], nullptr);
    if (!kernels || all[i].kernels.size() == 1) continue;
    for (const ptxrun::Counts& k : all[i].kernels)
      print(row_of(all[i], {k}, assembler), k.shown.substr(0, k.shown.find('<')).c_str());
  }
}

std::string key_of(const Row& r) {
  return r.name + ' ' + r.type + ' ' + r.direction + ' ' + r.data;
}

/// What would be printed as the same number is the same.
double up_to_tenths(double x) { return static_cast<double>(static_cast<long>(x * 10 + 1)) / 10; }
double up_to_hundredths(double x) {
  return static_cast<double>(static_cast<long>(x * 100 + 1)) / 100;
}

int write(const std::string& path, const std::vector<Row>& rows) {
  std::ofstream out(path);
  out << "nvcc " << ADACC_NVCC_VERSION << "\n";
  for (const Row& r : rows) {
    char line[200];
    std::snprintf(line, sizeof line, "%s %.1f %.2f %.2f %.2f %u %u %u\n", key_of(r).c_str(),
                  up_to_tenths(r.issue), up_to_hundredths(r.load), up_to_hundredths(r.store),
                  up_to_hundredths(r.banks), r.registers, r.spilled, r.blocks);
    out << line;
  }
  return out.flush() ? 0 : 1;
}

/// Bytes moved by loads and by stores per byte, of every codec that encodes or decodes numbers without
/// outliers.
constexpr double most_sectors = 1.05;

/// Of such numbers: most instructions per element, fewest blocks that an SM holds, most bytes moved per byte (0: any); no
/// spills.
struct Goal {
  const char *name, *type, *direction;
  double issue;
  unsigned blocks;
  double moved = 0;

  bool is_of(const Row& r) const {
    return r.name == name && r.type == type && r.direction == direction && r.data == "clean";
  }
};
constexpr Goal goals[] = {
    {"int8_outlier", "f32", "encode", 28, 3},
    {"int8_outlier", "bf16", "encode", 20, 3},
    {"int8_outlier", "f32", "decode", 16, 1},
    {"int8_outlier", "bf16", "decode", 12, 1},
    {"int4_outlier", "f32", "encode", 28, 3},
    {"int4_outlier", "bf16", "encode", 20, 3},
    {"int4_outlier", "f32", "decode", 16, 1},
    {"int4_outlier", "bf16", "decode", 12, 1},
    {"int8_outlier_stochastic", "f32", "encode", 45, 1},
    {"int8_outlier_stochastic", "bf16", "encode", 45, 1},
    {"int4_outlier_stochastic", "f32", "encode", 45, 1},
    {"int4_outlier_stochastic", "bf16", "encode", 45, 1},
    {"cross_entropy_head", "bf16", "loss_gradient", 40, 2, 1.05},  // rows of logits are read once
};

int check(const std::string& path, const std::vector<Row>& rows, const std::string& no_ptxas) {
  std::ifstream in(path);
  std::string word, version;
  if (!(in >> word >> version) || word != "nvcc") {
    std::fprintf(stderr, "cuda_counts: %s does not begin with `nvcc VERSION`\n", path.c_str());
    return 1;
  }
  const bool same = version == ADACC_NVCC_VERSION && no_ptxas.empty();
  if (!same)
    std::printf(
        "SKIPPED: instructions, registers, spills and blocks: %s\n",
        no_ptxas.empty()
            ? ("ceilings are of nvcc " + version + ", this is " + ADACC_NVCC_VERSION).c_str()
            : no_ptxas.c_str());
  std::map<std::string, Row> ceilings;
  for (Row r; in >> r.name >> r.type >> r.direction >> r.data >> r.issue >> r.load >> r.store >>
              r.banks >> r.registers >> r.spilled >> r.blocks;)
    ceilings[key_of(r)] = r;
  int failures = 0;
  const auto fail = [&](const Row& r, const char* what, double value, double limit) {
    ++failures;
    std::printf("FAILED %s: %s is %g, the ceiling %g\n", key_of(r).c_str(), what, value, limit);
  };
  for (const Row& r : rows) {
    const auto found = ceilings.find(key_of(r));
    if (found == ceilings.end()) {
      ++failures;
      std::printf("FAILED %s: %s has no line for it\n", key_of(r).c_str(), path.c_str());
      continue;
    }
    const Row& c = found->second;
    if (r.load > c.load) fail(r, "ld", r.load, c.load);
    if (r.store > c.store) fail(r, "st", r.store, c.store);
    if (r.products.aligned < r.products.all)
      fail(r, "products that are not aligned",
           static_cast<double>(r.products.all - r.products.aligned), 0);
    if (r.banks > c.banks) fail(r, "banks", r.banks, c.banks);
    if (r.data == "clean" && (r.direction == "encode" || r.direction == "decode")) {
      if (r.store > most_sectors) fail(r, "st", r.store, most_sectors);
      if (r.load > most_sectors) fail(r, "ld", r.load, most_sectors);
    }
    if (!same) continue;
    if (r.issue > c.issue) fail(r, "issue", r.issue, c.issue);
    if (r.registers > c.registers) fail(r, "regs", r.registers, c.registers);
    if (r.spilled > c.spilled) fail(r, "spills", r.spilled, c.spilled);
    if (r.blocks < c.blocks) fail(r, "blocks", r.blocks, c.blocks);
    for (const Goal& goal : goals) {
      if (!goal.is_of(r)) continue;
      if (r.issue > goal.issue) fail(r, "issue", r.issue, goal.issue);
      if (r.spilled > 0) fail(r, "spills", r.spilled, 0);
      if (goal.moved > 0 && r.moved > goal.moved) fail(r, "moved", r.moved, goal.moved);
      if (r.blocks < goal.blocks) fail(r, "blocks", r.blocks, goal.blocks);
    }
  }
  if (failures == 0) std::printf("%zu kernels within their ceilings\n", rows.size());
  return failures == 0 ? 0 : 1;
}

[[noreturn]] void usage() {
  std::fprintf(stderr,
               "cuda_counts [--kernels] [--check FILE | --write FILE] [--ptxas PROGRAM] "
               "[--arch sm_90]\n");
  std::exit(2);
}

}  // namespace

int main(int n, char** arguments) {
  Options options;
  for (int i = 1; i < n; ++i) {
    const std::string option = arguments[i];
    if (option == "--kernels") {
      options.kernels = true;
      continue;
    }
    if (i + 1 == n) usage();
    const char* value = arguments[++i];
    if (option == "--check") options.check = value;
    else if (option == "--write") options.write = value;
    else if (option == "--ptxas") options.ptxas = value;
    else if (option == "--arch") options.arch = value;
    else usage();
  }
  std::vector<Counted> all;
  count_codecs(all);
  count_checks(all);
  count_layers(all);
  Assembler assembler(options, all);
  std::vector<Row> rows;
  for (const Counted& counted : all) rows.push_back(row_of(counted, counted.kernels, assembler));
  if (options.check.empty() || options.kernels) print_table(all, rows, options.kernels, assembler);
  if (!assembler.why.empty())
    std::printf("No machine code, so no issue, regs, spills and blocks: %s\n",
                assembler.why.c_str());
  if (!options.write.empty()) return write(options.write, rows);
  if (!options.check.empty()) return check(options.check, rows, assembler.why);
  return 0;
}
