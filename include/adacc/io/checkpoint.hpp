// SPDX-License-Identifier: MIT
/// Saves a training run so that it can go on, bit for bit, as if it had never stopped.
///
/// The format, all little-endian, blocks of N numbers of s bytes each (padding between parameters
/// included): the parameters and, behind them, the S blocks of the optimizer's state.
///
///     offset  bytes  what
///          0      8  "ADACCKPT"
///          8      4  version, 2
///         12      4  scalar: 0 float32 (s = 4), 1 float64 (s = 8)
///         16      8  bytes of the whole file
///         24      8  N
///         32      8  S, below 16
///         40      8  updates made
///         48      8  data position, as the trainer counts it
///         56      8  random key: seed
///         64      4    step
///         68      4    micro-step (below 65536)
///         72      4    activation
///         76      4    purpose
///         80      8  layout: a hash of the table of parameters
///         88      8  the plan's graph: bytes of its activations
///         96      8    hash of its structure (model/fingerprint.hpp)
///        104      8  bytes of the model's description
///        112      8    of the optimizer's name
///        120      8    of the plan (io/plan_text.hpp)
///        128      8    of what evolved (io/evolution_text.hpp)
///        136      8    of the trainer's notes
///        144         these five texts        each of these is filled up
///                    parameters, N * s       with zeros to a multiple of 8
///                    state, S * N * s
///       last      8  Checksum (file_format.hpp) of everything before it
///
/// Version 1, which knew neither optimizers nor what evolved, is refused. A file is replaced whole
/// (AtomicFile), and on reading nothing is believed, or copied into the model, before all sizes have
/// been compared with the file's and the checksum with its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../core/random.hpp"
#include "../core/view.hpp"
#include "../model/fingerprint.hpp"
#include "file.hpp"
#include "file_format.hpp"

namespace adacc { inline namespace v0_1 {

/// All of a checkpoint but the numbers.
struct CheckpointInfo {
  std::string model;      ///< a description; equal text means equal layers
  std::string optimizer;  ///< its name; equal names mean equal state
  std::string plan;       ///< the policy of each activation, one line each
  std::string evolution;  ///< what an evolving plan remembers; empty of a fixed one
  std::string notes;      ///< the trainer's own: its options, say
  std::uint64_t updates = 0;
  std::uint64_t data_position = 0;
  RandomKey key;
  std::uint64_t layout = 0;         ///< of the parameters; equal means equal names and shapes
  Fingerprint graph;                ///< that the plan was made for
  Dtype scalar = Dtype::f32;        ///< set by save_checkpoint
  std::size_t parameter_elems = 0;  ///< set by save_checkpoint
  std::size_t state_blocks = 0;     ///< set by save_checkpoint
};

namespace detail {

inline constexpr std::uint32_t checkpoint_version = 2;
inline constexpr std::size_t checkpoint_header_bytes = 144;
inline constexpr std::size_t checkpoint_text_limit = 64 * MiB;
inline constexpr std::size_t checkpoint_most_blocks = 16;
inline constexpr const char* checkpoint_expected = "an adacc checkpoint of version 2";

struct CheckpointHeader {
  char magic[8];
  std::uint32_t version, scalar;
  std::uint64_t file_bytes, elems, state_blocks, updates, data_position, seed;
  std::uint32_t step, micro_step, activation, purpose;
  std::uint64_t layout, graph_bytes, graph_structure;
  std::uint64_t text_bytes[5];
};
static_assert(sizeof(CheckpointHeader) == checkpoint_header_bytes);

constexpr std::size_t to_eight(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

/// The texts of a checkpoint, in the file's order.
template <class Info>
auto checkpoint_texts(Info& info) {
  using Text = decltype(&info.model);
  struct Texts {
    Text of[5];
  };
  return Texts{{&info.model, &info.optimizer, &info.plan, &info.evolution, &info.notes}};
}

/// The size of the file that this header describes; false if it does not fit, or a text is
/// longer than any of ours.
inline bool checkpoint_bytes(const CheckpointHeader& h, std::size_t& bytes) {
  std::size_t block = 0, blocks = 0;
  bytes = checkpoint_header_bytes + 8;
  for (const std::uint64_t text : h.text_bytes) {
    if (text > checkpoint_text_limit) return false;
    bytes += to_eight(text);
  }
  if (h.state_blocks >= checkpoint_most_blocks) return false;
  if (!multiply(h.elems, h.scalar == 0 ? 4 : 8, block) || !add(block, 7, block)) return false;
  return multiply(block / 8 * 8, h.state_blocks + 1, blocks) && add(bytes, blocks, bytes);
}

/// Writes pieces, each filled up to a multiple of 8, and adds them to the checksum.
class CheckpointWriter {
 public:
  explicit CheckpointWriter(AtomicFile& file) : file_(file) {}

  Error write(const void* data, std::size_t bytes) {
    const std::size_t whole = bytes / 8 * 8;
    char tail[8] = {};
    sum_.add(data, whole);
    if (Error error = file_.write(data, whole)) return error;
    if (bytes == whole) return {};
    std::memcpy(tail, static_cast<const char*>(data) + whole, bytes - whole);
    sum_.add(tail, 8);
    return file_.write(tail, 8);
  }

  Error finish() {
    const std::uint64_t sum = sum_.value();
    if (Error error = file_.write(&sum, 8)) return error;
    return file_.commit();
  }

 private:
  AtomicFile& file_;
  Checksum sum_;
};

/// Reads the header and the texts after checking everything about the file; the next byte is then
/// the first parameter's.
inline Error read_checkpoint(InputFile& file, CheckpointInfo& info) {
  CheckpointHeader header{};
  if (file.size() >= 8) {
    if (Error error = file.read(&header, 8)) return error;
    if (std::memcmp(header.magic, checkpoint_magic, 8) != 0)
      return file.fault("does not start with \"ADACCKPT\": it looks like ", kind_of_file(&header));
  }
  if (file.size() >= 12)
    if (Error error = file.read(&header.version, 4)) return error;
  if (file.size() >= 12 && header.version != checkpoint_version)
    return file.fault("is of version ", header.version, "; this program reads version ",
                      checkpoint_version, " alone");
  if (file.size() < checkpoint_header_bytes + 8)
    return file.fault("is truncated: it has ", shown(file.size()));
  if (Error error = file.seek(0)) return error;
  if (Error error = file.read(&header, sizeof header)) return error;
  std::size_t bytes = 0;
  if (header.file_bytes != file.size())
    return file.fault(
        header.file_bytes > file.size() ? "is truncated: " : "is damaged: ", "it has ",
        shown(file.size()), " where its header says ", shown(header.file_bytes));
  if (header.scalar > 1 || !checkpoint_bytes(header, bytes) || bytes != file.size())
    return file.fault("is damaged: the sizes in its header do not add up to the file's");

  if (Error error = file.seek(0)) return error;
  Checksum sum;
  std::uint64_t buffer[2048], stored = 0;
  for (std::size_t left = file.size() - 8; left > 0;) {
    const std::size_t count = left < sizeof buffer ? left : sizeof buffer;
    if (Error error = file.read(buffer, count)) return error;
    sum.add(buffer, count);
    left -= count;
  }
  if (Error error = file.read(&stored, 8)) return error;
  if (stored != sum.value())
    return file.fault("is damaged: its checksum does not match its contents");
  if (header.micro_step > 0xFFFF || header.purpose > 0xFF)
    return file.fault("its random key is out of range");

  info.updates = header.updates;
  info.data_position = header.data_position;
  info.key.seed = header.seed;
  info.key.step = header.step;
  info.key.micro_step = static_cast<std::uint16_t>(header.micro_step);
  info.key.activation = header.activation;
  info.key.purpose = static_cast<Purpose>(header.purpose);
  info.layout = header.layout;
  info.graph = {header.graph_bytes, header.graph_structure};
  info.scalar = header.scalar == 0 ? Dtype::f32 : Dtype::f64;
  info.parameter_elems = header.elems;
  info.state_blocks = header.state_blocks;
  if (Error error = file.seek(checkpoint_header_bytes)) return error;
  const auto texts = checkpoint_texts(info);
  for (std::size_t i = 0; i < 5; ++i) {
    std::string& text = *texts.of[i];
    text.resize(to_eight(header.text_bytes[i]));
    if (Error error = file.read(text.data(), text.size())) return error;
    text.resize(header.text_bytes[i]);
  }
  return {};
}

/// Reads one block of numbers, and the bytes that fill it up.
template <class T>
Error read_checkpoint_block(InputFile& file, View<T> to) {
  const std::size_t bytes = to.size() * sizeof(T);
  char tail[8];
  if (Error error = file.read(to.data(), bytes)) return error;
  return file.read(tail, to_eight(bytes) - bytes);
}

}  // namespace detail

/// Saves a run: `info` and `count` blocks of `elems` numbers, the parameters and then the optimizer's
/// state: block_at(i) is a View<const T> of block i, valid until it is asked for the next. On an
/// error the file of that name is what it was.
template <class T, class BlockAt>
Error save_checkpoint(const std::string& path, const CheckpointInfo& info, std::size_t elems,
                      std::size_t count, const BlockAt& block_at) {
  if (count == 0 || count > detail::checkpoint_most_blocks)
    return Error::misuse(one_line(path).c_str(), ": ", count, " blocks cannot be saved; 1 to ",
                         detail::checkpoint_most_blocks, " can");
  detail::CheckpointHeader header{};
  std::memcpy(header.magic, checkpoint_magic, 8);
  header.version = detail::checkpoint_version;
  header.scalar = sizeof(T) == 4 ? 0 : 1;
  header.elems = elems;
  header.state_blocks = count - 1;
  header.updates = info.updates;
  header.data_position = info.data_position;
  header.seed = info.key.seed;
  header.step = info.key.step;
  header.micro_step = info.key.micro_step;
  header.activation = info.key.activation;
  header.purpose = static_cast<std::uint32_t>(info.key.purpose);
  header.layout = info.layout;
  header.graph_bytes = info.graph.bytes;
  header.graph_structure = info.graph.structure;
  const auto texts = detail::checkpoint_texts(info);
  for (std::size_t i = 0; i < 5; ++i) header.text_bytes[i] = texts.of[i]->size();
  std::size_t bytes = 0;
  if (!detail::checkpoint_bytes(header, bytes))
    return Error::say(one_line(path).c_str(), ": a text of more than ",
                      shown(detail::checkpoint_text_limit), " cannot be saved");
  header.file_bytes = bytes;

  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file) return file.error;
  detail::CheckpointWriter out(*file);
  if (Error error = out.write(&header, sizeof header)) return error;
  for (const std::string* text : texts.of)
    if (Error error = out.write(text->data(), text->size())) return error;
  for (std::size_t i = 0; i < count; ++i) {
    const View<const T> block = block_at(i);
    if (Error error = out.write(block.data(), elems * sizeof(T))) return error;
  }
  return out.finish();
}

/// The same of blocks that are all there.
template <class T>
Error save_checkpoint(const std::string& path, const CheckpointInfo& info,
                      const View<const T>* blocks, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    if (blocks[i].size() != blocks[0].size())
      return Error::misuse(one_line(path).c_str(), ": there are ", blocks[0].size(),
                           " parameters, and ", blocks[i].size(), " numbers of state ", i);
  return save_checkpoint<T>(path, info, count == 0 ? 0 : blocks[0].size(), count,
                            [&](std::size_t i) { return blocks[i]; });
}

/// A checkpoint whose whole file has been checked, before its numbers are read.
class CheckpointFile {
 public:
  CheckpointFile() = default;

  static Result<CheckpointFile> open(const std::string& path) {
    Result<InputFile> file = InputFile::open(path, detail::checkpoint_expected);
    if (!file) return file.error;
    CheckpointFile opened;
    opened.file_ = static_cast<InputFile&&>(*file);
    if (Error error = detail::read_checkpoint(opened.file_, opened.info_)) return error;
    return opened;
  }

  const CheckpointInfo& info() const { return info_; }

  /// An error if it is no checkpoint of what `mine` describes: its model, if both are named, its
  /// layout of parameters and its optimizer.
  Error check(const CheckpointInfo& mine) const {
    const std::string path = one_line(file_.path(), 100);
    const bool named = !info_.model.empty() && !mine.model.empty();
    if (named && info_.model != mine.model)
      return Error::say("checkpoint ", path.c_str(), " is of \"", one_line(info_.model, 80).c_str(),
                        "\", this model is \"", one_line(mine.model, 80).c_str(), "\"");
    if (info_.parameter_elems != mine.parameter_elems || info_.scalar != mine.scalar)
      return Error::say("checkpoint ", path.c_str(), " holds ", info_.parameter_elems, " ",
                        name_of(info_.scalar), " parameters, this model has ", mine.parameter_elems,
                        " ", name_of(mine.scalar));
    if (info_.layout != mine.layout)
      return Error::say("checkpoint ", path.c_str(),
                        " holds as many parameters as this model has, ", info_.parameter_elems,
                        ", but of other names or shapes");
    if (info_.optimizer != mine.optimizer || info_.state_blocks != mine.state_blocks)
      return Error::say("checkpoint ", path.c_str(), " holds the state of ",
                        one_line(info_.optimizer, 40).c_str(), " (", info_.state_blocks,
                        " blocks), this optimizer is ", one_line(mine.optimizer, 40).c_str(), " (",
                        mine.state_blocks, ")");
    return {};
  }

  /// Reads the numbers, once: into the parameters and as many blocks of state as there are.
  template <class T>
  Error read(const View<T>* blocks, std::size_t count) {
    if (count != info_.state_blocks + 1) return other_blocks<T>(count);
    for (std::size_t i = 0; i < count; ++i)
      if (blocks[i].size() != info_.parameter_elems)
        return Error::misuse("the checkpoint has blocks of ", info_.parameter_elems,
                             " numbers, and was asked for ", blocks[i].size());
    return read_each<T>(
        count, [&](std::size_t i) { return blocks[i]; }, [](std::size_t) {});
  }

  /// The same of the first `count` blocks, one after the other: block i is read into
  /// block_at(i), of parameter_elems numbers, and then done(i) is called.
  template <class T, class BlockAt, class Done>
  Error read_each(std::size_t count, const BlockAt& block_at, const Done& done) {
    if (count > info_.state_blocks + 1 || info_.scalar != dtype_of<T>)
      return other_blocks<T>(count);
    for (std::size_t i = 0; i < count; ++i) {
      if (Error error = detail::read_checkpoint_block(file_, block_at(i))) return error;
      done(i);
    }
    return {};
  }

 private:
  template <class T>
  Error other_blocks(std::size_t count) const {
    return Error::misuse("the checkpoint has ", info_.state_blocks + 1, " blocks of ",
                         name_of(info_.scalar), ", and was asked for ", count, " of ",
                         name_of(dtype_of<T>));
  }

  InputFile file_;
  CheckpointInfo info_;
};

/// Whether the file at `path` begins as a checkpoint does.
inline bool is_checkpoint(const std::string& path) {
  char start[sizeof checkpoint_magic] = {};
  Result<InputFile> file = InputFile::open(path, detail::checkpoint_expected);
  return file && file->size() >= sizeof start && !file->read(start, sizeof start) &&
         std::memcmp(start, checkpoint_magic, sizeof start) == 0;
}

/// What a checkpoint is of, after a check of the whole file: enough to build its model.
inline Result<CheckpointInfo> read_checkpoint_info(const std::string& path) {
  Result<CheckpointFile> file = CheckpointFile::open(path);
  if (!file) return file.error;
  return file->info();
}

}}  // namespace adacc::v0_1
