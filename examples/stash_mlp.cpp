// SPDX-License-Identifier: MIT
/// A plain C-style trainer, before and after: the same kernels, the same loop, the same bits, and
/// activations kept as a plan says. No layer, no combinator: only the lines with `stash` are new.
#include <adacc/core/steady_clock.hpp>
#include <adacc/plan/exhaustive/planner.hpp>
#include <adacc/stash/measure.hpp>
#include <adacc/stash/stash.hpp>

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

// ---- With a stash, z[L][N] and h[L][N] become one row of each, and an arena. ----

static adacc::Result<double> step_after(adacc::Stash<>& stash, const int* z_id, const int* h_id,
                                        float* z, float* h) {
  adacc::Cpu cpu;
  if (adacc::Error why = stash.begin(cpu)) return why;
  for (int l = 0; l < L; ++l) {
    linear(l ? h : input, w + l * W, z);
    if (adacc::Error why = stash.put(z_id[l], {z, adacc::Shape(B, C)})) return why;
    softsign(z, h);
    if (adacc::Error why = stash.put(h_id[l], {h, adacc::Shape(B, C)})) return why;
  }
  const double mean = loss(h, dy);
  for (int l = L - 1; l >= 0; --l) {
    if (adacc::Error why = stash.enter(l)) return why;
    const auto saved_z = stash.get(z_id[l]);
    if (!saved_z) return saved_z.error;
    softsign_backward(saved_z->data(), dy, dz);
    const auto x = l ? stash.get(h_id[l - 1]) : adacc::View<const float>(input, adacc::Shape(B, C));
    if (!x) return x.error;
    linear_backward(x->data(), w + l * W, dz, dy, dw + l * W);
  }
  update();
  return mean;
}

int main() {
  alignas(64) static float rows[2 * L][N];
  alignas(64) static std::byte arena[sizeof rows];
  double expected[steps];
  fill(input, N, 1), fill(target, N, 2), fill(w, L * W, 3);
  const double start = adacc::steady_seconds();
  for (double& mean : expected) mean = step_before(rows, rows + L);
  const double step_seconds = (adacc::steady_seconds() - start) / steps;

  // What each kernel reads and writes, what its backward reads, and how it is called again: all that a
  // plan has to know.
  struct Product {
    const float *x, *weight;
    void operator()(const adacc::View<const float>* h, adacc::View<float> z) const {
      linear(x ? x : h[0].data(), weight, z.data());
    }
  } product[L];
  const auto activate = [](const adacc::View<const float>* z, adacc::View<float> h) {
    softsign(z[0].data(), h.data());
  };
  adacc::StashModel<> model;
  const adacc::Shape shape(B, C);
  int z[L], h[L];
  for (int l = 0; l < L; ++l) {
    const auto x = l ? adacc::StashList{h[l - 1]} : adacc::StashList{};
    product[l] = {l ? nullptr : input, w + l * W};
    z[l] = model.kernel({.reads = x, .writes = {{"z", shape}}, .backward_reads = x, .stage = l},
                        product[l]);
    h[l] = model.kernel(
        {.reads = {z[l]}, .writes = {{"h", shape}}, .backward_reads = {z[l]}, .stage = l},
        activate);
  }
  model.kernel({.reads = {h[L - 1]}, .stage = L});  // the loss, which makes its gradient in forward
  const adacc::Graph graph = *model.graph();
  adacc::Cpu cpu;
  const auto profile = measure_stash(model, cpu, {arena, adacc::Shape(sizeof arena)},
                                     {.clock = adacc::steady_seconds, .step_seconds = step_seconds});
  if (!profile) return printf("%s\n", profile.error.text()), 1;
  for (const std::size_t percent : {100U, 70U, 50U, 35U}) {
    const auto plan = adacc::plan_exhaustively(graph, *profile,
                                               {.budget_bytes = sizeof rows / 100 * percent,
                                                .tolerance = 0,
                                                .clock = adacc::steady_seconds});
    if (!plan) return printf("%s\n", plan.error.text()), 1;
    auto stash = adacc::Stash<>::make(model, plan->plan);
    if (!stash) return printf("%s\n", stash.error.text()), 1;
    if (const auto why = stash->bind({arena, adacc::Shape(sizeof arena)}))
      return printf("%s\n", why.text()), 1;
    fill(w, L * W, 3);
    int same = 0;
    for (const double before : expected) {
      const auto mean = step_after(*stash, z, h, rows[0], rows[1]);
      if (!mean) return printf("%s\n", mean.error.text()), 1;
      same += *mean == before;
    }
    printf("%8zu bytes of %zu: %d of %d losses have the same bits\n", stash->arena_bytes(),
           sizeof rows, same, steps);
    if (same != steps) return 1;
  }
}
