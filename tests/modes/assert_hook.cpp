/// What a mistake of the calling code does in a debug build whose ADACC_ASSERT is the program's
/// own: it is called with the words of the error, and the error is returned all the same.
#include <cstdio>
#include <cstring>

namespace {

int calls = 0;
char words[400] = "";

void on_mistake(bool holds, const char* text) {
  if (holds) return;
  ++calls;
  std::strncpy(words, text, sizeof words - 1);
}

}  // namespace

#define ADACC_ASSERT(holds, text) on_mistake(holds, text)

#include <adacc/adacc.hpp>

using namespace adacc;

namespace {

struct Copy {
  static constexpr auto backward_reads = reads::none;
  void forward(Cpu&, View<const float> x, View<float> y) const {
    std::memcpy(y.data(), x.data(), x.size() * sizeof(float));
  }
  void backward(Cpu& cpu, View<const float> dy, View<float> dx) const { forward(cpu, dy, dx); }
};
struct Zero {
  double forward(Cpu&, Params<const float>, View<const float>, View<const float>, Bytes) const {
    return 0;
  }
  double forward_backward(Cpu&, Params<const float>, View<const float>, View<const float>,
                          View<float>, Params<float>, Bytes) const {
    return 0;
  }
};

// Mistakes in constant expressions are errors alone: the hook cannot run there.
constexpr Network<Sequential<Layer<Copy>>, Zero> net{};
static_assert(!make_program(*make_graph(net, Shape(2, 4)), Plan{}));

alignas(64) std::byte memory[4096];

}  // namespace

int main() {
  const auto program = make_program(net, Shape(2, 4));
  auto step = Step<>::make(net, *program);
  if (!program || !step || calls != 0) return 1;  // all is well so far
  const Error why = step->bind(Bytes(memory, Shape(1)), {});
  std::printf("%d: %s\n", calls, words);
  return calls == 1 && why && std::strcmp(words, why.text()) == 0 &&
                 std::strstr(words, "needs an arena") != nullptr
             ? 0
             : 2;
}
