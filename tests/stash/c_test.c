/* SPDX-License-Identifier: MIT */
/*
 * The C API, used as a trainer in C uses it and in every wrong way: each mistake has a code and a text,
 * changes nothing and ends nothing.
 */
#include <adacc/adacc.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "c_check.h"

enum { L = 4, N = 256, STAGE_FLOATS = 512 };

/* h(0) is given; z(l) = 2 h(l) + l; h(l + 1) = h(l) + z(l)^2 / 64. Backward of layer l reads both. */
static float start[N], gradient[N];
static int h_id[L], z_id[L], mask_id, sum_id, bits_id;
static float offset[L];
static unsigned char mask[N];
static adacc_stash* stash;

static void make_z(void* user, const void* const* x, void* const* y, void* workspace) {
  const float *h = x[0], *add = user;
  float *z = y[0], *twice = workspace;
  for (int i = 0; i < N; ++i) twice[i] = 2 * h[i];
  for (int i = 0; i < N; ++i) z[i] = twice[i] + *add;
}
static void make_h(void* user, const void* const* x, void* const* y, void* workspace) {
  const float *h = x[0], *z = x[1];
  float* next = y[0];
  (void)user, (void)workspace;
  for (int i = 0; i < N; ++i) next[i] = h[i] + z[i] * z[i] / 64;
}
static void nothing(void* user, const void* const* x, void* const* y, void* workspace) {
  (void)user, (void)x, (void)y, (void)workspace;
}
static void not_z(void* user, const void* const* x, void* const* y, void* workspace) {
  make_z(user, x, y, workspace);
  ((float*)y[0])[7] += 1;
}

/* Seconds that the kernels of the test say they took. */
static double hours, z_seconds, h_seconds;
static double told(void* user) { return *(double*)user; }
static void slow_h(void* user, const void* const* x, void* const* y, void* workspace) {
  make_h(user, x, y, workspace);
  hours += h_seconds;
}
static void slow_z(void* user, const void* const* x, void* const* y, void* workspace) {
  make_z(user, x, y, workspace);
  hours += z_seconds;
}

/* The gradient, which all stages carry, and bytes that stages 2 and 1 carry. */
static void carries(adacc_stash* made) {
  sum_id = adacc_carry(made, "sum", sizeof gradient, L - 1, 0);
  bits_id = adacc_carry(made, "bits", N / 8 + 1, 2, 1);
  CHECK(sum_id == 0 && bits_id == 1);
}

static adacc_stash* described(adacc_kernel z_kernel, int held) {
  adacc_stash* made = adacc_create();
  CHECK(made != NULL);
  for (int l = 0; l < L; ++l) {
    offset[l] = (float)l;
    h_id[l] = adacc_add(made, "h", 16, N / 16, &l, 1);
    if (l > 0) {
      const int sources[] = {h_id[l - 1], z_id[l - 1]};
      CHECK(adacc_recompute(made, &h_id[l], 1, sources, 2, slow_h, NULL, 0) == ADACC_OK);
    }
    z_id[l] = adacc_add(made, "z", 16, N / 16, &l, 1);
    CHECK(adacc_recompute(made, &z_id[l], 1, &h_id[l], 1, z_kernel, &offset[l],
                          sizeof(float) * N) == ADACC_OK);
    CHECK(adacc_allow(made, z_id[l], ADACC_INT8, -1) == ADACC_OK);
    if (held) CHECK(adacc_hold(made, h_id[l]) == ADACC_OK && adacc_hold(made, z_id[l]) == ADACC_OK);
    CHECK(adacc_stage_bytes(made, l, sizeof(float) * STAGE_FLOATS) == ADACC_OK);
  }
  const int first = 0;
  mask_id = adacc_add_bytes(made, "mask", N, &first, 1);
  CHECK(mask_id == 2 * L);
  carries(made);
  return made;
}

/* The same, kernel by kernel. */
static adacc_stash* described_by_kernels(adacc_kernel z_kernel, int held) {
  adacc_stash* made = adacc_create();
  for (int l = 0; l < L; ++l) {
    const adacc_output h = {.name = "h", .rows = 16, .columns = N / 16};
    const int below[] = {l > 0 ? h_id[l - 1] : 0, l > 0 ? z_id[l - 1] : 0};
    const adacc_kernel_call call = {.kernel = l > 0 ? slow_h : NULL,
                                    .reads = {below, l > 0 ? 2 : 0},
                                    .writes = {&h, 1},
                                    .hold = held};
    h_id[l] = adacc_add_kernel(made, l > 0 ? l - 1 : 0, &call);
    z_id[l] = adacc_add_kernel(
        made, l,
        &(adacc_kernel_call){
            .kernel = z_kernel,
            .user = &offset[l],
            .workspace_bytes = sizeof(float) * N,
            .reads = ADACC_IDS(h_id[l]),
            .writes =
                ADACC_OUTPUTS({.name = "z", .rows = 16, .columns = N / 16, .codecs = {ADACC_INT8}}),
            .backward_reads = ADACC_IDS(h_id[l], ADACC_OUTPUT(0)),
            .backward_bytes = sizeof(float) * STAGE_FLOATS,
            .hold = held});
    CHECK(h_id[l] == 2 * l && z_id[l] == 2 * l + 1);
  }
  mask_id = adacc_add_kernel(
      made, L - 1, &(adacc_kernel_call){.writes = ADACC_OUTPUTS({.name = "mask", .bytes = N})});
  CHECK(adacc_add_kernel(made, 0, &(adacc_kernel_call){.backward_reads = ADACC_IDS(mask_id)}) ==
        ADACC_OK);
  CHECK(mask_id == 2 * L);
  carries(made);
  return made;
}

/* Forward and backward; 0 if every call succeeded. */
static int keep_too_long, write_bits_late;
static int step(void* user) {
  static float scratch_h[N], scratch_z[N], workspace[N];
  float *h = NULL, *z = NULL;
  (void)user;
  if (adacc_begin(stash) < 0) return 1;
  for (int l = 0; l < L; ++l) {
    float* next = adacc_place(stash, h_id[l], scratch_h);
    if (next == NULL) return 2;
    const void* const below[] = {h, z};
    void* const to[] = {next};
    if (l == 0) memcpy(next, start, sizeof start);
    else make_h(NULL, below, to, NULL);
    if (adacc_put(stash, h_id[l], next) < 0) return 3;
    h = next;
    z = adacc_place(stash, z_id[l], scratch_z);
    if (z == NULL) return 4;
    const void* const from[] = {h};
    void* const twice[] = {z};
    make_z(&offset[l], from, twice, workspace);
    if (adacc_put(stash, z_id[l], z) < 0) return 5;
  }
  if (adacc_put(stash, mask_id, mask) < 0) return 6;
  const float* kept = NULL;
  float* sum = NULL;
  unsigned char* bits = NULL;
  for (int l = L - 1; l >= 0; --l) {
    if (adacc_enter(stash, l) < 0) return 7;
    const float *hs = adacc_get(stash, h_id[l]), *zs = adacc_get(stash, z_id[l]);
    float* scratch = adacc_backward_workspace(stash);
    if (hs == NULL || zs == NULL || scratch == NULL) return 8;
    for (int i = 0; i < STAGE_FLOATS; ++i) scratch[i] = (float)i;
    if (l == L - 1) {
      sum = adacc_carried(stash, sum_id); /* one place for all stages */
      if (sum == NULL) return 11;
      memset(sum, 0, sizeof gradient);
    }
    if (adacc_carried(stash, sum_id) != sum) return 12;
    for (int i = 0; i < N; ++i) sum[i] += hs[i] * zs[i] + scratch[i] - (float)i;
    if (keep_too_long && kept != NULL) sum[0] += kept[0];
    kept = zs;
    if (l == 2) {
      bits = adacc_carried(stash, bits_id);
      if (bits == NULL) return 13;
      memset(bits, 0x3C, N / 8 + 1);
    }
    if (l == 1)
      for (int i = 0; i <= N / 8; ++i)
        if (bits[i] != 0x3C) return 14;
    if (l == 0 && write_bits_late) bits[0] = 1;
    if (l == 0) memcpy(gradient, sum, sizeof gradient);
    if (l == 0) {
      const unsigned char* masked = adacc_get(stash, mask_id);
      if (masked == NULL || memcmp(masked, mask, sizeof mask) != 0) return 9;
    }
    if (adacc_leave(stash, l) < 0) return 10;
  }
  return 0;
}

static void registration(void) {
  const int stage = 0, negative = -1, unknown = 7;
  MISUSE(adacc_add(NULL, "x", 1, 1, &stage, 1), "null");
  MISUSE(adacc_add_bytes(NULL, "x", 1, &stage, 1), "null");
  MISUSE(adacc_recompute(NULL, NULL, 0, NULL, 0, make_z, NULL, 0), "null");
  MISUSE(adacc_allow(NULL, 0, ADACC_INT8, -1), "null");
  MISUSE(adacc_fix(NULL, 0, 0), "null");
  MISUSE(adacc_hold(NULL, 0), "null");
  MISUSE(adacc_made_from(NULL, 0, NULL, 0), "null");
  NOTHING(adacc_workspace(NULL, 0), "null");
  MISUSE(adacc_stage_bytes(NULL, 0, 1), "null");
  MISUSE(adacc_carry(NULL, "d", 1, 0, 0), "null");
  NOTHING(adacc_carried(NULL, 0), "null");
  MISUSE(adacc_measure(NULL, 0), "null");
  MISUSE(adacc_probe(NULL, step, NULL, NULL, 0), "null");
  MISUSE(adacc_check(NULL, step, NULL, NULL, 0), "null");
  MISUSE(adacc_plan(NULL, 1, 0, NULL), "null");
  MISUSE(adacc_set_deadline(NULL, 1), "null");
  MISUSE(adacc_set_most_runs(NULL, 1), "null");
  MISUSE(adacc_bind(NULL, &failures, 1), "null");
  MISUSE(adacc_begin(NULL), "null");
  MISUSE(adacc_put(NULL, 0, &failures), "null");
  MISUSE(adacc_enter(NULL, 0), "null");
  MISUSE(adacc_leave(NULL, 0), "null");
  NOTHING(adacc_get(NULL, 0), "null");
  NOTHING(adacc_place(NULL, 0, NULL), "null");
  NOTHING(adacc_backward_workspace(NULL), "null");
  NOTHING(adacc_policy(NULL, 0), "null");
  CHECK(adacc_arena_bytes(NULL) == 0 && adacc_smallest_budget(NULL, 0) == 0);
  adacc_destroy(NULL);

  adacc_stash* made = adacc_create();
  MISUSE(adacc_measure(made, 0), "no activations");
  MISUSE(adacc_allow(made, 0, ADACC_INT8, -1), "none is registered");
  MISUSE(adacc_add(made, NULL, 1, 1, &stage, 1), "name is null");
  MISUSE(adacc_add(made, "x", 1, 1, NULL, 1), "stages are null");
  MISUSE(adacc_add(made, "x", 1, 1, &stage, (size_t)-1), "too many");
  MISUSE(adacc_add(made, "x", 0, 1, &stage, 1), "no elements");
  MISUSE(adacc_add(made, "x", (size_t)-1, (size_t)-1, &stage, 1), "too many to address");
  MISUSE(adacc_add(made, "x", 1, 1, &negative, 1), "negative");
  MISUSE(adacc_add_bytes(made, "x", (size_t)-1, &stage, 1), "too many to address");
  const int a = adacc_add(made, "a", 8, 32, &stage, 1), b = adacc_add(made, "b", 8, 32, &stage, 1);
  CHECK(a == 0 && b == 1); /* what was refused has left nothing behind */
  MISUSE(adacc_recompute(made, &b, 1, &a, 1, NULL, NULL, 0), "kernel is null");
  MISUSE(adacc_recompute(made, NULL, 1, &a, 1, make_z, NULL, 0), "ids are null");
  MISUSE(adacc_recompute(made, &b, 1, NULL, 1, make_z, NULL, 0), "sources are null");
  MISUSE(adacc_recompute(made, &b, 0, &a, 1, make_z, NULL, 0), "none is named");
  MISUSE(adacc_recompute(made, &unknown, 1, &a, 1, make_z, NULL, 0), "no activation 7");
  MISUSE(adacc_recompute(made, &a, 1, &b, 1, make_z, NULL, 0), "registered before it");
  CHECK(adacc_recompute(made, &b, 1, &a, 1, make_h, NULL, 0) == ADACC_OK);
  MISUSE(adacc_recompute(made, &b, 1, &a, 1, make_h, NULL, 0), "twice");
  MISUSE(adacc_made_from(made, b, &a, 1), "twice");
  MISUSE(adacc_made_from(made, a, &unknown, 1), "registered before it");
  MISUSE(adacc_hold(made, 7), "no activation 7; there are 0 to 1");
  MISUSE(adacc_allow(made, -1, ADACC_INT8, -1), "no activation -1");
  MISUSE(adacc_allow(made, a, 9, -1), "no codec 9");
  MISUSE(adacc_allow(made, a, ADACC_INT8, 0), "without a gradient error");
  MISUSE(adacc_fix(made, a, 9), "no codec 9");
  MISUSE(adacc_stage_bytes(made, -1, 1), "negative");
  MISUSE(adacc_stage_bytes(made, 0, (size_t)-1), "addressed");
  MISUSE(adacc_carry(made, NULL, 1, 1, 0), "adacc_carry: the name is null");
  MISUSE(adacc_carry(made, "d", 0, 1, 0), "stages carry as d has no elements");
  MISUSE(adacc_carry(made, "d", (size_t)-1, 1, 0), "too many to address");
  MISUSE(adacc_carry(made, "d", 4, 0, 1), "its first stage is the higher one");
  MISUSE(adacc_carry(made, "d", 4, 0, -1), "negative");
  NOTHING(adacc_carried(made, 0), "no plan yet");
  MISUSE(adacc_plan(made, 1000, 0, NULL), "adacc_measure");
  MISUSE(adacc_begin(made), "no plan yet");
  MISUSE(adacc_bind(made, &failures, 8), "no plan yet");
  MISUSE(adacc_measure(made, -1), "negative");
  CHECK(adacc_smallest_budget(made, 0) == 0 && strstr(adacc_error(), "adacc_measure") != NULL);
  adacc_destroy(made);

  /* What a plan cannot do is said when it is asked for. */
  made = adacc_create();
  CHECK(adacc_add(made, "a", 8, 32, &stage, 1) == 0 && adacc_fix(made, 0, -1) == ADACC_OK);
  CHECK(adacc_measure(made, 0) < 0 || adacc_plan(made, 1 << 20, 0, NULL) < 0);
  CHECK(strstr(adacc_error(), "nothing says how") != NULL);
  adacc_destroy(made);
}

/* A description gives the plans and bits that single calls give; what makes no sense is refused. */
static void kernels(void) {
  float expected[N];
  size_t bytes[2] = {0, 0};
  int policies[2] = {0, 0};
  char* memory = malloc(1 << 20);
  for (int held = 0; held < 2; ++held)
    for (int percent = 100; percent >= 40; percent -= 20)
      for (int by_kernels = 0; by_kernels < 2; ++by_kernels) {
        hours = 0, z_seconds = 1, h_seconds = 2;
        stash = by_kernels ? described_by_kernels(slow_z, held) : described(slow_z, held);
        adacc_outcome outcome;
        CHECK(adacc_evolve(stash, told, &hours) == ADACC_OK && adacc_measure(stash, 0) == ADACC_OK);
        const size_t least = adacc_smallest_budget(stash, 0);
        CHECK(least > 0 && adacc_plan(stash, 1 << 20, 0, &outcome) == ADACC_OK);
        const size_t budget = least + (outcome.retain_bytes - least) / 100 * (size_t)percent;
        CHECK(adacc_plan(stash, budget, 0, &outcome) == ADACC_OK);
        CHECK(adacc_bind(stash, memory, 1 << 20) == ADACC_OK && step(NULL) == 0);
        policies[by_kernels] = 0;
        for (int id = 0; id < 2 * L + 1; ++id)
          policies[by_kernels] =
              3 * policies[by_kernels] + (strcmp(adacc_policy(stash, id), "retain") == 0      ? 0
                                          : strcmp(adacc_policy(stash, id), "recompute") == 0 ? 1
                                                                                              : 2);
        bytes[by_kernels] = adacc_arena_bytes(stash);
        if (!by_kernels) memcpy(expected, gradient, sizeof expected);
        else CHECK(bytes[0] == bytes[1] && policies[0] == policies[1]);
        CHECK(memcmp(expected, gradient, sizeof expected) == 0);
        adacc_destroy(stash);
      }
  free(memory);

  stash = described_by_kernels(make_z, 1);
  const adacc_gradient whole = {gradient, N};
  CHECK(adacc_check(stash, step, NULL, &whole, 1) == ADACC_OK);
  CHECK(adacc_measure(stash, 0) == ADACC_OK);
  CHECK(adacc_probe(stash, step, NULL, &whole, 1) == ADACC_OK);
  MISUSE(adacc_add_kernel(stash, 0, &(adacc_kernel_call){.hold = 1}), "fixed");
  adacc_destroy(stash);

  adacc_stash* made = adacc_create();
  const adacc_output x = {.name = "x", .rows = 8, .columns = 32};
  const adacc_kernel_call good = {.writes = {&x, 1}};
  MISUSE(adacc_add_kernel(NULL, 0, &good), "stash is null");
  MISUSE(adacc_add_kernel(made, 0, NULL), "call is null");
  MISUSE(adacc_add_kernel(made, 0, &(adacc_kernel_call){.reads = {NULL, 1}}),
         "activations that it reads are null");
  MISUSE(adacc_add_kernel(made, 0, &(adacc_kernel_call){.writes = {NULL, 1}}), "outputs are null");
  MISUSE(adacc_add_kernel(made, 0, &(adacc_kernel_call){.backward_reads = {NULL, 1}}),
         "its backward reads are null");
  MISUSE(adacc_add_kernel(made, 0, &(adacc_kernel_call){.writes = {&x, (size_t)-1}}), "too many");
  MISUSE(adacc_add_kernel(made, 0, &(adacc_kernel_call){.writes = ADACC_OUTPUTS({.rows = 1})}),
         "name of output 0 is null");
  MISUSE(adacc_add_kernel(made, 0,
                          &(adacc_kernel_call){
                              .writes = ADACC_OUTPUTS({.name = "y", .rows = 8, .columns = 32},
                                                      {.name = "z", .codecs = {ADACC_INT8, 9}})}),
         "no codec 9, which output 1 (z)");
  MISUSE(adacc_add_kernel(made, 0,
                          &(adacc_kernel_call){.writes = ADACC_OUTPUTS({.name = "z", .rows = 8})}),
         "no elements");
  MISUSE(adacc_add_kernel(
             made, 0,
             &(adacc_kernel_call){.writes = ADACC_OUTPUTS({.name = "z", .rows = 8, .bytes = 8})}),
         "bytes instead of them");
  MISUSE(adacc_add_kernel(made, 0, &(adacc_kernel_call){.hold = 1}), "reads and writes nothing");
  MISUSE(adacc_add_kernel(made, -7, &good), "negative");
  CHECK(adacc_add_kernel(made, ADACC_OWN_STAGE, &good) == 0); /* what was refused left nothing */
  MISUSE(adacc_add_kernel(made, 0, &(adacc_kernel_call){.reads = ADACC_IDS(1)}),
         "reads activation 1, which no kernel before it makes");
  MISUSE(adacc_add_kernel(made, 0, &(adacc_kernel_call){.reads = ADACC_IDS(-1)}), "activation -1");
  MISUSE(adacc_add_kernel(made, 0,
                          &(adacc_kernel_call){.writes = {&x, 1}, .backward_reads = ADACC_IDS(1)}),
         "its own outputs have no ids yet");
  MISUSE(adacc_add_kernel(
             made, 0,
             &(adacc_kernel_call){.writes = {&x, 1}, .backward_reads = ADACC_IDS(ADACC_OUTPUT(1))}),
         "no output 1: it writes 1");
  MISUSE(adacc_add_kernel(made, 0, &(adacc_kernel_call){.kernel = make_z, .reads = ADACC_IDS(0)}),
         "writes nothing");
  const adacc_kernel_call next = {.kernel = nothing, .reads = ADACC_IDS(0), .writes = {&x, 1}};
  CHECK(adacc_add_kernel(made, ADACC_OWN_STAGE, &next) == 1);
  MISUSE(adacc_measure(made, 0), "activation 1 (x) is read by no kernel");
  MISUSE(adacc_add_kernel(made, 0, &(adacc_kernel_call){.reads = ADACC_IDS(1)}), "is in stage 1");
  CHECK(adacc_add_kernel(made, 1, &(adacc_kernel_call){.reads = ADACC_IDS(1)}) == ADACC_OK);
  CHECK(adacc_measure(made, 0) == ADACC_OK);
  adacc_destroy(made);
}

/* Budgets that change between steps, in memory for the largest: the same bits, and no byte more. */
// A plan that is found in no time is proven by less than others, by adacc_plan and by adacc_set_budget.
static void deadlines(void) {
  for (int again = 0; again < 2; ++again) {
    hours = 0, z_seconds = 1, h_seconds = 2;
    stash = described(slow_z, 0);
    CHECK(adacc_set_deadline(stash, 0) == ADACC_OK);
    MISUSE(adacc_set_deadline(stash, -1), "expected 0 or more");
    MISUSE(adacc_set_most_runs(stash, 0), "1 to 8 times");
    MISUSE(adacc_set_most_runs(stash, 9), "1 to 8 times");
    CHECK(adacc_set_most_runs(stash, 8) == ADACC_OK && adacc_set_most_runs(stash, 1) == ADACC_OK);
    MISUSE(adacc_set_deadline(stash, NAN), "expected 0 or more");
    CHECK(adacc_set_deadline(stash, 1e9) == ADACC_OK);
    CHECK(adacc_evolve(stash, told, &hours) == ADACC_OK && adacc_measure(stash, 0) == ADACC_OK);
    adacc_outcome outcome, hasty;
    const size_t least = adacc_smallest_budget(stash, 0);
    CHECK(least > 0 && adacc_plan(stash, 1 << 20, 0, &outcome) == ADACC_OK);
    const size_t budget = (least + outcome.retain_bytes) / 2;
    CHECK(adacc_plan(stash, budget, 0, &outcome) == ADACC_OK);
    CHECK(adacc_set_deadline(stash, 0) == ADACC_OK);
    CHECK(adacc_smallest_budget(stash, 0) > least);
    CHECK((again ? adacc_set_budget(stash, budget, &hasty)
                 : adacc_plan(stash, budget, 0, &hasty)) == ADACC_OK);
    CHECK(hasty.arena_bytes <= budget && hasty.gap > outcome.gap);
    CHECK(adacc_set_deadline(stash, 10) == ADACC_OK && adacc_smallest_budget(stash, 0) == least);
    CHECK(adacc_plan(stash, budget, 0, &hasty) == ADACC_OK && hasty.gap <= outcome.gap);
    adacc_destroy(stash);
  }
}

static void budgets(char* memory, const float* expected, size_t smallest, size_t retain) {
  adacc_outcome outcome;
  CHECK(adacc_plan(stash, retain, 0, NULL) == ADACC_OK && step(NULL) == 0);
  const size_t asked[] = {smallest, retain, (smallest + retain) / 2, smallest, retain - 1};
  for (size_t i = 0; i < sizeof asked / sizeof *asked; ++i) {
    CHECK(adacc_set_budget(stash, asked[i], &outcome) == ADACC_OK);
    CHECK(outcome.arena_bytes <= asked[i] && outcome.arena_bytes == adacc_arena_bytes(stash));
    memset(memory, 0x7F, retain + 128);
    CHECK(step(NULL) == 0 && memcmp(gradient, expected, N * sizeof(float)) == 0);
    size_t touched = 0;
    for (size_t k = 0; k < retain + 128; ++k)
      if (memory[k] != 0x7F) touched = k;
    CHECK(touched <= outcome.arena_bytes + 63);
    CHECK(strstr(adacc_changes(stash), "budget changed") != NULL);
    REFUSED(adacc_set_budget(stash, smallest / 2, NULL), ADACC_FAILED, "smallest");
    CHECK(strstr(adacc_changes(stash), "no plan fits") != NULL);
    REFUSED(adacc_set_budget(stash, retain + 128, NULL), ADACC_FAILED, "that is bound has");
    CHECK(adacc_arena_bytes(stash) == outcome.arena_bytes && step(NULL) == 0);
    CHECK(step(NULL) == 0 && strcmp(adacc_changes(stash), "") == 0);
    CHECK(adacc_declined(stash) != NULL);
  }
  CHECK(adacc_begin(stash) == ADACC_OK);
  MISUSE(adacc_set_budget(stash, retain, NULL), "inside of a step");
  MISUSE(adacc_set_deadline(stash, 1), "step");
  CHECK(adacc_end(stash) == ADACC_OK && adacc_set_budget(stash, retain, NULL) == ADACC_OK);
  MISUSE(adacc_evolve(stash, NULL, NULL), "adacc_measure has looked at another clock");
  CHECK(adacc_plan(stash, smallest, 0, NULL) == ADACC_OK);
}

static int recomputed(const int* ids) {
  int count = 0;
  for (int l = 0; l < L; ++l) count += strcmp(adacc_policy(stash, ids[l]), "recompute") == 0;
  return count;
}

/* With a clock, a plan follows times: when one kernel gets slow, activations of the other are made again. */
static void follows_times(void) {
  MISUSE(adacc_evolve(NULL, told, &hours), "null");
  NOTHING(adacc_changes(NULL), "null");
  NOTHING(adacc_declined(NULL), "null");
  MISUSE(adacc_set_budget(NULL, 1, NULL), "null");
  MISUSE(adacc_end(NULL), "null");
  z_seconds = 1, h_seconds = 3;
  stash = described(slow_z, 0);
  MISUSE(adacc_set_budget(stash, 1, NULL), "no plan yet");
  NOTHING(adacc_changes(stash), "no plan yet");
  NOTHING(adacc_declined(stash), "no plan yet");
  CHECK(adacc_evolve(stash, told, &hours) == ADACC_OK && adacc_measure(stash, 0) == ADACC_OK);
  adacc_outcome outcome;
  CHECK(adacc_plan(stash, (size_t)1 << 30, 0, &outcome) == ADACC_OK);
  const size_t budget = (outcome.retain_bytes + adacc_smallest_budget(stash, 0)) / 2;
  char* memory = malloc(outcome.retain_bytes + 63);
  CHECK(memory != NULL && adacc_bind(stash, memory, outcome.retain_bytes + 63) == ADACC_OK);
  CHECK(step(NULL) == 0);
  float expected[N];
  memcpy(expected, gradient, sizeof expected);
  CHECK(adacc_set_budget(stash, budget, NULL) == ADACC_OK);
  const int before = recomputed(z_id);
  CHECK(before > recomputed(h_id));
  int changed = 0;
  for (int i = 0; i < 220; ++i) {
    if (i == 120) z_seconds = 50; /* what a budget changed stays for 100 steps */
    CHECK(step(NULL) == 0 && memcmp(gradient, expected, sizeof expected) == 0);
    CHECK(adacc_arena_bytes(stash) <= budget);
    if (strstr(adacc_changes(stash), "(times drifted)") != NULL) ++changed, CHECK(i > 120);
  }
  CHECK(changed == 1 && recomputed(z_id) < before);
  adacc_destroy(stash);
  free(memory);
}

/* In the middle of a step, which goes on as if nothing had been asked for. */
static void between_steps_alone(char* memory, size_t bytes) {
  const adacc_gradient all = {gradient, N};
  const size_t arena = adacc_arena_bytes(stash);
  MISUSE(adacc_measure(stash, 0), "adacc_measure inside of a step");
  MISUSE(adacc_probe(stash, step, NULL, &all, 1), "adacc_probe inside of a step");
  MISUSE(adacc_check(stash, step, NULL, &all, 1), "adacc_check inside of a step");
  MISUSE(adacc_plan(stash, arena, 0, NULL), "adacc_plan inside of a step");
  MISUSE(adacc_set_budget(stash, arena, NULL), "adacc_set_budget inside of a step");
  MISUSE(adacc_bind(stash, memory, bytes), "adacc_bind inside of a step");
  CHECK(adacc_arena_bytes(stash) == arena);
}

static void steps(int held) {
  stash = described(make_z, held);
  const adacc_gradient all = {gradient, N};
  CHECK(adacc_check(stash, step, NULL, &all, 1) == ADACC_OK);
  MISUSE(adacc_add(stash, "late", 1, 1, NULL, 0), "fixed");
  MISUSE(adacc_carry(stash, "late", 4, 1, 0), "fixed");
  MISUSE(adacc_probe(stash, step, NULL, &all, 1), "adacc_measure");
  CHECK(adacc_measure(stash, 0) == ADACC_OK);
  MISUSE(adacc_probe(stash, NULL, NULL, &all, 1), "step is null");
  MISUSE(adacc_probe(stash, step, NULL, NULL, 1), "no gradients");
  MISUSE(adacc_plan(stash, 0, 0, NULL), "budget is 0");
  MISUSE(adacc_plan(stash, 1 << 20, -1, NULL), "tolerance");
  REFUSED(adacc_plan(stash, 100, 0, NULL), ADACC_FAILED, "no plan fits into a budget of 100 bytes");
  CHECK(adacc_arena_bytes(stash) == 0);
  CHECK(adacc_probe(stash, step, NULL, &all, 1) == ADACC_OK);

  adacc_outcome outcome;
  CHECK(adacc_plan(stash, (size_t)1 << 30, 0, &outcome) == ADACC_OK);
  const size_t retain = outcome.arena_bytes, smallest = adacc_smallest_budget(stash, 0);
  CHECK(retain == outcome.retain_bytes && smallest > 0 && smallest < retain);
  MISUSE(adacc_begin(stash), "bind");
  char* memory = malloc(retain + 128);
  CHECK(memory != NULL);
  MISUSE(adacc_bind(stash, NULL, retain), "memory is null");
  MISUSE(adacc_bind(stash, memory, retain - 1), "needs");
  CHECK(adacc_bind(stash, memory, retain + 63) == ADACC_OK);

  /* The wrong order, in a step that goes on as if nothing had happened. */
  CHECK(step(NULL) == 0);
  float expected[N];
  memcpy(expected, gradient, sizeof expected);
  NOTHING(adacc_get(stash, z_id[0]), "none of the backward stages that are left");
  CHECK(adacc_begin(stash) == ADACC_OK);
  NOTHING(adacc_get(stash, 0), "no backward stage is on");
  NOTHING(adacc_get(stash, 99), "activations 0 to 8");
  NOTHING(adacc_backward_workspace(stash), "no backward stage is on");
  NOTHING(adacc_carried(stash, sum_id), "(sum) begins with backward stage 3, and none was entered");
  NOTHING(adacc_carried(stash, 2), "no carried gradient 2: the model has 0 to 1");
  NOTHING(adacc_carried(stash, -1), "no carried gradient -1");
  MISUSE(adacc_put(stash, 1, start), "in the order");
  MISUSE(adacc_put(stash, 99, start), "no activation 99");
  MISUSE(adacc_put(stash, 0, NULL), "values are null");
  MISUSE(adacc_put(stash, 0, (char*)start + 1), "aligned");
  MISUSE(adacc_put(stash, 0, memory + 128), "overlap");
  MISUSE(adacc_enter(stash, 0), "forward is not over");
  between_steps_alone(memory, retain + 63);
  MISUSE(adacc_leave(stash, 0), "no stage is on");
  NOTHING(adacc_place(stash, -1, NULL), "no activation -1");
  CHECK(step(NULL) == 0 && memcmp(gradient, expected, sizeof expected) == 0);
  CHECK(adacc_begin(stash) == ADACC_OK);
  for (int id = 0; id < 2 * L; ++id) CHECK(adacc_put(stash, id, start) == ADACC_OK);
  CHECK(adacc_put(stash, mask_id, mask) == ADACC_OK);
  MISUSE(adacc_put(stash, 0, start), "put already");
  MISUSE(adacc_enter(stash, L), "no backward stage 4");
  MISUSE(adacc_enter(stash, -1), "no backward stage -1");
  CHECK(adacc_enter(stash, 2) == ADACC_OK);
  MISUSE(adacc_enter(stash, 3), "highest number to the lowest");
  CHECK(adacc_enter(stash, 2) == ADACC_OK); /* it is on */
  between_steps_alone(memory, retain + 63);
  MISUSE(adacc_leave(stash, 1), "stage 2 is on");
  NOTHING(adacc_get(stash, z_id[1]), "not registered to read it");
  CHECK(adacc_get(stash, z_id[2]) != NULL);
  CHECK(adacc_carried(stash, sum_id) != NULL && adacc_carried(stash, bits_id) != NULL);
  CHECK(adacc_leave(stash, 2) == ADACC_OK);
  MISUSE(adacc_leave(stash, 2), "no stage is on");
  MISUSE(adacc_enter(stash, 2), "over");
  NOTHING(adacc_get(stash, z_id[2]), "none of the backward stages that are left");
  CHECK(adacc_enter(stash, 0) == ADACC_OK && adacc_carried(stash, sum_id) != NULL);
  NOTHING(adacc_carried(stash, bits_id), "(bits) is gone: backward stage 1");
  CHECK(adacc_leave(stash, 0) == ADACC_OK);
  NOTHING(adacc_carried(stash, sum_id), "(sum) is gone: backward stage 0");

  /* Every budget, between steps, in the memory that is bound; the same bits. */
  for (size_t budget = retain; budget >= smallest; budget -= (retain - smallest) / 7 + 1) {
    CHECK(adacc_plan(stash, budget, 0, &outcome) == ADACC_OK);
    CHECK(outcome.arena_bytes <= budget && outcome.arena_bytes == adacc_arena_bytes(stash));
    memset(memory, 0x7F, retain + 128);
    CHECK(step(NULL) == 0 && memcmp(gradient, expected, sizeof expected) == 0);
    size_t touched = 0;
    for (size_t i = 0; i < retain + 128; ++i)
      if (memory[i] != 0x7F) touched = i;
    CHECK(touched <= outcome.arena_bytes + 63);
  }
  CHECK(adacc_plan(stash, smallest, 0, NULL) == ADACC_OK && step(NULL) == 0);
  REFUSED(adacc_plan(stash, smallest / 2, 0, NULL), ADACC_FAILED, "smallest");
  CHECK(adacc_arena_bytes(stash) <= smallest && step(NULL) == 0); /* the plan before is there */

  /* Any alignment; memory that is too small for a new plan has to be bound again. */
  for (size_t skip = 1; skip < 64; skip += 17) {
    CHECK(adacc_bind(stash, memory + skip, smallest + 63) == ADACC_OK);
    CHECK(step(NULL) == 0 && memcmp(gradient, expected, sizeof expected) == 0);
  }
  CHECK(adacc_plan(stash, retain, 0, NULL) == ADACC_OK);
  if (adacc_arena_bytes(stash) > smallest + 63) MISUSE(adacc_begin(stash), "bind");
  CHECK(adacc_bind(stash, memory, retain + 63) == ADACC_OK && step(NULL) == 0);

  budgets(memory, expected, smallest, retain);

  CHECK(adacc_plan(stash, smallest, 1, &outcome) == ADACC_OK);
  CHECK(adacc_policy(stash, 0) != NULL && adacc_policy(stash, 99) == NULL);
  CHECK(step(NULL) == 0);
  adacc_destroy(stash);
  free(memory);
}

/* A NaN goes through a codec as NaN, although this file was compiled as if there were none. */
static void not_finite(void) {
  const int stage = 0;
  static float values[N];
  const uint32_t bits = 0x7FC00000U;
  memcpy(values + 5, &bits, sizeof bits);
  adacc_stash* made = adacc_create();
  CHECK(adacc_add(made, "x", 16, N / 16, &stage, 1) == 0);
  CHECK(adacc_allow(made, 0, ADACC_INT8, 1e-3) == ADACC_OK &&
        adacc_fix(made, 0, ADACC_INT8) == ADACC_OK);
  CHECK(adacc_measure(made, 0) == ADACC_OK && adacc_plan(made, 1 << 20, 1, NULL) == ADACC_OK);
  CHECK(strcmp(adacc_policy(made, 0), "int8_outlier") == 0);
  void* memory = malloc(adacc_arena_bytes(made) + 63);
  CHECK(adacc_bind(made, memory, adacc_arena_bytes(made) + 63) == ADACC_OK);
  CHECK(adacc_begin(made) == ADACC_OK && adacc_put(made, 0, values) == ADACC_OK &&
        adacc_enter(made, 0) == ADACC_OK);
  const float* got = adacc_get(made, 0);
  uint32_t there = 0;
  if (got != NULL) memcpy(&there, got + 5, sizeof there);
  CHECK((there & 0x7F800000U) == 0x7F800000U && (there & 0x007FFFFFU) != 0);
  adacc_destroy(made);
  free(memory);
}

/* Steps that do half of their work, and say that all is well. */
static int never_begins(void* user) {
  (void)user;
  return 0;
}
static int puts_one(void* user) {
  (void)user;
  return adacc_begin(stash) < 0 || adacc_put(stash, h_id[0], start) < 0;
}

static int gives_up(void* user) { return *(int*)user; }
static int plans_within(void* user) {
  (void)user;
  MISUSE(adacc_plan(stash, 1 << 20, 0, NULL), "running a step");
  MISUSE(adacc_measure(stash, 0), "running a step");
  MISUSE(adacc_check(stash, step, NULL, NULL, 0), "running a step");
  adacc_destroy(stash); /* refused in silence */
  return 3;
}

static void checks(void) {
  const adacc_gradient all = {gradient, N};
  stash = described(not_z, 0);
  MISUSE(adacc_check(stash, step, NULL, &all, 1),
         "recomputing z (1 of 4) gives other bits than forward");
  adacc_destroy(stash);

  stash = described(make_z, 1);
  int code = 5;
  MISUSE(adacc_check(stash, gives_up, &code, &all, 1), "returned 5");
  MISUSE(adacc_check(stash, plans_within, NULL, &all, 1), "returned 3");
  MISUSE(adacc_check(stash, never_begins, NULL, &all, 1), "never called begin()");
  MISUSE(adacc_check(stash, puts_one, NULL, &all, 1), "never put z (1 of 4)");
  keep_too_long = 1;
  MISUSE(adacc_check(stash, step, NULL, &all, 1), "not finite");
  keep_too_long = 0;
  write_bits_late = 1;
  MISUSE(adacc_check(stash, step, NULL, &all, 1),
         "bits, which backward stages 2 to 1 carry, was written to after the last of them");
  write_bits_late = 0;
  CHECK(adacc_measure(stash, 0) == ADACC_OK);
  REFUSED(adacc_probe(stash, gives_up, &code, &all, 1), ADACC_FAILED, "returned 5");
  CHECK(adacc_probe(stash, step, NULL, &all, 1) == ADACC_OK);
  adacc_destroy(stash);
}

int main(void) {
  for (int i = 0; i < N; ++i) start[i] = (float)(i % 17) / 16, mask[i] = (unsigned char)(i * 7);
  registration();
  kernels();
  deadlines();
  steps(0);
  steps(1);
  not_finite();
  checks();
  follows_times();
  if (failures == 0) printf("passed\n");
  return failures == 0 ? 0 : 1;
}
