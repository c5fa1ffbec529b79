/* SPDX-License-Identifier: MIT */
/*
 * A GPT that learns to add, in C: plain loops, AdamW, one malloc for all activations. Compiled with
 * WITH_ADACC it trains in a share of that memory; what is behind #ifdef WITH_ADACC is all that it
 * takes. Losses have the same bits, but with a tolerance, which allows codecs.
 *
 *     c_trainer [layers [heads [channels [length [batch [steps [percent [tolerance]]]]]]]]
 *
 * Activations are numbered: 0 is what the embedding makes, then those of each layer follow, then those
 * of the head. Backward runs in stages, two a layer: its attention, and its MLP.
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

static int id_of(int l, int kind) { return 1 + l * KINDS + kind; }
static int input_of(int l) { return l == 0 ? 0 : id_of(l - 1, H); }
static int head_id(int kind) { return 1 + L * KINDS + kind; }
static int activation_count(void) { return 1 + L * KINDS + HEAD_KINDS; }

/* Columns of an activation, which has N rows. */
static size_t columns_of(int id) {
  static const int of_layer[KINDS] = {1, 0, 3, 0, 1, 1, 1, 0, 4, 4, 1};
  if (id == 0 || id == head_id(LNF)) return (size_t)C;
  if (id == head_id(STATF)) return 2;
  if (id == head_id(PROBS)) return VOCABULARY;
  const int kind = (id - 1) % KINDS;
  return kind == STAT1 || kind == STAT2 ? 2
         : kind == ATT                  ? (size_t)(NH * T)
                                        : (size_t)(of_layer[kind] * C);
}
/* Floats that a stage needs for gradients: of the MLP, dFC and dLN2; of attention, dATTY, dQKV, dLN1
 * and a row of dATT; of the head, dlogits and dLNF. */
static size_t stage_floats(int stage) {
  const size_t n = (size_t)N, c = (size_t)C;
  return stage == 2 * L ? n * (VOCABULARY + c) : stage % 2 == 1 ? n * 5 * c : n * 5 * c + (size_t)T;
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

/* In place. */
KERNEL void gelu_backward(float* dy, const float* x) {
  for (size_t i = 0; i < (size_t)N * 4 * (size_t)C; ++i) {
    const float th = tanhf(0.7978845608F * (x[i] + 0.044715F * x[i] * x[i] * x[i]));
    dy[i] *= 0.5F * (1 + th) +
             0.5F * x[i] * (1 - th * th) * 0.7978845608F * (1 + 3 * 0.044715F * x[i] * x[i]);
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

/* ---- Where activations are. ---- */

#ifndef WITH_ADACC

static float **activations, *stage_scratch, *carried_row;
static size_t activation_bytes;

static void make_room(void) {
  size_t count = 0, most = 0;
  for (int id = 0; id < activation_count(); ++id) count += (size_t)N * columns_of(id);
  for (int stage = 0; stage <= 2 * L; ++stage)
    if (stage_floats(stage) > most) most = stage_floats(stage);
  activation_bytes = sizeof(float) * (count + most + (size_t)(N * C));
  float* memory = allocate(count);
  stage_scratch = allocate(most), carried_row = allocate((size_t)(N * C));
  activations = malloc(sizeof(float*) * (size_t)activation_count());
  if (activations == NULL) exit(1);
  for (int id = 0; id < activation_count(); memory += (size_t)N * columns_of(id++))
    activations[id] = memory;
}
static float* room(int id) { return activations[id]; }
static void keep(int id, const float* values) { (void)id, (void)values; }
static void enter(int stage) { (void)stage; }
static void leave(int stage) { (void)stage; }
static const float* saved(int id) { return activations[id]; }
static float* scratch(void) { return stage_scratch; }
static float* carried(void) { return carried_row; }

#else

static adacc_stash* stash;

static int must(int code) {
  if (code < 0) fprintf(stderr, "adacc: %s\n", adacc_error()), exit(1);
  return code;
}
static void* have(const void* pointer) {
  return must(pointer == NULL ? ADACC_FAILED : 0), (void*)pointer;
}
static float* room(int id) { return have(adacc_place(stash, id, NULL)); }
static void keep(int id, const float* values) { must(adacc_put(stash, id, values)); }
static void enter(int stage) { must(adacc_enter(stash, stage)); }
static void leave(int stage) { must(adacc_leave(stash, stage)); }
static const float* saved(int id) { return have(adacc_get(stash, id)); }
static float* scratch(void) { return have(adacc_stage_memory(stash)); }
static float* carried(void) { return have(adacc_carried(stash, 0)); }

#endif

/* ---- A step. ---- */

static float forward(void) {
  float *h = room(0), *stat;
  embed(h);
  keep(0, h);
  for (int l = 0; l < L; ++l) {
    const Layer* p = &layers[l];
    float* ln = room(id_of(l, LN1));
    norm(ln, stat = room(id_of(l, STAT1)), h, p->ln1w, p->ln1b);
    keep(id_of(l, LN1), ln), keep(id_of(l, STAT1), stat);
    float* qkv = room(id_of(l, QKV));
    linear(qkv, ln, p->qkvw, p->qkvb, NULL, C, 3 * C);
    keep(id_of(l, QKV), qkv);
    float *att = room(id_of(l, ATT)), *atty = room(id_of(l, ATTY));
    attention(att, atty, qkv);
    keep(id_of(l, ATT), att), keep(id_of(l, ATTY), atty);
    float* h2 = room(id_of(l, H2));
    linear(h2, atty, p->projw, p->projb, h, C, C);
    keep(id_of(l, H2), h2);
    ln = room(id_of(l, LN2));
    norm(ln, stat = room(id_of(l, STAT2)), h2, p->ln2w, p->ln2b);
    keep(id_of(l, LN2), ln), keep(id_of(l, STAT2), stat);
    float* fc = room(id_of(l, FC));
    linear(fc, ln, p->fcw, p->fcb, NULL, C, 4 * C);
    keep(id_of(l, FC), fc);
    float* active = room(id_of(l, GELU));
    gelu(active, fc);
    keep(id_of(l, GELU), active);
    h = room(id_of(l, H));
    linear(h, active, p->fc2w, p->fc2b, h2, 4 * C, C);
    keep(id_of(l, H), h);
  }
  float* ln = room(head_id(LNF));
  norm(ln, stat = room(head_id(STATF)), h, lnfw, lnfb);
  keep(head_id(LNF), ln), keep(head_id(STATF), stat);
  float* probs = room(head_id(PROBS));
  head(probs, ln);
  float loss = 0;
  for (int n = 0; n < N; ++n) loss -= logf(probs[n * VOCABULARY + targets[n]]) / (float)N;
  keep(head_id(PROBS), probs);
  return loss;
}

static void backward(void) {
  const size_t row = (size_t)N * (size_t)C;
  memset(grads, 0, sizeof(float) * param_count);
  enter(2 * L);
  /* The gradient of the residual stream, which goes from stage to stage. */
  float* dh = memset(carried(), 0, sizeof(float) * row);
  float* dln = scratch();
  head_backward(dln, dln + row, saved(head_id(PROBS)), saved(head_id(LNF)));
  norm_backward(dh, dlnfw, dlnfb, dln, saved(input_of(L)), saved(head_id(STATF)), lnfw);
  leave(2 * L);
  for (int l = L - 1; l >= 0; --l) {
    const Layer *p = &layers[l], *d = &dlayers[l];
    enter(2 * l + 1);
    float* dfc = scratch();
    dln = dfc + 4 * row;
    linear_backward(dfc, d->fc2w, d->fc2b, dh, saved(id_of(l, GELU)), p->fc2w, 4 * C, C);
    gelu_backward(dfc, saved(id_of(l, FC)));
    linear_backward(dln, d->fcw, d->fcb, dfc, saved(id_of(l, LN2)), p->fcw, C, 4 * C);
    norm_backward(dh, d->ln2w, d->ln2b, dln, saved(id_of(l, H2)), saved(id_of(l, STAT2)), p->ln2w);
    leave(2 * l + 1);
    enter(2 * l);
    float *dqkv = scratch(), *datty = dqkv + 3 * row;
    dln = dqkv + 4 * row;
    linear_backward(datty, d->projw, d->projb, dh, saved(id_of(l, ATTY)), p->projw, C, C);
    attention_backward(dqkv, datty, saved(id_of(l, QKV)), saved(id_of(l, ATT)), dln + row);
    linear_backward(dln, d->qkvw, d->qkvb, dqkv, saved(id_of(l, LN1)), p->qkvw, C, 3 * C);
    norm_backward(dh, d->ln1w, d->ln1b, dln, saved(input_of(l)), saved(id_of(l, STAT1)), p->ln1w);
    if (l == 0) embed_backward(dh);
    leave(2 * l);
  }
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

/* How activations y are made again from x, by the kernels that made them; p: the layer's parameters. */
#define MAKE(name, call)                                                                       \
  static void make_##name(void* user, const void* const* x, void* const* y, void* workspace) { \
    const Layer* p = user;                                                                     \
    (void)p, (void)x, (void)workspace, call;                                                   \
  }
MAKE(embedding, embed(y[0]))
MAKE(norm1, norm(y[0], y[1], x[0], p->ln1w, p->ln1b))
MAKE(qkv, linear(y[0], x[0], p->qkvw, p->qkvb, NULL, C, 3 * C))
MAKE(attention, attention(y[0], y[1], x[0]))
MAKE(h2, linear(y[0], x[1], p->projw, p->projb, x[0], C, C))
MAKE(norm2, norm(y[0], y[1], x[0], p->ln2w, p->ln2b))
MAKE(fc, linear(y[0], x[0], p->fcw, p->fcb, NULL, C, 4 * C))
MAKE(gelu, gelu(y[0], x[0]))
MAKE(h, linear(y[0], x[1], p->fc2w, p->fc2b, x[0], 4 * C, C))
MAKE(normf, norm(y[0], y[1], x[0], lnfw, lnfb))
MAKE(probs, head(y[0], x[0]))

/* The next kernel, which makes `count` activations and has its backward in `stage`. */
static int describe(const char* name, adacc_kernel kernel, int stage, int count, adacc_ids reads,
                    adacc_ids backward_reads) {
  static int id = 0;
  adacc_output made[2];
  for (int i = 0; i < count; ++i, ++id) {
    made[i] = (adacc_output){.name = name, .rows = (size_t)N, .columns = columns_of(id)};
    if (tolerance > 0 && columns_of(id) > 2)
      made[i].codecs[0] = ADACC_INT8, made[i].codecs[1] = ADACC_INT4;
  }
  adacc_kernel_call call = {kernel, layers + stage / 2, .reads = reads, .hold = 1};
  call.writes = (adacc_outputs){made, (size_t)count}, call.backward_reads = backward_reads;
  return must(adacc_add_kernel(stash, stage, &call));
}
#define DESCRIBE(name, ...) describe(#name, make_##name, __VA_ARGS__)

static int probing_step(void* user) {
  (void)user;
  if (adacc_begin(stash) < 0) return 1;
  return forward(), backward(), 0;
}

static size_t activation_bytes;

static void make_room(void) {
  stash = have(adacc_create());
  int h = DESCRIBE(embedding, 0, 1, (adacc_ids){0}, (adacc_ids){0});
  for (int l = 0; l < L; ++l) {
    const int ln1 = DESCRIBE(norm1, 2 * l, 2, ADACC_IDS(h), ADACC_IDS(h, ADACC_OUTPUT(1)));
    const int qkv = DESCRIBE(qkv, 2 * l, 1, ADACC_IDS(ln1), ADACC_IDS(ln1));
    const int att = DESCRIBE(attention, 2 * l, 2, ADACC_IDS(qkv), ADACC_IDS(qkv, ADACC_OUTPUT(0)));
    const int h2 = DESCRIBE(h2, 2 * l, 1, ADACC_IDS(h, att + 1), ADACC_IDS(att + 1));
    const int ln2 = DESCRIBE(norm2, 2 * l + 1, 2, ADACC_IDS(h2), ADACC_IDS(h2, ADACC_OUTPUT(1)));
    const int fc = DESCRIBE(fc, 2 * l + 1, 1, ADACC_IDS(ln2), ADACC_IDS(ln2));
    const int active = DESCRIBE(gelu, 2 * l + 1, 1, ADACC_IDS(fc), ADACC_IDS(fc));
    h = DESCRIBE(h, 2 * l + 1, 1, ADACC_IDS(h2, active), ADACC_IDS(active));
  }
  const int lnf = DESCRIBE(normf, 2 * L, 2, ADACC_IDS(h), ADACC_IDS(h, ADACC_OUTPUT(1)));
  DESCRIBE(probs, 2 * L, 1, ADACC_IDS(lnf), ADACC_IDS(lnf, ADACC_OUTPUT(0)));
  size_t whole = (size_t)(N * C), most = 0;
  for (int id = 0; id < activation_count(); ++id) whole += (size_t)N * columns_of(id);
  for (int stage = 0; stage <= 2 * L; ++stage) {
    if (stage_floats(stage) > most) most = stage_floats(stage);
    must(adacc_stage_bytes(stash, stage, sizeof(float) * stage_floats(stage)));
  }
  must(adacc_carry(stash, "dh", sizeof(float) * (size_t)(N * C), 2 * L, 0));
  const adacc_gradient gradient = {grads, param_count};
  must(adacc_measure(stash, 0));
  if (tolerance > 0) must(adacc_probe(stash, probing_step, NULL, &gradient, 1));
  adacc_outcome plan;
  must(adacc_plan(stash, sizeof(float) * (whole + most) / 100 * (size_t)percent, tolerance, &plan));
  printf(
      "planned in %.3f s: %.3f of the time of retaining everything, gap %.4f, smallest %zu bytes\n",
      plan.solve_seconds, plan.seconds / plan.retain_seconds, plan.gap,
      adacc_smallest_budget(stash, tolerance));
  activation_bytes = adacc_arena_bytes(stash);
  must(adacc_bind(stash, allocate(activation_bytes / sizeof(float) + 17), activation_bytes + 64));
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
#ifdef WITH_ADACC
    must(adacc_begin(stash));
#endif
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
