/* SPDX-License-Identifier: MIT */
/*
 * The stash for trainers written in C: activations kept, encoded or computed again as a plan says,
 * in one block of memory that the trainer lends (docs/stash.md).
 *
 * Compile adacc.cpp, which lies beside this file, once, as C++20 and without -ffast-math, and link it
 * (with CMake: adacc::c). The trainer itself may be C11 or later, and compiled as it likes.
 *
 *     once    adacc_create, adacc_add_kernel: which kernels there are, what they read and make
 *             adacc_measure: what it costs; adacc_probe: what codecs do to the gradient
 *             adacc_plan: within a budget; adacc_bind: the memory that the plan needs
 *     step    adacc_begin
 *             forward:   adacc_put(id, values) as soon as an activation is made
 *             backward:  adacc_enter(stage), adacc_get(id), ..., adacc_leave(stage)
 *
 * Functions return ADACC_OK, an id, or something else that is not negative; or one of
 *
 *     ADACC_MISUSE   a mistake of the calling code: null, an unknown id, calls in the wrong order.
 *                    Nothing has changed
 *     ADACC_FAILED   bad luck: no plan fits into the budget, there is no memory, a step that was to
 *                    be run failed
 *
 * and those that return a pointer return null instead. adacc_error() is the text. Nothing aborts,
 * prints or calls longjmp, and nothing allocates between adacc_begin and the end of a step. Any number
 * of stashes may be used at once, each by one thread at a time.
 */
#ifndef ADACC_H
#define ADACC_H

#include <stddef.h> /* C has no cstddef: NOLINT(modernize-deprecated-headers) */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct adacc_stash adacc_stash;

enum { ADACC_OK = 0, ADACC_MISUSE = -1, ADACC_FAILED = -2 };

/* Why the last call of this thread that failed did so. */
const char* adacc_error(void);

/* Null if there is no memory. */
adacc_stash* adacc_create(void);
/* Null is allowed. What was lent is the caller's again. */
void adacc_destroy(adacc_stash* stash);

/* ---- What there is. Until the first adacc_measure or adacc_plan. ---- */

/* Makes activations again: writes all of outputs[0], outputs[1], ... from sources[0], sources[1], ...
 * and from `user`, with the bits that forward gave. It may run whenever backward does, in any order,
 * on other memory than forward's, so what it reads through `user` (parameters, say) must not change
 * until backward is over. `workspace` is 64-byte aligned, as are all others. */
typedef void (*adacc_kernel)(void* user, const void* const* sources, void* const* outputs,
                             void* workspace);

enum { ADACC_BF16 = 1, ADACC_INT8 = 2, ADACC_INT4 = 3 };

/* An activation that a kernel makes: rows x columns floats, or `bytes` of anything, such as masks or
 * indices, which no codec takes. `name` is copied. */
typedef struct {
  const char* name;
  size_t rows, columns;
  size_t bytes;
  int codecs[3]; /* by which it may be kept encoded, until a 0; adacc_allow, if an error is known */
} adacc_output;

/* Ids of activations, and what a kernel makes. Of lists that are written out:
 *     .reads = ADACC_IDS(h, z), .writes = ADACC_OUTPUTS({.name = "y", .rows = B, .columns = C})
 * Such a list lives until the end of the block (also that of an if or a for) that it is written in. */
typedef struct {
  const int* first;
  size_t count;
} adacc_ids;
typedef struct {
  const adacc_output* first;
  size_t count;
} adacc_outputs;
#define ADACC_IDS(...) \
  ((adacc_ids){(const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int)})
#define ADACC_OUTPUTS(...)                              \
  ((adacc_outputs){(const adacc_output[]){__VA_ARGS__}, \
                   sizeof((const adacc_output[]){__VA_ARGS__}) / sizeof(adacc_output)})

/* Among what the backward of a kernel reads: what the kernel itself makes as output i, from 0 on. */
#define ADACC_OUTPUT(i) (-2147483647 + (i))

/* One call of a kernel in forward. What is left out is none. */
typedef struct {
  adacc_kernel kernel;      /* makes its outputs again; null if nothing does, as of an input */
  void* user;               /* for the kernel; must outlive the stash */
  size_t workspace_bytes;   /* of the kernel */
  adacc_ids reads;          /* what was made before and it reads: the kernel's sources */
  adacc_outputs writes;     /* none, of a kernel like a loss, whose result backward does not want */
  adacc_ids backward_reads; /* what its backward reads, of these or any other */
  size_t backward_bytes;    /* gradients and scratch of its backward; a stage has the sum */
  int hold;                 /* not 0: forward's values of what it makes lie in the arena */
} adacc_kernel_call;

enum { ADACC_OWN_STAGE = -1 };

/* Describes the next call of a kernel, in the order in which forward has them; the id of its first
 * output, behind which the others follow. Ids count from 0. `stage` is the stage of backward that its
 * backward is part of: stages are units of the trainer's own, numbered from 0 as forward runs, and
 * all that the kernels of one read in backward is in memory together. Backward runs them from the
 * highest to the lowest. With ADACC_OWN_STAGE it is one above those of all kernels before. Outputs that
 * are alike (name, shape, codecs, kernel, shapes of what it reads) are taken for copies of one. One
 * that nobody reads, and that is not held, is refused when adacc_measure looks at the whole. */
int adacc_add_kernel(adacc_stash* stash, int stage, const adacc_kernel_call* call);

/* The same in single pieces, for backwards whose stages are no groups of kernels. */

/* An activation of rows x columns floats, in the order in which forward makes them; its id, which
 * counts from 0. `stages` (`stage_count` of them) are the stages of backward that read it: units of
 * the trainer's own, numbered from 0 as forward runs. Backward runs them from the highest to the
 * lowest, and all that one reads is in memory together. Activations that are registered alike (name,
 * shape, codecs, kernel, shapes of sources) are taken for copies of one. `name` is copied. */
int adacc_add(adacc_stash* stash, const char* name, size_t rows, size_t columns, const int* stages,
              size_t stage_count);

/* The same for `bytes` of anything, such as masks or indices. No codec takes it. */
int adacc_add_bytes(adacc_stash* stash, const char* name, size_t bytes, const int* stages,
                    size_t stage_count);

/* Activations `ids`, which were registered one after the other, are made by one call of `kernel` from
 * `sources`, which were registered before them. `user` must outlive the stash. */
int adacc_recompute(adacc_stash* stash, const int* ids, size_t count, const int* sources,
                    size_t source_count, adacc_kernel kernel, void* user, size_t workspace_bytes);

/* Activation `id` may be kept encoded. `error` is what that adds to the gradient's relative squared
 * error, E|g' - g|^2 / |g|^2; negative if it is not known: it is estimated until adacc_probe. */
int adacc_allow(adacc_stash* stash, int id, int codec, double error);

/* Instead of leaving activation `id` to the planner: how == 0 retains it, -1 recomputes it, a
 * codec, which was allowed, encodes it. */
int adacc_fix(adacc_stash* stash, int id, int how);

/* Forward's value of activation `id` lies in the arena, too, from before it is put until the last
 * activation that is made from it is: adacc_place says where. */
int adacc_hold(adacc_stash* stash, int id);

/* Forward makes activation `id`, which has no kernel, from `sources`: whatever is made from what is held
 * has to say so. Of all others adacc_recompute says it. */
int adacc_made_from(adacc_stash* stash, int id, const int* sources, size_t source_count);

/* Backward stage `stage` needs `bytes` for itself: gradients, scratch. adacc_stage_memory() is where. */
int adacc_stage_bytes(adacc_stash* stash, int stage, size_t bytes);

/* A gradient of `bytes` that goes from stage to stage: adacc_carried() is where, from `first_stage`, the first
 * to write to it, until `last_stage`, the last to read it, is over. Backward runs from the highest stage to
 * the lowest, so `first_stage` is the higher number. Its id, which counts from 0 among those that are
 * carried. With ADACC_OWN_STAGE, kernels come before. `name` is copied. */
int adacc_carry(adacc_stash* stash, const char* name, size_t bytes, int first_stage,
                int last_stage);

/* ---- What it costs. Between steps: before adacc_begin, behind adacc_leave of stage 0, or adacc_end. ---- */

/* Times all kernels and codecs on this machine, on made-up values, in memory that it allocates and
 * frees. `step_seconds` is the time of the trainer's own step without a stash; 0 if it is not known. */
int adacc_measure(adacc_stash* stash, double step_seconds);

/* A gradient, or part of it. */
typedef struct {
  const float* values;
  size_t count;
} adacc_gradient;

/* One step of the trainer, from adacc_begin on, on a fixed batch, from gradients of zero, without an
 * update of the parameters; 0 if it succeeded. */
typedef int (*adacc_step)(void* user);

/* Measures what codecs that were allowed without a number do to the gradient, by steps of the trainer
 * under plans that differ in one kind of activation. A step finds the memory that it needs bound, and
 * leaves its gradients in `gradients`. Allocates up to as much as retaining everything takes, and frees
 * it. May be repeated, on other batches: errors are means. */
int adacc_probe(adacc_stash* stash, adacc_step step, void* user, const adacc_gradient* gradients,
                size_t gradient_count);

/* Runs such a step twice, with everything retained and with all that has a kernel computed again, and
 * looks at how the stash is used: kernels whose bits are not forward's, that depend on what they do not
 * list, or write where they should not; pointers that are kept for longer than a stage; activations that
 * are not put, and stages that read some and are not entered; gradients that differ. Allocates. Do this
 * once for every trainer: adacc_error() says what it found. */
int adacc_check(adacc_stash* stash, adacc_step step, void* user, const adacc_gradient* gradients,
                size_t gradient_count);

/* ---- A plan, and memory for it. Between steps, as often as you like. ---- */

typedef struct {
  size_t arena_bytes;    /* that the plan needs, exactly */
  size_t retain_bytes;   /* that it would need with everything retained */
  double seconds;        /* predicted, of a step */
  double retain_seconds; /* with everything retained */
  double error;          /* of the gradient, relative and squared */
  double gap;            /* no plan within budget and tolerance is faster by more than this share */
  double solve_seconds;  /* that planning took */
} adacc_outcome;

/* The fastest plan whose arena has at most `budget_bytes` and whose gradient error is at most
 * `tolerance` (0: every bit as without a stash); of those at most 0.2 % slower, the one of least error.
 * `outcome` may be null. Replaces the plan that was there; if memory is bound and is large enough, it stays bound, else adacc_bind is next. If it fails,
 * the plan that was there stays. */
int adacc_plan(adacc_stash* stash, size_t budget_bytes, double tolerance, adacc_outcome* outcome);

/* Each planning from now on (by adacc_plan, adacc_set_budget, adacc_begin of a stash that evolves, and
 * adacc_smallest_budget) ends within so many seconds, a fifth more and 20 milliseconds, with the best plan, or
 * the smallest budget, that is known by then: `gap` of the outcome is what is proven of the plan. 0 or more;
 * 10 unless it is said. At any time outside of a step; a plan that is there stays. */
int adacc_set_deadline(adacc_stash* stash, double seconds);

/* The smallest budget that adacc_plan can meet within `tolerance`; 0 if that cannot be said. */
size_t adacc_smallest_budget(adacc_stash* stash, double tolerance);

/* What becomes of activation `id`: "retain", "recompute", or the name of a codec. */
const char* adacc_policy(const adacc_stash* stash, int id);

/* The bytes that the plan needs; 0 without a plan. */
size_t adacc_arena_bytes(const adacc_stash* stash);

/* Lends the stash memory of `bytes`: those that the plan needs, and up to 63 more if it does not start
 * 64-byte aligned. */
int adacc_bind(adacc_stash* stash, void* memory, size_t bytes);

/* ---- Budgets and costs that change. ---- */

/* Plans for another budget, within the memory that is bound: adacc_arena_bytes() is how much of it the plan
 * takes. Between steps: behind adacc_leave of stage 0, or adacc_end. What was measured, probed and seen so
 * far stays. If it fails (no plan fits, and then adacc_error() names the smallest budget that one does;
 * less memory is bound), plan and budget stay as they are. `outcome` may be null. */
int adacc_set_budget(adacc_stash* stash, size_t budget_bytes, adacc_outcome* outcome);

/* Seconds since some moment that stays the same. */
typedef double (*adacc_clock)(void* user);

/* Before the first adacc_measure: plans follow what steps show. Each adacc_begin may change the plan, for
 * what codecs see of their errors and, if `clock` is not null, for how long kernels and codecs take. Then
 * adacc_measure looks at that clock, too, steps read it around each of them, and if one drifts, all are
 * measured again in the memory that is bound, for at most a hundredth of the time; adacc_begin allocates
 * for that. Under plans that lose nothing, bits stay those of no stash. `user` must outlive the stash. */
int adacc_evolve(adacc_stash* stash, adacc_clock clock, void* user);

/* What the last adacc_begin, or adacc_set_budget before it, did to the plan: a line for each activation with
 * another policy, and why; or why something that was due was not done. Empty if nothing was. Valid until
 * the next call. */
const char* adacc_changes(adacc_stash* stash);

/* What codecs lost in the last step: a line for each activation that has rows which its codec says are over
 * its bound, and whether it was kept exactly in memory to spare, or by a codec that loses less of them (with
 * scales along rows, or milder and allowed), or left so. Empty if none has. Valid until the next call. */
const char* adacc_declined(adacc_stash* stash);

/* ---- A step. ---- */

/* A step begins; one that was under way is forgotten. */
int adacc_begin(adacc_stash* stash);

/* The step is over, or given up; adacc_leave of stage 0 does so, too. */
int adacc_end(adacc_stash* stash);

/* Where forward had best write activation `id`: in the arena, or else `scratch` (which may be null if
 * `id` is held). What lies there may be read until the first adacc_enter; of a held activation, until
 * the last one that is made from it is put. */
void* adacc_place(adacc_stash* stash, int id, void* scratch);

/* Of an activation that is held: scratch for forward to make it in, as large as adacc_recompute said that
 * its kernel needs, for as long as adacc_place may be written; else null. */
void* adacc_scratch(adacc_stash* stash, int id);

/* Forward has made activation `id`. The values, which may have any address outside of the arena but
 * that of adacc_place, are the caller's again. In the order of ids, each once a step. */
int adacc_put(adacc_stash* stash, int id, const void* values);

/* Backward stage `stage` begins: what it reads is there until it ends. It ends with the next one, or
 * with adacc_leave. Entering the stage that is on changes nothing, so that each of its kernels may do so.
 * Stages whose gradients the trainer does not want may be left out (but not of a step for adacc_check). */
int adacc_enter(adacc_stash* stash, int stage);
int adacc_leave(adacc_stash* stash, int stage);

/* Activation `id`, for the stage that is on, which was registered to read it. Not to be written. */
const void* adacc_get(adacc_stash* stash, int id);

/* The memory of the stage that is on, as large as adacc_stage_bytes said, 64-byte aligned; it holds
 * anything. */
void* adacc_stage_memory(adacc_stash* stash);

/* Gradient `id` of those that are carried, 64-byte aligned: one place from adacc_enter of its first stage
 * until the last one ends, also between two stages. At first it holds anything. */
void* adacc_carried(adacc_stash* stash, int id);

/* ==== A tape: the trainer's kernels, which adacc runs. ====
 *
 * A stash whose calls are made for the trainer: forward is a list of kernels, each written once, as a function
 * that also computes its outputs again. Gradients have a place, too. Backward stays the trainer's own.
 *
 *     once    adacc_tape_create, adacc_tape_kernel for each kernel of forward, adacc_tape_start
 *     step    adacc_tape_begin
 *             forward:   adacc_tape_run(first, last)
 *             backward:  adacc_tape_backward(k), adacc_tape_value(id), adacc_tape_grad(id), ...
 *             adacc_tape_end: the first error of the step
 *
 * Activations and kernels are numbered from 1, so a list in a struct ends by itself: {.reads = {h, z}}. */

typedef struct adacc_tape adacc_tape;

enum { ADACC_MOST_READS = 16, ADACC_MOST_WRITES = 8 };

/* An output of a kernel: rows x columns floats, or `bytes` of anything. Names are copied. */
typedef struct {
  const char* name;
  size_t rows, columns;
  size_t bytes;
  int codecs[3]; /* that may encode it, until a 0 */
  int gradient;  /* not 0: the tape has its gradient, adacc_tape_grad() */
  int zeroed;    /* not 0: its memory is 0 before the kernel runs, for kernels that do not write all of it */
} adacc_tape_output;

/* Among the activations that a backward reads: output i of the kernel itself, from 0 on. */
#define ADACC_OWN(i) (-1 - (i))

/* One call of a kernel in forward. Fields that are left out are none. */
typedef struct {
  const char* name;
  adacc_kernel kernel;
  void* user;                                  /* for the kernel; must outlive the tape */
  int reads[ADACC_MOST_READS];                 /* activations that the kernel reads: its sources */
  adacc_tape_output writes[ADACC_MOST_WRITES]; /* until one without a name */
  int saves[ADACC_MOST_READS];                 /* activations that its backward reads: ids, or ADACC_OWN(i) */
  size_t workspace_bytes;                      /* of the kernel */
  size_t backward_bytes;                       /* of its backward: adacc_tape_backward_workspace() */
  int once;                                    /* not 0: it runs in forward alone, because another run differs */
} adacc_tape_call;

/* Null if there is no memory. */
adacc_tape* adacc_tape_create(void);
/* Null is allowed. */
void adacc_tape_destroy(adacc_tape* tape);

/* Adds the next kernel of forward; the id of its first output, behind which the others follow, or 0 if it writes
 * nothing. Kernels are numbered from 1 in this order. */
int adacc_tape_kernel(adacc_tape* tape, const adacc_tape_call* call);
/* Memory of the trainer's that kernels must not change when they run again, such as running means: adacc_tape_start
 * with .check looks at it. The memory must outlive the tape; `name` is copied. */
int adacc_tape_watch(adacc_tape* tape, const char* name, const void* memory, size_t bytes);
/* Kernels so far, and the kernel that makes activation `id`. */
int adacc_tape_kernels(const adacc_tape* tape);
int adacc_tape_kernel_of(const adacc_tape* tape, int id);

/* One of `percent` and `budget_bytes` is given, and `step` with its gradients. */
typedef struct {
  double percent;       /* of the memory that retaining everything takes */
  size_t budget_bytes;  /* of values, kept activations, gradients and workspaces together */
  double tolerance;     /* of the gradient's relative squared error; 0: every bit as without a tape */
  double setup_seconds; /* for probing codecs, and then for planning; 0: 10 */
  adacc_step step;      /* a step from adacc_tape_begin to adacc_tape_end, with all kernels */
  void* user;
  const adacc_gradient* gradients; /* of parameters, which the step leaves there */
  size_t gradient_count;
  void* memory; /* lent to the tape, which starts 64-byte aligned; null: the tape takes its own */
  size_t memory_bytes;
  int check;    /* not 0: steps look for mistakes of kernels and backward. Do this once for every trainer */
  int evolving; /* not 0: the plan follows times and errors that later steps show */
  void (*log)(void* log_user, const char* line); /* gets progress and the plan, a line each; null: nobody */
  void* log_user;
} adacc_tape_request;

/* Runs steps of the trainer, times kernels, probes codecs if there is a tolerance, plans, takes memory. */
int adacc_tape_start(adacc_tape* tape, const adacc_tape_request* request);
/* Plans for another budget, between steps; nothing changes if that fails. */
int adacc_tape_set_budget(adacc_tape* tape, size_t budget_bytes);
/* Bytes that the plan takes; 0 before adacc_tape_start. */
size_t adacc_tape_arena_bytes(const adacc_tape* tape);
/* The plan in a line. Valid until the next call; empty before adacc_tape_start. */
const char* adacc_tape_report(adacc_tape* tape);
/* The policy of activation `id`: "retain", "recompute", or the name of a codec. */
const char* adacc_tape_policy(const adacc_tape* tape, int id);

/* After an error, all functions of a step do nothing and fail until adacc_tape_end, which returns the first one. */
int adacc_tape_begin(adacc_tape* tape);
/* Runs kernels `first` to `last` of forward. A step may end forward before the last kernel: kernels that did not
 * run have no backward in it. */
int adacc_tape_run(adacc_tape* tape, int first, int last);
/* The backward of kernel k begins: from the last kernel that ran to the first; kernels may be left out. */
int adacc_tape_backward(adacc_tape* tape, int k);
/* Activation `id`: in forward an output of the last kernel that ran, or one that a kernel to come reads; in
 * backward one that the kernel saves. Not to be written. */
const void* adacc_tape_value(adacc_tape* tape, int id);
/* The gradient of activation `id`, to be added to: 0 when the backward of its last reader begins. */
float* adacc_tape_grad(adacc_tape* tape, int id);
void* adacc_tape_backward_workspace(adacc_tape* tape);
int adacc_tape_end(adacc_tape* tape);

#ifdef __cplusplus
}
#endif
#endif
