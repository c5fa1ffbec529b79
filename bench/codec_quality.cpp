// SPDX-License-Identifier: MIT
/// What codecs do to numbers: SQNR against bits per element, on made inputs and on real ones.
///
/// SQNR is 10 log10 of the sum of x^2 over the sum of (decoded x - x)^2, in dB. Over all elements
/// outliers flatter it, so it is also taken over the bulk: what the input's generator did not plant
/// as an outlier; of real activations, all but the 1 % largest in magnitude. Prints tables; --json
/// and --svg write the same figures to files.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/io/file.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "captured_activations.hpp"
#include "codec_inputs.hpp"
#include "codec_list.hpp"
#include "quality_plot.hpp"

namespace {

using codec_inputs::Input;
using codec_inputs::Kind;
using codec_list::Entry;

/// In dB; infinite where every element came back as it was, NaN where some came back as no number.
struct Quality {
  double bits = 0, bulk = 0, all = 0;
};

double decibels(double signal, double noise) { return 10 * std::log10(signal / noise); }

adacc::Result<std::vector<float>> round_trip(adacc::Cpu& cpu, const Entry& codec,
                                             const Input& input, double& bits) {
  const std::size_t bytes = codec.encoded_bytes(input.rows, input.cols, adacc::Dtype::f32);
  auto blob = adacc::Block<std::byte>::make(bytes, "a blob");
  auto y = adacc::Block<float>::make(input.rows * input.cols, "decoded elements");
  if (!blob || !y) return blob ? y.error : blob.error;
  const adacc::Shape size(bytes);
  if (adacc::Error why = codec.encode(cpu, input.view(), {blob->data(), size})) return why;
  if (adacc::Error why = codec.decode(cpu, {blob->data(), size},
                                      {y->data(), adacc::Shape(input.rows, input.cols)}))
    return why;
  bits = 8 * static_cast<double>(bytes) / static_cast<double>(input.rows * input.cols);
  return std::vector<float>(y->data(), y->data() + y->size());
}

adacc::Result<Quality> measure(adacc::Cpu& cpu, const Entry& codec, const Input& input) {
  Quality quality;
  const auto y = round_trip(cpu, codec, input, quality.bits);
  if (!y) return y.error;
  double signal[2] = {}, noise[2] = {};
  for (std::size_t i = 0; i < y->size(); ++i) {
    const double x = input.x[i], error = (*y)[i] - x;
    signal[input.bulk[i]] += x * x;
    noise[input.bulk[i]] += error * error;
  }
  quality.bulk = decibels(signal[1], noise[1]);
  quality.all = decibels(signal[0] + signal[1], noise[0] + noise[1]);
  return quality;
}

/// The share of elements that came back as what the codec promises.
adacc::Result<double> measure_lossless(adacc::Cpu& cpu, const Entry& codec, const Input& input,
                                       double& bits) {
  const auto y = round_trip(cpu, codec, input, bits);
  if (!y) return y.error;
  std::size_t right = 0;
  for (std::size_t i = 0; i < y->size(); ++i)
    right += codec.family == codec_list::Family::mask ? ((*y)[i] == 1) == (input.x[i] > 0)
                                                      : (*y)[i] == input.x[i];
  return static_cast<double>(right) / static_cast<double>(y->size());
}

/// Of all activations: the median, and the least and the most of the bulk.
struct Spread {
  double bulk = 0, all = 0, least = 0, most = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n == 0 ? 0 : (values[(n - 1) / 2] + values[n / 2]) / 2;
}

Spread spread(const std::vector<Quality>& qualities) {
  std::vector<double> bulk, all;
  for (const Quality& q : qualities) bulk.push_back(q.bulk), all.push_back(q.all);
  const auto [least, most] = std::minmax_element(bulk.begin(), bulk.end());
  return {median(bulk), median(all), *least, *most};
}

/// Everything that was measured. [codec][input] and [codec][activation].
struct Report {
  std::vector<Entry> codecs;
  std::vector<std::string> inputs, activations;
  std::vector<std::vector<Quality>> made, real;
  double first_loss = 0, last_loss = 0;
  std::vector<std::pair<std::string, std::pair<double, double>>> lossless;  // bits, share right
};

std::string shown(double db) {
  char text[32];
  if (std::isnan(db)) return "-";
  if (std::isinf(db)) return "exact";
  std::snprintf(text, sizeof text, "%.1f", db);
  return text;
}

void print_made(const Report& report) {
  std::printf("SQNR in dB, bulk / all elements\n\n%-38s %6s", "codec", "bits");
  for (const std::string& name : report.inputs) std::printf(" %13s", name.c_str());
  std::printf(" %13s %13s\n", "real, median", "bulk min..max");
  for (std::size_t c = 0; c < report.codecs.size(); ++c) {
    std::printf("%-38s %6.2f", report.codecs[c].name, report.made[c][0].bits);
    for (const Quality& q : report.made[c])
      std::printf(" %13s", (shown(q.bulk) + " / " + shown(q.all)).c_str());
    const Spread s = spread(report.real[c]);
    std::printf(" %13s %13s\n", (shown(s.bulk) + " / " + shown(s.all)).c_str(),
                (shown(s.least) + ".." + shown(s.most)).c_str());
  }
  std::printf("\n%-38s %6s %s\n", "lossless in what they are for", "bits", "right");
  for (const auto& [name, figures] : report.lossless)
    std::printf("%-38s %6.2f %.6f\n", name.c_str(), figures.first, figures.second);
}

/// The activations one by one, for a few codecs.
void print_real(const Report& report) {
  std::vector<std::size_t> chosen;
  for (std::size_t c = 0; c < report.codecs.size(); ++c) {
    const Entry& e = report.codecs[c];
    adacc::QuantOptions one, row, none;
    one.group = 128, row.group = adacc::whole_row, none.outliers = adacc::Outliers::none;
    if (e.is_default() || e.options == one || e.options == row || e.options == none)
      chosen.push_back(c);
  }
  std::printf(
      "\nSQNR in dB over the bulk, activation by activation, after training (loss %.3f to "
      "%.3f)\n\n%-16s",
      report.first_loss, report.last_loss, "");
  for (const std::size_t c : chosen) {
    std::string name = report.codecs[c].name;
    if (const auto at = name.find("_outlier"); at != std::string::npos) name.erase(at, 8);
    std::printf(" %13s", name.c_str());
  }
  std::printf("\n");
  for (std::size_t a = 0; a < report.activations.size(); ++a) {
    std::printf("%-16s", report.activations[a].c_str());
    for (const std::size_t c : chosen) std::printf(" %13s", shown(report.real[c][a].bulk).c_str());
    std::printf("\n");
  }
}

nlohmann::ordered_json number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json("exact");
}

nlohmann::ordered_json as_json(const Report& report) {
  nlohmann::ordered_json json;
  json["unit"] = "dB";
  json["loss"] = {{"first", report.first_loss}, {"last", report.last_loss}};
  const auto add = [](nlohmann::ordered_json& to, const std::string& input, const Quality& q) {
    to[input] = {{"bits_per_element", q.bits}, {"bulk", number(q.bulk)}, {"all", number(q.all)}};
  };
  for (std::size_t c = 0; c < report.codecs.size(); ++c) {
    nlohmann::ordered_json codec;
    codec["name"] = report.codecs[c].name;
    for (std::size_t i = 0; i < report.inputs.size(); ++i)
      add(codec["made"], report.inputs[i], report.made[c][i]);
    for (std::size_t a = 0; a < report.activations.size(); ++a)
      add(codec["real"], report.activations[a], report.real[c][a]);
    json["codecs"].push_back(codec);
  }
  for (const auto& [name, figures] : report.lossless)
    json["lossless"].push_back(
        {{"name", name}, {"bits_per_element", figures.first}, {"right", figures.second}});
  return json;
}

std::string draw(const Report& report) {
  const char* titles[] = {"(a) clean: normal numbers",
                          "(b) channels: 6 columns of 768 times 20",
                          "(c) massive: 48 elements of 786432 of 100 to 1000",
                          "(d) GELU of normal numbers",
                          "(e) rows of softmax",
                          "(f) a GPT's activations"};
  std::vector<quality_plot::Panel> panels;
  for (std::size_t p = 0; p <= report.inputs.size(); ++p) {
    quality_plot::Panel panel;
    panel.title = titles[p];
    if (p == report.inputs.size())
      panel.title +=
          ": median of " + std::to_string(report.activations.size()) + ", least and most as a line";
    for (std::size_t c = 0; c < report.codecs.size(); ++c) {
      const Entry& e = report.codecs[c];
      // The roundings and scales beside the default are shown for its groups alone.
      if ((e.options.symmetric || e.options.rounding == adacc::Rounding::stochastic) &&
          e.options.group != 0)
        continue;
      if (p < report.inputs.size()) {
        const Quality& q = report.made[c][p];
        panel.marks.push_back({e, q.bits, q.bulk, q.all, q.bulk, q.bulk});
      } else {
        const Spread s = spread(report.real[c]);
        panel.marks.push_back({e, report.made[c][0].bits, s.bulk, s.all, s.least, s.most});
      }
    }
    panels.push_back(std::move(panel));
  }
  return quality_plot::draw(panels);
}

adacc::Error measure_all(adacc::Cpu& cpu, const captured::Setting& setting, Report& report) {
  report.codecs = codec_list::lossy();
  std::vector<Input> made;
  for (const Kind kind : {Kind::clean, Kind::channels, Kind::massive, Kind::gelu, Kind::softmax}) {
    auto input = codec_inputs::make(kind, 1024, 768);
    if (!input) return input.error;
    report.inputs.push_back(input->name);
    made.push_back(std::move(*input));
  }
  auto real = captured::capture(setting, cpu);
  if (!real) return real.error;
  report.first_loss = real->first_loss, report.last_loss = real->last_loss;
  for (const Input& input : real->activations) report.activations.push_back(input.name);
  for (const Entry& codec : report.codecs) {
    report.made.emplace_back();
    report.real.emplace_back();
    for (const auto& [inputs, qualities] : {std::pair{&made, &report.made.back()},
                                            std::pair{&real->activations, &report.real.back()}})
      for (const Input& input : *inputs) {
        auto quality = measure(cpu, codec, input);
        if (!quality) return quality.error;
        qualities->push_back(*quality);
      }
  }
  std::vector<Entry> lossless = codec_list::indices();
  lossless.insert(lossless.begin(), codec_list::mask());
  for (const Entry& codec : lossless) {
    const bool mask = codec.family == codec_list::Family::mask;
    auto input = codec_inputs::make(mask ? Kind::relu : Kind::indices, 1024, 768);
    if (!input) return input.error;
    double bits = 0;
    auto right = measure_lossless(cpu, codec, *input, bits);
    if (!right) return right.error;
    report.lossless.push_back({codec.name, {bits, *right}});
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  captured::Setting setting;
  setting.text = ADACC_EIGEN_INCLUDE_DIR;
  std::string json, svg;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  CLI::App app("SQNR against bits per element, for every codec and option.", "codec_quality");
  app.option_defaults()->always_capture_default();
  app.add_option("--text", setting.text, "the file or folder that the GPT learns");
  app.add_option("--layers", setting.network.layers)->check(CLI::Range(1, 4096));
  app.add_option("--heads", setting.network.heads)->check(CLI::PositiveNumber);
  app.add_option("--channels", setting.network.channels)->check(CLI::PositiveNumber);
  app.add_option("--batch", setting.batch)->check(CLI::PositiveNumber);
  app.add_option("--seq", setting.seq)->check(CLI::PositiveNumber);
  app.add_option("--steps", setting.steps, "of training")->check(CLI::Range(1, 1000000));
  app.add_option("--lr", setting.lr)->check(CLI::PositiveNumber);
  app.add_option("--threads", threads, "change no figure")->check(CLI::Range(1, 256));
  app.add_option("--json", json, "write the figures to this file as well");
  app.add_option("--svg", svg, "draw them into this file");
  CLI11_PARSE(app, argc, argv);
  setting.network.context = setting.seq;

  adacc::EigenPool pool(threads);
  adacc::Cpu cpu{adacc::ExecutorRef(pool)};
  cpu.key.seed = 1;
  Report report;
  adacc::Error error = measure_all(cpu, setting, report);
  if (!error && !json.empty()) error = adacc::write_file(json, as_json(report).dump(2) + "\n");
  if (!error && !svg.empty()) error = adacc::write_file(svg, draw(report));
  if (error) {
    std::fprintf(stderr, "codec_quality: %s\n", error.text());
    return 2;
  }
  print_made(report);
  print_real(report);
  return 0;
}
