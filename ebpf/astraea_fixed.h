/* Arithmetic of Astraea in whole numbers, the same in the kernel and in the engine: quotients, logarithm,
 * tanh and what an action does to a window. No function divides signed numbers, which the kernel cannot. */
#ifndef LOOMNET_EBPF_ASTRAEA_FIXED_H
#define LOOMNET_EBPF_ASTRAEA_FIXED_H

#include "astraea_policy_abi.h"

#define ASTRAEA_ONE 4096u             /* 1, as an input or an activation */
#define ASTRAEA_INPUT_MOST 32768u     /* 8: inputs are clipped to it */
#define ASTRAEA_FULL_ACTION 32767
#define ASTRAEA_LEAST_ACTION 128      /* smaller actions are 0 */
#define ASTRAEA_WINDOW_BOUND 16777216u
#define ASTRAEA_LOG_ONE 1048576u      /* 1, as an argument of astraea_log2() */

/* In the kernel a function of its own, which the verifier walks through once, whatever calls it; its pointers are to
 * the whole of what their type says, or null. */
#if defined(__bpf__)
#define LN_APART __attribute__((noinline))
#else
#define LN_APART LN_INLINE
#endif

LN_INLINE ln_u64 astraea_least(ln_u64 a, ln_u64 b) { return a < b ? a : b; }

/* `part` / `whole` times 4096, rounded to the nearest, `most` at most, which is 8 times 4096 or less. `whole` is
 * below 2^62 and not 0. */
LN_APART ln_u32 astraea_ratio(ln_u64 part, ln_u64 whole, ln_u32 most) {
  if (whole >> 46) {
    whole >>= 16;
    part >>= 16;
  }
  /* The bound first: `part` is below 2^49 then, and the product below 2^62. */
  if (part >= whole * (most / ASTRAEA_ONE)) return most;
  return (ln_u32)((part * (2 * ASTRAEA_ONE) + whole) / (2 * whole));
}

/* The number of the highest bit that is set, without a branch, so that the kernel's verifier has one way to walk.
 * `x` is not 0. */
LN_INLINE ln_u32 astraea_top_bit(ln_u64 x) {
  x |= x >> 1;
  x |= x >> 2;
  x |= x >> 4;
  x |= x >> 8;
  x |= x >> 16;
  x |= x >> 32;
  x -= x >> 1 & 0x5555555555555555ull;
  x = (x & 0x3333333333333333ull) + (x >> 2 & 0x3333333333333333ull);
  x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0full;
  return (ln_u32)(x * 0x0101010101010101ull >> 56) - 1;
}

/* log2(x / 2^20) times 2^16, for x >= 2^20; below the exact value by 2^-15 at most. Squaring the mantissa gives
 * one digit after the other. */
LN_INLINE ln_u32 astraea_log2(ln_u64 x) {
  ln_u32 top = astraea_top_bit(x);
  ln_u64 mantissa = x << (63 - top) >> 32; /* 2^31 to 2^32 */
  ln_u32 result = top - 20;
  for (int i = 0; i < 16; ++i) {
    mantissa = mantissa * mantissa >> 31;
    ln_u32 digit = (ln_u32)(mantissa >> 32);
    mantissa >>= digit;
    result = result << 1 | digit;
  }
  return result;
}

/* log2(x / 2^20) / `by` as an input. */
LN_APART ln_u32 astraea_log_input(ln_u64 x, ln_u32 by) {
  return (ln_u32)((((ln_u64)astraea_log2(x) << 12) + ((ln_u64)by << 15)) / ((ln_u64)by << 16));
}

/* 32767 times tanh of an activation, between two rows of the table. */
LN_INLINE ln_s32 astraea_tanh(const ln_s32* table, ln_s64 x) {
  ln_u64 size = (ln_u64)(x < 0 ? -x : x);
  ln_s32 y = ASTRAEA_FULL_ACTION;
  if (size < 4 * ASTRAEA_ONE) {
    ln_u32 row = (ln_u32)(size >> 6) & 255;
    y = table[row] + ((table[row + 1] - table[row]) * (ln_s32)(size & 63) >> 6);
  }
  return x < 0 ? -y : y;
}

LN_INLINE ln_s32 astraea_settled(ln_s32 q) { return q > -ASTRAEA_LEAST_ACTION && q < ASTRAEA_LEAST_ACTION ? 0 : q; }

/* The window after an action `q`, -32767 to 32767: away from the window, by a packet at least. */
LN_INLINE ln_u32 astraea_acted(ln_u32 window, ln_s32 q, ln_u32 alpha_millionths) {
  ln_u64 w = astraea_least(window, ASTRAEA_WINDOW_BOUND), one = 1000000ull * ASTRAEA_FULL_ACTION;
  ln_u64 size = (ln_u64)(q < 0 ? -q : q);
  ln_u64 step = astraea_least(alpha_millionths, 1000000) * astraea_least(size, ASTRAEA_FULL_ACTION);
  ln_u64 to = q < 0 ? one * w / (one + step) : w + (step * w + one - 1) / one;
  return (ln_u32)astraea_least(to, ASTRAEA_WINDOW_BOUND);
}

#endif /* LOOMNET_EBPF_ASTRAEA_FIXED_H */
