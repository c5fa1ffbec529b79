/// Saves a training run so that it can go on, bit for bit, as if it had never stopped.
///
/// The format, all little-endian, N parameters of s bytes each (padding between them included):
///
///     offset  bytes  what
///          0      8  "ADACCKPT"
///          8      4  version, 1
///         12      4  scalar: 0 float32 (s = 4), 1 float64 (s = 8)
///         16      8  bytes of the whole file
///         24      8  N
///         32      8  optimizer steps taken
///         40      8  data position, as the trainer counts it
///         48      8  random key: seed
///         56      4    step
///         60      4    micro-step (below 65536)
///         64      4    activation
///         68      4    purpose
///         72      8  M, bytes of the model's description
///         80      8  P, bytes of the plan
///         88         description        each of these five is filled up
///                    plan               with zeros to a multiple of 8
///                    parameters, N * s
///                    first moments, N * s
///                    second moments, N * s
///       last      8  Checksum (file_format.hpp) of everything before it
///
/// A file is replaced whole (AtomicFile), and on reading nothing is believed, or copied into the
/// model, before all sizes have been compared with the file's and the checksum with its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../core/random.hpp"
#include "../core/view.hpp"
#include "file.hpp"
#include "file_format.hpp"

namespace adacc { inline namespace v0_1 {

/// All of a checkpoint but the numbers.
struct CheckpointInfo {
  std::string model;                  ///< a description; equal text means equal layers and shapes
  std::string plan;                   ///< the policy of each activation, one line each
  std::uint64_t optimizer_steps = 0;  ///< updates made so far
  std::uint64_t data_position = 0;
  RandomKey key;
  Dtype scalar = Dtype::f32;        ///< set by save_checkpoint
  std::size_t parameter_elems = 0;  ///< set by save_checkpoint
};

namespace detail {

inline constexpr std::uint32_t checkpoint_version = 1;
inline constexpr std::size_t checkpoint_header_bytes = 88;
inline constexpr std::size_t checkpoint_text_limit = 64 * MiB;
inline constexpr const char* checkpoint_expected = "an adacc checkpoint of version 1";

struct CheckpointHeader {
  char magic[8];
  std::uint32_t version, scalar;
  std::uint64_t file_bytes, elems, optimizer_steps, data_position, seed;
  std::uint32_t step, micro_step, activation, purpose;
  std::uint64_t model_bytes, plan_bytes;
};
static_assert(sizeof(CheckpointHeader) == checkpoint_header_bytes);

constexpr std::size_t to_eight(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

/// The size of the file that this header describes; false where it does not fit, or a text is
/// longer than any of ours.
inline bool checkpoint_bytes(const CheckpointHeader& h, std::size_t& bytes) {
  std::size_t block = 0, blocks = 0;
  if (h.model_bytes > checkpoint_text_limit || h.plan_bytes > checkpoint_text_limit) return false;
  if (!multiply(h.elems, h.scalar == 0 ? 4 : 8, block) || !add(block, 7, block)) return false;
  bytes = checkpoint_header_bytes + to_eight(h.model_bytes) + to_eight(h.plan_bytes) + 8;
  return multiply(block / 8 * 8, 3, blocks) && add(bytes, blocks, bytes);
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

/// Reads the header and both texts after checking everything about the file; the next byte is
/// then the first parameter's.
inline Error read_checkpoint(InputFile& file, CheckpointInfo& info) {
  CheckpointHeader header{};
  if (file.size() >= 8) {
    if (Error error = file.read(&header, 8)) return error;
    if (std::memcmp(header.magic, checkpoint_magic, 8) != 0)
      return file.fault("does not start with \"ADACCKPT\": it looks like ", kind_of_file(&header));
  }
  if (file.size() < checkpoint_header_bytes + 8)
    return file.fault("is truncated: it has ", shown(file.size()));
  if (Error error = file.seek(0)) return error;
  if (Error error = file.read(&header, sizeof header)) return error;
  if (header.version != checkpoint_version)
    return file.fault("is of version ", header.version, "; this program reads version ",
                      checkpoint_version);
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

  info.optimizer_steps = header.optimizer_steps;
  info.data_position = header.data_position;
  info.key.seed = header.seed;
  info.key.step = header.step;
  info.key.micro_step = static_cast<std::uint16_t>(header.micro_step);
  info.key.activation = header.activation;
  info.key.purpose = static_cast<Purpose>(header.purpose);
  info.scalar = header.scalar == 0 ? Dtype::f32 : Dtype::f64;
  info.parameter_elems = header.elems;
  if (Error error = file.seek(checkpoint_header_bytes)) return error;
  info.model.resize(to_eight(header.model_bytes));
  info.plan.resize(to_eight(header.plan_bytes));
  if (Error error = file.read(info.model.data(), info.model.size())) return error;
  if (Error error = file.read(info.plan.data(), info.plan.size())) return error;
  info.model.resize(header.model_bytes);
  info.plan.resize(header.plan_bytes);
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

/// Saves a run: `info` (model, plan, optimizer_steps, data_position and key) and three blocks of
/// equal size. On an error the file of that name is what it was.
template <class T>
Error save_checkpoint(const std::string& path, const CheckpointInfo& info, View<T> params,
                      View<T> m, View<T> v) {
  if (m.size() != params.size() || v.size() != params.size())
    return Error::say(one_line(path).c_str(), ": there are ", params.size(), " parameters, but ",
                      m.size(), " first and ", v.size(), " second moments");
  detail::CheckpointHeader header{};
  std::memcpy(header.magic, checkpoint_magic, 8);
  header.version = detail::checkpoint_version;
  header.scalar = sizeof(T) == 4 ? 0 : 1;
  header.elems = params.size();
  header.optimizer_steps = info.optimizer_steps;
  header.data_position = info.data_position;
  header.seed = info.key.seed;
  header.step = info.key.step;
  header.micro_step = info.key.micro_step;
  header.activation = info.key.activation;
  header.purpose = static_cast<std::uint32_t>(info.key.purpose);
  header.model_bytes = info.model.size();
  header.plan_bytes = info.plan.size();
  std::size_t bytes = 0;
  if (!detail::checkpoint_bytes(header, bytes))
    return Error::say(one_line(path).c_str(), ": a description or plan of more than ",
                      shown(detail::checkpoint_text_limit), " cannot be saved");
  header.file_bytes = bytes;

  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file) return file.error;
  detail::CheckpointWriter out(*file);
  if (Error error = out.write(&header, sizeof header)) return error;
  if (Error error = out.write(info.model.data(), info.model.size())) return error;
  if (Error error = out.write(info.plan.data(), info.plan.size())) return error;
  for (const View<T>& block : {params, m, v})
    if (Error error = out.write(block.data(), block.size() * sizeof(T))) return error;
  return out.finish();
}

/// What a checkpoint is of, after a check of the whole file: enough to build its model.
inline Result<CheckpointInfo> read_checkpoint_info(const std::string& path) {
  Result<InputFile> file = InputFile::open(path, detail::checkpoint_expected);
  if (!file) return file.error;
  Result<CheckpointInfo> info;
  info.error = detail::read_checkpoint(*file, *info);
  return info;
}

/// Restores the three blocks of a run of the model that `model` describes; any other model's
/// checkpoint is refused. On an error that the checks can foresee the blocks are untouched.
template <class T>
Result<CheckpointInfo> load_checkpoint(const std::string& path, const std::string& model,
                                       View<T> params, View<T> m, View<T> v) {
  Result<InputFile> file = InputFile::open(path, detail::checkpoint_expected);
  if (!file) return file.error;
  Result<CheckpointInfo> info;
  if (Error error = detail::read_checkpoint(*file, *info)) return error;
  if (info->model != model)
    return Error::say("checkpoint ", one_line(path, 100).c_str(), " is of \"",
                      one_line(info->model, 80).c_str(), "\", this model is \"",
                      one_line(model, 80).c_str(), "\"");
  if (info->parameter_elems != params.size() || info->scalar != dtype_of<T>)
    return Error::say("checkpoint ", one_line(path, 140).c_str(), " holds ", info->parameter_elems,
                      " ", name_of(info->scalar), " parameters, this model has ", params.size(),
                      " ", name_of(dtype_of<T>));
  if (m.size() != params.size() || v.size() != params.size())
    return Error::say("this model has ", params.size(), " parameters, but ", m.size(),
                      " first and ", v.size(), " second moments");
  for (const View<T>& block : {params, m, v})
    if (Error error = detail::read_checkpoint_block(*file, block)) return error;
  return info;
}

}}  // namespace adacc::v0_1
