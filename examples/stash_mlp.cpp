// SPDX-License-Identifier: MIT
/// A plain C-style trainer, before and after: the same kernels, the same loop, the same bits, and activations kept as a
/// plan says. No layer, no combinator: only the lines with `tape` are new. Gradients stay in the trainer's own memory.
#include <adacc/stash/tape_start.hpp>

#include <cmath>
#include <cstdio>
#include <cstring>

// ---- The trainer as it was: L layers z = h W, h = softsign(z), on B rows of C channels. ----

static constexpr int L = 8, B = 256, C = 64, N = B * C, W = C * C, steps = 20;
static float w[L * W], dw[L * W], input[N], target[N], dy[N], dz[N];

static void linear(const float* x, const float* weight, float* y) {
  memset(y, 0, sizeof(float) * N);
  for (int b = 0; b < B; ++b)
    for (int i = 0; i < C; ++i)
      for (int o = 0; o < C; ++o) y[b * C + o] += x[b * C + i] * weight[i * C + o];
}

static void linear_backward(const float* x, const float* weight, const float* dout, float* dx,
                            float* dweight) {
  for (int b = 0; b < B; ++b)
    for (int i = 0; i < C; ++i) {
      dx[b * C + i] = 0;
      for (int o = 0; o < C; ++o) {
        dx[b * C + i] += dout[b * C + o] * weight[i * C + o];
        dweight[i * C + o] += x[b * C + i] * dout[b * C + o];
      }
    }
}

static void softsign(const float* z, float* h) {
  for (int i = 0; i < N; ++i) h[i] = z[i] / (1 + fabsf(z[i]));
}

static void softsign_backward(const float* z, const float* dh, float* dx) {
  for (int i = 0; i < N; ++i) dx[i] = dh[i] / ((1 + fabsf(z[i])) * (1 + fabsf(z[i])));
}

static double loss(const float* h, float* dh) {
  double sum = 0;
  for (int i = 0; i < N; ++i) {
    dh[i] = (h[i] - target[i]) / static_cast<float>(B);
    sum += 0.5 * static_cast<double>((h[i] - target[i]) * dh[i]);
  }
  return sum;
}

static void fill(float* x, int count, unsigned state) {
  for (int i = 0; i < count; ++i)
    x[i] = (static_cast<float>((state = state * 1664525U + 1013904223U) >> 8) / (1 << 23) - 1) / 4;
}

static void update() {
  for (int i = 0; i < L * W; ++i) w[i] -= 0.05F * dw[i];
  memset(dw, 0, sizeof dw);
}

static double step_before(float z[L][N], float h[L][N]) {
  for (int l = 0; l < L; ++l) {
    linear(l ? h[l - 1] : input, w + l * W, z[l]);
    softsign(z[l], h[l]);
  }
  const double mean = loss(h[L - 1], dy);
  for (int l = L - 1; l >= 0; --l) {
    softsign_backward(z[l], dy, dz);
    linear_backward(l ? h[l - 1] : input, w + l * W, dz, dy, dw + l * W);
  }
  update();
  return mean;
}

// ---- With a tape, z[L][N] and h[L][N] are gone. ----

struct Ids {
  int z[L], h[L];
};

/// Kernels in the order of forward: what each reads and writes, and what its backward reads.
static Ids describe(adacc::Tape<>& tape) {
  const adacc::Shape shape(B, C);
  Ids id;
  for (int l = 0; l < L; ++l) {
    const auto x = l ? adacc::StashList{id.h[l - 1]} : adacc::StashList{};
    id.z[l] = tape.kernel({.name = "linear", .reads = x, .writes = {{"z", shape}}, .saves = x},
                          [l](const adacc::TapeCall<float>& k) {
                            linear(l ? k.in(0).data() : input, w + l * W, k.out(0).data());
                          });
    id.h[l] = tape.kernel(
        {.name = "softsign", .reads = {id.z[l]}, .writes = {{"h", shape}}, .saves = {id.z[l]}},
        [](const adacc::TapeCall<float>& k) { softsign(k.in(0).data(), k.out(0).data()); });
  }
  return id;
}

static adacc::Result<double> step_after(adacc::Tape<>& tape, adacc::Cpu& cpu, const Ids& id) {
  if (adacc::Error why = tape.begin(cpu)) return why;
  if (adacc::Error why = tape.run()) return why;
  const double mean = loss(tape.value(id.h[L - 1]).data(), dy);
  for (int l = L - 1; l >= 0; --l) {
    if (adacc::Error why = tape.backward_of(id.h[l])) return why;
    softsign_backward(tape.value(id.z[l]).data(), dy, dz);
    if (adacc::Error why = tape.backward_of(id.z[l])) return why;
    linear_backward(l ? tape.value(id.h[l - 1]).data() : input, w + l * W, dz, dy, dw + l * W);
  }
  if (adacc::Error why = tape.end()) return why;
  return mean;
}

int main() {
  static float rows[2 * L][N];
  double expected[steps];
  fill(input, N, 1), fill(target, N, 2), fill(w, L * W, 3);
  for (double& mean : expected) mean = step_before(rows, rows + L);

  adacc::Tape<> tape;
  adacc::Cpu cpu;
  const Ids id = describe(tape);
  const auto first_step = [&]() -> adacc::Result<adacc::Array<adacc::View<const float>>> {
    static float gradient[L * W];
    fill(w, L * W, 3), memset(dw, 0, sizeof dw);
    const auto mean = step_after(tape, cpu, id);
    if (!mean) return mean.error;
    memcpy(gradient, dw, sizeof dw);
    adacc::Array<adacc::View<const float>> gradients;
    gradients.push_back({gradient, adacc::Shape(L * W)});
    return gradients;
  };
  if (const auto why = tape.start(cpu, {.percent = 100}, first_step))
    return printf("%s\n", why.text()), 1;
  for (const std::size_t percent : {100U, 70U, 50U, 35U}) {
    if (const auto why = tape.set_budget(sizeof rows / 100 * percent))
      return printf("%s\n", why.text()), 1;
    fill(w, L * W, 3), memset(dw, 0, sizeof dw);
    int same = 0;
    for (const double before : expected) {
      const auto mean = step_after(tape, cpu, id);
      if (!mean) return printf("%s\n", mean.error.text()), 1;
      update();
      same += *mean == before;
    }
    printf("%8zu bytes of %zu: %d of %d losses have the same bits\n", tape.arena_bytes(),
           sizeof rows, same, steps);
    if (same != steps) return 1;
  }
}
