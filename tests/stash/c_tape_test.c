/* SPDX-License-Identifier: MIT */
/*
 * A tape in C, used as a trainer uses it and in wrong ways: each mistake has a code and a text, and ends nothing.
 */
#include <adacc/adacc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "c_check.h"

enum { L = 12, N = 512 };

/* h(0) is given; h(l + 1) = h(l) + z(l)^2 / 64, z(l) = h(l) + l. Both gradients have places. */
static float start[N], gradient[N], offset[L];
static int h_id[L + 1], z_id[L], told;
static adacc_tape* tape;

static void take_start(void* user, const void* const* x, void* const* y, void* workspace) {
  (void)user, (void)x, (void)workspace;
  memcpy(y[0], start, sizeof start);
}
static void make_z(void* user, const void* const* x, void* const* y, void* workspace) {
  const float *h = x[0], *more = user;
  float *z = y[0], *scratch = workspace;
  for (int i = 0; i < N; ++i) scratch[i] = h[i] + *more;
  memcpy(z, scratch, sizeof(float) * N);
}
static void make_h(void* user, const void* const* x, void* const* y, void* workspace) {
  const float *h = x[0], *z = x[1];
  float* next = y[0];
  (void)user, (void)workspace;
  for (int i = 0; i < N; ++i) next[i] += h[i] + z[i] * z[i] / 64; /* its memory is zeroed */
}

static void describe(void) {
  tape = adacc_tape_create();
  h_id[0] = adacc_tape_kernel(
      tape,
      &(adacc_tape_call){.name = "start",
                         .kernel = take_start,
                         .writes = {{.name = "h", .rows = 8, .columns = N / 8, .gradient = 1}},
                         .once = 1});
  CHECK(h_id[0] == 1);
  for (int l = 0; l < L; ++l) {
    z_id[l] = adacc_tape_kernel(
        tape,
        &(adacc_tape_call){.name = "shift",
                           .kernel = make_z,
                           .user = &offset[l],
                           .reads = {h_id[l]},
                           .writes = {{.name = "z", .rows = 8, .columns = N / 8, .gradient = 1}},
                           .workspace_bytes = sizeof(float) * N});
    h_id[l + 1] = adacc_tape_kernel(tape, &(adacc_tape_call){.name = "square",
                                                             .kernel = make_h,
                                                             .reads = {h_id[l], z_id[l]},
                                                             .writes = {{.name = "h",
                                                                         .rows = 8,
                                                                         .columns = N / 8,
                                                                         .gradient = l + 1 < L,
                                                                         .zeroed = 1}},
                                                             .saves = {z_id[l]},
                                                             .backward_bytes = sizeof(float) * N});
  }
  CHECK(adacc_tape_kernels(tape) == 2 * L + 1);
  CHECK(adacc_tape_kernel_of(tape, z_id[1]) == 4);
}

static int step(void* user) {
  const int layers = user == NULL ? L : *(const int*)user;
  if (adacc_tape_begin(tape) < 0 || adacc_tape_run(tape, 1, 2 * layers + 1) < 0) return 1;
  float ones[N];
  for (int i = 0; i < N; ++i) ones[i] = 1;
  for (int l = layers - 1; l >= 0; --l) {
    if (adacc_tape_backward(tape, adacc_tape_kernel_of(tape, h_id[l + 1])) < 0) return 2;
    const float* z = adacc_tape_value(tape, z_id[l]);
    const float* from = l + 1 < layers ? adacc_tape_grad(tape, h_id[l + 1]) : ones;
    float *dz = adacc_tape_grad(tape, z_id[l]), *dh = adacc_tape_grad(tape, h_id[l]);
    float* scratch = adacc_tape_backward_workspace(tape);
    if (z == NULL || dz == NULL || dh == NULL || scratch == NULL || from == NULL) return 3;
    float* taken = adacc_tape_take(tape, z_id[l]); /* nobody else reads z */
    if (taken != z) return 3;
    for (int i = 0; i < N; ++i)
      scratch[i] = from[i] * z[i] / 32, taken[i] = scratch[i], dz[i] += taken[i], dh[i] += from[i];
    if (adacc_tape_backward(tape, adacc_tape_kernel_of(tape, z_id[l])) < 0) return 4;
    for (int i = 0; i < N; ++i)
      adacc_tape_grad(tape, h_id[l])[i] += adacc_tape_grad(tape, z_id[l])[i];
  }
  if (adacc_tape_backward(tape, 1) < 0) return 5;
  memcpy(gradient, adacc_tape_grad(tape, 1), sizeof gradient);
  return adacc_tape_end(tape) < 0 ? 6 : 0;
}

static void plain(int layers, float* to) {
  for (int i = 0; i < N; ++i) {
    float h = start[i], z[L], d = 1;
    for (int l = 0; l < layers; ++l) z[l] = h + offset[l], h = h + z[l] * z[l] / 64;
    for (int l = layers - 1; l >= 0; --l) d = d + d * z[l] / 32;
    to[i] = d;
  }
}

static void count_line(void* user, const char* line) { (void)line, ++*(int*)user; }

static void steps(void) {
  static float expected[N];
  const adacc_gradient all = {gradient, N};
  describe();
  adacc_tape_request request = {.percent = 60,
                                .step = step,
                                .gradients = &all,
                                .gradient_count = 1,
                                .check = 1,
                                .log = count_line,
                                .log_user = &told};
  MISUSE(adacc_tape_begin(tape), "start() has not planned it yet");
  CHECK(adacc_tape_start(tape, &request) == ADACC_OK);
  CHECK(told >= 2);
  CHECK(strstr(adacc_tape_report(tape), "of retaining everything") != NULL);
  const size_t bytes = adacc_tape_arena_bytes(tape);
  CHECK(bytes > 0);
  for (int layers = L; layers > 0; layers -= 5) {
    plain(layers, expected);
    CHECK(step(&layers) == 0);
    CHECK(memcmp(gradient, expected, sizeof expected) == 0);
  }
  CHECK(adacc_tape_set_budget(tape, 2 * bytes) == ADACC_OK);
  CHECK(adacc_tape_arena_bytes(tape) > bytes);
  CHECK(step(NULL) == 0);
  plain(L, expected);
  CHECK(memcmp(gradient, expected, sizeof expected) == 0);
  REFUSED(adacc_tape_set_budget(tape, 100), ADACC_FAILED,
          "no plan fits into a budget of 100 bytes");
  CHECK(strcmp(adacc_tape_policy(tape, 1), "retain") == 0 ||
        strcmp(adacc_tape_policy(tape, 1), "recompute") != 0);
  MISUSE(adacc_tape_kernel(tape, &(adacc_tape_call){.name = "late", .kernel = make_h}),
         "comes before adacc_tape_start");
  CHECK(adacc_tape_begin(tape) == ADACC_OK);
  MISUSE(adacc_tape_run(tape, 2, 3), "kernel 1 is the next one");
  MISUSE(adacc_tape_run(tape, 1, 3), "kernel 1 is the next one"); /* it sticks */
  CHECK(adacc_tape_value(tape, 1) == NULL);
  MISUSE(adacc_tape_end(tape), "kernel 1 is the next one");
  CHECK(step(NULL) == 0);
  adacc_tape_destroy(tape);
}

static void mistakes(void) {
  MISUSE(adacc_tape_kernel(NULL, NULL), "the tape is null");
  MISUSE(adacc_tape_begin(NULL), "the tape is null");
  CHECK(adacc_tape_value(NULL, 1) == NULL);
  CHECK(adacc_tape_take(NULL, 1) == NULL);
  tape = adacc_tape_create();
  MISUSE(adacc_tape_kernel(tape, NULL), "the call is null");
  MISUSE(adacc_tape_kernel(tape, &(adacc_tape_call){.name = "k"}), "k has no function");
  MISUSE(adacc_tape_kernel(tape, &(adacc_tape_call){.name = "k", .kernel = make_h, .reads = {1}}),
         "k reads activation 1");
  MISUSE(
      adacc_tape_kernel(tape, &(adacc_tape_call){.name = "k",
                                                 .kernel = make_h,
                                                 .writes = {{.name = "y", .rows = 1, .bytes = 4}}}),
      "k writes y of rows or columns, and of bytes");
  MISUSE(
      adacc_tape_kernel(tape, &(adacc_tape_call){.name = "k",
                                                 .kernel = make_h,
                                                 .writes = {{.name = "y", .rows = 1, .columns = 4}},
                                                 .saves = {ADACC_OWN(1)}}),
      "k saves its output 1, and writes 1");
  const adacc_tape_output wrong[] = {{.name = "y", .rows = 1, .columns = 4, .type = 6},
                                     {.name = "y", .in_place_of = 1},
                                     {.name = "y", .rows = 1, .columns = 4, .in_place_of = -1}};
  const char* const words[] = {"k writes y of type 6: there is none",
                               "k writes y in place of activation 1, and kernels before it make 1",
                               "k writes y in place of activation -1"};
  for (int i = 0; i < 3; ++i)
    MISUSE(adacc_tape_kernel(
               tape, &(adacc_tape_call){.name = "k", .kernel = make_h, .writes = {wrong[i]}}),
           words[i]);
  MISUSE(adacc_tape_begin_items(NULL, 1), "the tape is null");
  MISUSE(adacc_tape_begin_items(tape, 0), "of 0 items");
  MISUSE(adacc_tape_watch(tape, "mean", NULL, 4), "the memory is null");
  CHECK(adacc_tape_watch(tape, "start", start, sizeof start) == ADACC_OK);
  MISUSE(adacc_tape_start(tape, NULL), "the request is null");
  const adacc_gradient all = {gradient, N};
  const adacc_tape_request request = {.step = step, .gradients = &all, .gradient_count = 1};
  REFUSED(adacc_tape_start(tape, &request), ADACC_FAILED, "takes a budget");
  adacc_tape_destroy(tape);
}

/* Squares of doubles in place, in batches of two sizes. */
static double squares_sum;
static float sum_gradient[1];
static int items = 6;

static void take_halves(void* user, const void* const* x, void* const* y, void* workspace) {
  double* to = y[0];
  (void)user, (void)x, (void)workspace;
  for (int i = 0; i < 8 * items; ++i) to[i] = i / 2.0;
}
static void square_in_place(void* user, const void* const* x, void* const* y, void* workspace) {
  double* to = y[0];
  (void)user, (void)workspace;
  CHECK(x[0] == y[0]);
  for (int i = 0; i < 8 * items; ++i) to[i] *= to[i];
}
static int step_of_squares(void* user) {
  (void)user;
  if (adacc_tape_begin_items(tape, items) < 0 || adacc_tape_run(tape, 1, 2) < 0) return 1;
  if (adacc_tape_backward(tape, 2) < 0) return 2;
  const double* squares = adacc_tape_value(tape, 2);
  if (squares == NULL) return 3;
  squares_sum = 0;
  for (int i = 0; i < 8 * items; ++i) squares_sum += squares[i];
  sum_gradient[0] = (float)squares_sum;
  return adacc_tape_end(tape) < 0 ? 4 : 0;
}
static void types_and_sizes(void) {
  tape = adacc_tape_create();
  CHECK(adacc_tape_kernel(tape, &(adacc_tape_call){.name = "halves",
                                                   .kernel = take_halves,
                                                   .writes = {{.name = "h",
                                                               .rows = 6,
                                                               .columns = 8,
                                                               .type = ADACC_TYPE_DOUBLE,
                                                               .per_item = 1}}}) == 1);
  CHECK(adacc_tape_kernel(tape, &(adacc_tape_call){.name = "square",
                                                   .kernel = square_in_place,
                                                   .reads = {1},
                                                   .writes = {{.name = "s", .in_place_of = 1}},
                                                   .saves = {ADACC_OWN(0)}}) == 2);
  const adacc_gradient all = {sum_gradient, 1};
  const adacc_tape_request request = {.percent = 100,
                                      .step = step_of_squares,
                                      .gradients = &all,
                                      .gradient_count = 1,
                                      .check = 1,
                                      .items = 6};
  adacc_tape_request many = request;
  many.most_runs = 9;
  REFUSED(adacc_tape_start(tape, &many), ADACC_FAILED, "1 to 8 times");
  CHECK(adacc_tape_start(tape, &request) == ADACC_OK);
  CHECK(adacc_tape_arena_bytes(tape) == 6 * 8 * sizeof(double));
  CHECK(strcmp(adacc_tape_policy(tape, 1), "overwritten") == 0);
  for (items = 6; items >= 2; items -= 2) {
    double expected = 0;
    for (int i = 0; i < 8 * items; ++i) expected += i / 2.0 * (i / 2.0);
    CHECK(step_of_squares(NULL) == 0);
    CHECK(squares_sum == expected);
    CHECK(adacc_tape_arena_bytes(tape) == (size_t)items * 8 * sizeof(double));
  }
  MISUSE(adacc_tape_begin_items(tape, 7), "the tape has 1 to 6");
  adacc_tape_destroy(tape);
}

/* h = s + 1 and y = h h, in floats, with gradients where they flow; errors go to a handler. */
static char told_error[200];
static int told_errors;
static void note_error(void* user, const char* error) {
  snprintf(told_error, sizeof told_error, "%s", error), ++*(int*)user;
}
static void for_each_of_eight(float* y, const float* x, const float* factor) {
  for (int i = 0; i < 8; ++i) y[i] = factor == NULL ? x[i] + 1 : x[i] * factor[i];
}
ADACC_KERNEL(take_floats, const float, memcpy(y[0], self, sizeof(float) * 8))
ADACC_KERNEL(add_one, void, for_each_of_eight(y[0], x[0], NULL))
ADACC_KERNEL(square, void, for_each_of_eight(y[0], x[0], x[0]))

static int step_of_flow(void* user) {
  (void)user;
  adacc_tape_forward(tape);
  adacc_tape_backward_of(tape, 3);
  const float* h = adacc_tape_value(tape, 2);
  float* dh = adacc_tape_grad(tape, 2);
  for (int i = 0; i < 8; ++i) dh[i] += 2 * h[i];
  adacc_tape_backward_of(tape, 2);
  float *ds = adacc_tape_grad_to_write(tape, 1), *flowing = adacc_tape_grad(tape, 2);
  for (int i = 0; i < 8; ++i) gradient[i] = ds[i] = flowing[i];
  adacc_tape_backward_of(tape, 1);
  return adacc_tape_end(tape) < 0;
}
static void gradients_that_flow(void) {
  adacc_on_error(note_error, &told_errors);
  tape = adacc_tape_create();
  const adacc_tape_output row = {.name = "row", .rows = 1, .columns = 8};
  adacc_tape_call calls[] = {{.name = "take", .kernel = take_floats, .user = start},
                             {.name = "add", .kernel = add_one, .reads = {1}},
                             {.name = "square", .kernel = square, .reads = {2}, .saves = {2}}};
  for (int k = 0; k < 3; ++k) {
    calls[k].writes[0] = row, calls[k].gradients = 1;
    CHECK(adacc_tape_kernel(tape, &calls[k]) == k + 1);
  }
  const adacc_gradient all = {gradient, 8};
  CHECK(adacc_tape_start(tape, &(adacc_tape_request){.percent = 100,
                                                     .step = step_of_flow,
                                                     .gradients = &all,
                                                     .gradient_count = 1,
                                                     .check = 1}) == ADACC_OK);
  CHECK(step_of_flow(NULL) == 0);
  for (int i = 0; i < 8; ++i) CHECK(gradient[i] == 2 * (start[i] + 1));
  CHECK(told_errors == 0);
  CHECK(adacc_tape_forward(tape) == ADACC_OK);
  CHECK(adacc_tape_backward_of(tape, 3) == ADACC_OK);
  CHECK(adacc_tape_grad(tape, 3) == NULL); /* no kernel reads it */
  CHECK(told_errors == 1 && strstr(told_error, "activation 3 (row) has no gradient") != NULL);
  adacc_on_error(NULL, NULL);
  MISUSE(adacc_tape_end(tape), "has no gradient");
  CHECK(adacc_tape_forward(tape) == ADACC_OK);
  CHECK(adacc_tape_backward_of(tape, 3) == ADACC_OK);
  CHECK(adacc_tape_grad(tape, 2) != NULL);
  CHECK(adacc_tape_grad_to_write(tape, 2) == NULL);
  MISUSE(adacc_tape_end(tape), "the gradient of activation 2 (row) has contents");
  CHECK(told_errors == 1);
  CHECK(adacc_tape_forward(tape) == ADACC_OK);
  MISUSE(adacc_tape_backward_of(tape, 4), "there is no activation 4: the tape has 1 to 3");
  MISUSE(adacc_tape_end(tape), "there is no activation 4");
  MISUSE(adacc_tape_forward(NULL), "adacc_tape_forward: the tape is null");
  adacc_tape_destroy(tape);
}

int main(void) {
  for (int i = 0; i < N; ++i) start[i] = (float)(i % 17) / 16;
  for (int l = 0; l < L; ++l) offset[l] = (float)l / 8;
  mistakes();
  steps();
  types_and_sizes();
  gradients_that_flow();
  if (failures == 0) printf("passed\n");
  return failures == 0 ? 0 : 1;
}
