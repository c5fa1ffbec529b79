/* SPDX-License-Identifier: MIT */
/* Keeps an activation through a stash, from C. */
#include <adacc/adacc.h>
#include <stdlib.h>

int main(void) {
  const float x[] = {1, 2, 3, 4};
  const int stage = 0;
  adacc_stash* stash = adacc_create();
  const int id = adacc_add(stash, "x", 1, 4, &stage, 1);
  if (adacc_measure(stash, 0) < 0 || adacc_plan(stash, 1024, 0, NULL) < 0) return 1;
  void* memory = malloc(adacc_arena_bytes(stash) + 63);
  if (adacc_bind(stash, memory, adacc_arena_bytes(stash) + 63) < 0) return 2;
  if (adacc_begin(stash) < 0 || adacc_put(stash, id, x) < 0 || adacc_enter(stash, 0) < 0) return 3;
  const float* kept = adacc_get(stash, id);
  const int wrong = kept == NULL || kept[3] != 4 || adacc_get(stash, id + 1) != NULL;
  adacc_destroy(stash);
  free(memory);
  return wrong ? 4 : 0;
}
