// SPDX-License-Identifier: MIT
/// Reads the token files of llm.c, version 1: 256 int32 words (20240520, 1, token count, 0…), then
/// uint16 tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "../../core/bytes.hpp"
#include "../../core/no_memory.hpp"
#include "../tokens.hpp"
#include "llmc.hpp"

namespace adacc { inline namespace v0_1 {

/// The tokens of a file. The file's size must agree with the count to the byte; each id must be below `vocabulary`.
inline Result<Tokens> read_llmc_tokens(const std::string& path, std::size_t vocabulary) {
  return detail::or_no_memory("to read tokens", [&]() -> Result<Tokens> {
    Result<InputFile> file = InputFile::open(path, "an llm.c token file of version 1");
    if (!file) return file.error;
    std::int32_t words[256] = {};
    if (Error error = detail::read_llmc_words(*file, llmc_tokens_magic, 1, words)) return error;
    if (words[2] < 0) return file->fault("its header says ", words[2], " tokens");
    const std::size_t count = static_cast<std::size_t>(words[2]);
    const std::uint64_t bytes = llmc_header_bytes + std::uint64_t{count} * sizeof(std::uint16_t);
    if (bytes != file->size())
      return file->fault(bytes > file->size() ? "is truncated: " : "is too long: ", "it has ",
                         shown(file->size()), ", its header describes ", count, " tokens, ",
                         shown(detail::counted(bytes)));
    if (count == 0) return file->fault("holds no tokens");
    Result<Block<std::uint16_t>> ids = Block<std::uint16_t>::make(count, one_line(path).c_str());
    if (!ids) return ids.error;
    if (Error error = file->read(ids->data(), count * sizeof(std::uint16_t))) return error;
    Tokens tokens(path, static_cast<Block<std::uint16_t>&&>(*ids));
    if (Error error = tokens.check_vocabulary(vocabulary)) return error;
    return static_cast<Tokens&&>(tokens);
  });
}

}}  // namespace adacc::v0_1
