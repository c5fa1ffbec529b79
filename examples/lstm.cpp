// SPDX-License-Identifier: MIT
/// A recurrent network of somebody who writes loops: a character-level LSTM that learns to write dates another way
/// ("3 march 1984=1984-03-03"). Kernels and backward are its own; a Tape runs forward, keeps and recomputes within
/// a budget, and has the gradients. Lines have different lengths, so steps end early. `--plain` trains without a
/// tape: losses have the same bits.
///
///     lstm [--plain] [--steps N] [--percent P]
#include <adacc/stash/tape_start.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr int B = 16, C = 48, L = 2, T = 30,
              G = 4 * C;  // rows, channels, layers, longest line, gates
constexpr char letters[] = "\n =-0123456789abcdefghijklmnopqrstuvwxyz";
constexpr int V = sizeof letters - 1;

struct
    Layer {  // parameters, or their gradients: input to gates (a row for each letter or channel), state to gates
  float *in, *state, *bias;
};
constexpr int inputs(int l) { return l == 0 ? V : C; }

// ---- The trainer's kernels. ----

/// gates = sigmoid or tanh of x in + h state + bias; c = f c + i g; y = o tanh(c). x: letters (l = 0) or channels.
void cell(const Layer& p, const int* token, const float* x, const float* h, const float* c,
          float* gates, float* c_new, float* y) {
  for (int b = 0; b < B; ++b) {
    float* g = gates + b * G;
    std::memcpy(g, p.bias, G * sizeof(float));
    const auto add = [&](float scale, const float* row) {
      for (int o = 0; o < G; ++o) g[o] += scale * row[o];
    };
    if (token != nullptr) add(1, p.in + token[b] * G);
    for (int i = 0; token == nullptr && i < C; ++i) add(x[b * C + i], p.in + i * G);
    for (int i = 0; h != nullptr && i < C; ++i) add(h[b * C + i], p.state + i * G);
    for (int o = 0; o < 3 * C; ++o) g[o] = 1 / (1 + std::exp(-g[o]));
    for (int o = 3 * C; o < G; ++o) g[o] = std::tanh(g[o]);
    for (int i = 0; i < C; ++i) {
      const float kept = c != nullptr ? g[C + i] * c[b * C + i] : 0;
      c_new[b * C + i] = kept + g[i] * g[3 * C + i];
      y[b * C + i] = g[2 * C + i] * std::tanh(c_new[b * C + i]);
    }
  }
}

/// Gradients of inputs are added to. `dc` may be null: nothing reads the last state.
void cell_backward(const Layer& p, const Layer& d, const int* token, const float* x, const float* h,
                   const float* c, const float* gates, const float* c_new, const float* dy,
                   const float* dc, float* dx, float* dh, float* dc_before, float* dgates) {
  for (int b = 0; b < B; ++b) {
    const float* g = gates + b * G;
    float* dg = dgates + b * G;
    for (int i = 0; i < C; ++i) {
      const float th = std::tanh(c_new[b * C + i]), out = dy[b * C + i];
      const float dcell = (dc != nullptr ? dc[b * C + i] : 0) + out * g[2 * C + i] * (1 - th * th);
      const float ig = g[i], f = g[C + i], o = g[2 * C + i], cand = g[3 * C + i];
      dg[i] = dcell * cand * ig * (1 - ig);
      dg[C + i] = c != nullptr ? dcell * c[b * C + i] * f * (1 - f) : 0;
      dg[2 * C + i] = out * th * o * (1 - o);
      dg[3 * C + i] = dcell * ig * (1 - cand * cand);
      if (c != nullptr) dc_before[b * C + i] += dcell * f;
    }
    for (int o = 0; o < G; ++o) d.bias[o] += dg[o];
    if (token != nullptr)
      for (int o = 0; o < G; ++o) d.in[token[b] * G + o] += dg[o];
    const auto product = [&](const float* weights, float* dweights, const float* from, float* to) {
      for (int i = 0; i < C; ++i) {
        float sum = 0;
        for (int o = 0; o < G; ++o) {
          sum += dg[o] * weights[i * G + o];
          dweights[i * G + o] += from[b * C + i] * dg[o];
        }
        to[b * C + i] += sum;
      }
    };
    if (token == nullptr) product(p.in, d.in, x, dx);
    if (h != nullptr) product(p.state, d.state, h, dh);
  }
}

/// Probabilities of the next letter.
void head(const float* w, const float* y, float* probs) {
  for (int b = 0; b < B; ++b) {
    float sum = 0, most = -1e30F;
    float* p = probs + b * V;
    for (int v = 0; v < V; ++v) {
      p[v] = 0;
      for (int i = 0; i < C; ++i) p[v] += y[b * C + i] * w[i * V + v];
      if (p[v] > most) most = p[v];
    }
    for (int v = 0; v < V; ++v) sum += p[v] = std::exp(p[v] - most);
    for (int v = 0; v < V; ++v) p[v] /= sum;
  }
}
/// Where a target is below 0 there is none.
double loss(const float* probs, const int* target) {
  double sum = 0;
  for (int b = 0; b < B; ++b)
    if (target[b] >= 0) sum -= std::log(static_cast<double>(probs[b * V + target[b]])) / B;
  return sum;
}
void head_backward(const float* w, float* dw, const float* y, const float* probs, const int* target,
                   float* dy) {
  for (int b = 0; b < B; ++b)
    for (int v = 0; target[b] >= 0 && v < V; ++v) {
      const float d = (probs[b * V + v] - (v == target[b] ? 1.0F : 0.0F)) / B;
      for (int i = 0; i < C; ++i) {
        dy[b * C + i] += d * w[i * V + v];
        dw[i * V + v] += d * y[b * C + i];
      }
    }
}

// ---- The trainer. ----

struct Trainer {
  std::vector<float> params, grads, moment1, moment2;
  Layer layer[L], dlayer[L];
  float *out, *dout;
  int tokens[T * B], targets[T * B], length = T;
  unsigned state = 7;

  Trainer() {
    std::size_t count = C * V;
    for (int l = 0; l < L; ++l) count += static_cast<std::size_t>((inputs(l) + C + 1) * G);
    params.resize(count), grads.resize(count), moment1.resize(count), moment2.resize(count);
    const auto carve = [](float* at, Layer* to, float*& last) {
      for (int l = 0; l < L; ++l) {
        to[l] = {at, at + inputs(l) * G, at + (inputs(l) + C) * G};
        at += (inputs(l) + C + 1) * G;
      }
      last = at;
    };
    carve(params.data(), layer, out), carve(grads.data(), dlayer, dout);
    for (float& p : params) p = (static_cast<float>(draw() % 2001) / 1000 - 1) * 0.15F;
  }
  unsigned draw() { return (state = state * 1664525U + 1013904223U) >> 8; }

  /// A date as a person writes it, and as a machine does.
  static std::string line(unsigned day, unsigned month, unsigned year) {
    static const char* const months[] = {"january",   "february", "march",    "april",
                                         "may",       "june",     "july",     "august",
                                         "september", "october",  "november", "december"};
    char text[64];
    std::snprintf(text, sizeof text, "%u %s %u=%u-%02u-%02u\n", day, months[month - 1], year, year,
                  month, day);
    return text;
  }
  void next_batch() {
    length = 0;
    for (int& target : targets) target = -1;
    for (int& token : tokens) token = 0;
    const unsigned month = 1 + draw() % 12;  // so that lengths differ between batches
    for (int b = 0; b < B; ++b) {
      const std::string text = line(1 + draw() % 28, month, 1900 + draw() % 200);
      const int count = static_cast<int>(text.size()) - 1;
      for (int t = 0; t < count; ++t) {
        tokens[t * B + b] = number(text[static_cast<std::size_t>(t)]);
        targets[t * B + b] = number(text[static_cast<std::size_t>(t) + 1]);
      }
      if (count > length) length = count;
    }
  }
  static int number(char letter) {
    return static_cast<int>(std::strchr(letters, letter) - letters);
  }

  void update(int step) {
    const float c1 = 1 - std::pow(0.9F, static_cast<float>(step)),
                c2 = 1 - std::pow(0.99F, static_cast<float>(step));
    for (std::size_t i = 0; i < params.size(); ++i) {
      moment1[i] = 0.9F * moment1[i] + 0.1F * grads[i];
      moment2[i] = 0.99F * moment2[i] + 0.01F * grads[i] * grads[i];
      params[i] -= 3e-3F * moment1[i] / c1 / (std::sqrt(moment2[i] / c2) + 1e-8F);
    }
  }

  /// The line that the network writes behind `text`.
  std::string completed(const std::string& text) const {
    static float h[L][B * C], c[L][B * C], gates[B * G], y[B * C], c_new[B * C], probs[B * V];
    std::memset(h, 0, sizeof h), std::memset(c, 0, sizeof c);
    std::string said;
    int token[B] = {};
    for (std::size_t t = 0; said.size() < 12; ++t) {
      token[0] = number(t < text.size() ? text[t] : said.back());
      for (int l = 0; l < L; ++l) {
        cell(layer[l], l == 0 ? token : nullptr, l > 0 ? h[l - 1] : nullptr, h[l], c[l], gates,
             c_new, y);
        std::memcpy(h[l], y, sizeof y), std::memcpy(c[l], c_new, sizeof c_new);
      }
      if (t + 1 < text.size()) continue;
      head(out, h[L - 1], probs);
      int best = 0;
      for (int v = 0; v < V; ++v)
        if (probs[v] > probs[best]) best = v;
      if (letters[best] == '\n') break;
      said += letters[best];
    }
    return text + said;
  }
};

/// Without a tape: every activation and every gradient has an array.
struct Plain : Trainer {
  struct Cell {
    float gates[B * G], c[B * C], y[B * C], dc[B * C], dy[B * C];
  };
  std::vector<Cell> cells = std::vector<Cell>(T * L);
  std::vector<float> probs = std::vector<float>(T * B * V), dgates = std::vector<float>(B * G);

  std::size_t bytes() const {
    return cells.size() * sizeof(Cell) + (probs.size() + dgates.size()) * sizeof(float);
  }
  Cell* at(int t, int l) { return t < 0 ? nullptr : &cells[static_cast<std::size_t>(t * L + l)]; }

  double step() {
    std::fill(grads.begin(), grads.end(), 0.0F);
    double total = 0;
    for (int t = 0; t < length; ++t) {
      for (int l = 0; l < L; ++l) {
        Cell *now = at(t, l), *before = at(t - 1, l);
        std::memset(now->dc, 0, sizeof now->dc), std::memset(now->dy, 0, sizeof now->dy);
        cell(layer[l], l == 0 ? tokens + t * B : nullptr, l > 0 ? at(t, l - 1)->y : nullptr,
             before ? before->y : nullptr, before ? before->c : nullptr, now->gates, now->c,
             now->y);
      }
      head(out, at(t, L - 1)->y, &probs[static_cast<std::size_t>(t * B * V)]);
      total += loss(&probs[static_cast<std::size_t>(t * B * V)], targets + t * B);
    }
    for (int t = length - 1; t >= 0; --t) {
      Cell* const top = at(t, L - 1);
      head_backward(out, dout, top->y, &probs[static_cast<std::size_t>(t * B * V)], targets + t * B,
                    top->dy);
      for (int l = L - 1; l >= 0; --l) {
        Cell *now = at(t, l), *before = at(t - 1, l), *below = l > 0 ? at(t, l - 1) : nullptr;
        cell_backward(layer[l], dlayer[l], l == 0 ? tokens + t * B : nullptr,
                      below ? below->y : nullptr, before ? before->y : nullptr,
                      before ? before->c : nullptr, now->gates, now->c, now->dy, now->dc,
                      below ? below->dy : nullptr, before ? before->dy : nullptr,
                      before ? before->dc : nullptr, dgates.data());
      }
    }
    return total / length;
  }
};

/// With a tape: forward is described once, and what it keeps is the plan's.
struct Taped : Trainer {
  struct Ids {
    int gates, c, y;
  };
  adacc::Tape<> tape;
  Ids ids[T][L];
  int probs[T];
  adacc::Cpu cpu;

  Taped() {
    using adacc::Shape;
    using adacc::TapeCall;
    for (int t = 0; t < T; ++t) {
      for (int l = 0; l < L; ++l) {
        adacc::StashList reads;  // the layer below, then the state before
        if (l > 0) reads.push_back(ids[t][l - 1].y);
        if (t > 0) reads.push_back(ids[t - 1][l].y), reads.push_back(ids[t - 1][l].c);
        adacc::StashReads saves(reads);
        saves.push_back("gates"), saves.push_back("c");
        const auto [gates, c, y] = tape.kernel<3>(
            {.name = "cell",
             .reads = reads,
             .writes = {{"gates", Shape(B, G)}, {"c", Shape(B, C)}, {"y", Shape(B, C)}},
             .saves = saves,
             .backward_bytes = B * G * sizeof(float),
             .gradients = true},
            [this, t, l](const TapeCall<float>& k) {
              const std::size_t below = l > 0;
              cell(layer[l], l == 0 ? tokens + t * B : nullptr, l > 0 ? k.in(0).data() : nullptr,
                   t > 0 ? k.in(below).data() : nullptr, t > 0 ? k.in(below + 1).data() : nullptr,
                   k.out(0).data(), k.out(1).data(), k.out(2).data());
            });
        ids[t][l] = {gates, c, y};
      }
      const int y = ids[t][L - 1].y;
      probs[t] = tape.kernel(
          {.name = "head", .reads = {y}, .writes = {{"probs", Shape(B, V)}}, .saves = {y, "probs"}},
          [this](const TapeCall<float>& k) { head(out, k.in(0).data(), k.out(0).data()); });
    }
  }

  const float* value(int id) { return tape.value(id).data(); }
  float* gradient(int id) { return tape.grad(id).data(); }

  adacc::Result<double> step() {
    std::fill(grads.begin(), grads.end(), 0.0F);
    double total = 0;
    if (adacc::Error why = tape.begin(cpu)) return why;
    for (int t = 0, first = 0; t < length; ++t, first += L + 1) {
      if (tape.run(first, first + L + 1)) return tape.end();
      total += loss(value(probs[t]), targets + t * B);
    }
    for (int t = length - 1; t >= 0; --t) {
      const int y = ids[t][L - 1].y;
      if (tape.backward_of(probs[t])) return tape.end();
      head_backward(out, dout, value(y), value(probs[t]), targets + t * B, gradient(y));
      for (int l = L - 1; l >= 0; --l) {
        const Ids &now = ids[t][l], *before = t > 0 ? &ids[t - 1][l] : nullptr,
                  *below = l > 0 ? &ids[t][l - 1] : nullptr;
        if (tape.backward_of(now.y)) return tape.end();
        cell_backward(layer[l], dlayer[l], l == 0 ? tokens + t * B : nullptr,
                      below ? value(below->y) : nullptr, before ? value(before->y) : nullptr,
                      before ? value(before->c) : nullptr, value(now.gates), value(now.c),
                      gradient(now.y), t + 1 < T ? gradient(now.c) : nullptr,
                      below ? gradient(below->y) : nullptr, before ? gradient(before->y) : nullptr,
                      before ? gradient(before->c) : nullptr,
                      static_cast<float*>(static_cast<void*>(tape.backward_workspace().data())));
      }
    }
    if (adacc::Error why = tape.end()) return why;
    return total / length;
  }

  /// Plans within a share of `bytes`, on a batch of the longest lines.
  adacc::Error start(std::size_t bytes) {
    length = T;
    const auto whole_step = [&]() -> adacc::Result<adacc::Array<adacc::View<const float>>> {
      const auto done = step();
      if (!done) return done.error;
      adacc::Array<adacc::View<const float>> gradients;
      gradients.push_back({grads.data(), adacc::Shape(grads.size())});
      return gradients;
    };
    for (int i = 0; i < T * B; ++i) tokens[i] = targets[i] = i % V;
    const auto print = [](void*, const char* text) { std::printf("%s\n", text); };
    return tape.start(cpu, {.budget_bytes = bytes, .log = print}, whole_step);
  }
};

int fail(const adacc::Error& why) { return std::fprintf(stderr, "%s\n", why.text()), 1; }

}  // namespace

int main(int argc, char** argv) {
  bool plain = false;
  int steps = 400;
  unsigned percent = 33;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--plain") plain = true;
    else if (option == "--steps" && i + 1 < argc) steps = std::atoi(argv[++i]);
    else if (option == "--percent" && i + 1 < argc)
      percent = static_cast<unsigned>(std::atoi(argv[++i]));
    else
      return std::fprintf(stderr, "%s: expected --plain, --steps N or --percent P\n", argv[i]), 2;
  }
  if (steps < 1 || percent < 1 || percent > 100)
    return std::fprintf(
               stderr,
               "steps are 1 or more, and per cent of the plain trainer's memory 1 to 100\n"),
           2;
  static Plain without;
  static Taped with;
  Trainer& trainer = plain ? static_cast<Trainer&>(without) : with;
  const std::size_t whole = without.bytes();
  if (!plain)
    if (const adacc::Error why = with.start(whole / 100 * percent)) return fail(why);
  double mean = 0;
  for (int step = 1; step <= steps; ++step) {
    trainer.next_batch();
    adacc::Result<double> loss = 0.0;
    if (plain) *loss = without.step();
    else loss = with.step();
    if (!loss) return fail(loss.error);
    trainer.update(step);
    mean += *loss;
    if (step % 100 == 0 || step == steps) {
      const int count = step % 100 == 0 ? 100 : step % 100;
      std::printf("step %d loss %.9g\n", step, mean / count);
      mean = 0;
    }
  }
  std::printf("%s\n", trainer.completed("24 march 1984=").c_str());
  std::printf("activations and gradients: %zu bytes of %zu\n",
              plain ? whole : with.tape.arena_bytes(), whole);
}
