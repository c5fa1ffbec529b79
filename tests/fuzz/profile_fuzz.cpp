// SPDX-License-Identifier: MIT
/// The reader of profile files, fed with what libFuzzer makes up.
///
/// The first byte says what the others are: the whole text, or all of it but the checksum, which is
/// then made right, so that the reader of lines is reached. What is accepted must make sense, and
/// must be the same after another way through text. `profile_fuzz --write-seeds FOLDER` fills a new
/// folder with good profiles, and ends.
#include <adacc/adacc.hpp>
#include <adacc/io/profile_text.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace {

using namespace adacc;

struct Wide {
  static constexpr const char* name = "wide";
  static constexpr auto backward_reads = reads::input;
};
struct Loss {};
using Net = Network<Sequential<Layer<Wide>, Repeat<Layer<Wide>>>, Loss>;

const Graph& graph() {
  static const Graph made = [] {
    Net net{};
    net.model = {{}, {3, {}}};
    return *make_graph(net, Shape(64, 64));
  }();
  return made;
}

const ProfileSource source{"machine", "model", 2};

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "profile_fuzz: %s\n", what);
  std::abort();
}

void write_seeds(const std::filesystem::path& folder) {
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  for (const bool equal : {true, false}) {
    CostProfile profile = empty_profile(graph());
    double x = 0;
    for (NodeCost& cost : profile.nodes) cost = {0.1 + x, 1e-9 + x, x, 0}, x += equal ? 0 : 0.125;
    for (CodecCost& cost : profile.codec_costs) cost = {x, 1e-3, 1e-300, 3};
    std::string text = profile_text(graph(), profile, source);
    std::ofstream(folder / (equal ? "equal" : "different"), std::ios::binary) << '\0' << text;
    text.resize(text.rfind("checksum "));
    std::ofstream(folder / (equal ? "equal_body" : "different_body"), std::ios::binary)
        << '\1' << text;
  }
}

}  // namespace

#include "write_seeds.hpp"  // calls the function above

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 1) text += detail::checksum_line(text);
  const auto profile = parse_profile(text, graph(), source);
  if (!profile) {
    require(profile.error.text()[0] != '\0', "refused without a reason");
    return 0;
  }
  require(!examine(graph(), *profile), "accepted a profile that makes no sense");
  const std::string again = profile_text(graph(), *profile, source);
  const auto reread = parse_profile(again, graph(), source);
  require(static_cast<bool>(reread), "refused what it wrote");
  require(profile_text(graph(), *reread, source) == again, "read something else than it wrote");
  return 0;
}
