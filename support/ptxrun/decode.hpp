// SPDX-License-Identifier: MIT
// A function's statements -> instructions with handlers.
#pragma once
#include "arithmetic.hpp"
#include "bits.hpp"
#include "conversion.hpp"
#include "decode_memory.hpp"
#include "float_modes.hpp"
#include "matrix_product.hpp"
#include "print.hpp"

namespace ptxrun {

template <class T>
struct Tag {
  using type = T;
};

class Decoder : private MemoryDecoder {
 public:
  /// `symbols`: addresses of the module's variables.
  Decoder(const Module& m, const Function& f, const std::map<std::string, u64>& symbols)
      : MemoryDecoder(m, f, symbols) {}

  Kernel run() {
    place_variables();
    place_registers();
    for (const Statement& s : f_.code) {
      try {
        k_.code.push_back(one(s));
      } catch (const std::exception& e) {
        throw std::runtime_error(std::string(e.what()) + " in line " + std::to_string(s.line) +
                                 " of the PTX: " + s.text);
      }
    }
    Inst last;
    last.kind = Kind::exit;
    static const Statement end{"", "ret", {}, "(the end)", 0, 0, 0};
    last.st = &end;
    k_.code.push_back(last);
    k_.executed.assign(k_.code.size(), 0);
    make_image();
    return std::move(k_);
  }

 private:
  // ---- handlers by type ----
  using Fn = void (*)(Machine&, Warp&, const Inst&, u32);
  template <class F>
  static Fn integers(const std::string& t, const F& f) {
    if (t == "u16" || t == "b16") return f(Tag<u16>{});
    if (t == "s16") return f(Tag<s16>{});
    if (t == "u32" || t == "b32") return f(Tag<u32>{});
    if (t == "s32") return f(Tag<s32>{});
    if (t == "u64" || t == "b64") return f(Tag<u64>{});
    if (t == "s64") return f(Tag<s64>{});
    return nullptr;
  }
  template <class F>
  static Fn numbers(const std::string& t, const F& f) {
    if (t == "f32") return f(Tag<float>{});
    if (t == "f64") return f(Tag<double>{});
    return integers(t, f);
  }
  static bool known_fn(Fn f, const std::string& what) {
    if (!f) unsupported(what);
    return true;
  }

  template <class D>
  static Fn convert_from(const std::string& s) {
    if (s == "u8") return convert<D, u8>;
    if (s == "s8") return convert<D, s8>;
    if (s == "u16") return convert<D, u16>;
    if (s == "s16") return convert<D, s16>;
    if (s == "u32") return convert<D, u32>;
    if (s == "s32") return convert<D, s32>;
    if (s == "u64") return convert<D, u64>;
    if (s == "s64") return convert<D, s64>;
    if (s == "f32") return convert<D, float>;
    if (s == "f64") return convert<D, double>;
    if constexpr (!std::is_integral_v<D>)
      if (s == "bf16") return convert<D, Bf16>;
    return nullptr;
  }
  static Fn convert_of(const std::string& d, const std::string& s) {
    if (d == "u8") return convert_from<u8>(s);
    if (d == "s8") return convert_from<s8>(s);
    if (d == "u16") return convert_from<u16>(s);
    if (d == "s16") return convert_from<s16>(s);
    if (d == "u32") return convert_from<u32>(s);
    if (d == "s32") return convert_from<s32>(s);
    if (d == "u64") return convert_from<u64>(s);
    if (d == "s64") return convert_from<s64>(s);
    if (d == "f32" && s == "f16") return convert<float, F16>;
    if (d == "f32") return convert_from<float>(s);
    if (d == "f64") return convert_from<double>(s);
    if (d == "bf16") return s == "f32" ? convert<Bf16, float> : nullptr;
    if (d == "f16") return s == "f32" ? convert<F16, float> : nullptr;
    return nullptr;
  }

  Inst one(const Statement& s) {
    Inst in;
    in.st = &s;
    if (!s.guard.empty()) in.guard = static_cast<s32>(predicate(s.guard, in.negate_guard));
    const std::vector<std::string> p = split(s.op, '.');
    const std::string &op = p[0], &type = p.back();
    const auto& a = s.args;
    const auto has = [&](const char* what) {
      return std::find(p.begin(), p.end(), what) != p.end();
    };
    if (has("ftz") && !has("approx")) unsupported("ftz");
    const auto three = [&](int bits) {
      in.d = value(a.at(0), bits), in.a = value(a.at(1), bits), in.b = value(a.at(2), bits);
    };
    const auto arithmetic = [&](auto make) {
      if (has("sat") || has("cc") || has("rz") || has("rm") || has("rp") || has("NaN"))
        unsupported("modifier");
      in.fn = numbers(type, make);
      known_fn(in.fn, s.op);
      three(bits_of(type));
    };

    if (const Fn fn = float_mode(s.op)) {
      three(32);
      in.c = a.size() == 4 ? value(a[3], 32) : in.b;
      in.fn = fn;
      return in;
    }
    if (op == "mma") return matrix_product(in, s);
    if (op == "ldmatrix") return matrix_load(in, s, p);
    if (op == "cp") return async_copy(in, s, p);
    if (op == "ld" || op == "ldu") return memory(in, s, p, true);
    if (op == "st") return memory(in, s, p, false);
    if (op == "atom" || op == "red") return atomic(in, s, p);
    if (op == "mov") return moves(in, s, type);

    if (op == "add")
      arithmetic([](auto t) -> Fn { return binary<Add, typename decltype(t)::type>; });
    else if (op == "sub")
      arithmetic([](auto t) -> Fn { return binary<Sub, typename decltype(t)::type>; });
    else if (op == "min")
      arithmetic([](auto t) -> Fn { return binary<Min, typename decltype(t)::type>; });
    else if (op == "max")
      arithmetic([](auto t) -> Fn { return binary<Max, typename decltype(t)::type>; });
    else if (op == "copysign") {
      if (type == "f32") in.fn = binary<CopySign, float>;
      if (type == "f64") in.fn = binary<CopySign, double>;
      known_fn(in.fn, s.op);
      three(bits_of(type));
    } else if (op == "div") {
      if (has("approx") || has("full")) approximate(s);
      arithmetic([](auto t) -> Fn { return binary<Div, typename decltype(t)::type>; });
    } else if (op == "rem") {
      in.fn = integers(type, [](auto t) -> Fn { return binary<Rem, typename decltype(t)::type>; });
      three(bits_of(type));
    } else if (op == "mul" && !has("wide")) {
      if (has("hi"))
        in.fn =
            integers(type, [](auto t) -> Fn { return binary<MulHi, typename decltype(t)::type>; }),
        three(bits_of(type));
      else arithmetic([](auto t) -> Fn { return binary<Mul, typename decltype(t)::type>; });
    } else if ((op == "mad" || op == "fma") && !has("wide")) {
      if (has("sat") || has("cc") || has("rz") || has("rm") || has("rp") || has("relu"))
        unsupported("modifier");
      in.what = has("hi") ? 1 : 0;
      in.fn = numbers(type, [](auto t) -> Fn { return multiply_add<typename decltype(t)::type>; });
      three(bits_of(type));
      in.c = value(a.at(3), bits_of(type));
    } else if (op == "mul" || op == "mad") {
      const bool add = op == "mad";
      const int wide = 2 * bits_of(type);
      in.d = value(a.at(0), wide);
      in.a = value(a.at(1), bits_of(type)), in.b = value(a.at(2), bits_of(type));
      if (add) in.c = value(a.at(3), wide);
      if (type == "u16") in.fn = add ? multiply_wide<u16, true> : multiply_wide<u16, false>;
      if (type == "s16") in.fn = add ? multiply_wide<s16, true> : multiply_wide<s16, false>;
      if (type == "u32") in.fn = add ? multiply_wide<u32, true> : multiply_wide<u32, false>;
      if (type == "s32") in.fn = add ? multiply_wide<s32, true> : multiply_wide<s32, false>;
    } else if ((op == "and" || op == "or" || op == "xor" || op == "not") && type == "pred") {
      in.what = op == "and" ? 1 : op == "or" ? 2 : op == "xor" ? 3 : 4;
      in.d = value(a.at(0), 1), in.a = value(a.at(1), 1);
      in.b = op == "not" ? in.a : value(a.at(2), 1);
      in.fn = predicates;
    } else if (op == "and") {
      in.fn = integers(type, [](auto t) -> Fn { return binary<And, typename decltype(t)::type>; });
      three(bits_of(type));
    } else if (op == "or") {
      in.fn = integers(type, [](auto t) -> Fn { return binary<Or, typename decltype(t)::type>; });
      three(bits_of(type));
    } else if (op == "xor") {
      in.fn = integers(type, [](auto t) -> Fn { return binary<Xor, typename decltype(t)::type>; });
      three(bits_of(type));
    } else if (op == "shl" || op == "shr") {
      const bool left = op == "shl";
      in.fn = integers(type, [left](auto t) -> Fn {
        using T = typename decltype(t)::type;
        return left ? shift<true, T> : shift<false, T>;
      });
      in.d = value(a.at(0), bits_of(type)), in.a = value(a.at(1), bits_of(type));
      in.b = value(a.at(2), 32);
    } else if (op == "not" || op == "neg" || op == "abs") {
      in.what = op == "not" ? 0 : op == "neg" ? 1 : 2;
      in.fn = numbers(type, [](auto t) -> Fn { return unary<typename decltype(t)::type>; });
      in.d = value(a.at(0), bits_of(type)), in.a = value(a.at(1), bits_of(type));
    } else if (op == "selp") {
      in.fn = numbers(type, [](auto t) -> Fn { return select<typename decltype(t)::type>; });
      three(bits_of(type));
      bool negated = false;
      in.c = predicate(a.at(3), negated);
      if (negated) std::swap(in.a, in.b);
    } else if (op == "setp") {
      comparison(in, p, a, type);
    } else if (op == "cvt") {
      const std::string &d = p[p.size() - 2], &from = p.back();
      in.what = has("rn")    ? rn
                : has("rz")  ? rz
                : has("rm")  ? rm
                : has("rp")  ? rp
                : has("rni") ? rni
                : has("rzi") ? rzi
                : has("rmi") ? rmi
                : has("rpi") ? rpi
                             : none;
      if (in.what == rm || in.what == rp || (in.what == rz && d != "bf16")) unsupported("rounding");
      in.is_signed = has("sat");
      in.fn = convert_of(d, from);
      if (!is_register(a.at(0))) unsupported("operand");
      in.v_width[0] = static_cast<u8>(width_of(a[0]));
      in.d = registers_.at(a[0]);
      in.a = value(a.at(1), is_register(a[1]) ? width_of(a[1]) : bits_of(from) == 64 ? 64 : 32);
      // A 64-bit source read as a narrower one: the low half comes first.
      if (is_register(a[1]) && width_of(a[1]) == 64 && bits_of(from) < 64)
        unsupported("narrow source");
      if (bits_of(d) == 64 && in.v_width[0] != 64) unsupported("narrow destination");
    } else if (op == "cvta") {
      const bool to = has("to");
      u64 base = has("shared")  ? shared_base
                 : has("local") ? local_base
                 : has("param") ? param_base
                                : 0;
      in.offset = static_cast<s64>(to ? u64{0} - base : base);
      in.wide_base = bits_of(type) == 64;
      in.d = value(a.at(0), bits_of(type)), in.a = value(a.at(1), bits_of(type));
      in.fn = convert_address;
    } else if (op == "rcp" || op == "sqrt" || op == "rsqrt" || op == "ex2" || op == "lg2" ||
               op == "sin" || op == "cos" || op == "tanh") {
      const char* names[] = {"rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"};
      for (u8 k = 0; k < 8; ++k)
        if (op == names[k]) in.what = k;
      if (has("approx")) approximate(s);
      in.is_signed = has("ftz");
      in.fn = type == "f64" ? function_of<double> : function_of<float>;
      in.d = value(a.at(0), bits_of(type)), in.a = value(a.at(1), bits_of(type));
    } else if (op == "popc" || op == "clz" || op == "brev" || (op == "bfind" && !has("shiftamt"))) {
      in.what = op == "popc" ? 0 : op == "clz" ? 1 : op == "brev" ? 2 : 3;
      if (op == "bfind" && type[0] == 's') unsupported("signed");
      in.fn = bits_of(type) == 64 ? count_bits<u64> : count_bits<u32>;
      in.d = value(a.at(0), op == "brev" ? bits_of(type) : 32),
      in.a = value(a.at(1), bits_of(type));
    } else if (op == "bfe") {
      in.fn = integers(type, [](auto t) -> Fn { return extract_bits<typename decltype(t)::type>; });
      in.d = value(a.at(0), bits_of(type)), in.a = value(a.at(1), bits_of(type));
      in.b = value(a.at(2), 32), in.c = value(a.at(3), 32);
    } else if (op == "bfi") {
      in.fn = bits_of(type) == 64 ? insert_bits<u64> : insert_bits<u32>;
      in.d = value(a.at(0), bits_of(type)), in.a = value(a.at(1), bits_of(type)),
      in.b = value(a.at(2), bits_of(type));
      in.c = value(a.at(3), 32), in.e = value(a.at(4), 32);
    } else if (op == "bmsk") {
      in.what = has("clamp") ? 2 : 0;
      three(32);
      in.fn = bit_mask;
    } else if (op == "shf") {
      in.what = static_cast<u8>((has("r") ? 1 : 0) | (has("clamp") ? 2 : 0));
      three(32);
      in.c = value(a.at(3), 32);
      in.fn = funnel;
    } else if (op == "prmt") {
      if (p.size() != 2) unsupported("mode");
      three(32);
      in.c = value(a.at(3), 32);
      in.fn = permute;
    } else if (op == "lop3") {
      three(32);
      in.c = value(a.at(3), 32);
      in.offset = std::strtoll(a.at(4).c_str(), nullptr, 0);
      in.fn = logic3;
    } else if (op == "activemask") {
      in.d = value(a.at(0), 32);
      in.fn = active_mask;
    } else if (op == "membar" || op == "fence") {
      in.fn = has("cta") || has("proxy") ? nothing : fence;
    } else if (op == "prefetch" || op == "discard" || op == "nanosleep") {
      in.fn = nothing;
    } else if (op == "bra") {
      in.kind = Kind::bra;
      in.target = label(a.at(0));
    } else if (op == "brx") {
      in.kind = Kind::brx;
      in.a = value(a.at(0), 32);
      for (const std::string& t : f_.targets.at(a.at(1))) in.targets.push_back(label(t));
    } else if (op == "ret" || op == "exit") {
      in.kind = Kind::exit;
    } else if (op == "trap") {
      in.kind = Kind::trap;
    } else if (op == "call") {
      if (s.text.find("__assertfail") != std::string::npos) in.kind = Kind::trap;
      else if (a.size() == 3 && a[1] == "vprintf") print_call(in, a);
      else unsupported("call");
    } else if ((op == "bar" || op == "barrier") && !has("warp")) {
      if (has("red")) {
        in.kind = Kind::bar_red;
        in.what = has("popc") ? 0 : has("and") ? 1 : 2;
        in.d = value(a.at(0), has("popc") ? 32 : 1);
        if (a.size() != 3) unsupported("threads of a barrier");
        in.b = constant(0, 32);
        bool negated = false;
        in.c = predicate(a.at(2), negated);
        in.is_signed = negated;
      } else {
        if (!has("sync")) unsupported("barrier");
        in.kind = Kind::bar;
        if (a.size() != 1) unsupported("threads of a barrier");
      }
      if (a[in.kind == Kind::bar ? 0 : 1] != "0") unsupported("named barrier");
    } else if (op == "bar" || op == "barrier" || op == "shfl" || op == "vote" || op == "redux" ||
               op == "match") {
      warp_sync(in, p, a, op, type);
    } else {
      unsupported("instruction");
    }
    if (in.kind == Kind::data && !in.fn) unsupported("type");
    return in;
  }

  /// call (result), vprintf, (format, numbers): what was stored to the last two, and where a load of the first
  /// finds it.
  void print_call(Inst& in, const std::vector<std::string>& a) {
    const auto names = split(a[2].substr(1, a[2].size() - 2), ',');
    in.a = value(given_.at(names.at(0)), 64);
    in.b = value(given_.at(names.at(1)), 64);
    in.d = results_[a[0].substr(1, a[0].size() - 2)] = next_;
    next_ += 128;
    in.fn = print;
  }

  /// Says so once per instruction of a program, with the first kernel.
  void approximate(const Statement& s) {
    static std::set<std::string> said;
    if (said.insert(s.op).second)
      std::fprintf(stderr, "ptxrun: %s: %s is not what a GPU's approximation gives\n",
                   f_.name.c_str(), s.op.c_str());
  }

  void comparison(Inst& in, const std::vector<std::string>& p, const std::vector<std::string>& a,
                  const std::string& type) {
    static const std::map<std::string, u8> names = {
        {"eq", eq},   {"ne", ne},   {"lt", lt},   {"le", le},   {"gt", gt},   {"ge", ge},
        {"lo", lt},   {"ls", le},   {"hi", gt},   {"hs", ge},   {"equ", equ}, {"neu", neu},
        {"ltu", ltu}, {"leu", leu}, {"gtu", gtu}, {"geu", geu}, {"num", num}, {"nan", nan_}};
    in.what = names.at(p.at(1));
    in.size = p[2] == "and" ? 1 : p[2] == "or" ? 2 : p[2] == "xor" ? 3 : 0;
    in.fn = numbers(type, [](auto t) -> Fn { return set_predicate<typename decltype(t)::type>; });
    const std::vector<std::string> d = split(a.at(0), '|');
    in.d = d[0] == "_" ? constant(2, 1) : value(d[0], 1);
    in.d2 = d.size() > 1 && d[1] != "_" ? value(d[1], 1) : 0;
    in.a = value(a.at(1), bits_of(type)), in.b = value(a.at(2), bits_of(type));
    bool negated = false;
    if (in.size != 0) in.c = predicate(a.at(3), negated);
    in.is_signed = negated;
  }

  void warp_sync(Inst& in, const std::vector<std::string>& p, const std::vector<std::string>& a,
                 const std::string& op, const std::string& type) {
    in.kind = Kind::warp_sync;
    // what: 0 bar.warp.sync, 1…4 shfl idx up down bfly, 5…8 vote all any uni ballot, 9 redux, 10 match.any,
    // 11 mma, 12 ldmatrix
    if (op == "bar" || op == "barrier") {
      in.what = 0;
      in.e = value(a.at(0), 32);
    } else if (op == "shfl") {
      in.what = p[2] == "idx" ? 1 : p[2] == "up" ? 2 : p[2] == "down" ? 3 : 4;
      const std::vector<std::string> d = split(a.at(0), '|');
      in.d = value(d[0], 32);
      in.d2 = d.size() > 1 && d[1] != "_" ? value(d[1], 1) : 0;
      in.a = value(a.at(1), 32), in.b = value(a.at(2), 32), in.c = value(a.at(3), 32);
      in.e = value(a.at(4), 32);
    } else if (op == "vote") {
      in.what = p[2] == "all" ? 5 : p[2] == "any" ? 6 : p[2] == "uni" ? 7 : 8;
      in.d = value(a.at(0), in.what == 8 ? 32 : 1);
      bool negated = false;
      in.a = predicate(a.at(1), negated);
      in.is_signed = negated;
      in.e = value(a.at(2), 32);
    } else if (op == "redux") {
      in.what = 9;
      in.size = p[2] == "add"   ? 0
                : p[2] == "min" ? 1
                : p[2] == "max" ? 2
                : p[2] == "and" ? 3
                : p[2] == "or"  ? 4
                                : 5;
      in.is_signed = type == "s32";
      in.d = value(a.at(0), 32), in.a = value(a.at(1), 32), in.e = value(a.at(2), 32);
    } else {
      if (p[1] != "any" || bits_of(type) != 32) unsupported("match");
      in.what = 10;
      in.d = value(a.at(0), 32), in.a = value(a.at(1), 32), in.e = value(a.at(2), 32);
    }
  }

  Inst matrix_product(Inst in, const Statement& s) {
    if (s.op != matrix_product_op) unsupported("matrix product");
    in.kind = Kind::warp_sync;
    in.what = 11;
    in.e = value("-1", 32);
    for (const std::string& operand : s.args)
      for (const std::string& one : vector_of(operand))
        in.targets.push_back(static_cast<s32>(value(one, 32)));
    if (in.targets.size() != MatrixProduct::registers) unsupported("matrix product");
    return in;
  }

  Inst moves(Inst in, const Statement& s, const std::string& type) {
    const auto& a = s.args;
    if (type == "pred") {
      in.what = 0;
      in.d = value(a.at(0), 1), in.a = in.b = value(a.at(1), 1);
      in.fn = predicates;
      return in;
    }
    const int bits = bits_of(type);
    if (a.at(0)[0] == '{' || a.at(1)[0] == '{') {
      const bool unpacks = a[0][0] == '{';
      const std::vector<std::string> v = vector_of(unpacks ? a[0] : a[1]);
      in.what = unpacks ? 0 : 1;
      in.count = static_cast<u8>(v.size());
      in.size = static_cast<u8>(bits / 8 / static_cast<int>(v.size()));
      for (std::size_t k = 0; k < v.size(); ++k) in.v[k] = v[k] == "_" ? 0 : value(v[k], 32);
      if (unpacks) in.a = value(a[1], bits);
      else in.d = value(a[0], bits);
      in.fn = pack;
      return in;
    }
    in.d = value(a[0], bits), in.a = value(a[1], bits);
    in.fn = numbers(type, [](auto t) -> Fn { return move<typename decltype(t)::type>; });
    if (!in.fn) unsupported("type");
    return in;
  }
};

}  // namespace ptxrun
