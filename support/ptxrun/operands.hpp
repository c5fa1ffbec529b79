// SPDX-License-Identifier: MIT
// Where a function's operands lie: variables in the memories, registers and constants in a warp's.
#pragma once
#include "machine.hpp"

namespace ptxrun {

/// Of one function: what the decoder's parts ask for places.
class Operands {
 protected:
  /// `symbols`: addresses of the module's variables.
  Operands(const Module& m, const Function& f, const std::map<std::string, u64>& symbols)
      : m_(m), f_(f), symbols_(symbols) {
    k_.module = &m, k_.function = &f, k_.name = f.name;
  }

  /// Gives parameters, shared and local variables their offsets.
  void place_variables() {
    u64 at = 0;
    for (const Variable& p : f_.params) {
      at = (at + p.align - 1) / p.align * p.align;
      k_.params.push_back({at, p.size});
      params_[p.name] = at;
      at += p.size;
    }
    k_.param_bytes = at;
    // Between variables of shared memory are 64 bytes that are nobody's.
    at = 0;
    for (const auto* list : {&m_.shared, &f_.shared})
      for (const Variable& v : *list) {
        if (v.external) continue;
        at = (at + v.align - 1) / v.align * v.align;
        k_.shared_symbols.push_back({v.name, at, v.size});
        shared_[v.name] = at;
        at += (v.size + 63) / 64 * 64 + 64;
      }
    // Dynamic shared memory comes last, whatever its names.
    at = (at + 127) / 128 * 128;
    for (const auto* list : {&m_.shared, &f_.shared})
      for (const Variable& v : *list)
        if (v.external) {
          k_.shared_symbols.push_back({v.name, at, 0, true});
          shared_[v.name] = at;
        }
    k_.shared_bytes = at;
    at = 0;
    for (const Variable& v : f_.local) {
      at = (at + v.align - 1) / v.align * v.align;
      local_[v.name] = at;
      at += v.size;
    }
    k_.local_bytes = (at + 15) / 16 * 16;
  }
  void place_registers() {
    next_ = 64;
    for (const auto& [name, width] : f_.width) {
      registers_[name] = next_;
      next_ += width == 1 ? 4 : width == 64 ? 256 : 128;
      if (width > 64) unsupported("register of " + std::to_string(width) + " bits");
      if (width != 1) next_ = (next_ + 63) / 64 * 64;  // predicates: 4 bytes
    }
    next_ = (next_ + 63) / 64 * 64;
    k_.constants_begin = next_;
  }
  /// A warp's registers before its first instruction: constants lie among them.
  void make_image() {
    k_.image.assign(next_, 0);
    for (const auto& [key, where] : constants_) {
      if (key.second == 64)
        for (int l = 0; l < 32; ++l)
          std::memcpy(&k_.image[where + 8U * static_cast<u32>(l)], &key.first, 8);
      else if (key.second == 1) {
        const u32 p = key.first != 0 ? all_lanes : 0;
        std::memcpy(&k_.image[where], &p, 4);
      } else
        for (int l = 0; l < 32; ++l)
          std::memcpy(&k_.image[where + 4U * static_cast<u32>(l)], &key.first, 4);
    }
  }

  static std::vector<std::string> split(const std::string& s, char at) {
    std::vector<std::string> out(1);
    for (char c : s) {
      if (c == at) out.emplace_back();
      else out.back() += c;
    }
    return out;
  }

  u32 constant(u64 value, int width) {
    if (width < 64) value &= 0xFFFFFFFF;
    const auto [it, fresh] = constants_.try_emplace({value, width}, next_);
    if (fresh) next_ += width == 64 ? 256 : width == 1 ? 64 : 128;
    return it->second;
  }
  bool is_register(const std::string& s) const { return registers_.count(s) != 0; }
  int width_of(const std::string& s) const { return f_.width.at(s); }

  /// A value of `bits` bits (1, 16, 32 or 64).
  u32 value(std::string s, int bits) {
    if (const auto it = registers_.find(s); it != registers_.end()) {
      const int w = width_of(s);
      if ((w == 64) != (bits == 64) || (w == 1) != (bits == 1))
        unsupported("register " + s + " of " + std::to_string(w) + " bits as " +
                    std::to_string(bits));
      return it->second;
    }
    if (s[0] == '%') {
      const auto [it, fresh] = k_.special.try_emplace(s, next_);
      if (fresh) next_ += 256;
      return it->second;
    }
    u64 v = 0;
    if (immediate(s, v)) return constant(v, bits == 16 ? 32 : bits);
    u64 plus = 0;
    if (const std::size_t p = s.find('+'); p != std::string::npos) {
      plus = static_cast<u64>(std::strtoll(s.c_str() + p + 1, nullptr, 0));
      s.resize(p);
    }
    if (symbol(s, v)) return constant(v + plus, bits);
    unsupported("operand " + s);
  }
  static bool immediate(const std::string& s, u64& v) {
    if (s.size() > 2 && s[0] == '0' && (s[1] == 'f' || s[1] == 'F' || s[1] == 'd' || s[1] == 'D')) {
      v = std::strtoull(s.c_str() + 2, nullptr, 16);
      return true;
    }
    if (s == "WARP_SZ") {
      v = 32;
      return true;
    }
    if (s[0] == '-') {
      v = static_cast<u64>(std::strtoll(s.c_str(), nullptr, 0));
      return true;
    }
    if (!std::isdigit(static_cast<unsigned char>(s[0]))) return false;
    v = std::strtoull(s.c_str(), nullptr, 0);
    return true;
  }
  bool symbol(const std::string& s, u64& v) const {
    for (const auto* map : {&shared_, &local_, &params_, &symbols_})
      if (const auto it = map->find(s); it != map->end()) {
        v = it->second;
        return true;
      }
    return false;
  }
  u32 predicate(const std::string& s, bool& negated) {
    negated = s[0] == '!';
    return value(negated ? s.substr(1) : s, 1);
  }
  static std::vector<std::string> vector_of(const std::string& s) {
    if (s[0] != '{') return {s};
    return split(s.substr(1, s.size() - 2), ',');
  }
  void address(Inst& in, const std::string& s) {
    std::string inner = s.substr(1, s.size() - 2);
    in.offset = 0;
    if (const std::size_t p = inner.find('+'); p != std::string::npos) {
      in.offset = std::strtoll(inner.c_str() + p + 1, nullptr, 0);
      inner.resize(p);
    }
    in.wide_base = !is_register(inner) || width_of(inner) == 64;
    in.a = value(inner, in.wide_base ? 64 : 32);
  }
  s32 label(const std::string& s) const {
    const auto it = f_.labels.find(s);
    if (it == f_.labels.end()) unsupported("label " + s);
    return it->second;
  }
  static int bits_of(const std::string& t) {
    if (t == "pred") return 1;
    if (t == "bf16") return 16;
    return std::atoi(t.c_str() + 1);
  }
  static Space space_of(const std::vector<std::string>& p) {
    for (const std::string& s : p) {
      if (s == "global") return Space::global;
      if (s.substr(0, 6) == "shared") return Space::shared;
      if (s == "local") return Space::local;
      if (s.substr(0, 5) == "param") return Space::param;
      if (s == "const") return Space::constant;
    }
    return Space::generic;
  }

  const Module& m_;
  const Function& f_;
  const std::map<std::string, u64>& symbols_;
  Kernel k_;
  std::map<std::string, u64> params_, shared_, local_;
  std::map<std::string, u32> registers_;
  std::map<std::pair<u64, int>, u32> constants_;
  std::map<std::string, std::string>
      given_;                           // operands, by the parameters of calls they were stored to
  std::map<std::string, u32> results_;  // registers, by what calls return
  u32 next_ = 64;
};

}  // namespace ptxrun
