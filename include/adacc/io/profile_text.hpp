// SPDX-License-Identifier: MIT
/// A measured cost profile as a text file, to restart without warm-up.
///
/// Times hold for one machine, number of threads, input and model. So the file names these, and is refused for any
/// others (another number of threads is accepted with ProfileSource::any_threads):
///
///     adacc cost profile, version 1
///     machine AMD EPYC 9654 96-Core Processor
///     threads 2
///     input i32 (4, 256)
///     scalar f32
///     model GPT-2, layers 6, heads 6, channels 384, context 256, vocabulary 256
///     nodes 50
///     codec int4_outlier
///     codec bf16
///     loss 0.0213
///     rest 0.0117
///     layer 0 embedding FORWARD BACKWARD ADD ADD_GRADIENT ENCODE DECODE ERROR CARRIED ...
///     ...
///     node 0 embedding ...
///     checksum 0123456789abcdef
///
/// A row has the four times of NodeCost and, for each codec in the order of the codec lines, the four numbers of
/// CodecCost. The row of a layer holds for all copies; after the layers come rows of single nodes that differ
/// from their layer's row. Numbers are written to be read back to the bit. The checksum is the one of
/// file_format.hpp, over all bytes before this line, filled up with zeros to a multiple of 8 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "../core/no_memory.hpp"
#include "../core/number_text.hpp"
#include "../core/read_number.hpp"
#include "../cost/profile.hpp"
#include "file.hpp"
#include "file_format.hpp"

namespace adacc { inline namespace v0_1 {

/// The origin of a profile, beside the graph.
struct ProfileSource {
  std::string machine;  ///< for instance machine_name()
  std::string model;    ///< a description; equal text means equal layers and shapes
  int threads = 1;      ///< threads of the measured steps
  /// Accepts times of any number of threads: then a plan does not depend on the number.
  bool any_threads = false;
};

namespace detail {

inline constexpr int profile_version = 1;
inline constexpr std::string_view profile_title = "adacc cost profile, version ";
inline constexpr std::size_t profile_limit = 256 * MiB;
inline constexpr const char* profile_expected = "an adacc cost profile of version 1";

inline std::string whole_line(const std::string& text) {
  return one_line(text, static_cast<std::size_t>(-1));
}

inline std::string shape_text(Dtype dtype, Shape shape) {
  return Error::say(name_of(dtype), " ", shape).text();
}

/// All lines before the codecs: the origin of a profile.
inline std::string profile_heading(const Graph& graph, const ProfileSource& source) {
  return "machine " + whole_line(source.machine) + "\nthreads " + std::to_string(source.threads) +
         "\ninput " + shape_text(graph.input_dtype, graph.input) + "\nscalar " +
         name_of(graph.scalar) + "\nmodel " + whole_line(source.model) + "\nnodes " +
         std::to_string(graph.nodes.size()) + "\n";
}

inline std::string checksum_line(std::string_view text) {
  Checksum sum;
  const std::size_t whole = text.size() / 8 * 8;
  char tail[8] = {};
  std::memcpy(tail, text.data() + whole, text.size() - whole);
  sum.add(text.data(), whole);
  if (whole != text.size()) sum.add(tail, 8);
  return std::string("checksum ") + NumberText::hexadecimal(sum.value()).c_str() + "\n";
}

/// The numbers of node `id`, each after a space.
inline std::string profile_row(const CostProfile& profile, int id) {
  std::string row;
  const auto number = [&](double value) {
    row += ' ';
    row += NumberText::shortest(value);
  };
  const NodeCost& cost = profile.node(id);
  for (const double value : {cost.forward, cost.backward, cost.add, cost.add_gradient})
    number(value);
  for (std::size_t c = 0; c < profile.codecs.size(); ++c) {
    const CodecCost& codec = profile.codec_cost(id, static_cast<int>(c));
    for (const double value : {codec.encode, codec.decode, codec.error, codec.carried_error})
      number(value);
  }
  return row;
}

/// Reads the lines of a profile whose checksum is right.
class ProfileReader {
 public:
  ProfileReader(std::string_view text, const Graph& graph) : text_(text), graph_(graph) {}

  /// Skips the lines of `heading`; the error names a differing line.
  Error read_heading(std::string_view heading, bool any_threads) {
    while (!heading.empty()) {
      const std::size_t end = heading.find('\n');
      const std::string expected(heading.substr(0, end));
      heading.remove_prefix(end + 1);
      const std::string found(line());
      if (found == expected) continue;
      const std::string key = expected.substr(0, expected.find(' '));
      if (found.compare(0, key.size() + 1, key + ' ') != 0) return wrong(found, key + " ...");
      if (any_threads && key == "threads") continue;
      const bool counted = key == "threads" || key == "nodes";
      return Error::say("was measured with another ", counted ? "number of " : "", key.c_str(),
                        ": there \"", one_line(found.substr(key.size() + 1), 80).c_str(),
                        "\", here \"", one_line(expected.substr(key.size() + 1), 80).c_str(), "\"");
    }
    return {};
  }

  Error read_codecs() {
    const Array<const CodecInfo*> known = codecs_of(graph_);
    while (starts_with("codec ")) {
      const std::string name(line().substr(6));
      const CodecInfo* codec = nullptr;
      for (const CodecInfo* candidate : known)
        if (name == candidate->name) codec = candidate;
      if (codec == nullptr)
        return Error::say("has costs of the codec ", one_line(name, 60).c_str(),
                          ", which this model's layers do not tolerate");
      if (profile.column(codec) >= 0) return Error::say("lists the codec ", codec->name, " twice");
      profile.codecs.push_back(codec);
    }
    profile.nodes.resize(graph_.nodes.size());
    profile.codec_costs.resize(graph_.nodes.size() * profile.codecs.size());
    return {};
  }

  Error read_named_number(std::string_view name, double& value) {
    std::string_view rest = line();
    const std::string found(rest);
    if (rest.substr(0, name.size()) == name) {
      rest.remove_prefix(name.size());
      if (take_value(rest, value) && rest.empty()) return {};
    }
    return wrong(found, std::string(name) + " SECONDS");
  }

  /// Reads a row that starts with "layer `id` `name`" or "node ..." into each node of `to`.
  Error read_row(const char* kind, int id, const Array<int>& to) {
    const std::string start =
        std::string(kind) + std::to_string(id) + ' ' + graph_.node(to[0]).name;
    std::string_view rest = line();
    const std::string found(rest);
    const std::size_t count = 4 + 4 * profile.codecs.size();
    Array<double> numbers(count);
    bool good = rest.substr(0, start.size()) == start;
    if (good) rest.remove_prefix(start.size());
    for (std::size_t i = 0; i < count && good; ++i) good = take_value(rest, numbers[i]);
    if (!good || !rest.empty())
      return wrong(found, start + " and " + std::to_string(count) + " numbers");
    for (const int k : to) {
      profile.nodes[static_cast<std::size_t>(k)] = {numbers[0], numbers[1], numbers[2], numbers[3]};
      for (std::size_t c = 0; c < profile.codecs.size(); ++c) {
        const double* n = numbers.data() + 4 + 4 * c;
        profile.codec_cost(k, static_cast<int>(c)) = {n[0], n[1], n[2], n[3]};
      }
    }
    return {};
  }

  Error read_layers() {
    const std::size_t layers = last_copies(graph_).size();
    Array<Array<int>> copies(layers);
    for (int k = 0; k < graph_.node_count(); ++k)
      copies[static_cast<std::size_t>(graph_.node(k).layer)].push_back(k);
    for (std::size_t layer = 0; layer < layers; ++layer)
      if (Error why = read_row("layer ", static_cast<int>(layer), copies[layer])) return why;
    return {};
  }

  Error read_single_nodes() {
    int next = 0;
    while (starts_with("node ")) {
      std::string_view digits = text_.substr(5);
      int id = -1;
      if (!take_number(digits, id) || id < next || id >= graph_.node_count())
        return wrong(std::string(line()), "a node from " + std::to_string(next) + " to " +
                                              std::to_string(graph_.node_count() - 1));
      Array<int> to;
      to.push_back(id);
      if (Error why = read_row("node ", id, to)) return why;
      next = id + 1;
    }
    if (!text_.empty()) return wrong(std::string(line()), "the end");
    return {};
  }

  CostProfile profile;

 private:
  bool starts_with(std::string_view start) const { return text_.substr(0, start.size()) == start; }

  /// The next line, without its end.
  std::string_view line() {
    const std::size_t end = text_.find('\n');
    const std::string_view found = text_.substr(0, end);
    text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
    ++number_;
    return found;
  }

  /// Takes a space and a number from the start of `rest`.
  static bool take_value(std::string_view& rest, double& value) {
    return take_word(rest, " ") && take_number(rest, value);
  }

  Error wrong(const std::string& found, const std::string& expected) const {
    return Error::say("is wrong in line ", number_, ": it is \"", one_line(found, 60).c_str(),
                      "\", not \"", one_line(expected, 80).c_str(), "\"");
  }

  std::string_view text_;
  const Graph& graph_;
  int number_ = 1;  // the title has been read
};

}  // namespace detail

/// The operating system's name of the processor; "unknown" if there is none.
inline std::string machine_name(const std::string& cpuinfo = "/proc/cpuinfo") {
  std::FILE* file = std::fopen(cpuinfo.c_str(), "re");
  if (file == nullptr) return "unknown";
  std::string name;
  char line[512];
  while (name.empty() && std::fgets(line, sizeof line, file) != nullptr) {
    const std::string_view text(line);
    const std::size_t colon = text.find(':');
    if (text.substr(0, 10) != "model name" || colon == std::string_view::npos) continue;
    const std::size_t first = text.find_first_not_of(" \t", colon + 1);
    const std::size_t last = text.find_last_not_of(" \t\r\n");
    if (first != std::string_view::npos && last >= first)
      name = text.substr(first, last - first + 1);
  }
  std::fclose(file);
  return name.empty() ? "unknown" : detail::whole_line(name);
}

/// `profile`, which must describe `graph`, as text.
inline std::string profile_text(const Graph& graph, const CostProfile& profile,
                                const ProfileSource& source) {
  std::string text(detail::profile_title);
  text += std::to_string(detail::profile_version) + '\n' + detail::profile_heading(graph, source);
  for (const CodecInfo* codec : profile.codecs) text += std::string("codec ") + codec->name + '\n';
  text += "loss ";
  text += NumberText::shortest(profile.loss);
  text += "\nrest ";
  text += NumberText::shortest(profile.rest);
  text += '\n';
  Array<std::string> rows;
  for (const int k : detail::last_copies(graph)) {
    rows.push_back(detail::profile_row(profile, k));
    text += "layer " + std::to_string(graph.node(k).layer) + ' ' + graph.node(k).name +
            rows.back() + '\n';
  }
  for (int k = 0; k < graph.node_count(); ++k) {
    const std::string row = detail::profile_row(profile, k);
    if (row == rows[static_cast<std::size_t>(graph.node(k).layer)]) continue;
    text += "node " + std::to_string(k) + ' ' + graph.node(k).name + row + '\n';
  }
  return text + detail::checksum_line(text);
}

/// Reads the text of profile_text for the same graph and source. Any other text is refused, and the error, which
/// follows on a file's name, says why: another version, machine, number of threads, input, model or set of codecs;
/// cut off or damaged text; numbers that are no costs.
inline Result<CostProfile> parse_profile(const std::string& text, const Graph& graph,
                                         const ProfileSource& source) {
  return detail::or_no_memory("to read a cost profile", [&]() -> Result<CostProfile> {
    const std::string_view title = detail::profile_title;
    const std::size_t first_end = text.find('\n');
    if (std::string_view(text).substr(0, title.size()) != title)
      return Error::say("is not an adacc cost profile: it starts with \"",
                        one_line(text.substr(0, first_end < 40 ? first_end : 40)).c_str(), "\"");
    if (first_end == std::string::npos) return Error::say("is cut off in its first line");
    const std::string version = text.substr(title.size(), first_end - title.size());
    if (version != std::to_string(detail::profile_version))
      return Error::say("is of version ", one_line(version, 20).c_str(),
                        "; this program reads version ", detail::profile_version);
    const std::size_t sum_at = text.rfind("\nchecksum ");
    if (sum_at == std::string::npos || text.back() != '\n')
      return Error::say("is cut off: it does not end with a checksum");
    const std::string_view body = std::string_view(text).substr(0, sum_at + 1);
    if (std::string_view(text).substr(sum_at + 1) != detail::checksum_line(body))
      return Error::say("is damaged: its checksum does not match its contents");

    detail::ProfileReader reader(body.substr(first_end + 1), graph);
    if (Error why = reader.read_heading(detail::profile_heading(graph, source), source.any_threads))
      return why;
    if (Error why = reader.read_codecs()) return why;
    if (Error why = reader.read_named_number("loss", reader.profile.loss)) return why;
    if (Error why = reader.read_named_number("rest", reader.profile.rest)) return why;
    if (Error why = reader.read_layers()) return why;
    if (Error why = reader.read_single_nodes()) return why;
    if (Error why = examine(graph, reader.profile))
      return Error::say("cannot be used: ", why.text());
    return static_cast<CostProfile&&>(reader.profile);
  });
}

/// Writes the profile to a file, which appears whole or not at all. A senseless profile, or one that does not
/// describe `graph`, is not written.
inline Error save_profile(const std::string& path, const Graph& graph, const CostProfile& profile,
                          const ProfileSource& source) {
  if (Error why = examine(graph, profile))
    return Error::say(one_line(path).c_str(), ": not written: ", why.text());
  return write_file(path, profile_text(graph, profile, source));
}

/// Reads a profile from a file; errors are those of parse_profile, after the file's name.
inline Result<CostProfile> load_profile(const std::string& path, const Graph& graph,
                                        const ProfileSource& source) {
  return detail::or_no_memory("to read a cost profile", [&]() -> Result<CostProfile> {
    Result<InputFile> file = InputFile::open(path, detail::profile_expected);
    if (!file) return file.error;
    if (file->size() > detail::profile_limit)
      return file->fault("is too large: it has ", shown(file->size()));
    std::string text(file->size(), '\0');
    if (Error why = file->read(text.data(), text.size())) return why;
    Result<CostProfile> profile = parse_profile(text, graph, source);
    if (!profile) return Error::say(one_line(path, 100).c_str(), ": ", profile.error.text());
    return profile;
  });
}

}}  // namespace adacc::v0_1
