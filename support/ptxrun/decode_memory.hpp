// SPDX-License-Identifier: MIT
// Statements that move memory -> instructions: loads, stores, atomics, copies beside the arithmetic, matrices.
#pragma once
#include "access.hpp"
#include "async_copy.hpp"
#include "matrix_load.hpp"
#include "operands.hpp"
#include "print.hpp"

namespace ptxrun {

class MemoryDecoder : protected Operands {
 protected:
  using Operands::Operands;

  Inst memory(Inst in, const Statement& s, const std::vector<std::string>& p, bool loads) {
    const std::string& type = p.back();
    in.space = space_of(p);
    const std::string &to = s.args.at(loads ? 1 : 0), &values = s.args.at(loads ? 0 : 1);
    if (in.space == Space::param) {
      // Of a call, which takes them from here.
      std::string base = to.substr(1, to.size() - 2);
      base = base.substr(0, base.find('+'));
      if (!is_register(base) && params_.count(base) == 0) {
        if (!loads) {
          given_[base] = values;
          in.fn = nothing;
        } else if (const auto result = results_.find(base); result != results_.end()) {
          in.a = result->second, in.d = value(values, 32);
          in.fn = returned;
        } else {
          in.fn = nothing;  // of one that ends the program
        }
        return in;
      }
    }
    in.size = static_cast<u8>(bits_of(type) / 8);
    in.is_signed = type[0] == 's';
    const std::vector<std::string> v = vector_of(values);
    in.count = static_cast<u8>(v.size());
    if (v.size() > 4) unsupported("vector");
    for (std::size_t k = 0; k < v.size(); ++k) {
      if (loads && v[k] == "_") continue;
      in.v_width[k] = static_cast<u8>(is_register(v[k]) ? width_of(v[k]) : in.size == 8 ? 64 : 32);
      in.v[k] = value(v[k], in.v_width[k]);
    }
    address(in, to);
    in.fn = in.size == 1   ? (loads ? load<u8> : store<u8>)
            : in.size == 2 ? (loads ? load<u16> : store<u16>)
            : in.size == 4 ? (loads ? load<u32> : store<u32>)
                           : (loads ? load<u64> : store<u64>);
    return in;
  }
  Inst atomic(Inst in, const Statement& s, const std::vector<std::string>& p) {
    static const std::map<std::string, u8> names = {
        {"add", atom_add}, {"min", atom_min}, {"max", atom_max},   {"and", atom_and},
        {"or", atom_or},   {"xor", atom_xor}, {"exch", atom_exch}, {"cas", atom_cas},
        {"inc", atom_inc}, {"dec", atom_dec}};
    const std::string& type = p.back();
    in.space = space_of(p);
    bool found = false;
    for (const std::string& part : p)
      if (const auto it = names.find(part); it != names.end()) in.what = it->second, found = true;
    if (!found) unsupported("atomic");
    const bool returns = p[0] == "atom";
    const std::size_t k = returns ? 1 : 0;
    const int bits = bits_of(type);
    in.size = static_cast<u8>(bits / 8), in.count = 1;
    in.d = returns && s.args[0] != "_" ? value(s.args.at(0), bits) : 0;
    address(in, s.args.at(k));
    in.b = value(s.args.at(k + 1), bits);
    if (in.what == atom_cas) in.c = value(s.args.at(k + 2), bits);
    in.fn = type == "f32"                    ? atomic_of<float>
            : type == "f64"                  ? atomic_of<double>
            : type == "s32"                  ? atomic_of<s32>
            : type == "u32" || type == "b32" ? atomic_of<u32>
            : type == "s64"                  ? atomic_of<s64>
            : type == "u64" || type == "b64" ? atomic_of<u64>
                                             : nullptr;
    if (!in.fn) unsupported("type");
    return in;
  }

  Inst async_copy(Inst in, const Statement& s, const std::vector<std::string>& p) {
    if (p.size() < 3 || p[1] != "async") unsupported("copy");
    if (p[2] == "commit_group") {
      in.fn = commit_copies;
      return in;
    }
    if (p[2] == "wait_all" || p[2] == "wait_group") {
      u64 groups = 0;
      if (p[2] == "wait_group" && !immediate(s.args.at(0), groups)) unsupported("number of groups");
      in.offset = p[2] == "wait_all" ? -1 : static_cast<s64>(groups);
      in.fn = wait_for_copies;
      return in;
    }
    u64 bytes = 0;
    const bool whole_lines = p[2] == "cg";  // past the L1 cache, 16 bytes at a time
    if ((p[2] != "ca" && !whole_lines) || p.size() != 5 || p[3].substr(0, 6) != "shared" ||
        p[4] != "global" || s.args.size() < 3 || s.args.size() > 4 ||
        !immediate(s.args[2], bytes) ||
        (bytes != 16 && (whole_lines || (bytes != 4 && bytes != 8))))
      unsupported("copy");
    address(in, s.args[1]);
    if (!in.wide_base) unsupported("copy");
    in.b = in.a, in.source_offset = in.offset;
    address(in, s.args[0]);
    in.space = Space::shared;
    in.size = static_cast<u8>(bytes), in.count = 1;
    in.c = s.args.size() == 4 ? value(s.args[3], 32) : constant(bytes, 32);
    in.fn = issue_copies;
    return in;
  }

  Inst matrix_load(Inst in, const Statement& s, const std::vector<std::string>& p) {
    static const std::map<std::string, u8> counts = {{"x1", 1}, {"x2", 2}, {"x4", 4}};
    if (p.size() < 7 || p[1] != "sync" || p[2] != "aligned" || p[3] != "m8n8" || p.back() != "b16")
      unsupported("load of matrices");
    const auto count = counts.find(p[4]);
    in.is_signed = p[5] == "trans";
    in.space = space_of(p);
    const std::vector<std::string> to = vector_of(s.args.at(0));
    if (count == counts.end() || p.size() != (in.is_signed ? 8U : 7U) ||
        in.space != Space::shared || to.size() != count->second)
      unsupported("load of matrices");
    in.kind = Kind::warp_sync;
    in.what = 12;
    in.e = value("-1", 32);
    in.count = count->second;
    for (std::size_t i = 0; i < to.size(); ++i) in.v[i] = value(to[i], 32);
    address(in, s.args.at(1));
    return in;
  }
};

}  // namespace ptxrun
