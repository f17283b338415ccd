/* Astraea's policy in whole numbers: a flow's frames become the input, and layers the action. The engine has
 * it in core/transport/congestion/astraea/fixed_point.cpp, written apart; tests hold both to the same bits.
 * In the kernel rows of a layer are rounds of bpf_loop: nested loops over a whole network are more than its
 * verifier walks through. */
#ifndef LOOMNET_EBPF_ASTRAEA_NET_H
#define LOOMNET_EBPF_ASTRAEA_NET_H

#include "astraea_fixed.h"

#if defined(__bpf__)
#define LN_ROUNDS(count, body, context) bpf_loop(count, body, context, 0)
#else
#define LN_ROUNDS(count, body, context) \
  for (ln_u32 round = 0; round < (count); ++round) (void)body(round, context)
#endif
#define LN_ROUND static __attribute__((unused)) long

#define ASTRAEA_MOST_SUM_Q12 (1ll << 30) /* activations saturate there */

/* What the rounds of a layer share. */
struct astraea_pass {
  struct astraea_memory* memory;
  const struct astraea_bank* bank;
  ln_u32 from;     /* 0 or 1: the half of memory->x that is read; the other is written */
  ln_u32 in, out;  /* `in`: up to a multiple of ASTRAEA_LANES */
  ln_u32 weights, bias;
  ln_u32 last; /* the last layer has no leaky ReLU */
  ln_s64 sum, next; /* of what is read, and of what is written */
};

LN_INLINE ln_u32 astraea_padded(ln_u32 width) { return (width + ASTRAEA_LANES - 1) & ~(ASTRAEA_LANES - 1); }

/* One frame of the input, the oldest first. Frames before the flow's first are zeros. */
LN_ROUND astraea_input_round(ln_u32 index, void* context) {
  struct astraea_pass* p = (struct astraea_pass*)context;
  struct astraea_memory* m = p->memory;
  ln_u32 width = p->bank->width, back = p->bank->frames - 1 - index;
  if (p->bank->doubled) back = (1u << (back & 31)) - 1;
  const ln_s32* row = m->ring + ((m->next - 1 - back) & (ASTRAEA_DEPTH - 1)) * ASTRAEA_COLUMNS;
  for (ln_u32 i = 0; i < 11; ++i) {
    if (i >= width) break;
    ln_s64 value = back < m->filled ? row[i] : 0;
    m->x[(index * width + i) & (ASTRAEA_WIDTH - 1)] = value;
    p->sum += value;
  }
  return 0;
}

/* One output of a layer. */
LN_ROUND astraea_row_round(ln_u32 index, void* context) {
  struct astraea_pass* p = (struct astraea_pass*)context;
  struct astraea_memory* m = p->memory;
  const struct astraea_bank* b = p->bank;
  ln_u32 in = p->in, half = p->from & 1;
  ln_s64* to = m->x + (half ^ 1) * ASTRAEA_WIDTH + (index & (ASTRAEA_WIDTH - 1));
  if (index >= p->out) { /* up to a multiple of ASTRAEA_LANES */
    *to = 0;
    return 0;
  }
  const ln_u16* w = b->weights + ((p->weights + index * in) & (ASTRAEA_WEIGHTS - 1));
  const ln_s64* x = m->x + half * ASTRAEA_WIDTH;
  ln_s64 sum = b->bias[(p->bias + index) & (ASTRAEA_BIASES - 1)] - (ln_s64)ASTRAEA_ZERO * p->sum;
  for (ln_u32 i = 0; i < ASTRAEA_WIDTH; i += ASTRAEA_LANES) {
    if (i >= in) break;
    sum += w[i] * x[i];
    sum += w[i + 1] * x[i + 1];
    sum += w[i + 2] * x[i + 2];
    sum += w[i + 3] * x[i + 3];
    sum += w[i + 4] * x[i + 4];
    sum += w[i + 5] * x[i + 5];
    sum += w[i + 6] * x[i + 6];
    sum += w[i + 7] * x[i + 7];
  }
  ln_s64 y = sum >> 12;
  if (y > ASTRAEA_MOST_SUM_Q12) y = ASTRAEA_MOST_SUM_Q12;
  if (y < -ASTRAEA_MOST_SUM_Q12) y = -ASTRAEA_MOST_SUM_Q12;
  if (!p->last && y < 0) y = y * 205 >> 10; /* 0.2 */
  p->next += y;
  *to = y;
  return 0;
}

/* The action for a flow's frames, times 32767. */
LN_APART ln_s32 astraea_policy(struct astraea_memory* m, const struct astraea_bank* b) {
  if (!m || !b) return 0;
  struct astraea_pass p = {.memory = m, .bank = b};
  ln_u32 inputs = b->frames * b->width;
  LN_ROUNDS(b->frames, astraea_input_round, &p);
  for (ln_u32 i = 0; i < ASTRAEA_LANES; ++i) m->x[(inputs + i) & (ASTRAEA_WIDTH - 1)] = 0;
  for (ln_u32 l = 0; l < ASTRAEA_LAYERS; ++l) {
    if (l >= b->layers) break;
    p.in = astraea_padded(b->layer[l].in);
    p.out = b->layer[l].out;
    p.weights = b->layer[l].weights;
    p.bias = b->layer[l].bias;
    p.last = l + 1 == b->layers;
    LN_ROUNDS(astraea_padded(p.out), astraea_row_round, &p);
    p.sum = p.next;
    p.next = 0;
    p.from ^= 1;
  }
  return astraea_settled(astraea_tanh(b->tanh, m->x[(p.from & 1) * ASTRAEA_WIDTH]));
}

#endif /* LOOMNET_EBPF_ASTRAEA_NET_H */
