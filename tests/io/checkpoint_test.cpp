#include "adacc/io/checkpoint.hpp"

#include <doctest/doctest.h>

#include <sys/resource.h>
#include <csignal>

#include "../train/support.hpp"
#include "adacc/core/block.hpp"

namespace checkpoint_test { namespace {

using namespace adacc;
using train_test::Folder;
using train_test::read_file;
using train_test::says;
using train_test::write_file;

template <class T>
struct Run {
  explicit Run(std::size_t elems, double start = 0) {
    int k = 0;
    for (Block<T>* block : {&params, &m, &v}) {
      *block = *Block<T>::make(elems, "run");
      for (std::size_t i = 0; i < elems; ++i)
        (*block)[i] =
            static_cast<T>(start == 0 ? 0 : start + 1000 * k + static_cast<double>(i) / 3);
      ++k;
    }
    info.model = "GPT 2 layers, 4 channels";
    info.plan = "retain\nrecompute\nint8\n";
    info.optimizer_steps = 123456789012345;
    info.data_position = 42;
    info.key = {0x123456789ABCDEF0, 7, 8, 9, Purpose::rounding};
  }
  Error save(const std::string& path) const {
    return save_checkpoint(path, info, params.view(), m.view(), v.view());
  }
  Result<CheckpointInfo> load(const std::string& path) {
    return load_checkpoint(path, info.model, params.view(), m.view(), v.view());
  }
  bool equals(const Run& other) const {
    const std::size_t bytes = params.size() * sizeof(T);
    return std::memcmp(params.data(), other.params.data(), bytes) == 0 &&
           std::memcmp(m.data(), other.m.data(), bytes) == 0 &&
           std::memcmp(v.data(), other.v.data(), bytes) == 0;
  }
  Block<T> params, m, v;
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
  CHECK(info->optimizer_steps == 123456789012345);
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
  CHECK(bytes.size() == 88 + 24 + 24 + 3 * 16 + 8);
  CHECK(bytes.substr(0, 8) == "ADACCKPT");
  const auto word = [&](std::size_t at) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, 8);
    return value;
  };
  CHECK(word(8) == 1);
  CHECK(word(16) == bytes.size());
  CHECK(word(24) == 3);
  CHECK(word(72) == 24);
  CHECK(word(80) == 22);
  CHECK(bytes.substr(88, 24) == run.info.model);
  CHECK(bytes.substr(112, 24) == run.info.plan + std::string(2, '\0'));
  CHECK(std::memcmp(bytes.data() + 136, run.params.data(), 12) == 0);
  CHECK(std::memcmp(bytes.data() + 152, run.m.data(), 12) == 0);
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
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(static_cast<unsigned char>(bad[bit / 8]) ^ (1U << bit % 8));
    write_file(path, bad);
    const Result<CheckpointInfo> info = run.load(path);
    if (info || !says(info.error.text(), path.c_str(), "expected an adacc checkpoint")) {
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
  for (std::size_t at : {std::size_t{136 + 7}, std::size_t{136 + 15}})
    bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ 0x80U);
  write_file(path, bytes);
  CHECK(says(read_checkpoint_info(path).error.text(), "checksum"));
}

TEST_CASE("sizes are compared with the file before they are believed") {
  const Folder folder;
  const std::string path = folder / "run";
  REQUIRE(!Run<float>(5, 1.5).save(path));
  const std::string good = read_file(path);
  for (std::size_t at : {std::size_t{24}, std::size_t{72}, std::size_t{80}})
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
  std::string newer = read_file(path);
  newer[8] = 2;
  CHECK(says(error(newer).c_str(), "version 2", "version 1"));
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
}

TEST_CASE("a save that fails leaves the old checkpoint readable") {
  const Folder folder;
  const std::string path = folder / "run";
  const Run<float> old(30000, 1.5);
  REQUIRE(!old.save(path));
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  // 360 KB in all: the disk fills in the header, in each block, and in the checksum.
  for (rlim_t limit : {rlim_t{10}, rlim_t{90}, rlim_t{100000}, rlim_t{200000}, rlim_t{300000},
                       rlim_t{88 + 24 + 24 + 360000 + 4}}) {
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

TEST_CASE("moments of another size are refused when saving") {
  const Folder folder;
  const Run<float> run(5, 1), other(6, 1);
  CHECK(says(
      save_checkpoint(folder / "run", run.info, run.params.view(), other.m.view(), run.v.view())
          .text(),
      "5 parameters", "6 first"));
  CHECK(folder.entries() == 0);
}

}}  // namespace checkpoint_test
