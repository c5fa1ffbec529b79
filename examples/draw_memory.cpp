/// Draws what a training step holds in memory, instruction by instruction, under each policy.
///
/// Nothing is trained: schedule and layout are known before a step runs, so the picture is exact.
/// Writes one self-contained SVG.
#include <CLI/CLI.hpp>

#include <adacc/train/file.hpp>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "gpt.hpp"

namespace {

/// What the bands of the picture are: kept or recomputed values, encoded ones, gradients, scratch.
struct Band {
  const char* label;
  const char* color;
};
constexpr std::array<Band, 4> bands{{{"activations", "#4e79a7"},
                                     {"encoded activations", "#76b7b2"},
                                     {"gradients", "#f28e2b"},
                                     {"aux and workspaces", "#bab0ac"}}};

std::size_t band_of(adacc::BufferKind kind) {
  switch (kind) {
    case adacc::BufferKind::activation: return 0;
    case adacc::BufferKind::encoded: return 1;
    case adacc::BufferKind::gradient: return 2;
    default: return 3;
  }
}

/// Live bytes by band, one entry an instruction.
std::vector<std::array<double, 4>> live_bytes(const adacc::Schedule& schedule) {
  std::vector<std::array<double, 4>> live(schedule.instructions.size(), std::array<double, 4>{});
  for (const adacc::Buffer& buffer : schedule.buffers)
    for (int i = buffer.first; i >= 0 && i <= buffer.last; ++i)
      live[static_cast<std::size_t>(i)][band_of(buffer.kind)] += static_cast<double>(buffer.bytes);
  return live;
}

template <class... Values>
std::string print(const char* format, Values... values) {
  char text[512];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

/// One policy's picture, `top` pixels down, its height in scale with `most` bytes.
std::string panel(const std::string& name, const adacc::Program& program, double top, double most) {
  constexpr double left = 120, width = 700, height = 120;
  const auto live = live_bytes(program.schedule);
  const double step = width / static_cast<double>(live.size());
  const auto y = [&](double bytes) { return top + height - bytes / most * height; };
  std::string svg;
  std::vector<double> below(live.size(), 0.0);
  for (std::size_t band = 0; band < bands.size(); ++band) {
    std::string upper = print("M%.0f %.1f", left, y(below[0])), lower;
    for (std::size_t i = 0; i < live.size(); ++i) {
      const double x = left + static_cast<double>(i) * step;
      lower = print("V%.1fH%.1f", y(below[i]), x) + lower;
      below[i] += live[i][band];
      upper += print("V%.1fH%.1f", y(below[i]), x + step);
    }
    svg += "<path fill='" + std::string(bands[band].color) + "' d='" + upper + lower + "Z'/>\n";
  }
  std::size_t loss = 0;
  while (program.schedule.instructions[loss].op != adacc::Op::loss_gradient) ++loss;
  const double middle = left + (static_cast<double>(loss) + 0.5) * step;
  const double peak = static_cast<double>(program.peak_bytes());
  svg += print("<path stroke='#333' d='M%.0f %.0f H%.0f'/>\n", left, top + height, left + width);
  svg += print("<path stroke='#333' stroke-dasharray='2 3' d='M%.1f %.1f V%.1f'/>\n", middle, top,
               top + height);
  svg += print("<path stroke='#c00' d='M%.0f %.1f H%.0f'/>\n", left, y(peak), left + width);
  svg += print("<text x='%.0f' y='%.1f' fill='#c00'>%.1f MiB</text>\n", left + width + 6,
               y(peak) + 4, peak / adacc::MiB);
  svg += print("<text x='%.0f' y='%.1f' text-anchor='end' font-weight='bold'>%s</text>\n",
               left - 10, top + height - 4, name.c_str());
  return svg;
}

int fail(const adacc::Error& why) {
  std::fprintf(stderr, "draw_memory: %s\n", why.text());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  gpt::Config config{6, 6, 384, 256, 256};
  std::size_t batch = 4, seq = 256;
  int threads = 2;
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
  app.add_option("--out", out, "the SVG file to write");
  CLI11_PARSE(app, argc, argv);
  config.context = seq;

  const char* names[] = {"retain", "recompute", "int8", "mixed"};
  std::vector<adacc::Program> programs;
  for (const char* name : names) {
    auto graph = gpt::graph(config, batch, seq, threads);
    if (!graph) return fail(graph.error);
    auto program = adacc::make_program(*graph, gpt::named_plan(name, config, batch, seq));
    if (!program) return fail(program.error);
    programs.push_back(std::move(*program));
  }
  const double most = static_cast<double>(programs[0].peak_bytes());

  std::string svg =
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 920 640' font-family='sans-serif' "
      "font-size='13'>\n<rect width='920' height='640' fill='white'/>\n";
  svg += print(
      "<text x='20' y='24' font-size='14'>Live memory of one training step, instruction by "
      "instruction: a GPT of %d layers, %zu channels, on %zu x %zu tokens</text>\n",
      config.layers, config.channels, batch, seq);
  for (std::size_t i = 0; i < bands.size(); ++i)
    svg += print(
        "<rect x='%zu' y='36' width='12' height='12' fill='%s'/>"
        "<text x='%zu' y='47'>%s</text>\n",
        120 + i * 170, bands[i].color, 138 + i * 170, bands[i].label);
  for (std::size_t i = 0; i < programs.size(); ++i)
    svg += panel(names[i], programs[i], 64 + static_cast<double>(i) * 138, most);
  svg +=
      "<text x='120' y='632'>forward</text><text x='820' y='632' text-anchor='end'>backward"
      "</text>\n</svg>\n";

  auto file = adacc::AtomicFile::create(out);
  if (!file) return fail(file.error);
  if (const adacc::Error why = file->write(svg.data(), svg.size())) return fail(why);
  if (const adacc::Error why = file->commit()) return fail(why);
  for (std::size_t i = 0; i < programs.size(); ++i)
    std::printf("%-10s %8.1f MiB\n", names[i],
                static_cast<double>(programs[i].peak_bytes()) / adacc::MiB);
  return 0;
}
