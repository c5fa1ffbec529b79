/* SPDX-License-Identifier: MIT */
/*
 * The CPU trainer of llm.c (https://github.com/karpathy/llm.c, commit f1e2ace) on a tape, beside itself without one: the
 * same kernels, losses of the same bits, processor time of the fastest step, without the update of parameters.
 *
 *     g++ -std=c++20 -O3 -march=native -Iinclude -c include/adacc/adacc.cpp
 *     gcc -Ofast -march=native -fno-inline-functions -fno-inline-small-functions \
 *         -fno-inline-functions-called-once -fno-ipa-cp -Iinclude -IPATH/llm.c -c bench/peers/llmc_tape.c
 *     g++ llmc_tape.o adacc.o -pthread -lm -o llmc_tape
 *     ./llmc_tape 12 8 0; ./llmc_tape 12 8 30    # layers, steps, per cent (0: without a tape), tolerance
 *
 * With these options each kernel is one function for the compiler, whoever calls it.
 */
#define TESTING
#include <adacc/adacc.h>

#include "train_gpt2.c"

enum { B = 4, T = 64, N = B * T, HEADS = 4, C = 128, V = 256, MOST_LAYERS = 64 };

typedef struct {
  int number;
  int ln1, qkv, att, proj, h2, ln2, fc, gelu, fcproj, h; /* activations */
} Block;

static GPT2 model;
static adacc_tape* tape;
static Block blocks[MOST_LAYERS];
static int L, encoded, lnf, logits, probs;

#define OF(weights, count) (model.params.weights + (size_t)self->number * (count))
ADACC_KERNEL(run_encoder, Block,
             encoder_forward(y[0], model.inputs, model.params.wte, model.params.wpe, B, T, C))
ADACC_KERNEL(run_ln1, Block,
             layernorm_forward(y[0], y[1], y[2], (float*)x[0], OF(ln1w, C), OF(ln1b, C), B, T, C))
ADACC_KERNEL(run_qkv, Block,
             matmul_forward(y[0], x[0], OF(qkvw, 3 * C * C), OF(qkvb, 3 * C), B, T, C, 3 * C))
ADACC_KERNEL(run_att, Block, attention_forward(y[0], workspace, y[1], (float*)x[0], B, T, C, HEADS))
ADACC_KERNEL(run_proj, Block,
             matmul_forward(y[0], x[0], OF(attprojw, C* C), OF(attprojb, C), B, T, C, C))
ADACC_KERNEL(run_sum, Block, residual_forward(y[0], (float*)x[0], (float*)x[1], N* C))
ADACC_KERNEL(run_ln2, Block,
             layernorm_forward(y[0], y[1], y[2], (float*)x[0], OF(ln2w, C), OF(ln2b, C), B, T, C))
ADACC_KERNEL(run_fc, Block,
             matmul_forward(y[0], x[0], OF(fcw, 4 * C * C), OF(fcb, 4 * C), B, T, C, 4 * C))
ADACC_KERNEL(run_gelu, Block, gelu_forward(y[0], (float*)x[0], N * 4 * C))
ADACC_KERNEL(run_fcproj, Block,
             matmul_forward(y[0], x[0], OF(fcprojw, 4 * C * C), OF(fcprojb, C), B, T, 4 * C, C))
ADACC_KERNEL(run_lnf, Block,
             layernorm_forward(y[0], y[1], y[2], (float*)x[0], model.params.lnfw, model.params.lnfb,
                               B, T, C))
ADACC_KERNEL(run_logits, Block, matmul_forward(y[0], x[0], model.params.wte, NULL, B, T, C, V))
ADACC_KERNEL(run_softmax, Block, softmax_forward(y[0], (float*)x[0], B, T, V, V))

/* Adds a kernel with outputs of these columns, until a 0. */
static int add(const char* name, const int* columns, adacc_tape_call call) {
  call.name = name, call.gradients = 1;
  for (int i = 0; columns[i] > 0; ++i)
    call.writes[i] = (adacc_tape_output){.name = name, .rows = N, .columns = (size_t)columns[i]};
  return adacc_tape_kernel(tape, &call);
}
#define COLUMNS(...) ((const int[]){__VA_ARGS__, 0})
#define ADD(name, columns, ...) add(name, columns, (adacc_tape_call){__VA_ARGS__})

static void describe(void) {
  const size_t att_bytes = sizeof(float) * HEADS * T * N;
  adacc_on_error(adacc_stop, NULL);
  tape = adacc_tape_create();
  int h = encoded = ADD("encoded", COLUMNS(C), .kernel = run_encoder);
  for (Block* b = blocks; b < blocks + L; ++b) {
    b->number = (int)(b - blocks);
    b->ln1 = ADD("ln1", COLUMNS(C, 1, 1), .kernel = run_ln1, .user = b, .reads = {h},
                 .saves = {h, ADACC_OWN(1), ADACC_OWN(2)});
    b->qkv = ADD("qkv", COLUMNS(3 * C), .kernel = run_qkv, .user = b, .reads = {b->ln1},
                 .saves = {b->ln1});
    b->att = ADD("att", COLUMNS(C, HEADS * T), .kernel = run_att, .user = b, .reads = {b->qkv},
                 .saves = {b->qkv, ADACC_OWN(1)}, .workspace_bytes = att_bytes,
                 .backward_bytes = 2 * att_bytes);
    b->proj = ADD("proj", COLUMNS(C), .kernel = run_proj, .user = b, .reads = {b->att},
                  .saves = {b->att});
    b->h2 = ADD("h2", COLUMNS(C), .kernel = run_sum, .reads = {h, b->proj});
    b->ln2 = ADD("ln2", COLUMNS(C, 1, 1), .kernel = run_ln2, .user = b, .reads = {b->h2},
                 .saves = {b->h2, ADACC_OWN(1), ADACC_OWN(2)});
    b->fc = ADD("fc", COLUMNS(4 * C), .kernel = run_fc, .user = b, .reads = {b->ln2},
                .saves = {b->ln2});
    b->gelu = ADD("gelu", COLUMNS(4 * C), .kernel = run_gelu, .reads = {b->fc}, .saves = {b->fc});
    b->fcproj = ADD("fcproj", COLUMNS(C), .kernel = run_fcproj, .user = b, .reads = {b->gelu},
                    .saves = {b->gelu});
    h = b->h = ADD("h", COLUMNS(C), .kernel = run_sum, .reads = {b->h2, b->fcproj});
  }
  lnf = ADD("lnf", COLUMNS(C, 1, 1), .kernel = run_lnf, .reads = {h},
            .saves = {h, ADACC_OWN(1), ADACC_OWN(2)});
  logits = ADD("logits", COLUMNS(V), .kernel = run_logits, .reads = {lnf}, .saves = {lnf});
  probs =
      ADD("probs", COLUMNS(V), .kernel = run_softmax, .reads = {logits}, .saves = {ADACC_OWN(0)});
}

/* llm.c's functions take pointers to values that they only read. */
static float* val(int id) { return (float*)adacc_tape_value(tape, id); }
static float* grad(int id) { return adacc_tape_grad(tape, id); }
static void enter(int id) { adacc_tape_backward_of(tape, id); }

#define P(weights, count) (model.params.weights + (size_t)b->number * (count))
#define D(weights, count) (model.grads.weights + (size_t)b->number * (count))

static void norm_back(int in, int out, float* w, float* dw, float* db) {
  enter(out);
  layernorm_backward(grad(in), dw, db, grad(out), val(in), w, val(out + 1), val(out + 2), B, T, C);
}
static void product_back(int in, int out, float* w, float* dw, float* db, int ins, int outs) {
  enter(out);
  matmul_backward(grad(in), dw, db, grad(out), val(in), w, B, T, ins, outs);
}
static void sum_back(int one, int other, int out) {
  enter(out);
  residual_backward(grad(one), grad(other), grad(out), N * C);
}

static int step(void* user) {
  static float losses[N], dlosses[N];
  (void)user;
  adacc_tape_forward(tape);
  crossentropy_forward(losses, val(probs), model.targets, B, T, V);
  model.mean_loss = 0;
  for (int i = 0; i < N; ++i) model.mean_loss += losses[i], dlosses[i] = 1.0F / N;
  model.mean_loss /= N;
  memset(model.grads_memory, 0, model.num_parameters * sizeof(float));
  enter(probs);
  crossentropy_softmax_backward(grad(logits), dlosses, val(probs), model.targets, B, T, V, V);
  product_back(lnf, logits, model.params.wte, model.grads.wte, NULL, C, V);
  norm_back(blocks[L - 1].h, lnf, model.params.lnfw, model.grads.lnfw, model.grads.lnfb);
  for (const Block* b = blocks + L; b-- > blocks;) {
    const int in = b == blocks ? encoded : b[-1].h;
    sum_back(b->h2, b->fcproj, b->h);
    product_back(b->gelu, b->fcproj, P(fcprojw, 4 * C * C), D(fcprojw, 4 * C * C), D(fcprojb, C),
                 4 * C, C);
    enter(b->gelu);
    gelu_backward(grad(b->fc), val(b->fc), grad(b->gelu), N * 4 * C);
    product_back(b->ln2, b->fc, P(fcw, 4 * C * C), D(fcw, 4 * C * C), D(fcb, 4 * C), C, 4 * C);
    norm_back(b->h2, b->ln2, P(ln2w, C), D(ln2w, C), D(ln2b, C));
    sum_back(in, b->proj, b->h2);
    product_back(b->att, b->proj, P(attprojw, C * C), D(attprojw, C * C), D(attprojb, C), C, C);
    enter(b->att);
    float* const datt = adacc_tape_backward_workspace(tape);
    memset(datt, 0, 2 * sizeof(float) * HEADS * T * N);
    attention_backward(grad(b->qkv), datt, datt + HEADS * T * N, grad(b->att), val(b->qkv),
                       val(b->att + 1), B, T, C, HEADS);
    product_back(b->ln1, b->qkv, P(qkvw, 3 * C * C), D(qkvw, 3 * C * C), D(qkvb, 3 * C), C, 3 * C);
    norm_back(in, b->ln1, P(ln1w, C), D(ln1w, C), D(ln1b, C));
  }
  enter(encoded);
  encoder_backward(model.grads.wte, model.grads.wpe, grad(encoded), model.inputs, B, T, C);
  adacc_tape_end(tape);
  return 0;
}

static double cpu_milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}
static unsigned draw(void) {
  static unsigned state = 1;
  return (state = state * 1664525U + 1013904223U) >> 8;
}

static void make_model(void) {
  model.config = (GPT2Config){.max_seq_len = T,
                              .vocab_size = V,
                              .padded_vocab_size = V,
                              .num_layers = L,
                              .num_heads = HEADS,
                              .channels = C};
  fill_in_parameter_sizes(model.param_sizes, model.config);
  for (int i = 0; i < NUM_PARAMETER_TENSORS; ++i) model.num_parameters += model.param_sizes[i];
  model.params_memory = malloc_and_point_parameters(&model.params, model.param_sizes);
  for (size_t i = 0; i < model.num_parameters; ++i)
    model.params_memory[i] = ((float)draw() / 16777216.0F - 0.5F) * 0.08F;
  for (int i = 0; i < L * C; ++i) model.params.ln1w[i] = model.params.ln2w[i] = 1;
  for (int i = 0; i < C; ++i) model.params.lnfw[i] = 1;
}

int main(int argc, char** argv) {
  if (argc < 4) return fprintf(stderr, "llmc_tape layers steps percent [tolerance]\n"), 2;
  L = atoi(argv[1]);
  const double percent = atof(argv[3]);
  if (L < 1 || L > MOST_LAYERS) return fprintf(stderr, "1 to %d layers\n", MOST_LAYERS), 2;
  make_model();
  static int inputs[N], targets[N];
  for (int i = 0; i < N; ++i) inputs[i] = (int)(draw() % 64), targets[i] = (inputs[i] * 7 + 3) % V;
  if (percent > 0) {
    model.inputs = inputs, model.targets = targets;
    model.grads_memory = malloc_and_point_parameters(&model.grads, model.param_sizes);
    describe();
    adacc_tape_start(tape,
                     &(adacc_tape_request){
                         .percent = percent,
                         .tolerance = argc > 4 ? atof(argv[4]) : 0,
                         .step = step,
                         .gradients = &(adacc_gradient){model.grads_memory, model.num_parameters},
                         .gradient_count = 1});
    printf("%s\n", adacc_tape_report(tape));
  }
  double least = 1e9;
  for (int i = 1; i <= atoi(argv[2]); ++i) {
    const double begin = cpu_milliseconds();
    if (percent > 0) {
      step(NULL);
    } else {
      gpt2_forward(&model, inputs, targets, B, T);
      gpt2_zero_grad(&model);
      gpt2_backward(&model);
    }
    const double took = cpu_milliseconds() - begin;
    if (took < least) least = took;
    gpt2_update(&model, 1e-3F, 0.9F, 0.999F, 1e-8F, 0, i);
    printf("step %d loss %.9g\n", i, (double)model.mean_loss);
  }
  printf("%zu bytes; fastest step %.2f ms of processor time\n",
         percent > 0 ? adacc_tape_arena_bytes(tape) : 2 * sizeof(float) * model.num_activations,
         least);
  return 0;
}
