// The program's loops over values, compiled for the processor's baseline and for AVX2; which one runs is
// settled once. Bit for bit the same, because integers are added.
#include "ebpf/aggregate_values.h"

namespace {

using Loop = ln_u32 (*)(aggregate_slot*, ln_u8*, ln_u32, ln_u32, ln_u32);

template <ln_u32 kValues>
[[gnu::always_inline]] inline ln_u32 by_how(aggregate_slot* slot, ln_u8* payload, ln_u32 how, ln_u32 saturate) {
  switch (how) {
    case AGGREGATE_CLAIM_SUM:
      return aggregate_loop(slot, payload, kValues, AGGREGATE_CLAIM_SUM, 0);
    case AGGREGATE_SWAP:
      return aggregate_loop(slot, payload, kValues, AGGREGATE_SWAP, 0);
    case AGGREGATE_READ:
      return aggregate_loop(slot, payload, kValues, AGGREGATE_READ, 0);
    case AGGREGATE_ADD:
      return saturate ? aggregate_loop(slot, payload, kValues, AGGREGATE_ADD, 1)
                      : aggregate_loop(slot, payload, kValues, AGGREGATE_ADD, 0);
    default:
      return saturate ? aggregate_loop(slot, payload, kValues, AGGREGATE_FINISH, 1)
                      : aggregate_loop(slot, payload, kValues, AGGREGATE_FINISH, 0);
  }
}

[[gnu::always_inline]] inline ln_u32 by_values(aggregate_slot* slot, ln_u8* payload, ln_u32 values, ln_u32 how,
                                               ln_u32 saturate) {
  switch (values) {
    case 64:
      return by_how<64>(slot, payload, how, saturate);
    case 128:
      return by_how<128>(slot, payload, how, saturate);
    default:
      return by_how<256>(slot, payload, how, saturate);
  }
}

ln_u32 baseline(aggregate_slot* slot, ln_u8* payload, ln_u32 values, ln_u32 how, ln_u32 saturate) {
  return by_values(slot, payload, values, how, saturate);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] ln_u32 avx2(aggregate_slot* slot, ln_u8* payload, ln_u32 values, ln_u32 how, ln_u32 saturate) {
  return by_values(slot, payload, values, how, saturate);
}
Loop best() { return __builtin_cpu_supports("avx2") ? avx2 : baseline; }
#else
Loop best() { return baseline; }
#endif

}  // namespace

ln_u32 aggregate_sum(aggregate_slot* slot, ln_u8* payload, ln_u32 values, ln_u32 how, ln_u32 saturate) {
  static const Loop loop = best();
  return loop(slot, payload, values, how, saturate);
}
