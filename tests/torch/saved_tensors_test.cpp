// SPDX-License-Identifier: MIT
/// What SavedTensors keeps in which form, and what it refuses.
#include <stdexcept>
#include <string>
#include <thread>

#include "support.hpp"

namespace torch_saved_tensors_test {

using namespace torch_tests;
using guest::Keep;

guest::ChoosingFunction always(Keep keep) {
  return [keep](const guest::SavedTensor&) { return keep; };
}

constexpr std::int64_t side = 256;
at::Tensor square(at::ScalarType type = at::kFloat) {
  at::manual_seed(1);
  return at::randn({side, side}).to(type);
}

TEST_CASE("one storage is one entry, however many views of it are saved") {
  const at::Tensor w = parameter(square());
  const guest::SavedTensors guard(always(Keep::as<adacc::Int8Outlier>()));
  at::Tensor loss;
  {
    const at::Tensor x = w * 2;      // saves nothing: 2 is no tensor
    const at::Tensor y = x * x.t();  // x, and a view of it
    loss = (y.slice(0, 8, 136) * x.slice(1, 0, 64).slice(0, 8, 136).repeat({1, 4})).sum();
  }
  const auto before = guard.statistics();
  CHECK(before.packed == 4);
  CHECK(before.storages == 3);  // x, y, and what repeat made
  CHECK(before.shared == 1);
  guard.store()->settle();
  const auto after = guard.statistics();
  CHECK(after.encoded == 3);
  // Of y only those rows that are read.
  const std::size_t raw = static_cast<std::size_t>(side * side + 2 * 128 * side) * sizeof(float);
  CHECK(after.raw_bytes == raw);
  CHECK(after.encoded_bytes < raw * 3 / 10);
  CHECK(gradients(loss, {w})[0].isfinite().all().item<bool>());
  CHECK(guard.statistics().decoded == 3);
}

TEST_CASE("an operator runs again where its input is saved anyway, and gradients keep their bits") {
  const at::Tensor w = parameter(square()), v = parameter(square());
  const auto gradients_of = [&](bool again, std::size_t made_again) {
    const guest::SavedTensors guard(guest::lossless, {.least_bytes = 1, .again = again});
    at::Tensor loss;
    {
      const at::Tensor y = at::gelu(w * 2);
      loss = at::silu(y.mm(v)).mm(v).sum();
    }
    guard.store()->settle();
    CHECK(guard.statistics().again == made_again);
    return gradients(loss, {w, v});
  };
  CHECK(same_bits(gradients_of(true, 2), gradients_of(false, 0)));
}

TEST_CASE("parameters, their transposes and their casts are left alone") {
  const at::Tensor w = parameter(square()), b = parameter(at::randn({side}));
  const at::Tensor leaf = parameter(square()), x = leaf * 1;
  const guest::SavedTensors guard(always(Keep::as<adacc::Int4Outlier>()), {.least_bytes = 1});
  const at::Tensor cast = w.to(at::kDouble).to(at::kFloat);
  const at::Tensor loss = (at::linear(x, w, b) * w.t() + x.matmul(cast.t())).sum();
  guard.store()->settle();
  CHECK(guard.statistics().parameters == 3);
  // The product's output, and nothing that is a parameter, or that we hold (x).
  CHECK(guard.statistics().encoded == 1);
  const at::Tensor low = (x.to(at::kBFloat16).matmul(w.to(at::kBFloat16).t())).sum();
  guard.store()->settle();
  CHECK(guard.statistics().parameters == 4);
  CHECK(guard.statistics().encoded == 2);  // x in 16 bits
}

TEST_CASE("what somebody else holds is not encoded") {
  const at::Tensor w = parameter(square());
  const at::Tensor x = w * 3;
  const guest::SavedTensors guard(always(Keep::as<adacc::Int8Outlier>()));
  const at::Tensor loss = (x * x).sum();
  guard.store()->settle();
  CHECK(guard.statistics().encoded == 0);
  const at::Tensor exact = gradients(loss, {w}, true)[0];
  CHECK(same_bits(exact, (x * 3 + x * 3).detach()));
}

TEST_CASE("every type comes back, in any layout") {
  using enum c10::ScalarType;
  for (const at::ScalarType type : {Float, Double, BFloat16, Half}) {
    CAPTURE(c10::toString(type));
    for (const std::int64_t elements : {4096, 70001, 300 * 301}) {
      CAPTURE(elements);
      at::manual_seed(3);
      const at::Tensor values = (at::randn({elements}) * 4).to(type);
      for (const Keep keep : {Keep::as<adacc::Int8Outlier>(), Keep::as<adacc::Bf16>()}) {
        guest::EncodedElements encoded;
        const auto n = static_cast<std::size_t>(elements);
        encoded.encode(keep, type, values.data_ptr(), n, guest::codec_columns(values, n));
        if (encoded.empty()) {  // 16 bits in 16 bits
          CHECK((type == BFloat16 || type == Half));
          continue;
        }
        CHECK(encoded.bytes() < values.nbytes());
        const at::Tensor again = at::full_like(values, -77);
        encoded.decode(again.data_ptr());
        CHECK(relative_error({again}, {values}) < 2e-4);
      }
    }
  }
}

TEST_CASE("half precision stays finite at its limit, and infinite where it was") {
  at::Tensor values = at::full({64, 128}, 65504.0, at::kFloat);
  values.select(0, 0).fill_(-65504.0);
  values[1][1] = 300.0;
  values[2][2] = INFINITY;
  values[3][3] = NAN;
  const at::Tensor half = values.to(at::kHalf);
  guest::EncodedElements encoded;
  encoded.encode(Keep::as<adacc::Int8Outlier>(), at::kHalf, half.data_ptr(), 64 * 128, 128);
  REQUIRE(!encoded.empty());
  const at::Tensor again = at::empty_like(half);
  encoded.decode(again.data_ptr());
  CHECK(same_bits(again.isfinite(), half.isfinite()));
}

TEST_CASE("integers, booleans and masks lose nothing, and take the bytes of their range") {
  at::manual_seed(4);
  const struct {
    at::Tensor values;
    std::size_t bits;
  } cases[] = {
      {at::rand({100, 333}) > 0.3, 1},
      {(at::rand({100, 333}) > 0.3).to(at::kFloat) / 0.7, 1},
      {at::full({40000}, -3.5, at::kDouble), 1},
      {at::randint(-5, 200, {40000}, at::kLong), 8},
      {at::randint(-300, 60000, {40000}, at::kInt), 16},
      {at::randint(1000000, 2000000000, {40000}, at::kLong), 32},
      {at::randint(0, 256, {40000}, at::kByte), 0},
      {at::randn({40000}), 0},
  };
  for (const auto& [values, bits] : cases) {
    CAPTURE(bits);
    const auto n = static_cast<std::size_t>(values.numel());
    guest::EncodedElements encoded;
    encoded.encode(Keep(), values.scalar_type(), values.data_ptr(), n, 128);
    CHECK(encoded.bytes() == adacc::div_up(n * bits, std::size_t{8}));
    if (encoded.empty()) continue;
    const at::Tensor again = at::zeros_like(values);
    encoded.decode(again.data_ptr());
    CHECK(same_bits(again, values));
  }
}

TEST_CASE("the operators that save are known") {
  const at::Tensor w = parameter(square());
  std::vector<guest::SavedTensor> seen;
  at::Tensor loss;
  {
    const guest::SavedTensors guard([&](const guest::SavedTensor& tensor) {
      seen.push_back(tensor);
      return Keep();
    });
    const at::Tensor x = w * 2;
    loss = at::gelu(x.matmul(w)).relu().sum();
  }
  REQUIRE(seen.size() == 3);
  REQUIRE(seen[0].savers.size() == 1);
  CHECK(seen[0].savers[0] == "aten::mm");
  CHECK(seen[0].producer.starts_with("MulBackward"));
  CHECK(seen[1].savers[0] == "aten::gelu");
  CHECK(seen[2].savers[0] == "aten::relu");
  CHECK(seen[0].bytes == side * side * sizeof(float));
}

TEST_CASE("operators tolerate what the table says, of what it names") {
  using enum guest::Tolerance;
  const auto of = [](const char* name, const char* role) {
    return guest::tolerance_of(std::string_view(name), std::string_view(role)).tolerance;
  };
  CHECK(of("aten::addmm", "mat1") == int4);
  CHECK(of("aten::addmm", "self") == nothing);
  CHECK(of("aten::addmm", "weight") == nothing);
  CHECK(of("aten::native_layer_norm", "input") == int4);
  CHECK(of("aten::native_layer_norm", "statistic") == nothing);
  CHECK(of("aten::gelu_", "self") == int4);
  CHECK(of("aten::bmm", "self") == int8);
  CHECK(of("aten::_scaled_dot_product_flash_attention_for_cpu", "query") == int8);
  CHECK(of("aten::_scaled_dot_product_flash_attention_for_cpu", "attn_mask") == nothing);
  CHECK(of("aten::_scaled_dot_product_flash_attention_for_cpu", "statistic") == nothing);
  CHECK(of("aten::_log_softmax", "result") == int8);
  CHECK(of("aten::pow", "whole_base") == int8);
  CHECK(of("aten::pow", "self") == nothing);
  CHECK(of("aten::log1p", "self") == nothing);
  CHECK(of("aten::div", "self") == nothing);
  CHECK(of("aten::amax", "result") == nothing);
  CHECK(of("aten::relu_", "result") == at_most_zero);
  CHECK(of("aten::leaky_relu", "self") == above_zero);
  CHECK(of("mine::addmm", "mat1") == nothing);
  CHECK(of("addmm", "mat1") == nothing);
  CHECK(of("", "") == nothing);
  guest::SavedTensor tensor;
  const auto all = [&] { return guest::tolerance_of(tensor); };
  CHECK(all().tolerance == nothing);
  tensor.savers = {"aten::relu"};
  CHECK(all().tolerance == nothing);  // as what is not said
  tensor.roles = {"result"};
  CHECK(all().tolerance == at_most_zero);
  tensor.savers.emplace_back("aten::leaky_relu");
  tensor.roles.emplace_back("self");
  CHECK(all().tolerance == nothing);  // of a NaN they decide differently
  tensor.savers.pop_back();
  tensor.roles.pop_back();
  tensor.savers.emplace_back("aten::addmm");
  tensor.roles.emplace_back("mat1");
  CHECK(all().tolerance == int8);
  CHECK(all().demands.gates);
  tensor.savers = {"aten::leaky_relu", "aten::addmm"};
  tensor.roles = {"self", "mat1"};
  CHECK(all().tolerance == nothing);  // it is on both sides of zero
  tensor.savers = {"aten::native_layer_norm", "aten::addmm"};
  tensor.roles = {"input", "mat1"};
  CHECK(all().tolerance == int4);
  CHECK(all().demands.rows == 8);
  tensor.savers.emplace_back("aten::sqrt");
  tensor.roles.emplace_back("result");
  CHECK(all().tolerance == nothing);
}

TEST_CASE("encodings that do not hold what is asked are given up for milder ones") {
  at::manual_seed(2);
  const at::Tensor usual = at::randn({512, 128});
  at::Tensor rows = usual.clone(), huge = usual.clone(), infinite = usual.clone();
  rows.slice(0, 0, 512, 64).mul_(1e-3);
  huge.masked_fill_(at::rand({512, 128}) < 0.01, 1e10);
  infinite[3][3] = -INFINITY;
  const auto form = [](const at::Tensor& values, Keep keep, guest::Demands what) {
    guest::EncodedElements encoded;
    while (!encoded.encode(keep, at::kFloat, values.data_ptr(), 512 * 128, 128, {true, what, 128}))
      keep = keep.milder();
    return std::string(encoded.form());
  };
  const Keep int4 = Keep::as<adacc::Int4Outlier>();
  CHECK(form(usual, int4, {.rows = 8}) == "int4_outlier");
  CHECK(form(usual, int4, {.step = 0.1F}) == "int8_outlier");
  CHECK(form(rows, int4, {}) == "int4_outlier");
  // 4 bits with scales along rows, in as many bytes.
  CHECK(form(rows, int4, {.rows = 8}) == adacc::Int4Outlier::for_unlike_rows::name);
  CHECK(form(rows, Keep::as<adacc::Int8Outlier>(), {.rows = 8}) ==
        adacc::Int8Outlier::for_unlike_rows::name);
  CHECK(form(huge, int4, {.step = 2}) == "none");
  CHECK(form(infinite, int4, {}) == "none");
  CHECK(form(infinite, Keep::as<adacc::Bf16>(), {}) == "none");
  CHECK(form(infinite, Keep::as<guest::ReluSigns>(), {}) ==
        "relu_signs");  // a bit decides about any value
}

TEST_CASE("errors of scales along rows and along columns are those of the decoded elements") {
  at::manual_seed(2);
  at::Tensor values =
      at::randn({200, 192});  // the last block is short, and so is a part of each row
  values.slice(0, 0, 200, 20).mul_(100);
  const auto judge = [&]<class Codec>(Codec) {
    adacc::Cpu cpu;
    const adacc::Shape shape(200, 192);
    const adacc::View<const float> x(values.data_ptr<float>(), shape);
    at::Tensor blob = at::empty(
        {static_cast<std::int64_t>(Codec::encoded_bytes(200, 192, adacc::Dtype::f32))}, at::kByte);
    at::Tensor back = at::empty_like(values);
    auto* const place = static_cast<std::byte*>(blob.data_ptr());
    const adacc::Shape size(static_cast<std::size_t>(blob.numel()));
    REQUIRE(!Codec::encode(cpu, x, adacc::Bytes(place, size)));
    REQUIRE(!Codec::decode(cpu, adacc::ConstBytes(place, size),
                           adacc::View<float>(back.data_ptr<float>(), shape)));
    for (const std::int64_t row : {192, 96}) {
      const guest::EncodingError error = guest::encoding_error<Codec>(
          cpu, x, {static_cast<std::size_t>(row), false}, adacc::ConstBytes(place, size));
      const at::Tensor square = values.reshape({-1, row}).square().sum(1);
      const at::Tensor noise = (back - values).reshape({-1, row}).square().sum(1);
      const double worst = (noise / square).max().item<double>();
      const double whole = noise.sum().item<double>() / square.sum().item<double>();
      CHECK(error.numbers);
      CHECK(error.row > worst / 2);
      CHECK(error.row < worst * 2);
      CHECK(error.whole > whole / 2);
      CHECK(error.whole < whole * 2);
    }
  };
  judge(adacc::Int4Outlier());
  judge(adacc::Int4Outlier::for_unlike_rows());
  judge(adacc::Int8Outlier::for_unlike_rows());
  judge(adacc::Int4OutlierWith<adacc::Int4Options{.group = adacc::whole_row}>());
}

TEST_CASE("gates stay open in every code") {
  at::manual_seed(2);
  // Of 300 columns, so that the last strip of 4-bit codes is short; some columns have no zero.
  const at::Tensor values =
      at::cat({at::randn({100, 290}).relu() * at::rand({100, 1}).pow(6), at::rand({100, 10}) + 3},
              1)
          .contiguous();
  for (const Keep keep : {Keep::as<adacc::Int4Outlier>(), Keep::as<adacc::Int8Outlier>(),
                          Keep::as<adacc::Int8Outlier::for_unlike_rows>()}) {
    const auto decoded = [&](bool gates) {
      guest::EncodedElements encoded;
      REQUIRE(encoded.encode(keep, at::kFloat, values.data_ptr(), 30000, 300,
                             {true, {.gates = gates}, 300}));
      at::Tensor back = at::empty_like(values);
      encoded.decode(back.data_ptr());
      return back;
    };
    CHECK(!same_bits(decoded(false) > 0, values > 0));
    CHECK(same_bits(decoded(true) > 0, values > 0));
    CHECK(relative_error({decoded(true)}, {values}) < 3e-3);  // many are next to zero
    CHECK(same_bits(decoded(true).slice(1, 290), decoded(false).slice(1, 290)));
  }
}

TEST_CASE("weights are told by their argument, or by what they are made of") {
  std::vector<std::string> roles;
  const at::Tensor x = parameter(square()), a = parameter(at::randn({side, 8})),
                   b = parameter(at::randn({8, side})), frozen = square();
  const guest::SavedTensors guard([&](const guest::SavedTensor& tensor) {
    for (const std::string& role : tensor.roles) roles.push_back(role);
    return Keep();
  });
  const auto roles_of = [&](const auto& forward) {
    roles.clear();
    const at::Tensor loss = forward();
    guard.store()->settle();
    return roles;
  };
  using Roles = std::vector<std::string>;
  const std::size_t before = guard.statistics().parameters;
  CHECK(roles_of([&] { return at::linear(x, frozen * 2); }) == Roles{});
  CHECK(roles_of([&] { return at::linear(x, frozen + a.matmul(b)); }) == Roles{});
  CHECK(guard.statistics().parameters >= before + 2);
  CHECK(roles_of([&] { return x.matmul(frozen + a.matmul(b)); }) == Roles{"weight"});
  CHECK(roles_of([&] { return x.matmul(frozen.to(at::kDouble).to(at::kFloat)); }) ==
        Roles{"weight"});
  CHECK(roles_of([&] { return x.matmul(x.tanh()); }) == Roles{"result", "mat2"});
  CHECK(roles_of([&] { return (x * 1).sin().matmul(x); }) == Roles{"self", "self"});
}

TEST_CASE("what changed in place after it was saved is an error") {
  for (const std::int64_t size : {2, 300}) {  // one that is kept as it is, one that has an entry
    const at::Tensor w = parameter(at::ones({size, size}));
    const guest::SavedTensors guard(guest::int8);
    const at::Tensor x = w * 2;
    const at::Tensor loss = (x * x).sum();
    x.add_(1);
    CHECK(mentions(words_of([&] { gradients(loss, {w}); }), "modified by an inplace operation"));
    const at::Tensor fine = (x * x).sum();
    CHECK(gradients(fine, {w})[0].sum().item<float>() == 12.0F * static_cast<float>(size * size));
  }
}

TEST_CASE("what a policy throws leaves through the operator, and nothing is lost by it") {
  guest::MemoryCount::install();
  const at::Tensor w = parameter(square());
  const std::size_t before = guest::MemoryCount::live_bytes();
  {
    int asked = 0;
    const guest::SavedTensors guard([&](const guest::SavedTensor&) -> Keep {
      if (asked++ == 0) throw std::runtime_error("not today");
      return Keep::as<adacc::Int8Outlier>();
    });
    // The input of sin is free, and the policy is asked, when cos saves its own.
    const auto forward = [&] {
      at::Tensor x = w * 2;
      x = x.sin();
      x = x.cos();
      return x.sum();
    };
    CHECK(mentions(words_of(forward), "not today"));
    const at::Tensor loss = forward();
    CHECK(gradients(loss, {w})[0].isfinite().all().item<bool>());
    CHECK(asked == 3);
  }
  {
    // At the end of a guard nothing can be thrown: backward says it.
    at::Tensor loss;
    {
      const guest::SavedTensors guard(
          [](const guest::SavedTensor&) -> Keep { throw std::runtime_error("never"); });
      loss = (w * 2).square().sum();
    }
    CHECK(mentions(words_of([&] { gradients(loss, {w}, true); }), "never"));
    CHECK(same_bits(gradients(loss, {w})[0], (w * 2 * 2 * 2).detach()));  // and is kept as it is
  }
  CHECK(guest::MemoryCount::live_bytes() == before);
}

TEST_CASE("a graph that is used twice, or freed twice") {
  const at::Tensor w = parameter(square());
  at::Tensor loss;
  {
    const guest::SavedTensors guard(guest::int8);
    loss = (w * 2).sin().square().sum();
  }
  const auto once = gradients(loss, {w}, /*retain=*/true);
  CHECK(same_bits(once, gradients(loss, {w})));
  CHECK(mentions(words_of([&] { gradients(loss, {w}); }), "second time"));
}

TEST_CASE("double backward, with the guard alive and without") {
  const at::Tensor w = parameter(square());
  const auto second = [&](const at::Tensor& loss) {
    const at::Tensor first = gradients(loss, {w}, false, /*create=*/true)[0];
    return gradients(first.square().sum(), {w});
  };
  const auto forward = [&] { return at::gelu((w * 0.5).sin().matmul(w)).tanh().sum(); };
  const auto plain = second(forward());
  at::Tensor loss;
  {
    const guest::SavedTensors guard(guest::lossless);
    loss = forward();
  }
  CHECK(same_bits(second(loss), plain));
  const guest::SavedTensors guard(guest::lossless, {.least_bytes = 1});
  CHECK(same_bits(second(forward()), plain));
  const guest::SavedTensors lossy(guest::int8);
  CHECK(relative_error(second(forward()), plain) < 1e-2);
}

TEST_CASE("what backward unpacks and saves again is the same entry") {
  const at::Tensor w = parameter(square());
  at::Tensor loss;
  const guest::SavedTensors guard(always(Keep::as<adacc::Int8Outlier>()));
  loss = (w * 2).sin().square().sum();
  guard.store()->settle();
  const std::size_t entries = guard.statistics().storages, shared = guard.statistics().shared;
  const at::Tensor first = gradients(loss, {w}, false, /*create=*/true)[0];
  CHECK(guard.statistics().shared >= shared + 2);
  CHECK(guard.statistics().storages <= entries + 3);  // products of gradients alone
  CHECK(gradients(first.sum(), {w})[0].isfinite().all().item<bool>());
}

TEST_CASE("guards nest, and end in any order") {
  const at::Tensor w = parameter(square());
  const guest::SavedTensors outer(guest::int8);
  {
    const guest::SavedTensors inner(guest::lossless);
    static_cast<void>((w * 2).square());
    CHECK(inner.statistics().packed == 1);
  }
  CHECK(outer.statistics().packed == 0);
  static_cast<void>((w * 2).square());
  CHECK(outer.statistics().packed == 1);
  auto first = std::make_unique<guest::SavedTensors>(guest::lossless);
  const auto next = std::make_unique<guest::SavedTensors>(guest::lossless);
  first.reset();
  static_cast<void>((w * 2).square());
  CHECK(next->statistics().packed == 1);
}

TEST_CASE("guards are of their thread; one store serves several") {
  const at::Tensor w = parameter(square());
  const auto store = std::make_shared<guest::SavedStore>(guest::int8);
  const auto run = [&] {
    at::Tensor loss;
    {
      const guest::SavedTensors guard(store);
      loss = (w * 2).sin().square().sum();
    }
    return gradients(loss, {w})[0];
  };
  const at::Tensor alone = run();
  std::vector<at::Tensor> each(4);
  std::vector<std::thread> threads;
  for (at::Tensor& mine : each)
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) mine = run();
    });
  for (std::thread& thread : threads) thread.join();
  for (const at::Tensor& mine : each) CHECK(same_bits(mine, alone));
  // Packed on one thread, unpacked on another.
  at::Tensor loss, elsewhere;
  {
    const guest::SavedTensors guard(store);
    loss = (w * 2).sin().square().sum();
  }
  std::thread([&] { elsewhere = gradients(loss, {w})[0]; }).join();
  CHECK(same_bits(elsewhere, alone));
  CHECK(store->statistics().packed == store->statistics().unpacked);
}

#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR >= 201
TEST_CASE("the last reader's decoded tensor takes the place of its form") {
  guest::MemoryCount::install();
  const at::Tensor w = parameter(square());
  const auto peak_of = [&](bool retain, const auto& forward, std::vector<at::Tensor>& mine) {
    at::Tensor loss;
    {
      const guest::SavedTensors guard(always(Keep::as<adacc::Bf16>()));
      loss = forward();
    }
    const std::size_t before = guest::MemoryCount::live_bytes();
    guest::MemoryCount::reset_peak();
    mine = gradients(loss, {w}, retain);
    return guest::MemoryCount::peak_bytes() - before;
  };
  const std::size_t form = w.nbytes() / 2;
  const auto once = [&] { return (w * 2).sin().sum(); };
  // One operator saves both factors, and another the first one again.
  const auto twice = [&] {
    const at::Tensor x = w * 2;
    return (x * x + x.sin()).sum();
  };
  std::vector<at::Tensor> kept, freed, again;
  CHECK(peak_of(true, once, kept) >= peak_of(false, once, freed) + form);
  CHECK(same_bits(kept, freed));
  CHECK(peak_of(true, twice, kept) > peak_of(false, twice, freed));
  CHECK(same_bits(kept, freed));
  // A part of a storage, which is decoded alone.
  const auto part = [&] {
    const at::Tensor x = (w * 2).slice(0, 100, 300);
    return x.sin().sum() + x.cos().sum();
  };
  peak_of(true, part, kept), peak_of(false, part, freed);
  CHECK(same_bits(kept, freed));
}

#endif

TEST_CASE("memory is that of the encoded tensors, and returns") {
  guest::MemoryCount::install();
  const at::Tensor w = parameter(square());
  const std::size_t before = guest::MemoryCount::live_bytes();
  const std::size_t one = w.nbytes();
  const auto forward = [&] {
    at::Tensor x = w * 2;
    for (int i = 0; i < 8; ++i) x = x.sin();
    return x.sum();
  };
  const auto held = [&](const guest::ChoosingFunction& policy) {
    at::Tensor loss;
    {
      const guest::SavedTensors guard(policy);
      loss = forward();
    }
    const std::size_t bytes = guest::MemoryCount::live_bytes() - before;
    loss.backward();
    return bytes;
  };
  w.mutable_grad() = at::zeros_like(w);
  const std::size_t grad = w.nbytes();
  const std::size_t plain = held(always(Keep::as_is())),
                    int8 = held(always(Keep::as<adacc::Int8Outlier>()));
  CHECK(plain - grad >= 8 * one);
  CHECK(plain - grad < 8 * one + 4096);
  CHECK(int8 - grad < 8 * one * 30 / 100);
  CHECK(guest::MemoryCount::live_bytes() - before == grad);
  w.mutable_grad().reset();
  CHECK(guest::MemoryCount::live_bytes() == before);
}

}  // namespace torch_saved_tensors_test
