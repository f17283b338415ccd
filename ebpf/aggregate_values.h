/* What the aggregation program does to a slot's values and a packet's. */
#ifndef LOOMNET_EBPF_AGGREGATE_VALUES_H
#define LOOMNET_EBPF_AGGREGATE_VALUES_H

#include "aggregate_abi.h"

LN_INLINE ln_s32 aggregate_get(const ln_u8* payload, ln_u32 i) { return (ln_s32)ln_raw_load32(payload + 4 * i); }
LN_INLINE void aggregate_put(ln_u8* payload, ln_u32 i, ln_s32 value) { ln_raw_store32(payload + 4 * i, (ln_u32)value); }

enum aggregate_how {
  AGGREGATE_CLAIM_SUM, /* slot = packet */
  AGGREGATE_ADD,       /* slot += packet */
  AGGREGATE_FINISH,    /* slot += packet, packet = slot */
  AGGREGATE_SWAP,      /* slot <-> packet */
  AGGREGATE_READ,      /* packet = slot */
};

LN_INLINE ln_s32 aggregate_wrap(ln_s32 a, ln_s32 b) { return (ln_s32)((ln_u32)a + (ln_u32)b); }

/* Keeps clang from turning what it knows of a value into a branch. */
#if defined(__bpf__)
#define AGGREGATE_OPAQUE(value) __asm__ volatile("" : "+r"(value))
#else
#define AGGREGATE_OPAQUE(value) ((void)0)
#endif

/* Returns not 0 if an addition left the range of an int32, with `saturate`. */
LN_INLINE ln_u32 aggregate_loop(struct aggregate_slot* slot, ln_u8* payload, ln_u32 values, ln_u32 how,
                                ln_u32 saturate) {
  ln_u8* stored = (ln_u8*)slot->sum;
  ln_u32 i, left = 0;
  /* What is only copied goes two values at a time, because the kernel's machine has words of 64 bits. */
  if (how == AGGREGATE_CLAIM_SUM) {
    for (i = 0; i < 4 * values; i += 8) ln_raw_store64(stored + i, ln_raw_load64(payload + i));
  } else if (how == AGGREGATE_SWAP) {
    for (i = 0; i < 4 * values; i += 8) {
      ln_u64 old = ln_raw_load64(stored + i);
      ln_raw_store64(stored + i, ln_raw_load64(payload + i));
      ln_raw_store64(payload + i, old);
    }
  } else if (how == AGGREGATE_READ) {
    for (i = 0; i < 4 * values; i += 8) ln_raw_store64(payload + i, ln_raw_load64(stored + i));
  } else if (!saturate) {
    if (how == AGGREGATE_ADD) {
      for (i = 0; i < values; i++) slot->sum[i] = aggregate_wrap(slot->sum[i], aggregate_get(payload, i));
    } else {
      for (i = 0; i < values; i++) {
        ln_s32 sum = aggregate_wrap(slot->sum[i], aggregate_get(payload, i));
        slot->sum[i] = sum;
        aggregate_put(payload, i, sum);
      }
    }
  } else {
    /* No branch and no mask of the sign: the verifier follows both sides of either, for every value. */
    for (i = 0; i < values; i++) {
      ln_u32 a = (ln_u32)slot->sum[i], b = (ln_u32)aggregate_get(payload, i), sum = a + b;
      ln_u32 out = ((a ^ sum) & (b ^ sum)) >> 31; /* 1: both of one sign, the sum of the other */
      AGGREGATE_OPAQUE(out);
      sum += out * (2147483647u + (a >> 31) - sum);
      left |= out;
      slot->sum[i] = (ln_s32)sum;
      if (how == AGGREGATE_FINISH) aggregate_put(payload, i, (ln_s32)sum);
    }
  }
  return left;
}

#if defined(__bpf__)
#define aggregate_sum aggregate_loop
#else
/* aggregate_loop() as the processor at hand runs it best. */
ln_u32 aggregate_sum(struct aggregate_slot* slot, ln_u8* payload, ln_u32 values, ln_u32 how, ln_u32 saturate);
#endif

#endif /* LOOMNET_EBPF_AGGREGATE_VALUES_H */
