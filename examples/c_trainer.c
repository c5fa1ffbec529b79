/* SPDX-License-Identifier: MIT */
/*
 * A GPT that learns to add, in C: plain loops, AdamW, one malloc for all activations. Compiled with
 * WITH_ADACC it trains in a share of that memory: the lines behind #ifdef WITH_ADACC are all that this
 * takes. Losses have the same bits, except within a tolerance, which allows codecs.
 *
 *     c_trainer [layers [heads [channels [length [batch [steps [percent [tolerance]]]]]]]]
 *
 * Activations are numbered from 1: the output of the embedding, then those of each layer, then those of the head.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef WITH_ADACC
#include <adacc/adacc.h>
#endif

/* One copy of each kernel: a compiler may vectorize an inlined or specialized one in another way, and
 * then what is computed again has other bits. */
#if defined(__GNUC__) && !defined(__clang__)
#define KERNEL static __attribute__((noinline, noclone))
#else
#define KERNEL static __attribute__((noinline))
#endif

enum { VOCABULARY = 16 }; /* "0123456789+=;" and three that are not used */
enum { LN1, STAT1, QKV, ATT, ATTY, H2, LN2, STAT2, FC, GELU, H, KINDS }; /* of a layer */
enum { LNF, STATF, PROBS, HEAD_KINDS };                                  /* of the head */

typedef struct { /* a layer's parameters, or their gradients */
  float *ln1w, *ln1b, *qkvw, *qkvb, *projw, *projb, *ln2w, *ln2b, *fcw, *fcb, *fc2w, *fc2b;
} Layer;

static int L = 12, NH = 4, C = 128, T = 64, B = 4, steps = 20, percent = 30;
static double tolerance = 0;
static int N; /* rows: B * T */
static float *params, *grads, *moment1, *moment2;
static size_t param_count;
static float *wte, *wpe, *lnfw, *lnfb, *dwte, *dwpe, *dlnfw, *dlnfb; /* wte makes the logits, too */
static Layer *layers, *dlayers;
static int *tokens, *targets;

enum { EMBEDDED = 1 };
static int id_of(int l, int kind) { return 2 + l * KINDS + kind; }
static int input_of(int l) { return l == 0 ? EMBEDDED : id_of(l - 1, H); }
static int head_id(int kind) { return id_of(L, kind); }
static int activation_count(void) { return 1 + L * KINDS + HEAD_KINDS; }

/* Columns of an activation, which has N rows. */
static size_t columns_of(int id) {
  static const int of_layer[KINDS] = {1, 0, 3, 0, 1, 1, 1, 0, 4, 4, 1};
  if (id == EMBEDDED || id == head_id(LNF)) return (size_t)C;
  if (id == head_id(STATF)) return 2;
  if (id == head_id(PROBS)) return VOCABULARY;
  const int kind = (id - 2) % KINDS;
  return kind == STAT1 || kind == STAT2 ? 2
         : kind == ATT                  ? (size_t)(NH * T)
                                        : (size_t)(of_layer[kind] * C);
}
/* Floats for gradients of a part of backward: of the MLP, dFC and dLN2; of attention, dATTY, dQKV, dLN1 and a row
 * of dATT; of the head, dlogits and dLNF. */
static size_t scratch_floats(void) {
  const size_t n = (size_t)N, c = (size_t)C, layer = n * 5 * c + (size_t)T,
               head = n * (VOCABULARY + c);
  return layer > head ? layer : head;
}
/* Bytes of activations, their gradients and scratch without adacc. */
static size_t whole_bytes(void) {
  size_t count = scratch_floats() + (size_t)(N * C);
  for (int id = 1; id <= activation_count(); ++id) count += (size_t)N * columns_of(id);
  return sizeof(float) * count;
}

/* Zeros that begin where vector registers like it. */
static float* allocate(size_t count) {
  const size_t bytes = (count * sizeof(float) + 63) / 64 * 64;
  float* memory = aligned_alloc(64, bytes);
  if (memory == NULL) fprintf(stderr, "no memory for %zu bytes\n", bytes), exit(1);
  return memset(memory, 0, bytes);
}
/* Of this process: what else the machine does matters little. */
static double cpu_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- Kernels. Matrices of weights have a row per input. ---- */

/* out = x w + b, and + add if there is one. */
KERNEL void linear(float* out, const float* x, const float* w, const float* b, const float* add,
                   int in, int outs) {
  for (int n = 0; n < N; n += 4) {
    float* y = out + (size_t)n * (size_t)outs;
    const float* a = x + (size_t)n * (size_t)in;
    for (int r = 0; r < 4; ++r)
      for (int o = 0; o < outs; ++o)
        y[r * outs + o] =
            (b ? b[o] : 0) + (add ? add[(size_t)(n + r) * (size_t)outs + (size_t)o] : 0);
    for (int i = 0; i < in; ++i) {
      const float a0 = a[i], a1 = a[in + i], a2 = a[2 * in + i], a3 = a[3 * in + i];
      const float* row = w + (size_t)i * (size_t)outs;
      for (int o = 0; o < outs; ++o) {
        y[o] += a0 * row[o];
        y[outs + o] += a1 * row[o];
        y[2 * outs + o] += a2 * row[o];
        y[3 * outs + o] += a3 * row[o];
      }
    }
  }
}

/* dx = dy w^T; dw and db grow. */
KERNEL void linear_backward(float* dx, float* dw, float* db, const float* dy, const float* x,
                            const float* w, int in, int outs) {
  for (int n = 0; n < N; n += 4) {
    const float* g = dy + (size_t)n * (size_t)outs;
    for (int i = 0; i < in; ++i) {
      const float* row = w + (size_t)i * (size_t)outs;
      float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
      for (int o = 0; o < outs; ++o) {
        s0 += g[o] * row[o];
        s1 += g[outs + o] * row[o];
        s2 += g[2 * outs + o] * row[o];
        s3 += g[3 * outs + o] * row[o];
      }
      float* to = dx + (size_t)n * (size_t)in + i;
      to[0] = s0, to[in] = s1, to[2 * in] = s2, to[3 * in] = s3;
    }
  }
  for (int i = 0; i < in; ++i) {
    float* row = dw + (size_t)i * (size_t)outs;
    for (int n = 0; n < N; n += 4) {
      const float* a = x + (size_t)n * (size_t)in + i;
      const float* g = dy + (size_t)n * (size_t)outs;
      const float a0 = a[0], a1 = a[in], a2 = a[2 * in], a3 = a[3 * in];
      for (int o = 0; o < outs; ++o)
        row[o] += a0 * g[o] + a1 * g[outs + o] + a2 * g[2 * outs + o] + a3 * g[3 * outs + o];
    }
  }
  for (int n = 0; n < N && db != NULL; ++n)
    for (int o = 0; o < outs; ++o) db[o] += dy[(size_t)n * (size_t)outs + (size_t)o];
}

/* Each row of `stat`: mean and reciprocal deviation. */
KERNEL void norm(float* out, float* stat, const float* x, const float* w, const float* b) {
  for (int n = 0; n < N; ++n, x += C, out += C, stat += 2) {
    float mean = 0, variance = 0;
    for (int c = 0; c < C; ++c) mean += x[c] / (float)C;
    for (int c = 0; c < C; ++c) variance += (x[c] - mean) * (x[c] - mean) / (float)C;
    stat[0] = mean;
    stat[1] = 1 / sqrtf(variance + 1e-5F);
    for (int c = 0; c < C; ++c) out[c] = (x[c] - mean) * stat[1] * w[c] + b[c];
  }
}

/* dh += the gradient of x. */
KERNEL void norm_backward(float* dx, float* dw, float* db, const float* dy, const float* x,
                          const float* stat, const float* w) {
  for (int n = 0; n < N; ++n, x += C, dx += C, dy += C, stat += 2) {
    float sum = 0, along = 0;
    for (int c = 0; c < C; ++c) {
      const float unit = (x[c] - stat[0]) * stat[1];
      dw[c] += dy[c] * unit;
      db[c] += dy[c];
      sum += dy[c] * w[c] / (float)C;
      along += dy[c] * w[c] * unit / (float)C;
    }
    for (int c = 0; c < C; ++c)
      dx[c] += stat[1] * (dy[c] * w[c] - sum - (x[c] - stat[0]) * stat[1] * along);
  }
}

/* att: of each row and head, T probabilities, those behind the row itself 0. */
KERNEL void attention(float* att, float* out, const float* qkv) {
  const int D = C / NH, W = 3 * C;
  const float scale = 1 / sqrtf((float)D);
  for (int n = 0; n < N; ++n)
    for (int h = 0; h < NH; ++h) {
      const int t = n % T;
      const float* q = qkv + (size_t)n * (size_t)W + h * D;
      const float* first = qkv + (size_t)(n - t) * (size_t)W + h * D;
      float* p = att + ((size_t)n * (size_t)NH + (size_t)h) * (size_t)T;
      float* y = out + (size_t)n * (size_t)C + h * D;
      float most = -1e30F, sum = 0;
      for (int s = 0; s <= t; ++s) {
        const float* k = first + (size_t)s * (size_t)W + C;
        float product = 0;
        for (int d = 0; d < D; ++d) product += q[d] * k[d];
        p[s] = product * scale;
        if (p[s] > most) most = p[s];
      }
      for (int s = 0; s <= t; ++s) sum += p[s] = expf(p[s] - most);
      for (int s = 0; s < T; ++s) p[s] = s <= t ? p[s] / sum : 0;
      for (int d = 0; d < D; ++d) y[d] = 0;
      for (int s = 0; s <= t; ++s) {
        const float* v = first + (size_t)s * (size_t)W + 2 * C;
        for (int d = 0; d < D; ++d) y[d] += p[s] * v[d];
      }
    }
}

KERNEL void attention_backward(float* dqkv, const float* dy, const float* qkv, const float* att,
                               float* dp) {
  const int D = C / NH, W = 3 * C;
  const float scale = 1 / sqrtf((float)D);
  memset(dqkv, 0, sizeof(float) * (size_t)N * (size_t)W);
  for (int n = 0; n < N; ++n)
    for (int h = 0; h < NH; ++h) {
      const int t = n % T;
      const size_t at = (size_t)n * (size_t)W + (size_t)(h * D);
      const size_t first = (size_t)(n - t) * (size_t)W + (size_t)(h * D);
      const float* p = att + ((size_t)n * (size_t)NH + (size_t)h) * (size_t)T;
      const float* g = dy + (size_t)n * (size_t)C + h * D;
      float along = 0;
      for (int s = 0; s <= t; ++s) {
        const size_t v = first + (size_t)s * (size_t)W + 2 * (size_t)C;
        dp[s] = 0;
        for (int d = 0; d < D; ++d) {
          dp[s] += g[d] * qkv[v + (size_t)d];
          dqkv[v + (size_t)d] += p[s] * g[d];
        }
        along += p[s] * dp[s];
      }
      for (int s = 0; s <= t; ++s) {
        const size_t k = first + (size_t)s * (size_t)W + (size_t)C;
        const float score = p[s] * (dp[s] - along) * scale;
        for (int d = 0; d < D; ++d) {
          dqkv[at + (size_t)d] += score * qkv[k + (size_t)d];
          dqkv[k + (size_t)d] += score * qkv[at + (size_t)d];
        }
      }
    }
}

KERNEL void gelu(float* out, const float* x) {
  for (size_t i = 0; i < (size_t)N * 4 * (size_t)C; ++i)
    out[i] = 0.5F * x[i] * (1 + tanhf(0.7978845608F * (x[i] + 0.044715F * x[i] * x[i] * x[i])));
}

/* dx may be dy. */
KERNEL void gelu_backward(float* dx, const float* dy, const float* x) {
  for (size_t i = 0; i < (size_t)N * 4 * (size_t)C; ++i) {
    const float th = tanhf(0.7978845608F * (x[i] + 0.044715F * x[i] * x[i] * x[i]));
    dx[i] = dy[i] * (0.5F * (1 + th) + 0.5F * x[i] * (1 - th * th) * 0.7978845608F *
                                           (1 + 3 * 0.044715F * x[i] * x[i]));
  }
}

KERNEL void embed(float* out) {
  for (int n = 0; n < N; ++n)
    for (int c = 0; c < C; ++c) out[n * C + c] = wte[tokens[n] * C + c] + wpe[n % T * C + c];
}

KERNEL void embed_backward(const float* dout) {
  for (int n = 0; n < N; ++n)
    for (int c = 0; c < C; ++c) {
      dwte[tokens[n] * C + c] += dout[n * C + c];
      dwpe[n % T * C + c] += dout[n * C + c];
    }
}

/* The probabilities of what comes next; wte's transpose makes the logits. */
KERNEL void head(float* probs, const float* x) {
  for (int n = 0; n < N; ++n, probs += VOCABULARY, x += C) {
    float most = -1e30F, sum = 0;
    for (int v = 0; v < VOCABULARY; ++v) {
      probs[v] = 0;
      for (int c = 0; c < C; ++c) probs[v] += x[c] * wte[v * C + c];
      if (probs[v] > most) most = probs[v];
    }
    for (int v = 0; v < VOCABULARY; ++v) sum += probs[v] = expf(probs[v] - most);
    for (int v = 0; v < VOCABULARY; ++v) probs[v] /= sum;
  }
}

KERNEL void head_backward(float* dx, float* dlogits, const float* probs, const float* x) {
  for (int n = 0; n < N; ++n, dx += C, dlogits += VOCABULARY, probs += VOCABULARY, x += C) {
    memset(dx, 0, sizeof(float) * (size_t)C);
    for (int v = 0; v < VOCABULARY; ++v) {
      dlogits[v] = (probs[v] - (v == targets[n] ? 1.0F : 0.0F)) / (float)N;
      for (int c = 0; c < C; ++c) {
        dx[c] += dlogits[v] * wte[v * C + c];
        dwte[v * C + c] += dlogits[v] * x[c];
      }
    }
  }
}

/* The residual stream: the gradient of a sum goes on to both of its terms. */
KERNEL void pass_on(float* to, const float* from) {
  for (size_t i = 0; to != from && i < (size_t)N * (size_t)C; ++i) to[i] += from[i];
}

/* ---- Where activations and their gradients are, and forward. ---- */

static float mean_loss(const float* probs) {
  float loss = 0;
  for (int n = 0; n < N; ++n) loss -= logf(probs[n * VOCABULARY + targets[n]]) / (float)N;
  return loss;
}

static size_t activation_bytes;
#ifndef WITH_ADACC

static float **activations, *scratch, *stream;

static void make_room(void) {
  activation_bytes = whole_bytes();
  float* memory = allocate(activation_bytes / sizeof(float));
  activations = malloc(sizeof(float*) * (size_t)(activation_count() + 1));
  if (activations == NULL) exit(1);
  for (int id = 1; id <= activation_count(); memory += (size_t)N * columns_of(id++))
    activations[id] = memory;
  scratch = memory, stream = memory + scratch_floats();
}
static float* val(int id) { return activations[id]; }
/* One row is the gradient of the residual stream; those of a part of backward share the scratch. */
static float* grad(int id) {
  const size_t row = (size_t)N * (size_t)C;
  if (id == head_id(LNF)) return scratch;
  switch (id == EMBEDDED ? H : (id - 2) % KINDS) {
    case FC:
    case GELU:
    case QKV: return scratch;
    case ATTY: return scratch + 3 * row;
    case LN1:
    case LN2: return scratch + 4 * row;
    default: return stream;
  }
}
static float* new_grad(int id) { return grad(id); }
static float* room(int id) {
  return scratch + (id == head_id(PROBS) ? 1 : 5) * (size_t)N * (size_t)C;
}
static void enter(int id) {
  if (id == head_id(PROBS)) memset(stream, 0, sizeof(float) * (size_t)(N * C));
}

static float forward(void) {
  embed(val(EMBEDDED));
  for (int l = 0; l < L; ++l) {
    const Layer* p = &layers[l];
    float *h = val(input_of(l)), *h2 = val(id_of(l, H2));
    norm(val(id_of(l, LN1)), val(id_of(l, STAT1)), h, p->ln1w, p->ln1b);
    linear(val(id_of(l, QKV)), val(id_of(l, LN1)), p->qkvw, p->qkvb, NULL, C, 3 * C);
    attention(val(id_of(l, ATT)), val(id_of(l, ATTY)), val(id_of(l, QKV)));
    linear(h2, val(id_of(l, ATTY)), p->projw, p->projb, h, C, C);
    norm(val(id_of(l, LN2)), val(id_of(l, STAT2)), h2, p->ln2w, p->ln2b);
    linear(val(id_of(l, FC)), val(id_of(l, LN2)), p->fcw, p->fcb, NULL, C, 4 * C);
    gelu(val(id_of(l, GELU)), val(id_of(l, FC)));
    linear(val(id_of(l, H)), val(id_of(l, GELU)), p->fc2w, p->fc2b, h2, 4 * C, C);
  }
  norm(val(head_id(LNF)), val(head_id(STATF)), val(input_of(L)), lnfw, lnfb);
  head(val(head_id(PROBS)), val(head_id(LNF)));
  return mean_loss(val(head_id(PROBS)));
}
static void finish(void) {}

#else
static adacc_tape* tape;
static const float* val(int id) { return adacc_tape_value(tape, id); }
static float* grad(int id) { return adacc_tape_grad(tape, id); }
static float* new_grad(int id) { return adacc_tape_grad_to_write(tape, id); }
static float* room(int id) { return (void)id, adacc_tape_backward_workspace(tape); }
static void enter(int id) { adacc_tape_backward_of(tape, id); }
static float forward(void) { return adacc_tape_forward(tape), mean_loss(val(head_id(PROBS))); }
static void finish(void) { adacc_tape_end(tape); }
#endif

/* ---- Backward, kernel by kernel. ---- */

static void backward(void) {
  memset(grads, 0, sizeof(float) * param_count);
  enter(head_id(PROBS));
  head_backward(new_grad(head_id(LNF)), room(head_id(PROBS)), val(head_id(PROBS)),
                val(head_id(LNF)));
  enter(head_id(LNF));
  norm_backward(grad(input_of(L)), dlnfw, dlnfb, grad(head_id(LNF)), val(input_of(L)),
                val(head_id(STATF)), lnfw);
  for (int l = L - 1; l >= 0; --l) {
    const Layer *p = &layers[l], *d = &dlayers[l];
    const int in = input_of(l), h2 = id_of(l, H2), h = id_of(l, H);
    enter(h);
    linear_backward(new_grad(id_of(l, GELU)), d->fc2w, d->fc2b, grad(h), val(id_of(l, GELU)),
                    p->fc2w, 4 * C, C);
    pass_on(grad(h2), grad(h));
    enter(id_of(l, GELU));
    gelu_backward(new_grad(id_of(l, FC)), grad(id_of(l, GELU)), val(id_of(l, FC)));
    enter(id_of(l, FC));
    linear_backward(new_grad(id_of(l, LN2)), d->fcw, d->fcb, grad(id_of(l, FC)), val(id_of(l, LN2)),
                    p->fcw, C, 4 * C);
    enter(id_of(l, LN2));
    norm_backward(grad(h2), d->ln2w, d->ln2b, grad(id_of(l, LN2)), val(h2), val(id_of(l, STAT2)),
                  p->ln2w);
    enter(h2);
    linear_backward(new_grad(id_of(l, ATTY)), d->projw, d->projb, grad(h2), val(id_of(l, ATTY)),
                    p->projw, C, C);
    pass_on(grad(in), grad(h2));
    enter(id_of(l, ATTY));
    attention_backward(new_grad(id_of(l, QKV)), grad(id_of(l, ATTY)), val(id_of(l, QKV)),
                       val(id_of(l, ATT)), room(id_of(l, ATT)));
    enter(id_of(l, QKV));
    linear_backward(new_grad(id_of(l, LN1)), d->qkvw, d->qkvb, grad(id_of(l, QKV)),
                    val(id_of(l, LN1)), p->qkvw, C, 3 * C);
    enter(id_of(l, LN1));
    norm_backward(grad(in), d->ln1w, d->ln1b, grad(id_of(l, LN1)), val(in), val(id_of(l, STAT1)),
                  p->ln1w);
  }
  enter(EMBEDDED);
  embed_backward(grad(EMBEDDED));
  finish();
}

static void update(int step) {
  const float rate = 2e-3F, c1 = 1 - powf(0.9F, (float)step), c2 = 1 - powf(0.99F, (float)step);
  for (size_t i = 0; i < param_count; ++i) {
    moment1[i] = 0.9F * moment1[i] + 0.1F * grads[i];
    moment2[i] = 0.99F * moment2[i] + 0.01F * grads[i] * grads[i];
    params[i] -= rate * moment1[i] / c1 / (sqrtf(moment2[i] / c2) + 1e-8F);
  }
}

/* ---- Parameters and data. ---- */

static unsigned long long state = 1;
static unsigned draw(void) {
  state = state * 6364136223846793005ULL + 1442695040888963407ULL;
  return (unsigned)(state >> 33);
}

static float* part(float** from, size_t count) { return *from += count, *from - count; }

static void carve(float* from, Layer* of, float** te, float** pe, float** fw, float** fb) {
  const size_t c = (size_t)C;
  *te = part(&from, VOCABULARY * c), *pe = part(&from, (size_t)T * c);
  *fw = part(&from, c), *fb = part(&from, c);
  for (int l = 0; l < L; ++l) {
    Layer* p = &of[l];
    p->ln1w = part(&from, c), p->ln1b = part(&from, c);
    p->qkvw = part(&from, 3 * c * c), p->qkvb = part(&from, 3 * c);
    p->projw = part(&from, c * c), p->projb = part(&from, c);
    p->ln2w = part(&from, c), p->ln2b = part(&from, c);
    p->fcw = part(&from, 4 * c * c), p->fcb = part(&from, 4 * c);
    p->fc2w = part(&from, 4 * c * c), p->fc2b = part(&from, c);
  }
}

static void make_parameters(void) {
  const size_t c = (size_t)C;
  param_count = (VOCABULARY + (size_t)T + 2) * c + (size_t)L * (12 * c * c + 13 * c);
  params = allocate(param_count), grads = allocate(param_count);
  moment1 = allocate(param_count), moment2 = allocate(param_count);
  layers = malloc(sizeof(Layer) * (size_t)L), dlayers = malloc(sizeof(Layer) * (size_t)L);
  if (layers == NULL || dlayers == NULL) exit(1);
  carve(params, layers, &wte, &wpe, &lnfw, &lnfb);
  carve(grads, dlayers, &dwte, &dwpe, &dlnfw, &dlnfb);
  for (size_t i = 0; i < param_count; ++i)
    params[i] = ((float)draw() / 2147483648.0F - 0.5F) * 0.16F;
  for (int i = 0; i < C; ++i) lnfw[i] = 1;
  for (int l = 0; l < L; ++l)
    for (int i = 0; i < C; ++i) layers[l].ln1w[i] = layers[l].ln2w[i] = 1;
}

/* Sums of two numbers, "47+8=55;", one after the other. */
static void next_batch(void) {
  static const char letters[] = "0123456789+=;";
  char text[32];
  for (int b = 0; b < B; ++b)
    for (int t = 0; t <= T;) {
      const unsigned one = draw() % 100, two = draw() % 100;
      snprintf(text, sizeof text, "%u+%u=%u;", one, two, one + two);
      for (const char* at = text; *at != '\0' && t <= T; ++at, ++t) {
        const int token = (int)(strchr(letters, *at) - letters);
        if (t < T) tokens[b * T + t] = token;
        if (t > 0) targets[b * T + t - 1] = token;
      }
    }
}

#ifdef WITH_ADACC
/* Each kernel of forward: it writes y from x, with the layer's parameters. */
ADACC_KERNEL(run_embedding, Layer, embed(y[0]))
ADACC_KERNEL(run_norm1, Layer, norm(y[0], y[1], x[0], self->ln1w, self->ln1b))
ADACC_KERNEL(run_qkv, Layer, linear(y[0], x[0], self->qkvw, self->qkvb, NULL, C, 3 * C))
ADACC_KERNEL(run_attend, Layer, attention(y[0], y[1], x[0]))
ADACC_KERNEL(run_h2, Layer, linear(y[0], x[1], self->projw, self->projb, x[0], C, C))
ADACC_KERNEL(run_norm2, Layer, norm(y[0], y[1], x[0], self->ln2w, self->ln2b))
ADACC_KERNEL(run_fc, Layer, linear(y[0], x[0], self->fcw, self->fcb, NULL, C, 4 * C))
ADACC_KERNEL(run_gelu, Layer, gelu(y[0], x[0]))
ADACC_KERNEL(run_h, Layer, linear(y[0], x[1], self->fc2w, self->fc2b, x[0], 4 * C, C))
ADACC_KERNEL(run_normf, Layer, norm(y[0], y[1], x[0], lnfw, lnfb))
ADACC_KERNEL(run_probs, Layer, head(y[0], x[0]))

/* The next kernel of forward, whose outputs are the next activations; the id of the first one. */
static int add(int l, int outputs, adacc_tape_call call) {
  static int id = 0;
  call.user = layers + l, call.gradients = 1;
  for (adacc_tape_output* y = call.writes; y < call.writes + outputs; ++y) {
    *y = (adacc_tape_output){.name = call.name, .rows = (size_t)N, .columns = columns_of(++id)};
    if (y->columns > 2) y->codecs[0] = ADACC_INT8, y->codecs[1] = ADACC_INT4;
  }
  return adacc_tape_kernel(tape, &call);
}
#define ADD(l, outputs, label, ...) \
  add(l, outputs, (adacc_tape_call){.name = #label, .kernel = run_##label, .reads = __VA_ARGS__})
static int step_of_tape(void* user) { return (void)user, forward(), backward(), 0; }
static void make_room(void) {
  const size_t row = sizeof(float) * (size_t)T, logits = sizeof(float) * (size_t)(N * VOCABULARY);
  adacc_on_error(adacc_stop, NULL), tape = adacc_tape_create();
  int h = ADD(0, 1, embedding, {0});
  for (int l = 0; l < L; ++l) {
    const int ln1 = ADD(l, 2, norm1, {h}, .saves = {h, ADACC_OWN(1)});
    const int qkv = ADD(l, 1, qkv, {ln1}, .saves = {ln1});
    const int att = ADD(l, 2, attend, {qkv}, .saves = {qkv, ADACC_OWN(0)}, .backward_bytes = row);
    const int h2 = ADD(l, 1, h2, {h, att + 1}, .saves = {att + 1});
    const int ln2 = ADD(l, 2, norm2, {h2}, .saves = {h2, ADACC_OWN(1)});
    const int fc = ADD(l, 1, fc, {ln2}, .saves = {ln2});
    const int active = ADD(l, 1, gelu, {fc}, .saves = {fc});
    h = ADD(l, 1, h, {h2, active}, .saves = {active});
  }
  const int lnf = ADD(0, 2, normf, {h}, .saves = {h, ADACC_OWN(1)});
  ADD(0, 1, probs, {lnf}, .saves = {lnf, ADACC_OWN(0)}, .backward_bytes = logits);
  adacc_tape_start(tape,
                   &(adacc_tape_request){.budget_bytes = whole_bytes() / 100 * (size_t)percent,
                                         .tolerance = tolerance,
                                         .step = step_of_tape,
                                         .gradients = &(adacc_gradient){grads, param_count},
                                         .gradient_count = 1});
  activation_bytes = adacc_tape_arena_bytes(tape);
  printf("%s\n", adacc_tape_report(tape));
}
#endif

// Reads digits with at most one point, which atof would look for as the host's locale says. Returns 0 if
// `text` is something else.
static int read_decimal(const char* text, double* value) {
  double digits = 0, one = 1;
  int count = 0, behind = 0;
  for (; *text != '\0'; ++text) {
    if (*text == '.' && !behind) {
      behind = 1;
      continue;
    }
    if (*text < '0' || *text > '9' || ++count > 15) return 0;
    digits = 10 * digits + (*text - '0');
    if (behind) one *= 10;
  }
  *value = digits / one;
  return count > 0;
}

int main(int argc, char** argv) {
  int* const numbers[] = {&L, &NH, &C, &T, &B, &steps, &percent};
  for (int i = 1; i < argc && i <= 8; ++i) {
    double value = 0;
    if (!read_decimal(argv[i], &value) || (i < 8 && (value != floor(value) || value > 1e9)))
      return fprintf(stderr, "argument %d is %s; expected %s\n", i, argv[i],
                     i < 8 ? "a whole number" : "a number such as 0.01"),
             2;
    if (i < 8) *numbers[i - 1] = (int)value;
    else tolerance = value;
  }
  if (L < 1 || NH < 1 || C < NH || C % NH != 0 || T < 2 || B < 1 || B * T % 4 != 0 || percent < 1)
    return fprintf(stderr, "channels are a multiple of heads, and batch * length one of 4\n"), 2;
  N = B * T;
  make_parameters();
  tokens = calloc((size_t)N, sizeof(int)), targets = calloc((size_t)N, sizeof(int));
  if (tokens == NULL || targets == NULL) return 1;
  next_batch();
  make_room();
  double least = 1e9;
  for (int step = 1; step <= steps; ++step) {
    const double start = cpu_seconds();
    const float loss = forward();
    backward();
    const double took = cpu_seconds() - start;
    if (took < least) least = took;
    update(step);
    printf("step %d loss %.9g\n", step, (double)loss);
    next_batch();
  }
  printf("activations, their gradients and scratch: %zu bytes; fastest step %.2f ms of CPU time\n",
         activation_bytes, 1e3 * least);
  return 0;
}
