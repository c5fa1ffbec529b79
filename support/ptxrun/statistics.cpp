// SPDX-License-Identifier: MIT
// What kernels did, printed and for programs that ask.
#include "counters.hpp"
#include "runtime.hpp"

namespace ptxrun {

void Runtime::statistics() {
  std::fprintf(stderr, "%-9s %-7s %-12s %-6s %-9s %-9s %-9s %-9s %-7s %-7s kernel\n", "launches",
               "blocks", "warp instr", "lanes", "ld MB", "sector/B", "st MB", "sector/B", "confl.",
               "barrier");
  for (const LoadedModule& m : modules)
    for (const auto& [name, k] : m.kernels) {
      const auto over = [](u64 sectors, u64 bytes) {
        return bytes == 0 ? 0.0 : static_cast<double>(sectors) * 32 / static_cast<double>(bytes);
      };
      std::fprintf(
          stderr, "%-9llu %-7llu %-12llu %-6.1f %-9.3f %-9.2f %-9.3f %-9.2f %-7.2f %-7.1f %s\n",
          (unsigned long long)k.launches, (unsigned long long)k.blocks,
          (unsigned long long)k.warp_instructions,
          k.warp_instructions ? double(k.lane_instructions) / double(k.warp_instructions) : 0,
          double(k.bytes[0]) / 1e6, over(k.sectors[0], k.bytes[0]), double(k.bytes[1]) / 1e6,
          over(k.sectors[1], k.bytes[1]),
          k.shared_ideal ? double(k.shared_passes) / double(k.shared_ideal) : 0,
          k.blocks ? double(k.barriers) / double(k.blocks) : 0, k.shown.c_str());
      if (const char* one = std::getenv("PTXRUN_HISTOGRAM");
          one && k.shown.find(one) != std::string::npos) {
        std::map<std::string, u64> by_op;
        std::map<std::string, u64> by_line;
        for (std::size_t i = 0; i < k.code.size(); ++i) {
          by_op[k.code[i].st->op] += k.executed[i];
          const auto f = k.module->files.find(k.code[i].st->file);
          if (f != k.module->files.end())
            by_line[f->second.substr(f->second.rfind('/') + 1) + ":" +
                    std::to_string(k.code[i].st->source)] += k.executed[i];
        }
        for (const auto* map : {&by_op, &by_line}) {
          std::vector<std::pair<u64, std::string>> sorted;
          for (const auto& [what, n] : *map) sorted.push_back({n, what});
          std::sort(sorted.rbegin(), sorted.rend());
          for (std::size_t i = 0; i < sorted.size() && i < 30; ++i)
            std::fprintf(stderr, "    %12llu %5.1f%% %s\n", (unsigned long long)sorted[i].first,
                         100.0 * double(sorted[i].first) / double(k.warp_instructions),
                         sorted[i].second.c_str());
        }
      }
    }
}

namespace {
Products counted_products;
}  // namespace

void count_product(bool aligned) {
  ++counted_products.all;
  if (aligned) ++counted_products.aligned;
}
Products products() { return counted_products; }
std::uint64_t waits() { return static_cast<std::uint64_t>(rt().waits); }
void tick_events(double seconds) { rt().event_tick = std::chrono::duration<double>(seconds); }

void clear_counts() {
  counted_products = {};
  rt().machine.settings.stats = true;
  for (LoadedModule& m : rt().modules)
    for (auto& [name, k] : m.kernels) k.clear_counts();
}

std::vector<Counts> counts() {
  std::vector<Counts> all;
  for (const LoadedModule& m : rt().modules)
    for (const auto& [name, k] : m.kernels) {
      if (k.launches == 0) continue;
      Counts& c = all.emplace_back();
      c.name = name, c.shown = k.shown, c.ptx = m.ptx;
      c.launches = k.launches, c.blocks = k.blocks, c.barriers = k.barriers;
      c.threads = k.threads, c.dynamic_shared = static_cast<unsigned>(k.dynamic_shared);
      c.instructions = k.warp_instructions, c.lanes = k.lane_instructions;
      for (int i = 0; i < 2; ++i) c.traffic[i] = {k.requests[i], k.sectors[i], k.bytes[i]};
      c.shared_passes = k.shared_passes, c.shared_ideal = k.shared_ideal;
      for (std::size_t i = 0; i < k.code.size(); ++i)
        if (k.executed[i] != 0) {
          u64& n = c.by_line[k.code[i].st->line];
          n = std::max(n, k.executed[i]);
        }
    }
  return all;
}

}  // namespace ptxrun
