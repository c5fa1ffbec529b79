/* SPDX-License-Identifier: MIT */
/*
 * For trainers written in C: activations kept, encoded or computed again within a budget (docs/stash.md).
 *
 * A tape runs the kernels of a trainer. It is the way to begin, and all that a trainer needs whose forward is a list
 * of kernels. The stash at the end of this file is a detail beneath the tape, for forwards that are no list
 * (docs/stash_calls.md).
 *
 * Compile adacc.cpp, beside this file, once, as C++20 and without -ffast-math, and link the object
 * (with CMake: adacc::c). The trainer itself may be C11 or later, compiled in any way.
 *
 * Functions return ADACC_OK, an id, or another number that is not negative; or one of
 *
 *    ADACC_MISUSE   a mistake of the calling code: null, an unknown id, calls in the wrong order.
 *                   Nothing has changed
 *    ADACC_FAILED   bad luck: no plan fits into the budget, there is no memory, a step of the
 *                   trainer failed
 *
 * and functions with a pointer as result return null instead. adacc_error() is the text. Nothing
 * aborts, prints or calls longjmp, unless adacc_on_error says so, and nothing allocates within a step.
 * Any number of tapes and stashes may be used at once, each by one thread at a time.
 */
#ifndef ADACC_H
#define ADACC_H

#include <stddef.h> /* C has no cstddef: NOLINT(modernize-deprecated-headers) */

#ifdef __cplusplus
extern "C" {
#endif

enum { ADACC_OK = 0, ADACC_MISUSE = -1, ADACC_FAILED = -2 };

/* The reason of the last failure of a call in this thread. */
const char* adacc_error(void);

/* Each call of this thread that fails calls `handler` with the text before it returns; null: nobody is called. The
 * handler may end the program, calls nothing of adacc, and does not leave by longjmp. */
void adacc_on_error(void (*handler)(void* user, const char* error), void* user);
/* A handler: prints the text to stderr, and ends the program with 1. Results need no checks then. */
void adacc_stop(void* user, const char* error);

/* Makes activations: writes all of outputs[0], outputs[1], ... from sources[0], sources[1], ... and from `user`.
 * A tape calls its kernels in forward. Both a tape and a stash call them at any time of backward, in any order, on
 * other memory than forward's, for the bits of forward. So memory read through `user` (parameters, say) must not
 * change until backward is over. `workspace` is 64-byte aligned, as are all others. */
typedef void (*adacc_kernel)(void* user, const void* const* sources, void* const* outputs,
                             void* workspace);

enum { ADACC_BF16 = 1, ADACC_INT8 = 2, ADACC_INT4 = 3 };

/* Defines a kernel of one expression, of the sources x, the outputs y, `workspace`, and `self`, which is `user` as a
 * pointer to `type`:
 *    ADACC_KERNEL(run_linear, Layer, linear(y[0], x[0], self->weights)) */
#define ADACC_KERNEL(function, type, ...)                                                   \
  static void function(void* user, const void* const* x, void* const* y, void* workspace) { \
    type* const self = (type*)user;                                                         \
    (void)self, (void)x, (void)y, (void)workspace, __VA_ARGS__;                             \
  }

/* A gradient, or part of it. */
typedef struct {
  const float* values;
  size_t count;
} adacc_gradient;

/* One step of the trainer, from begin to end, on a fixed batch, from gradients of zero, without an
 * update of the parameters; 0 if it succeeded. */
typedef int (*adacc_step)(void* user);

/* ==== A tape: the trainer's kernels, run by adacc. ====
 *
 * Forward is a list of kernels, each written once, as a function for forward and for recomputation. Gradients have a
 * place, too. Backward stays the trainer's own.
 *
 *     once    adacc_tape_create, adacc_tape_kernel for each kernel of forward, adacc_tape_start
 *     step    adacc_tape_begin
 *             forward:   adacc_tape_run(first, last); or adacc_tape_forward, which begins, too
 *             backward:  adacc_tape_backward(k) or adacc_tape_backward_of(id),
 *                        adacc_tape_value(id), adacc_tape_grad(id), ...
 *             adacc_tape_end: the first error of the step
 *
 * Activations and kernels are numbered from 1, so 0 ends a list in a struct: {.reads = {h, z}}. */

typedef struct adacc_tape adacc_tape;

enum { ADACC_MOST_READS = 16, ADACC_MOST_WRITES = 8 };

enum {
  ADACC_TYPE_FLOAT = 0,
  ADACC_TYPE_DOUBLE = 1,
  ADACC_TYPE_INT32 = 2,
  ADACC_TYPE_BF16 = 3,
  ADACC_TYPE_F16 = 4,
  ADACC_TYPE_BYTE = 5
};

/* An output of a kernel: rows x columns elements, `bytes` of anything, or an input changed in place. Names are
 * copied. */
typedef struct {
  const char* name;
  size_t rows, columns;
  size_t bytes;
  int type;      /* of the elements; codecs are for floats */
  int codecs[3]; /* that may encode it, until a 0 */
  int gradient;  /* not 0: the tape has a gradient for it, of its type: adacc_tape_grad() */
  int zeroed;    /* not 0: zero before the kernel runs, for kernels that do not write all of it */
  int in_place_of; /* not 0: one of the reads, which the output begins as; rows and columns are that one's */
  int per_item; /* not 0: rows, or bytes, grow with the items of a batch; see adacc_tape_begin_items */
} adacc_tape_output;

/* Among the reads of a backward: output i of the kernel itself, from 0 on. */
#define ADACC_OWN(i) (-1 - (i))

/* One call of a kernel in forward. Fields left out are none. */
typedef struct {
  const char* name;
  adacc_kernel kernel;
  void* user;                                  /* for the kernel; must outlive the tape */
  int reads[ADACC_MOST_READS];                 /* activations read by the kernel: the sources */
  adacc_tape_output writes[ADACC_MOST_WRITES]; /* until one without a name */
  int saves[ADACC_MOST_READS];                 /* read by backward: ids, or ADACC_OWN(i) */
  size_t workspace_bytes;                      /* for the kernel */
  size_t backward_bytes;                       /* for backward: adacc_tape_backward_workspace() */
  int once;                                    /* not 0: forward alone; another run would differ */
  int gradients; /* not 0: outputs of real numbers have one if a later kernel reads them */
} adacc_tape_call;

/* Null if there is no memory. */
adacc_tape* adacc_tape_create(void);
/* Null is allowed. */
void adacc_tape_destroy(adacc_tape* tape);

/* Adds the next kernel of forward; the id of the first output, with the others' behind, or 0 without outputs.
 * Kernels are numbered from 1 in this order. */
int adacc_tape_kernel(adacc_tape* tape, const adacc_tape_call* call);
/* Memory of the trainer not to be changed by kernels that run again, such as running means: adacc_tape_start
 * with .check looks at it. The memory must outlive the tape; `name` is copied. */
int adacc_tape_watch(adacc_tape* tape, const char* name, const void* memory, size_t bytes);
/* The number of kernels so far, and the kernel for activation `id`. */
int adacc_tape_kernels(const adacc_tape* tape);
int adacc_tape_kernel_of(const adacc_tape* tape, int id);

/* One of `percent` and `budget_bytes` is given, and `step` with gradients. */
typedef struct {
  double percent;       /* percentage of the memory for retaining everything */
  size_t budget_bytes;  /* for values, kept activations, gradients and workspaces together */
  double tolerance;     /* relative squared error of the gradient; 0: every bit as without a tape */
  double setup_seconds; /* for probing codecs, and then for planning; 0: 10 */
  adacc_step step;      /* a step from adacc_tape_begin to adacc_tape_end, with all kernels */
  void* user;
  const adacc_gradient* gradients; /* gradients of parameters, left there by the step */
  size_t gradient_count;
  void* memory; /* lent to the tape, 64-byte aligned; null: the tape takes memory */
  size_t memory_bytes;
  int check;     /* not 0: steps check kernels and backward. Do this once for every trainer */
  int evolving;  /* not 0: the plan follows times and errors of later steps */
  int items;     /* in the batch of `step`, if later steps may have fewer */
  int most_runs; /* of an activation again in backward, if no other plan fits: up to 8; 0: 1 */
  void (*log)(void* log_user, const char* line); /* progress and plan, in lines; null: nobody */
  void* log_user;
} adacc_tape_request;

/* Runs steps of the trainer, times kernels, probes codecs if there is a tolerance, plans, takes memory. */
int adacc_tape_start(adacc_tape* tape, const adacc_tape_request* request);
/* Plans for another budget, between steps; nothing changes after a failure. */
int adacc_tape_set_budget(adacc_tape* tape, size_t budget_bytes);
/* Bytes of the plan for the last step's items; 0 before adacc_tape_start. */
size_t adacc_tape_arena_bytes(const adacc_tape* tape);
/* The plan in a line. Valid until the next call; empty before adacc_tape_start. */
const char* adacc_tape_report(adacc_tape* tape);
/* The policy of activation `id`: "retain", "recompute", the name of a codec; "overwritten" if changed in place. */
const char* adacc_tape_policy(const adacc_tape* tape, int id);

/* After an error, all functions of a step do nothing and fail until adacc_tape_end, which returns the first one. */
int adacc_tape_begin(adacc_tape* tape);
/* Begins a step of fewer items: outputs that are per item are smaller. The first step of so many items plans within
 * the budget, and allocates. Kernels are told by `user`. */
int adacc_tape_begin_items(adacc_tape* tape, int items);
/* Begins a step, and runs all kernels of forward. */
int adacc_tape_forward(adacc_tape* tape);
/* Runs kernels `first` to `last` of forward. A step may end forward before the last kernel: kernels left out
 * have no backward in this step. */
int adacc_tape_run(adacc_tape* tape, int first, int last);
/* The backward of kernel k begins: from the last kernel that ran to the first; kernels may be left out. */
int adacc_tape_backward(adacc_tape* tape, int k);
/* The backward of the kernel for activation `id` begins. */
int adacc_tape_backward_of(adacc_tape* tape, int id);
/* Activation `id`: in forward an output of the last kernel, or a source of a kernel to come; in backward an
 * activation saved by the kernel. Not to be written. */
const void* adacc_tape_value(adacc_tape* tape, int id);
/* In backward, an activation saved by the kernel, to be overwritten: the kernel is the last reader. Fails if a
 * backward to come saves the activation too, or a plan may read it there to recompute another. */
void* adacc_tape_take(adacc_tape* tape, int id);
/* The gradient of activation `id`, to be added to: 0 at the step's first call for it. A pointer to elements of the
 * activation's type. */
float* adacc_tape_grad(adacc_tape* tape, int id);
/* The gradient with any contents, to be written whole. Fails if it has contents in this step already. */
float* adacc_tape_grad_to_write(adacc_tape* tape, int id);
void* adacc_tape_backward_workspace(adacc_tape* tape);
int adacc_tape_end(adacc_tape* tape);

/* ==== A stash: the calls beneath a tape. ====
 *
 * Details, for a trainer whose forward cannot be a list of kernels: it makes all calls itself, in memory that it lends.
 *
 *    once    adacc_create, adacc_add_kernel: the kernels, with the activations they read and make
 *            adacc_measure: times; adacc_probe: the effect of codecs on the gradient
 *            adacc_plan: within a budget; adacc_bind: memory for the plan
 *    step    adacc_begin
 *            forward:   adacc_put(id, values) as soon as an activation is made
 *            backward:  adacc_enter(stage), adacc_get(id), ..., adacc_leave(stage)
 */

typedef struct adacc_stash adacc_stash;

/* Null if there is no memory. */
adacc_stash* adacc_create(void);
/* Null is allowed. Lent memory is the caller's again. */
void adacc_destroy(adacc_stash* stash);

/* ---- Descriptions. Until the first adacc_measure or adacc_plan. ---- */

/* An output of a kernel: rows x columns floats, or `bytes` of anything, such as masks or indices,
 * which no codec takes. `name` is copied. */
typedef struct {
  const char* name;
  size_t rows, columns;
  size_t bytes;
  int codecs[3]; /* that may encode it, until a 0; adacc_allow, if an error is known */
} adacc_output;

/* Ids of activations, and outputs of a kernel. Lists may be written out:
 *    .reads = ADACC_IDS(h, z), .writes = ADACC_OUTPUTS({.name = "y", .rows = B, .columns = C})
 * Such a list lives until the end of the block around (also of an if or a for). */
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

/* Among the reads of a kernel's backward: output i of the kernel itself, from 0 on. */
#define ADACC_OUTPUT(i) (-2147483647 + (i))

/* One call of a kernel in forward. Fields left out are none. */
typedef struct {
  adacc_kernel kernel;      /* makes the outputs again; null if nothing does, as for an input */
  void* user;               /* for the kernel; must outlive the stash */
  size_t workspace_bytes;   /* for the kernel */
  adacc_ids reads;          /* earlier activations read by the kernel: the sources */
  adacc_outputs writes;     /* none, for a kernel like a loss, with no result for backward */
  adacc_ids backward_reads; /* activations read by backward, these or any other */
  size_t backward_bytes;    /* gradients and scratch of backward; a stage has the sum */
  int hold;                 /* not 0: forward's values of the outputs lie in the arena */
} adacc_kernel_call;

enum { ADACC_OWN_STAGE = -1 };

/* Describes the next call of a kernel, in the order of forward; the id of the first output, with the
 * others' behind. Ids count from 0. `stage` is the backward stage of the kernel's backward: stages are
 * units of the trainer's own, numbered from 0 as forward runs, and all activations read by the kernels
 * of a stage are in memory together. Backward runs them from the highest to the lowest. ADACC_OWN_STAGE
 * is one above the stages of all kernels before. Outputs registered alike (name, shape, codecs, kernel,
 * shapes of sources) are taken for copies of one. An output neither read nor held is refused when
 * adacc_measure looks at the whole. */
int adacc_add_kernel(adacc_stash* stash, int stage, const adacc_kernel_call* call);

/* Single activations, for a backward with stages that are no groups of kernels: details of adacc_add_kernel. */

/* Registers an activation of rows x columns floats, in the order of forward; the id, counted from 0.
 * `stages` (`stage_count` of them) are the backward stages that read it: units of the trainer's own,
 * numbered from 0 as forward runs. Backward runs them from the highest to the lowest, and all
 * activations of a stage are in memory together. Activations registered alike (name, shape, codecs,
 * kernel, shapes of sources) are taken for copies of one. `name` is copied. */
int adacc_add(adacc_stash* stash, const char* name, size_t rows, size_t columns, const int* stages,
              size_t stage_count);

/* Registers `bytes` of anything, such as masks or indices, which no codec takes; else see adacc_add. */
int adacc_add_bytes(adacc_stash* stash, const char* name, size_t bytes, const int* stages,
                    size_t stage_count);

/* Activations `ids`, registered one after the other, are made by one call of `kernel` from `sources`,
 * registered before them. `user` must outlive the stash. */
int adacc_recompute(adacc_stash* stash, const int* ids, size_t count, const int* sources,
                    size_t source_count, adacc_kernel kernel, void* user, size_t workspace_bytes);

/* Activation `id` may be kept encoded. `error` is the codec's part of the gradient's relative
 * squared error, E|g' - g|^2 / |g|^2; negative if unknown: estimated until adacc_probe. */
int adacc_allow(adacc_stash* stash, int id, int codec, double error);

/* Instead of leaving activation `id` to the planner: how == 0 to retain, -1 to recompute, or an
 * allowed codec. */
int adacc_fix(adacc_stash* stash, int id, int how);

/* Forward's value of activation `id` lies in the arena, too, from before the put until the put of
 * the last activation made from it: adacc_place says where. */
int adacc_hold(adacc_stash* stash, int id);

/* Forward makes activation `id`, which has no kernel, from `sources`. Needed for activations made from
 * held ones, unless adacc_recompute has the sources. */
int adacc_made_from(adacc_stash* stash, int id, const int* sources, size_t source_count);

/* Backward stage `stage` needs `bytes` of its own, for gradients and scratch: adacc_backward_workspace(). */
int adacc_stage_bytes(adacc_stash* stash, int stage, size_t bytes);

/* A gradient of `bytes` carried from stage to stage: adacc_carried() is the place, from stage
 * `from_backward_of`, the first to write to it, until stage `to_backward_of`, the last to read it, is over. Backward
 * runs from the highest stage to the lowest, so `from_backward_of` is the higher number. The id, counted from 0 among carried gradients.
 * With ADACC_OWN_STAGE, kernels come before. `name` is copied. */
int adacc_carry(adacc_stash* stash, const char* name, size_t bytes, int from_backward_of,
                int to_backward_of);

/* ---- Costs. Between steps: before adacc_begin, behind adacc_leave of stage 0, or adacc_end. ---- */

/* Times all kernels and codecs on this machine, on made-up values, in memory allocated and freed here.
 * `step_seconds` is the time of the trainer's own step without a stash; 0 if unknown. */
int adacc_measure(adacc_stash* stash, double step_seconds);

/* Measures the effect on the gradient of codecs allowed without a number, by steps of the trainer under
 * plans that differ in one kind of activation. A step finds enough memory bound, and leaves
 * its gradients in `gradients`. Allocates up to the memory for retaining everything, and frees it. May be
 * repeated, on other batches: errors are means. */
int adacc_probe(adacc_stash* stash, adacc_step step, void* user, const adacc_gradient* gradients,
                size_t gradient_count);

/* Runs such a step twice, with everything retained and with every kernel's outputs computed again, and
 * checks the use of the stash. It finds kernels with bits unlike forward's, kernels that depend on
 * unlisted memory or write where they should not, pointers kept for longer than a stage, activations not
 * put, stages not entered that read some, and gradients that differ. Allocates. Do this once for every
 * trainer: adacc_error() has the finding. */
int adacc_check(adacc_stash* stash, adacc_step step, void* user, const adacc_gradient* gradients,
                size_t gradient_count);

/* ---- A plan, and memory for it. Between steps, as often as you like. ---- */

typedef struct {
  size_t arena_bytes;    /* for the plan, exactly */
  size_t retain_bytes;   /* with everything retained */
  double seconds;        /* predicted, of a step */
  double retain_seconds; /* with everything retained */
  double error;          /* the gradient's, relative and squared */
  double gap;            /* no plan within budget and tolerance is faster by more than this share */
  double solve_seconds;  /* spent on planning */
} adacc_outcome;

/* The fastest plan with an arena of at most `budget_bytes` and a gradient error of at most `tolerance` (0:
 * every bit as without a stash); among plans at most 0.2 % slower, the one of least error. `outcome` may be
 * null. Replaces the plan before. Bound memory stays bound if large enough, else adacc_bind is next. If
 * adacc_plan fails, the plan before stays. */
int adacc_plan(adacc_stash* stash, size_t budget_bytes, double tolerance, adacc_outcome* outcome);

/* Each planning from now on (by adacc_plan, adacc_set_budget, adacc_begin of a stash that evolves, and
 * adacc_smallest_budget) ends within so many seconds, a fifth more and 20 milliseconds, with the best plan,
 * or the smallest budget, known by then: `gap` of the outcome bounds the plan's distance from the best. 0 or
 * more; 10 by default. At any time outside of a step; a plan already made stays. */
int adacc_set_deadline(adacc_stash* stash, double seconds);

/* Each planning from now on may recompute an activation up to `runs` times in a step, 1 to 8, if no other plan fits:
 * deep networks then train in less memory, and more time. 1 by default. At any time outside of a step; a plan already
 * made stays. */
int adacc_set_most_runs(adacc_stash* stash, int runs);

/* The smallest budget for adacc_plan within `tolerance`; 0 if unknown. */
size_t adacc_smallest_budget(adacc_stash* stash, double tolerance);

/* The policy of activation `id`: "retain", "recompute", or the name of a codec. */
const char* adacc_policy(const adacc_stash* stash, int id);

/* The bytes of memory for the plan; 0 without a plan. */
size_t adacc_arena_bytes(const adacc_stash* stash);

/* Lends the stash `bytes` of memory: enough for the plan, and up to 63 more if not 64-byte aligned. */
int adacc_bind(adacc_stash* stash, void* memory, size_t bytes);

/* ---- Changes of budgets and costs. ---- */

/* Plans for another budget, within the bound memory: the plan takes adacc_arena_bytes() of it. Between
 * steps: behind adacc_leave of stage 0, or adacc_end. Times, errors and statistics so far stay. After a
 * failure (no plan fits, and adacc_error() names the smallest budget; or less memory is bound), plan and
 * budget stay as they are. `outcome` may be null. */
int adacc_set_budget(adacc_stash* stash, size_t budget_bytes, adacc_outcome* outcome);

/* Seconds since a fixed moment. */
typedef double (*adacc_clock)(void* user);

/* Before the first adacc_measure: plans follow later steps. Each adacc_begin may change the plan, by
 * statistics of codecs and, if `clock` is not null, by the times of kernels and codecs. Then
 * adacc_measure reads this clock, too, and steps read it around each kernel and codec. If one drifts, all
 * are measured again in the bound memory, for at most a hundredth of the time; adacc_begin allocates for
 * this. Under lossless plans, bits stay those of no stash. `user` must outlive the stash. */
int adacc_evolve(adacc_stash* stash, adacc_clock clock, void* user);

/* Changes of the plan in the last adacc_begin, or in adacc_set_budget before it: a line for each activation
 * with another policy, and why; or why a due change was not made. Empty if there is nothing to tell. Valid
 * until the next call. */
const char* adacc_changes(adacc_stash* stash);

/* Losses of codecs in the last step: a line for each activation with rows over the codec's bound: kept
 * exactly in memory to spare, or by a codec with smaller losses (with scales along rows, or milder and
 * allowed), or left so. Empty if there is none. Valid until the next call. */
const char* adacc_declined(adacc_stash* stash);

/* ---- A step. ---- */

/* Begins a step; a step under way is forgotten. */
int adacc_begin(adacc_stash* stash);

/* Ends the step, or gives it up; adacc_leave of stage 0 does so, too. */
int adacc_end(adacc_stash* stash);

/* The best place for forward to write activation `id`: in the arena, or else `scratch` (which may be
 * null if `id` is held). Values there may be read until the first adacc_enter; of a held activation,
 * until the put of the last activation made from it. */
void* adacc_place(adacc_stash* stash, int id, void* scratch);

/* Scratch for forward to make the held activation `id` in, of the size told to adacc_recompute, for as
 * long as adacc_place may be written; else null. */
void* adacc_workspace(adacc_stash* stash, int id);

/* Forward has made activation `id`. The values, at any address outside of the arena or at
 * adacc_place, are the caller's again. In the order of ids, each once a step. */
int adacc_put(adacc_stash* stash, int id, const void* values);

/* Backward stage `stage` begins: the stage's activations are there until the next stage begins or
 * adacc_leave. Entering the current stage again changes nothing, so each kernel of a stage may do so.
 * Stages may be left out if the trainer does not want their gradients (but not in a step for adacc_check). */
int adacc_enter(adacc_stash* stash, int stage);
int adacc_leave(adacc_stash* stash, int stage);

/* Activation `id`, if the current stage is registered as a reader. Not to be written. */
const void* adacc_get(adacc_stash* stash, int id);

/* The memory of the current stage, of the size told to adacc_stage_bytes, 64-byte aligned, with any
 * contents. */
void* adacc_backward_workspace(adacc_stash* stash);

/* Carried gradient `id`, 64-byte aligned: one place from adacc_enter of the first of its stages until the
 * last one ends, also between two stages. At first the place has any contents. */
void* adacc_carried(adacc_stash* stash, int id);

#ifdef __cplusplus
}
#endif
#endif
