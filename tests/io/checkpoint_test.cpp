// SPDX-License-Identifier: MIT
#include "adacc/io/checkpoint.hpp"

#include <doctest/doctest.h>

#if !defined(_WIN32) && !defined(__EMSCRIPTEN__)
#include <sys/resource.h>
#endif

#include <csignal>

#include "../test_size.hpp"
#include "../train/support.hpp"
#include "adacc/core/block.hpp"

namespace checkpoint_test { namespace {

using namespace adacc;
using train_test::Folder;
using train_test::read_file;
using train_test::says;
using train_test::write_file;

constexpr const char* optimizer = "AdamW\nfirst moment: full 1\n";

/// The parameters and a state of some odd number of bytes.
template <class T>
struct Run {
  explicit Run(std::size_t elems, double start = 0) {
    params = *Block<T>::make(elems, "run");
    state = *Block<std::byte>::make(2 * elems + 1, "run");
    for (std::size_t i = 0; i < elems; ++i)
      params[i] = static_cast<T>(start == 0 ? 0 : start + static_cast<double>(i) / 3);
    for (std::size_t i = 0; i < state.size(); ++i)
      state[i] = static_cast<std::byte>(start == 0 ? 0 : start + static_cast<double>(i % 101));
    info.model = "GPT 2 layers, 4 channels";
    info.optimizer = optimizer;
    info.plan = "retain\nrecompute\nint8\n";
    info.evolution = "one\ntwo\n";
    info.notes = "--lr 1e-3";
    info.updates = 123456789012345;
    info.data_position = 42;
    info.key = {0x123456789ABCDEF0, 7, 8, 9, Purpose::rounding};
    info.layout = 0xFEDCBA9876543210;
    info.graph = {4096, 0xABCD};
    info.parameter_elems = elems;
    info.scalar = dtype_of<T>;
  }
  Error save(const std::string& path) const {
    return save_checkpoint<T>(path, info, params.view(), state.view());
  }
  Result<CheckpointInfo> load(const std::string& path) {
    Result<CheckpointFile> file = CheckpointFile::open(path);
    if (!file) return file.error;
    if (const Error why = file->examine(info)) return why;
    if (const Error why = file->read(params.view(), state.view())) return why;
    return file->info();
  }
  bool equals(const Run& other) const {
    return std::memcmp(params.data(), other.params.data(), params.size() * sizeof(T)) == 0 &&
           std::memcmp(state.data(), other.state.data(), state.size()) == 0;
  }
  Block<T> params;
  Block<std::byte> state;
  CheckpointInfo info;
};

template <class T>
void round_trip(std::size_t elems) {
  const Folder folder;
  const Run<T> run(elems, 1.5);
  REQUIRE(!run.save(folder / "run"));
  Run<T> resumed(elems);
  CHECK(!resumed.equals(run));
  const Result<CheckpointInfo> info = resumed.load(folder / "run");
  CHECK(std::string(info.error.text()) == "");
  CHECK(resumed.equals(run));
  CHECK(info->model == run.info.model);
  CHECK(info->plan == run.info.plan);
  CHECK(info->optimizer == optimizer);
  CHECK(info->optimizer_name() == "AdamW");
  CHECK(info->evolution == run.info.evolution);
  CHECK(info->notes == run.info.notes);
  CHECK(info->layout == 0xFEDCBA9876543210);
  CHECK(info->graph == run.info.graph);
  CHECK(info->state_bytes == 2 * elems + 1);
  CHECK(info->updates == 123456789012345);
  CHECK(info->data_position == 42);
  CHECK(info->key.seed == 0x123456789ABCDEF0);
  CHECK(info->key.step == 7);
  CHECK(info->key.micro_step == 8);
  CHECK(info->key.activation == 9);
  CHECK(info->key.purpose == Purpose::rounding);
  CHECK(info->parameter_elems == elems);
  CHECK(info->scalar == dtype_of<T>);
  CHECK(folder.entries() == 1);
  const Result<CheckpointInfo> only = read_checkpoint_info(folder / "run");
  CHECK(only->plan == run.info.plan);
}

TEST_CASE("a run comes back bit for bit, and saves to the same bytes again") {
  for (std::size_t elems : {std::size_t{1}, std::size_t{16}, std::size_t{37}, std::size_t{10007}}) {
    round_trip<float>(elems);
    round_trip<double>(elems);
  }
  const Folder folder;
  const Run<float> run(37, 1.5);
  REQUIRE(!run.save(folder / "a"));
  REQUIRE(!run.save(folder / "b"));
  CHECK(read_file(folder / "a") == read_file(folder / "b"));
}

TEST_CASE("the file is laid out as documented") {
  const Folder folder;
  const Run<float> run(3, 1.5);
  REQUIRE(!run.save(folder / "run"));
  const std::string bytes = read_file(folder / "run");
  CHECK(bytes.size() == 144 + 24 + 32 + 24 + 8 + 16 + 16 + 8 + 8);
  CHECK(bytes.substr(0, 8) == "ADACCKPT");
  const auto word = [&](std::size_t at) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, 8);
    return value;
  };
  CHECK(word(8) == 3);
  CHECK(word(16) == bytes.size());
  const std::uint64_t header[] = {3,
                                  7,
                                  123456789012345,
                                  42,
                                  0x123456789ABCDEF0,
                                  7 | std::uint64_t{8} << 32,
                                  9 | std::uint64_t{1} << 32,
                                  0xFEDCBA9876543210,
                                  4096,
                                  0xABCD,
                                  24,
                                  27,
                                  22,
                                  8,
                                  9};
  for (std::size_t i = 0; i < std::size(header); ++i) {
    CAPTURE(i);
    CHECK(word(24 + 8 * i) == header[i]);
  }
  const auto filled = [](const std::string& text, std::size_t size) {
    return text + std::string(size - text.size(), '\0');
  };
  CHECK(bytes.substr(144, 104) == run.info.model + filled(optimizer, 32) +
                                      filled(run.info.plan, 24) + run.info.evolution +
                                      filled(run.info.notes, 16));
  CHECK(std::memcmp(bytes.data() + 248, run.params.data(), 12) == 0);
  CHECK(std::memcmp(bytes.data() + 264, run.state.data(), 7) == 0);
  std::uint64_t sum = 0xcbf29ce484222325;
  for (std::size_t at = 0; at + 8 < bytes.size(); at += 8) {
    sum = (sum ^ word(at)) * 0x100000001b3;
    sum ^= sum >> 32;
  }
  CHECK(word(bytes.size() - 8) == sum);
}

TEST_CASE("every flipped bit and every truncation is refused, and the model stays untouched") {
  const Folder folder;
  const std::string path = folder / "run";
  REQUIRE(!Run<float>(5, 1.5).save(path));
  const std::string good = read_file(path);
  Run<float> run(5, 7);
  const Run<float> before(5, 7);
  // Each bit of a byte in turn under sanitizers, where every bit of all would be an eighth of all tests.
  for (std::size_t bit = 0; bit < 8 * good.size(); bit += test_sanitized ? 9 : 1) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(static_cast<unsigned char>(bad[bit / 8]) ^ (1U << bit % 8));
    write_file(path, bad);
    const Result<CheckpointInfo> info = run.load(path);
    if (info ||
        !says(info.error.text(), path.c_str(), "expected an adacc checkpoint of version 2 or 3")) {
      FAIL("bit ", bit, " was accepted, or not explained: ", info.error.text());
    }
  }
  for (std::size_t size = 0; size < good.size(); ++size) {
    write_file(path, good.substr(0, size));
    if (run.load(path)) FAIL("the first ", size, " bytes were accepted");
  }
  write_file(path, good.substr(0, good.size() - 1));
  CHECK(says(run.load(path).error.text(), path.c_str(), "truncated"));
  write_file(path, good + "x");
  CHECK(says(run.load(path).error.text(), path.c_str(), "damaged"));
  CHECK(run.equals(before));
  write_file(path, good);
  CHECK(run.load(path));
}

TEST_CASE("two flipped signs do not cancel in the checksum") {
  const Folder folder;
  const std::string path = folder / "run";
  REQUIRE(!Run<float>(64, 1.5).save(path));
  std::string bytes = read_file(path);
  for (std::size_t at : {std::size_t{248 + 7}, std::size_t{248 + 15}})
    bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ 0x80U);
  write_file(path, bytes);
  CHECK(says(read_checkpoint_info(path).error.text(), "checksum"));
}

TEST_CASE("sizes are compared with the file before they are believed") {
  const Folder folder;
  const std::string path = folder / "run";
  REQUIRE(!Run<float>(5, 1.5).save(path));
  const std::string good = read_file(path);
  for (std::size_t at : {24U, 32U, 104U, 112U, 120U, 128U, 136U})
    for (std::uint64_t size : {~std::uint64_t{0}, std::uint64_t{1} << 62, std::uint64_t{1} << 40}) {
      std::string bad = good;
      std::memcpy(bad.data() + at, &size, 8);
      write_file(path, bad);
      CHECK(says(read_checkpoint_info(path).error.text(), "do not add up"));
    }
}

TEST_CASE("foreign files and other versions are named") {
  const Folder folder;
  const std::string path = folder / "run";
  const auto error = [&](const std::string& bytes) {
    write_file(path, bytes);
    return std::string(read_checkpoint_info(path).error.text());
  };
  std::string llmc(2000, '\0');
  std::memcpy(llmc.data(), &llmc_model_magic, 4);
  CHECK(says(error(llmc).c_str(), path.c_str(), "llm.c model checkpoint"));
  CHECK(says(error("a letter to a friend").c_str(), "looks like text"));
  CHECK(says(error("").c_str(), "truncated"));
  CHECK(says(read_checkpoint_info(folder / "none").error.text(), "/none: ", "No such file"));
  CHECK(says(read_checkpoint_info(folder.path).error.text(), "is a folder"));
  REQUIRE(!Run<float>(5, 1.5).save(path));
  std::string other = read_file(path);
  for (const int version : {1, 4}) {
    other[8] = static_cast<char>(version);
    const std::string of = "of version " + std::to_string(version);
    CHECK(says(error(other).c_str(), of.c_str(), "reads versions 2 and 3 alone"));
  }
  other[8] = 1;  // the shortest that version 1 had
  CHECK(says(error(other.substr(0, 96)).c_str(), "of version 1", "reads versions 2 and 3 alone"));
}

TEST_CASE("a checkpoint of another model is refused") {
  const Folder folder;
  const std::string path = folder / "run";
  REQUIRE(!Run<float>(5, 1.5).save(path));
  Run<float> other(5);
  other.info.model = "GPT 3 layers, 4 channels";
  CHECK(std::string(other.load(path).error.text()) ==
        "checkpoint " + path +
            " is of \"GPT 2 layers, 4 channels\", this model is \"GPT 3 layers, 4 channels\"");
  CHECK(says(Run<float>(6).load(path).error.text(), "holds 5 f32", "has 6 f32"));
  CHECK(says(Run<double>(5).load(path).error.text(), "holds 5 f32", "has 5 f64"));
  Run<float> unnamed(5), shaped(5), optimized(5);
  unnamed.info.model.clear();
  CHECK(unnamed.load(path));
  shaped.info.layout ^= 1;
  CHECK(says(shaped.load(path).error.text(), "other names or shapes"));
  optimized.info.optimizer = "SGD";
  CHECK(says(optimized.load(path).error.text(), "state of AdamW", "is SGD"));
  const Run<float> fresh(5);
  for (const Run<float>* run : {&shaped, &optimized}) CHECK(run->equals(fresh));
}

#if !defined(_WIN32) && !defined(__EMSCRIPTEN__)
TEST_CASE("a save that fails leaves the old checkpoint readable") {
  const Folder folder;
  const std::string path = folder / "run";
  const Run<float> old(30000, 1.5);
  REQUIRE(!old.save(path));
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  // 180 KB in all: the disk fills in the header, in each block, and in the checksum.
  for (rlim_t limit : {rlim_t{10}, rlim_t{150}, rlim_t{100000}, rlim_t{150000},
                       rlim_t{248 + 120000 + 60008 + 4}}) {
    rlimit lower = before;
    lower.rlim_cur = limit;
    setrlimit(RLIMIT_FSIZE, &lower);
    const Error error = Run<float>(30000, 2.5).save(path);
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK(says(error.text(), path.c_str(), "cannot be written"));
    Run<float> resumed(30000);
    CHECK(resumed.load(path));
    CHECK(resumed.equals(old));
    CHECK(folder.entries() == 1);
  }
  std::signal(SIGXFSZ, handler);
  CHECK(says(old.save(folder / "no/run").text(), "/no/run: ", "No such file"));
}
#endif

TEST_CASE("memory of other sizes is refused") {
  const Folder folder;
  const std::string path = folder / "run";
  REQUIRE(!Run<float>(5, 1).save(path));
  Result<CheckpointFile> file = CheckpointFile::open(path);
  REQUIRE(file);
  Run<float> into(5), wide(6);
  CHECK(says(file->read(wide.params.view(), into.state.view()).text(), "5 parameters",
             "asked for 6"));
  CHECK(says(file->read(into.params.view(), wide.state.view()).text(), "11 bytes of state",
             "asked for 13"));
  CHECK(into.equals(Run<float>(5)));
}

TEST_CASE("version 2, whose state was blocks as large as the parameters, is read") {
  const Folder folder;
  const std::string path = folder / "run";
  Run<float> run(5, 1.5);
  run.info.optimizer = "AdamW";
  run.state = *Block<std::byte>::make(48, "two blocks of five, each filled up to a multiple of 8");
  for (std::size_t i = 0; i < 48; ++i) run.state[i] = static_cast<std::byte>(i + 1);
  REQUIRE(!run.save(path));
  std::string bytes = read_file(path);
  bytes[8] = 2;
  bytes[32] = 2;  // blocks
  std::uint64_t sum = 0xcbf29ce484222325, word = 0;
  for (std::size_t at = 0; at + 8 < bytes.size(); at += 8) {
    std::memcpy(&word, bytes.data() + at, 8);
    sum = (sum ^ word) * 0x100000001b3;
    sum ^= sum >> 32;
  }
  std::memcpy(bytes.data() + bytes.size() - 8, &sum, 8);
  write_file(path, bytes);
  Run<float> resumed(5);
  resumed.state = *Block<std::byte>::make(48, "state");
  const Result<CheckpointInfo> info = resumed.load(path);
  REQUIRE_MESSAGE(info, std::string(info.error.text()));
  CHECK(info->state_bytes == 48);
  CHECK(resumed.equals(run));
}

}}  // namespace checkpoint_test
