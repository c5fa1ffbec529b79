// SPDX-License-Identifier: MIT
/// Draws what a training step holds in memory, instruction by instruction, under each policy, in loops over
/// rows if layers are cut.
///
/// Nothing is trained: schedule and layout are known before a step runs, so the picture is exact.
/// Writes one self-contained SVG.
#include <CLI/CLI.hpp>

#include <adacc/io/file.hpp>
#include <adacc/models/gpt.hpp>
#include <support/command_line.hpp>
#include <support/draw/memory.hpp>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace {

namespace gpt = adacc::gpt;

/// One policy's picture, `top` pixels down, its height in scale with `most` bytes.
std::string panel(const std::string& name, const adacc::Program& program, double top, double most) {
  const draw::Box box{120, top, 700, 120};
  return draw::memory_panel(program, box, most) +
         draw::print("<text x='%.0f' y='%.1f' text-anchor='end' font-weight='bold'>%s</text>\n",
                     box.left - 10, top + box.height - 4, name.c_str());
}

int fail(const adacc::Error& why) {
  std::fprintf(stderr, "draw_memory: %s\n", why.text());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  gpt::Config config{6, 6, 384, 256, 256};
  std::size_t batch = 4, seq = 256;
  int threads = 2, parts = 1;
  std::string out = "memory.svg";
  CLI::App app("Draws the memory of a GPT's training step under each policy.", "draw_memory");
  app.option_defaults()->always_capture_default();
  app.add_option("--layers", config.layers)->check(CLI::Range(1, 64));
  app.add_option("--heads", config.heads)->check(CLI::Range(1, 1 << 20));
  app.add_option("--channels", config.channels)->check(CLI::Range(1, 1 << 20));
  app.add_option("--seq", seq)->check(CLI::Range(1, 1 << 20));
  app.add_option("--batch", batch)->check(CLI::Range(1, 1 << 20));
  app.add_option("--threads", threads, "workers that workspaces are sized for")
      ->check(CLI::Range(1, 256));
  app.add_option("--parts", parts, "that layers are cut into, so that some run in loops over rows")
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--out", out, "the SVG file to write");
  if (const auto status = support::parse(app, argc, argv)) return *status;
  config.context = seq;

  const char* names[] = {"retain", "recompute", "int8", "mixed"};
  std::vector<adacc::Program> programs;
  for (const char* name : names) {
    auto graph = gpt::graph(config, batch, seq, threads, parts);
    if (!graph) return fail(graph.error);
    auto program = adacc::make_program(*graph, gpt::named_plan(name, config, batch, seq));
    if (!program) return fail(program.error);
    programs.push_back(std::move(*program));
  }
  double most = 0;
  draw::MemoryExtras extras;
  for (const adacc::Program& program : programs) {
    most = std::max(most, draw::most_shown_bytes(program));
    extras.loops = extras.loops || !program.schedule.loops.empty();
  }

  std::string svg = draw::open_svg(940, 640);
  svg += draw::print(
      "<text x='20' y='24' font-size='14'>Live memory of one training step, instruction by "
      "instruction: a GPT of %d layers, %zu channels, on %zu x %zu tokens</text>\n",
      config.layers, config.channels, batch, seq);
  svg += draw::memory_legend(120, 36, extras);
  for (std::size_t i = 0; i < programs.size(); ++i)
    svg += panel(names[i], programs[i], 64 + static_cast<double>(i) * 138, most);
  svg +=
      "<text x='120' y='632'>forward</text><text x='470' y='632' text-anchor='middle'>dotted: the "
      "loss</text><text x='820' y='632' text-anchor='end'>backward</text>\n</svg>\n";

  if (const adacc::Error why = adacc::write_file(out, svg)) return fail(why);
  for (std::size_t i = 0; i < programs.size(); ++i)
    std::printf("%-10s %8.1f MiB%s\n", names[i],
                static_cast<double>(programs[i].peak_bytes()) / adacc::MiB,
                programs[i].schedule.loops.empty()
                    ? ""
                    : draw::print(", without loops %.1f MiB",
                                  static_cast<double>(support::peak_without_loops(programs[i])) /
                                      adacc::MiB)
                          .c_str());
  return 0;
}
