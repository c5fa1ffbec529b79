// SPDX-License-Identifier: MIT
/// Every reader of files, fed with what libFuzzer makes up.
///
/// The first byte chooses the reader; the rest is the file, or for plans the text. A checkpoint is
/// guarded by sizes and a checksum that a fuzzer hardly guesses, so a second kind of it gets both
/// mended before it is read. What holds of every file: a reader returns an error of one line, or
/// what it read is sound; what a failed reader was to fill is as before where it promises that.
/// Good models have numbers of their config.json blown up: what is read of them is as large as their tensors, and
/// the memory of a graph that is made of it has a limit.
/// `file_fuzz --write-seeds FOLDER` fills a new folder with a good file for each reader, and ends.
#include <adacc/adacc.hpp>
#include <adacc/io/checkpoint.hpp>
#include <adacc/io/plan_text.hpp>
#include <adacc/io/text.hpp>
#include <adacc/io/tokenizer/chat.hpp>
#include <adacc/io/tokenizer/gguf_tokenizer.hpp>
#include <adacc/io/tokenizer/read_tokenizer.hpp>
#include <adacc/io/tokenizer/write_tokenizer.hpp>
#include <adacc/io/weights/bert.hpp>
#include <adacc/io/weights/gguf_gpt2.hpp>
#include <adacc/io/weights/gguf_llama.hpp>
#include <adacc/io/weights/gpt2.hpp>
#include <adacc/io/weights/llama.hpp>
#include <adacc/io/weights/llmc.hpp>
#include <adacc/io/weights/llmc_tokens.hpp>
#include <adacc/io/weights/safetensors.hpp>
#include <adacc/io/weights/write_safetensors.hpp>

#include <sys/mman.h>

#include <support/wordpiece/wordpiece.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "../io/charsmap_bytes.hpp"
#include "../io/gguf_bytes.hpp"
#include "../io/llmc_graph.hpp"

namespace {

using namespace adacc;

enum Reader : std::uint8_t {
  checkpoint,
  mended_checkpoint,
  model,
  tokens,
  text,
  plan,
  tensors,
  index,
  gpt2_config,
  llama_config,
  bert_config,
  vocabulary_file,
  blown_gpt2,
  blown_llama,
  blown_bert,
  gguf,
  gguf_model,
  tokenizer_json,
  merges_file,
  unigram_json,
  gguf_unigram,
  readers
};

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "file_fuzz: %s\n", what);
  std::abort();
}

/// An error, or none where `good`: exactly one, and a line of text.
void require_sense(const Error& error, bool good) {
  require(static_cast<bool>(error) != good, "neither an error nor a result, or both");
  for (const char* c = error.text(); *c != '\0'; ++c)
    require(static_cast<unsigned char>(*c) >= 32 && *c != 127, "an error of more than one line");
}

/// A file in memory, the same one for all inputs.
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    require(fd_ >= 0, "no file in memory");
    path_ = "/proc/self/fd/" + std::to_string(fd_);
  }
  const std::string& hold(const std::string& bytes) const {
    require(
        ::ftruncate(fd_, 0) == 0 && detail::write_all_at(fd_, 0, bytes.data(), bytes.size()) == 0,
        "the file in memory cannot be written");
    return path_;
  }

 private:
  int fd_;
  std::string path_;
};

const std::string& as_file(const std::string& bytes) {
  static const MemoryFile file;
  return file.hold(bytes);
}

/// The sizes and the checksum that a checkpoint of these bytes should have.
void mend(std::string& bytes) {
  if (bytes.size() < 152) return;
  bytes.resize(bytes.size() / 8 * 8);
  const std::uint64_t size = bytes.size();
  std::memcpy(bytes.data() + 16, &size, 8);
  Checksum sum;
  sum.add(bytes.data(), bytes.size() - 8);
  const std::uint64_t value = sum.value();
  std::memcpy(bytes.data() + bytes.size() - 8, &value, 8);
}

constexpr const char* model_text = "model";
constexpr std::size_t elems = 5, state_bytes = 2 * elems * sizeof(float);
constexpr float untouched = 0.125F;

bool read_checkpoint(const std::string& bytes) {
  const std::string& path = as_file(bytes);
  const Result<CheckpointInfo> info = read_checkpoint_info(path);
  require_sense(info.error, static_cast<bool>(info));
  std::vector<float> block(3 * elems, untouched);
  const auto part = [&](std::size_t i) { return View(block.data() + i * elems, Shape(elems)); };
  Result<CheckpointFile> file = CheckpointFile::open(path);
  require(static_cast<bool>(file) == static_cast<bool>(info), "it can be read, or it cannot");
  CheckpointInfo mine;
  mine.model = model_text;
  mine.parameter_elems = elems;
  Error why = file ? file->examine(mine) : file.error;
  if (!why && file->info().state_bytes != state_bytes)
    why = Error::say("the state has another size");
  if (!why)
    why = file->read(part(0),
                     Bytes(reinterpret_cast<std::byte*>(part(1).data()), Shape(state_bytes)));
  require_sense(why, !why);
  if (!why)
    require((info->model == model_text || info->model.empty()) && info->parameter_elems == elems &&
                info->scalar == Dtype::f32 && info->optimizer.empty() && info->layout == 0,
            "another model's checkpoint was loaded");
  else
    for (const float value : block) require(value == untouched, "a failed load left its traces");
  return !why;
}

/// The shape of the model that llm.c's seed is a file of.
constexpr int context = 3, vocabulary = 5, layers = 2, heads = 2, channels = 4, padded = 7;

bool read_model(const std::string& bytes) {
  const std::string& path = as_file(bytes);
  const Result<LlmcHeader> header = read_llmc_header(path);
  require_sense(header.error, static_cast<bool>(header));
  static const train_test::StubGraph graph(vocabulary, context, layers, channels);
  std::vector<float> params(graph.parameter_elems, 0);
  const Error error = read_llmc_parameters(path, graph, View(params.data(), Shape(params.size())));
  require_sense(error, !error);
  require(header || error, "a model without a good header was read");
  if (!error)
    for (const float value : params) require(std::isfinite(value), "a number that is none");
  return !error;
}

bool read_tokens(const std::string& bytes) {
  const Result<Tokens> read = read_llmc_tokens(as_file(bytes), 300);
  require_sense(read.error, static_cast<bool>(read));
  if (!read) return false;
  require(read->size() != 0 && llmc_header_bytes + 2 * read->size() == bytes.size(), "lost tokens");
  for (std::size_t i = 0; i < read->size(); ++i) require((*read)[i] < 300, "an impossible token");
  return true;
}

bool read_as_text(const std::string& bytes) {
  const Result<Tokens> read = read_text(as_file(bytes));
  require_sense(read.error, static_cast<bool>(read));
  require(static_cast<bool>(read) == !bytes.empty(), "only an empty file is no text");
  for (std::size_t i = 0; read && i < bytes.size(); ++i)
    require(read->size() == bytes.size() && (*read)[i] == static_cast<unsigned char>(bytes[i]),
            "text was changed");
  return static_cast<bool>(read);
}

struct Plain {
  static constexpr const char* name = "plain";
  static constexpr auto backward_reads = reads::both;
};
struct Half {
  static constexpr const char* name = "half";
  static constexpr std::size_t encoded_bytes(std::size_t rows, std::size_t cols, Dtype) {
    return rows * cols * 2;
  }
};
struct NoLoss {};
using Net = Network<Sequential<Layer<Plain>, Layer<Plain, Compress<Half>>, Layer<Plain, Recompute>>,
                    NoLoss>;

bool read_plan(const std::string& bytes) {
  static const Graph graph = *make_graph(Net{}, Shape(2, 4));
  Array<const CodecInfo*> codecs;
  codecs.push_back(&codec_info<Half>);
  codecs.push_back(nullptr);
  const Result<Plan> read = parse_plan(bytes, graph, codecs);
  require(static_cast<bool>(read.error) != static_cast<bool>(read), "neither a plan nor an error");
  if (read) require(plan_text(graph, *read) == bytes, "a plan's text was read as another");
  return static_cast<bool>(read);
}

/// Every element of every tensor can be read, in the file's name or in an index's.
bool read_tensors(const std::string& path) {
  const Result<SafeTensors> file = SafeTensors::open(path);
  require_sense(file.error, static_cast<bool>(file));
  if (!file) return false;
  std::vector<float> numbers;
  for (const StoredTensor& tensor : *file) {
    std::size_t bits = bits_of(tensor.type);
    for (const std::size_t extent : tensor.shape) bits *= extent;
    require(bits % 8 == 0 && bits / 8 == tensor.bytes.size(),
            "a tensor of another size than its shape's");
    require(file->find(tensor.name) == &tensor, "a tensor that cannot be found");
    numbers.resize(tensor.elems());
    const Error why = copy_stored(tensor, View(numbers.data(), Shape(numbers.size())));
    require_sense(why, is_number(tensor.type));
  }
  return true;
}

std::string tensor_file(const std::string& folder) {
  const float numbers[elems] = {1, 2, 3, 4, 5};
  const Error why = write_safetensors(folder + "/a",
                                      {{"a", View<const float>(numbers, Shape(1, elems))},
                                       {"b", View<const float>(numbers, Shape(2))}},
                                      {{"format", "pt"}});
  require(!why, why.text());
  return folder + "/a";
}

/// A file with a tensor of each type.
std::string every_type() {
  std::string header = "{", data;
  for (const auto& facts : detail::stored_types) {
    const std::size_t begin = data.size();
    for (std::size_t i = 0; i < facts.bits; ++i) data += static_cast<char>(17 * i + begin);
    header += std::string(header.size() > 1 ? "," : "") + '"' + facts.name + R"(":{"dtype":")" +
              facts.name + R"(","shape":[4,2],"data_offsets":[)" + std::to_string(begin) + "," +
              std::to_string(data.size()) + "]}";
  }
  header += "}";
  return train_test::bytes_of(std::vector<std::uint64_t>{header.size()}) + header + data;
}

/// An index beside a good file "a".
bool read_index(const std::string& bytes) {
  static const train_test::Folder folder;
  static const std::string beside = tensor_file(folder.path);
  train_test::write_file(folder / "index.json", bytes);
  return read_tensors(folder / "index.json");
}

/// `bytes` as the config.json of a pretrained model: what was read is a network's shape.
bool read_config(Reader reader, const std::string& bytes) {
  static const train_test::Folder folder;
  train_test::write_file(folder / "config.json", bytes);
  std::vector<std::string> problems;
  if (reader == gpt2_config) {
    const auto config = read_gpt2_config(folder.path + "/");
    require_sense(config.error, static_cast<bool>(config));
    if (!config) return false;
    require(config->layers > 0 && config->vocab_size > 0 && config->max_seq_len > 0,
            "a network without extent");
    require(config->channels / config->heads * config->heads == config->channels, "uneven heads");
    return true;
  }
  const auto check = [](const auto& config) {
    require_sense(config.error, static_cast<bool>(config));
    if (!config) return false;
    require(config->layers > 0 && config->hidden > 0 && config->vocab > 0 && config->context > 0,
            "a network without extent");
    require(config->channels / config->heads * config->heads == config->channels, "uneven heads");
    require(config->epsilon > 0 && std::isfinite(config->epsilon), "no epsilon");
    return true;
  };
  if (reader == bert_config) return check(bert::read_config(folder.path + "/", &problems));
  const auto config = llama::read_config(folder.path + "/", &problems);
  if (!check(config)) return false;
  require(config->heads / config->kv_heads * config->kv_heads == config->heads, "uneven groups");
  require(ModelConfig::is_number(config->base), "no base of rotations");
  return true;
}

/// What a tokenizer makes of a text are its tokens, and comes back unless bytes have none. Written and read, it makes the same.
bool check_tokenizer(const Result<Tokenizer>& tokenizer, const std::string& more) {
  require_sense(tokenizer.error, static_cast<bool>(tokenizer));
  if (!tokenizer) return false;
  for (const std::string& text :
       {more, std::string("ab abab <s> 12\n\n e\xCC\x81\xFF  b"), std::string()}) {
    for (const SpecialText special : {SpecialText::tokens, SpecialText::text}) {
      std::size_t left_out = 0;
      const auto tokens = tokenizer->encode(text, special, &left_out);
      for (const std::int32_t token : tokens)
        require(token >= 0 && static_cast<std::size_t>(token) < tokenizer->size(), "no token");
      const std::string back = tokenizer->decode(tokens);
      const bool ours = tokenizer->unknown() < 0 && !tokenizer->is_sentencepiece();
      if (ours && left_out == 0 && special == SpecialText::text)
        require(back == tokenizer->normalizer().normalized(text), "a text that does not come back");
    }
  }
  const auto json = adacc::tokenizer_json(*tokenizer);
  require_sense(json.error, static_cast<bool>(json));
  if (json) {
    const auto again = read_tokenizer(as_file(*json));
    require(static_cast<bool>(again), "a written tokenizer is not read");
    require(again->encode(more) == tokenizer->encode(more), "written, it has other tokens");
  }
  const auto chat =
      encode_chat(*tokenizer, ChatTemplate::plain, {{"user", more}, {"assistant", "ab"}}, true);
  require_sense(chat.error, static_cast<bool>(chat));
  if (chat) require(chat->answers.size() == chat->tokens.size(), "answers of no tokens");
  return true;
}

/// A tokenizer.json up to the first zero byte, and behind it a text.
bool read_tokenizer_json(const std::string& bytes) {
  const std::size_t end = bytes.find('\0');
  return check_tokenizer(read_tokenizer(as_file(bytes.substr(0, end))),
                         end == std::string::npos ? "" : bytes.substr(end + 1));
}

/// A vocab.json up to the first zero byte, and behind it a merges.txt.
bool read_merges(const std::string& bytes) {
  static const train_test::Folder folder;
  const std::size_t end = bytes.find('\0');
  train_test::write_file(folder / "vocab.json", bytes.substr(0, end));
  train_test::write_file(folder / "merges.txt",
                         end == std::string::npos ? "" : bytes.substr(end + 1));
  return check_tokenizer(read_vocabulary(folder.path, PreTokenizer::llama3), "");
}

/// A GGUF file: elements of all tensors and values of all keys can be read, and a model that it is is as large as
/// its tensors.
bool read_gguf(const std::string& bytes, bool model) {
  const std::string& path = as_file(bytes);
  const Result<Gguf> file = Gguf::open(path);
  require_sense(file.error, static_cast<bool>(file));
  if (!file) return false;
  std::vector<float> numbers;
  for (const GgufTensor& tensor : *file) {
    require(file->find(tensor.name) == &tensor, "a tensor that cannot be found");
    numbers.resize(tensor.elems());
    require(!copy_stored(tensor, View(numbers.data(), Shape(numbers.size()))), "no numbers");
  }
  for (const auto& [key, value] : file->metadata()) {
    std::size_t found = 0;
    const auto count = [&](const auto&) { return ++found, true; };
    require(value.each_string(count) || value.each_number(count), "a value of no kind");
    require(found == value.count && !value.json().empty(), "lost values");
  }
  const bool tokenizes = check_tokenizer(read_gguf_tokenizer(*file), "");
  std::vector<std::string> problems;
  const auto gpt2 = read_gguf_gpt2_config(path, &problems);
  require_sense(gpt2.error, static_cast<bool>(gpt2));
  const auto config = llama::read_gguf_config(path, &problems);
  require_sense(config.error, static_cast<bool>(config));
  if (!config) return !model && tokenizes;
  const auto graph = make_graph(llama::make(*config), Shape(1, 2));
  require_sense(graph.error, static_cast<bool>(graph));
  if (!graph) return false;
  std::vector<float> params(graph->parameter_elems);
  const Error why = llama::read_gguf_parameters(path, *config, *graph,
                                                View<float>(params.data(), Shape(params.size())));
  require_sense(why, !why);
  return !why;
}

/// A unigram model without weights.
std::string unigram_gguf() {
  gguf_test::GgufBytes file;
  const std::string map = charsmap_test::small_charsmap();
  file.text("general.architecture", "none");
  file.text("tokenizer.ggml.model", "t5");
  file.texts("tokenizer.ggml.tokens", {"a", "</s>", "<unk>", "ab"});
  file.array("tokenizer.ggml.token_type", GgufKind::u8, 4, "\1\3\2\1");
  file.array("tokenizer.ggml.scores", GgufKind::f32, 4, std::string(16, '\1'));
  file.truth("tokenizer.ggml.remove_extra_whitespaces", true);
  file.array("tokenizer.ggml.precompiled_charsmap", GgufKind::u8, map.size(), map);
  return file.file();
}

/// A tensor of each type, and values of some kinds.
std::string every_gguf_type() {
  gguf_test::GgufBytes file;
  file.text("general.architecture", "none");
  file.text("tokenizer.ggml.model", "gpt2");
  file.text("tokenizer.ggml.pre", "qwen2");
  file.texts("tokenizer.ggml.tokens", {"a", "b", "ab", "<s>"});
  file.array("tokenizer.ggml.token_type", GgufKind::u8, 4, "\1\1\1\3");
  file.array("tokenizer.ggml.scores", GgufKind::f32, 4, std::string(16, '\1'));
  file.texts("tokenizer.ggml.merges", {"a b"});
  file.number("tokenizer.ggml.eos_token_id", 3);
  file.array("numbers", GgufKind::f32, 2, std::string(8, '\1'));
  file.truth("truth", true);
  file.value("wide", GgufKind::f64, std::string(8, '\2'));
  for (const auto& facts : detail::gguf_types) {
    std::string data;
    for (std::size_t i = 0; i < facts.block_bytes; ++i) data += static_cast<char>(17 * i);
    file.tensor(facts.name, {facts.block_elems}, static_cast<std::uint32_t>(facts.type), data);
  }
  return file.file();
}

std::string gguf_llama() {
  const llama::Config config{1, 2, 1, 4, 4, 8, 6, 1e-5F, 1e4, true};
  gguf_test::GgufBytes file;
  file.text("general.architecture", "llama");
  file.number("llama.block_count", 1);
  file.number("llama.attention.head_count", 2);
  file.number("llama.attention.head_count_kv", 1);
  file.number("llama.embedding_length", 4);
  file.number("llama.feed_forward_length", 4);
  file.number("llama.context_length", 8);
  for (const ExpectedTensor& tensor :
       expected_tensors(llama::outline_of(config), llama::Naming(config, llama::gguf_names))) {
    std::vector<std::size_t> shape;
    for (int i = 0; i < tensor.extents.rank(); ++i) shape.push_back(tensor.extents[i]);
    file.floats(tensor.name, shape, std::vector<float>(tensor.extents.elems()));
  }
  return file.file();
}

std::string good(Reader reader);

/// Writes a model of what good() says for `reader`, its tensors all zeros.
void write_model(Reader reader, const std::string& folder) {
  train_test::write_file(folder + "/config.json", good(reader));
  std::vector<ExpectedTensor> tensors;
  const auto of = [&](const auto& config, const auto& outline, const auto& naming) {
    require(static_cast<bool>(config), config.error.text());
    tensors = expected_tensors(outline(*config), naming(*config));
  };
  if (reader == llama_config)
    of(llama::read_config(folder), llama::outline_of,
       [](const llama::Config& config) { return llama::Naming(config); });
  if (reader == bert_config)
    of(bert::read_config(folder), bert::outline_of,
       [](const bert::Config& config) { return bert::Naming(config, ""); });
  if (reader == gpt2_config) {
    const auto config = read_gpt2_config(folder);
    require(static_cast<bool>(config), config.error.text());
    const train_test::StubGraph graph(config->vocab_size, config->max_seq_len, config->layers,
                                      config->channels);
    const std::vector<float> zeros(graph.parameter_elems);
    const Error why = write_gpt2<train_test::StubGraph, float>(
        folder, *config, graph, View<const float>(zeros.data(), Shape(zeros.size())));
    require(!why, why.text());
    return;
  }
  std::vector<std::vector<float>> zeros;
  std::vector<NamedTensor> named;
  for (const ExpectedTensor& tensor : tensors) zeros.emplace_back(tensor.shape().elems());
  for (std::size_t i = 0; i < tensors.size(); ++i)
    named.push_back({tensors[i].name, View<const float>(zeros[i].data(), tensors[i].shape())});
  const Error why = write_safetensors(folder + "/model.safetensors", named);
  require(!why, why.text());
}

/// The model of `reader` with numbers of its config.json exchanged: of each two bytes the first says which,
/// the second for what. True if none was, or for one that it had.
bool read_blown_up(Reader reader, const std::string& bytes) {
  static const train_test::Folder folders[readers];
  const train_test::Folder& folder = folders[reader];
  static bool written[readers] = {};
  if (!written[reader]) write_model(reader, folder.path);
  written[reader] = true;
  std::string text = good(reader);
  const std::string as_written = text;
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    std::vector<std::size_t> numbers;
    for (std::size_t at = 1; at < text.size(); ++at)
      if (text[at - 1] == ':' && text[at] >= '0' && text[at] <= '9') numbers.push_back(at);
    const auto which = static_cast<unsigned char>(bytes[i]);
    const auto power = static_cast<unsigned char>(bytes[i + 1]);
    const std::size_t at = numbers[which % numbers.size()];
    text.replace(at, text.find_first_of(",}", at) - at,
                 std::to_string((std::uint64_t{1} << power % 64) - (power & 64) / 64));
  }
  train_test::write_file(folder / "config.json", text);
  std::vector<std::string> problems;
  const auto as_large = [&](const auto& config) {
    require_sense(config.error, static_cast<bool>(config));
    if (!config) require(problems.size() < 1000, "more problems than tensors");
    return static_cast<bool>(config);
  };
  // What was read is small, and so is what is made of it.
  if (reader == gpt2_config) {
    const auto config = read_gpt2_config(folder.path, &problems);
    if (!as_large(config)) return false;
    const train_test::StubGraph graph(config->vocab_size, config->max_seq_len, config->layers,
                                      config->channels);
    std::vector<float> params(graph.parameter_elems);
    const Error why = read_gpt2_parameters(folder.path, graph, config->layers,
                                           View<float>(params.data(), Shape(params.size())));
    require(!why, why.text());
    return true;
  }
  const auto check = [&](const auto& config) {
    if (!as_large(config)) return false;
    require(
        config->layers <= 2 && config->channels == 8 && config->hidden == 16 && config->vocab == 40,
        "another model than the tensors are of");
    return true;
  };
  if (reader == bert_config) return check(bert::read_config(folder.path, &problems));
  return check(llama::read_config(folder.path, &problems));
}

/// A vocabulary up to the first zero byte, and behind it a text that is cut into its pieces.
bool read_vocabulary(const std::string& bytes) {
  const std::size_t end = bytes.find('\0');
  const auto pieces = support::WordPiece::open(as_file(bytes.substr(0, end)));
  require_sense(pieces.error, static_cast<bool>(pieces));
  if (!pieces) return false;
  const std::string cut = end == std::string::npos ? "" : bytes.substr(end + 1);
  for (const std::size_t most : {std::size_t{3}, std::size_t{64}}) {
    const std::vector<std::int32_t> found = pieces->encode(cut, most);
    require(found.size() >= 2 && found.size() <= most, "more tokens than were asked for");
    for (const std::int32_t token : found)
      require(token >= 0 && static_cast<std::size_t>(token) < pieces->size(), "no token");
    require(found.front() == pieces->encode("", 3)[0] && found.back() == pieces->encode("", 3)[1],
            "a text without its ends");
  }
  return true;
}

/// True where the reader took it.
bool read(Reader reader, std::string bytes) {
  switch (reader) {
    case mended_checkpoint: mend(bytes); [[fallthrough]];
    case checkpoint: return read_checkpoint(bytes);
    case model: return read_model(bytes);
    case tokens: return read_tokens(bytes);
    case text: return read_as_text(bytes);
    case plan: return read_plan(bytes);
    case tensors: return read_tensors(as_file(bytes));
    case index: return read_index(bytes);
    case gpt2_config:
    case llama_config:
    case bert_config: return read_config(reader, bytes);
    case vocabulary_file: return read_vocabulary(bytes);
    case blown_gpt2: return read_blown_up(gpt2_config, bytes);
    case blown_llama: return read_blown_up(llama_config, bytes);
    case blown_bert: return read_blown_up(bert_config, bytes);
    case tokenizer_json:
    case unigram_json: return read_tokenizer_json(bytes);
    case merges_file: return read_merges(bytes);
    case gguf:
    case gguf_unigram:
    case gguf_model: return read_gguf(bytes, reader == gguf_model);
    default: return false;
  }
}

template <class T>
std::string bytes_of(const std::vector<T>& numbers) {
  return train_test::bytes_of(numbers);
}

/// What this reader reads without complaint.
std::string good(Reader reader) {
  if (reader == checkpoint || reader == mended_checkpoint) {
    const train_test::Folder folder;
    CheckpointInfo info;
    info.model = model_text;
    info.plan = "0 plain retain\n";
    float numbers[elems] = {1, 2, 3, 4, 5}, moments[2 * elems] = {1, 2, 3, 4, 5, 1, 2, 3, 4, 5};
    const ConstBytes state(reinterpret_cast<const std::byte*>(moments), Shape(sizeof moments));
    require(!save_checkpoint<float>(folder / "seed", info, View<const float>(numbers, Shape(elems)),
                                    state),
            "no checkpoint");
    return train_test::read_file(folder / "seed");
  }
  std::vector<std::int32_t> words(256);
  if (reader == model) {
    const std::int32_t start[] = {20240326, 3,     context,  vocabulary,
                                  layers,   heads, channels, padded};
    for (std::size_t i = 0; i < 8; ++i) words[i] = start[i];
    const int c = channels;
    return bytes_of(words) + bytes_of(std::vector<float>(static_cast<std::size_t>(
                                 (padded + context) * c + layers * (12 * c * c + 13 * c) + 2 * c)));
  }
  if (reader == tokens) {
    words[0] = 20240520, words[1] = 1, words[2] = 4;
    return bytes_of(words) + bytes_of(std::vector<std::uint16_t>{1, 2, 3, 299});
  }
  if (reader == tensors) return every_type();
  if (reader == index) return R"({"metadata":{"total_size":28},"weight_map":{"a":"a","b":"a"}})";
  if (reader == gpt2_config)
    return R"({"model_type":"gpt2","n_layer":2,"n_head":2,"n_embd":8,"n_positions":16,)"
           R"("vocab_size":40,"activation_function":"gelu_new","layer_norm_epsilon":1e-05})";
  const std::string sizes =
      R"("num_hidden_layers":2,"num_attention_heads":2,"hidden_size":8,"intermediate_size":16,)"
      R"("max_position_embeddings":16,"vocab_size":40,)";
  if (reader == llama_config)
    return R"({"model_type":"llama","hidden_act":"silu","num_key_value_heads":1,)" + sizes +
           R"("rms_norm_eps":1e-06,"rope_parameters":{"rope_theta":1e4,"rope_type":"default"}})";
  if (reader == bert_config)
    return R"({"model_type":"bert","hidden_act":"gelu",)" + sizes + R"("layer_norm_eps":1e-12})";
  if (reader == vocabulary_file)
    return std::string("[UNK]\n[CLS]\n[SEP]\na\n##b\n##c\n!\r\n\xC3\xA9\n") + '\0' +
           "Ab, abc! \xC3\xA9 b";
  if (reader == tokenizer_json)
    return std::string(
               R"({"added_tokens":[{"id":4,"content":"<s>","single_word":false}],"normalizer":null,)"
               R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},)"
               R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true}]},"model":{"type":"BPE",)"
               R"("unk_token":null,"ignore_merges":false,"vocab":{"a":0,"b":1,"ab":2,"\u0120":3},)"
               R"("merges":[["a","b"]]}})") +
           '\0' + "ab<s> ab";
  if (reader == merges_file)
    return std::string(R"({"a":0,"b":1,"ab":2,"\u0120":3,"abab":4})") + '\0' +
           "#version\na b\nab ab\n";
  if (reader == unigram_json)
    return R"({"added_tokens":[{"id":4,"content":"<s>","normalized":true}],"normalizer":{"type":"Sequence",)"
           R"("normalizers":[{"type":"Precompiled","precompiled_charsmap":")" +
           detail::base64(charsmap_test::small_charsmap()) +
           R"("},{"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "},)"
           R"({"type":"Strip","strip_left":false,"strip_right":true}]},"pre_tokenizer":{"type":"Metaspace",)"
           "\"replacement\":\"\xE2\x96\x81\","
           R"("prepend_scheme":"first","split":false},"model":{"type":"Unigram","unk_id":0,)"
           R"("vocab":[["<unk>",0.0],["a",-1.5],["ab",-2],["<0x78>",0]],"byte_fallback":true}})" +
           std::string(1, '\0') + "Ab<s> ab x";
  if (reader == gguf) return every_gguf_type();
  if (reader == gguf_unigram) return unigram_gguf();
  if (reader == gguf_model) return gguf_llama();
  if (reader == blown_gpt2 || reader == blown_llama || reader == blown_bert) return "";
  return reader == text ? "text\n" : "0 plain retain\n1 plain half\n2 plain recompute\n";
}

void write_seeds(const std::filesystem::path& folder) {
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  for (std::uint8_t i = 0; i < readers; ++i) {
    const std::string bytes = good(static_cast<Reader>(i));
    require(read(static_cast<Reader>(i), bytes), "a good file was refused");
    std::ofstream(folder / ("seed_" + std::to_string(i)), std::ios::binary)
        << static_cast<char>(i) << bytes;
  }
}

}  // namespace

#include "write_seeds.hpp"  // calls the function above

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return -1;
  const auto reader = static_cast<Reader>(data[0] % readers);
  read(reader, std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  return 0;
}
