// SPDX-License-Identifier: MIT
#include "machine_code.hpp"

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

namespace cuda_counts {
namespace {

using Data = std::string_view;

/// Reads little-endian numbers; zeros beyond the end.
class Reader {
 public:
  explicit Reader(Data data) : data_(data) {}
  bool done() const { return at_ >= data_.size(); }
  std::size_t at() const { return at_; }
  void go(std::size_t at) { at_ = at; }

  template <class U>
  U number() {
    U value = 0;
    if (at_ + sizeof value <= data_.size()) std::memcpy(&value, data_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  /// LEB128, with its sign or without.
  std::int64_t leb(bool is_signed) {
    std::uint64_t value = 0;
    unsigned shift = 0;
    std::uint8_t byte = 0x80;
    while ((byte & 0x80) != 0 && !done() && shift < 64) {
      byte = number<std::uint8_t>();
      value |= std::uint64_t{byte & 0x7FU} << shift;
      shift += 7;
    }
    if (is_signed && (byte & 0x40) != 0 && shift < 64) value |= ~std::uint64_t{0} << shift;
    return static_cast<std::int64_t>(value);
  }

 private:
  Data data_;
  std::size_t at_ = 0;
};

template <class U>
U at(Data data, std::size_t offset) {
  Reader reader(data);
  reader.go(offset);
  U value{};
  if (offset + sizeof value <= data.size()) std::memcpy(&value, data.data() + offset, sizeof value);
  return value;
}

/// An ELF file of 64 bits, as ptxas writes it.
struct Elf {
  struct Section {
    std::string name;
    Data data;
  };
  std::vector<Section> sections;

  explicit Elf(Data file) {
    const auto header = at<Elf64_Ehdr>(file, 0);
    const auto section = [&](std::size_t i) {
      return at<Elf64_Shdr>(file, header.e_shoff + i * header.e_shentsize);
    };
    const Elf64_Shdr names = section(header.e_shstrndx);
    for (std::size_t i = 0; i < header.e_shnum; ++i) {
      const Elf64_Shdr s = section(i);
      const bool inside = s.sh_type != SHT_NOBITS && s.sh_offset + s.sh_size <= file.size();
      const std::size_t name = names.sh_offset + s.sh_name;
      sections.push_back({name < file.size() ? file.data() + name : "",
                          inside ? file.substr(s.sh_offset, s.sh_size) : Data()});
    }
  }
  Data named(std::string_view name) const {
    for (const Section& s : sections)
      if (s.name == name) return s.data;
    return {};
  }
};

/// Which section an address in .debug_line is of: offset of the address -> section.
std::map<std::size_t, std::size_t> sections_of_addresses(const Elf& elf) {
  std::map<std::size_t, std::size_t> out;
  const Data symbols = elf.named(".symtab");
  const auto add = [&](std::uint64_t offset, std::uint64_t info) {
    out[offset] = at<Elf64_Sym>(symbols, ELF64_R_SYM(info) * sizeof(Elf64_Sym)).st_shndx;
  };
  const Data rel = elf.named(".rel.debug_line"), rela = elf.named(".rela.debug_line");
  for (std::size_t i = 0; i + sizeof(Elf64_Rel) <= rel.size(); i += sizeof(Elf64_Rel)) {
    const auto r = at<Elf64_Rel>(rel, i);
    add(r.r_offset, r.r_info);
  }
  for (std::size_t i = 0; i + sizeof(Elf64_Rela) <= rela.size(); i += sizeof(Elf64_Rela)) {
    const auto r = at<Elf64_Rela>(rela, i);
    add(r.r_offset, r.r_info);
  }
  return out;
}

constexpr std::uint64_t instruction_bytes = 16;  // since Volta

/// Whether an instruction does nothing: functions end in such.
bool is_nop(Data code, std::uint64_t address) {
  return (at<std::uint16_t>(code, address) & 0xFFF) == 0x918;
}

/// Instructions of a section that hardly ever run: ptxas's subroutines for divisions by the smallest and largest numbers.
/// Their instructions are of the line of some division.
struct SlowPath {
  std::size_t section;
  std::uint64_t begin, end;
};
std::vector<SlowPath> slow_paths(const Elf& elf) {
  std::vector<SlowPath> out;
  const Data symbols = elf.named(".symtab"), names = elf.named(".strtab");
  for (std::size_t i = 0; i + sizeof(Elf64_Sym) <= symbols.size(); i += sizeof(Elf64_Sym)) {
    const auto symbol = at<Elf64_Sym>(symbols, i);
    const Data name(symbol.st_name < names.size() ? names.data() + symbol.st_name : "");
    if (name.find("_slowpath") != Data::npos)
      out.push_back({symbol.st_shndx, symbol.st_value, symbol.st_value + symbol.st_size});
  }
  return out;
}

/// DWARF's line numbers: for each section with code, of each instruction the line.
void read_lines(const Elf& elf, std::map<std::string, MachineCode>& kernels) {
  const Data data = elf.named(".debug_line");
  const auto sections = sections_of_addresses(elf);
  const std::vector<SlowPath> slow = slow_paths(elf);
  Reader in(data);
  while (!in.done()) {
    const auto length = in.number<std::uint32_t>();
    const std::size_t end = in.at() + length;
    if (length == 0 || end > data.size()) return;
    in.number<std::uint16_t>();  // version
    const auto header_length = in.number<std::uint32_t>();
    const std::size_t program = in.at() + header_length;
    const auto step = in.number<std::uint8_t>();
    in.number<std::uint8_t>();  // default_is_stmt
    const auto line_base = static_cast<std::int8_t>(in.number<std::uint8_t>());
    const auto line_range = in.number<std::uint8_t>();
    const auto opcode_base = in.number<std::uint8_t>();
    std::vector<unsigned> operands(opcode_base);
    for (std::size_t i = 1; i < opcode_base; ++i) operands[i] = in.number<std::uint8_t>();
    in.go(program);

    std::uint64_t address = 0, from = 0;
    std::int64_t line = 1, line_from = 0;
    std::size_t section = 0;
    bool begun = false;
    // The instructions since the last row are of that row's line.
    const auto row = [&](bool more) {
      if (begun && section < elf.sections.size()) {
        const Elf::Section& text = elf.sections[section];
        constexpr std::string_view prefix = ".text.";
        if (text.name.substr(0, prefix.size()) == prefix) {
          MachineCode& kernel = kernels[text.name.substr(prefix.size())];
          const auto is_slow = [&](const SlowPath& path) {
            return path.section == section && path.begin <= from && from < path.end;
          };
          for (; from < address; from += instruction_bytes)
            if (!is_nop(text.data, from) && std::none_of(slow.begin(), slow.end(), is_slow))
              ++kernel.by_line[static_cast<int>(line_from)];
        }
      }
      from = address, line_from = line, begun = more;
    };
    while (in.at() < end) {
      const auto opcode = in.number<std::uint8_t>();
      if (opcode >= opcode_base) {
        const unsigned n = opcode - opcode_base;
        address += std::uint64_t{n / line_range} * step;
        line += line_base + static_cast<int>(n % line_range);
        row(true);
        continue;
      }
      switch (opcode) {
        case 0: {
          const auto size = static_cast<std::size_t>(in.leb(false));
          const std::size_t next = in.at() + size;
          const auto extended = in.number<std::uint8_t>();
          if (extended == 1) {  // end of a sequence
            row(false);
            address = 0, line = 1;
          } else if (extended == 2) {
            const auto found = sections.find(in.at());
            section = found == sections.end() ? elf.sections.size() : found->second;
            address = in.number<std::uint64_t>();
          }
          in.go(next);
          break;
        }
        case 1: row(true); break;
        case 2: address += static_cast<std::uint64_t>(in.leb(false)) * step; break;
        case 3: line += in.leb(true); break;
        case 8: address += std::uint64_t{(255U - opcode_base) / line_range} * step; break;
        case 9: address += in.number<std::uint16_t>(); break;
        default:
          for (unsigned i = 0; i < operands[opcode]; ++i) in.leb(false);
      }
    }
    in.go(end);
  }
}

/// What `ptxas -v` says.
void read_report(std::istream& report, std::map<std::string, MachineCode>& kernels) {
  MachineCode* kernel = nullptr;
  for (std::string line; std::getline(report, line);) {
    const auto after = [&](const char* word) {
      const std::size_t found = line.find(word);
      return found == std::string::npos ? nullptr : line.c_str() + found + std::strlen(word);
    };
    const auto before = [&](const char* word) {
      std::size_t found = line.find(word);
      if (found == std::string::npos) return 0U;
      while (found > 0 && (line[found - 1] == ' ' || std::isdigit(line[found - 1]) != 0)) --found;
      return static_cast<unsigned>(std::atoi(line.c_str() + found));
    };
    if (const char* name = after("Compiling entry function '")) {
      kernel = &kernels[std::string(name, std::strcspn(name, "'"))];
    } else if (kernel && line.find("spill stores") != std::string::npos) {
      kernel->spilled_bytes = before("bytes spill stores") + before("bytes spill loads");
    } else if (const char* used = after("Used "); kernel && used) {
      kernel->registers = static_cast<unsigned>(std::atoi(used));
      kernel->shared_bytes = before("bytes smem");
    }
  }
}

/// Tells the lines of kernels that nobody asked for from all others.
class OtherKernels {
 public:
  explicit OtherKernels(const std::set<std::string>& wanted) : wanted_(wanted) {}

  /// Whether `text` belongs to a kernel that is not wanted. Lines come in their order.
  bool skips(std::string_view text) {
    if (constexpr std::string_view entry = ".entry "; depth_ == 0 && !inside_) {
      const std::size_t found = text.find(entry);
      if (found == std::string_view::npos) return false;
      const std::string_view name = text.substr(found + entry.size());
      inside_ = wanted_.count(std::string(name.substr(0, name.find('(')))) == 0;
    }
    if (!inside_) return false;
    const int before = depth_;
    for (const char c : text) depth_ += (c == '{' ? 1 : 0) - (c == '}' ? 1 : 0);
    if (before > 0 && depth_ == 0) inside_ = false;
    return true;
  }

 private:
  const std::set<std::string>& wanted_;
  bool inside_ = false;
  int depth_ = 0;
};

/// The wanted kernels' PTX with its own lines as lines of the source.
std::string with_own_lines(std::string_view ptx, const std::set<std::string>& wanted) {
  std::string out;
  OtherKernels others(wanted);
  int number = 0;
  for (std::size_t begin = 0; begin < ptx.size();) {
    const std::size_t end = std::min(ptx.find('\n', begin), ptx.size());
    std::string_view line = ptx.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    line = line.substr(0, line.find('\0'));
    const std::size_t first = line.find_first_not_of(" \t\r");
    const std::string_view text = first == std::string_view::npos ? "" : line.substr(first);
    const auto begins = [&](std::string_view with) { return text.substr(0, with.size()) == with; };
    // Everything after the code is debug information of the source.
    if (begins(".section")) break;
    if (others.skips(text)) continue;
    if (begins(".file") || begins(".loc ") || begins(".loc\t")) continue;
    // Statements: directives begin with a dot, labels and lists of them with a dollar.
    if (!text.empty() && text.find(';') != std::string_view::npos &&
        std::string_view("./$").find(text[0]) == std::string_view::npos)
      out += ".loc 1 " + std::to_string(number) + " 0\n";
    out.append(line) += '\n';
    if (begins(".address_size")) out += ".file 1 \"ptx\"\n";
  }
  return out;
}

std::string file_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

unsigned MachineCode::blocks_per_sm(unsigned threads, unsigned shared_bytes_of_sm,
                                    unsigned dynamic_shared) const {
  // A warp's registers are given out in units of 256; a block's shared memory in units of 128, and
  // the system takes 1 KB of it.
  const unsigned warps = (threads + 31) / 32;
  const unsigned of_warp = (registers * 32 + 255) / 256 * 256;
  const unsigned of_block = (shared_bytes + dynamic_shared + 1024 + 127) / 128 * 128;
  const unsigned by_registers = of_warp == 0 ? 64 / warps : 65536 / of_warp / 4 * 4 / warps;
  return std::min({by_registers, shared_bytes_of_sm / of_block, 64 / warps, 32U});
}

std::map<std::string, MachineCode> assemble(const std::string& ptxas, std::string_view ptx,
                                            const std::set<std::string>& wanted,
                                            const std::string& architecture, std::string& why) {
  namespace fs = std::filesystem;
  const fs::path folder =
      fs::temp_directory_path() / ("cuda_counts_" + std::to_string(getpid()) + "_" + architecture);
  std::error_code status;
  fs::create_directories(folder, status);
  std::ofstream(folder / "code.ptx") << with_own_lines(ptx, wanted);
  const std::string at = "'" + folder.string() + "/";
  const std::string command = "'" + ptxas + "' -v -lineinfo -arch=" + architecture + " -o " + at +
                              "code.cubin' " + at + "code.ptx' > " + at + "report' 2>&1";
  std::map<std::string, MachineCode> kernels;
  const int exit = std::system(command.c_str());
  std::ifstream report(folder / "report");
  if (exit != 0) {
    std::getline(report, why);
    if (why.empty()) why = ptxas + " cannot be run";
  } else {
    read_report(report, kernels);
    const std::string cubin = file_text(folder / "code.cubin");
    read_lines(Elf(cubin), kernels);
    for (const auto& [name, kernel] : kernels)
      if (kernel.registers == 0 || kernel.by_line.empty())
        why = "nothing is known of the machine code of " + name;
    if (kernels.empty()) why = "ptxas made no kernels";
    if (!why.empty()) kernels.clear();
  }
  fs::remove_all(folder, status);
  return kernels;
}

}  // namespace cuda_counts
