/* What Astraea's program decides at an acknowledgement, as arithmetic alone: is the agent's command fresh,
 * which window does it give, how fast are packets paced. The kernel runs it, and tests run the same. */
#ifndef LOOMNET_EBPF_ASTRAEA_H
#define LOOMNET_EBPF_ASTRAEA_H

#include "astraea_abi.h"

/* A command is one word of 64 bits, so its window and its stamp are never those of two commands. */
LN_INLINE ln_u64 astraea_command(ln_u32 stamp_ms, ln_u32 window) { return (ln_u64)stamp_ms << 32 | window; }
LN_INLINE ln_u32 astraea_command_window(ln_u64 command) { return (ln_u32)command; }

/* Milliseconds since the command was stamped. A stamp holds the low 32 bits of the clock, and the agent's
 * may be a millisecond ahead of the program's: the difference is signed, or it would be 49 days. */
LN_INLINE ln_s32 astraea_age_ms(ln_u64 command, ln_u32 now_ms) { return (ln_s32)(now_ms - (ln_u32)(command >> 32)); }

/* Whether an agent looks after the flow. A slot that no agent has written to has command 0. */
LN_INLINE int astraea_attended(ln_u64 command, ln_u32 now_ms, ln_u32 timeout_ms) {
  ln_s32 age = astraea_age_ms(command, now_ms);
  ln_s32 most = (ln_s32)(timeout_ms ? timeout_ms & 0x7fffffffu : ASTRAEA_TIMEOUT_MS);
  return command != 0 && age <= most && age >= -most;
}

/* The window that a command gives. After a timeout it grows back by what is acknowledged. */
LN_INLINE ln_u32 astraea_window(ln_u32 wanted, ln_u32 most, int after_timeout, ln_u32 window, ln_u32 acked) {
  ln_u32 to = wanted < ASTRAEA_LEAST_WINDOW ? ASTRAEA_LEAST_WINDOW : wanted;
  if (to > most) to = most;
  if (after_timeout && to > window + acked) to = window + acked;
  return to;
}

/* Bytes of payload per second: a window per round trip, or a window and a quarter where the window grows
 * by itself. 0: no round trip is known. `srtt_x8_us`: eight times the smoothed round trip. */
LN_INLINE ln_u64 astraea_pacing(ln_u32 window, ln_u32 packets_out, ln_u32 mss, ln_u32 srtt_x8_us, int grows) {
  ln_u64 packets = window > packets_out ? window : packets_out;
  if (!srtt_x8_us) return 0;
  /* Below 2^64: 2^32 packets of 2^16 bytes are more than any window, so both are bounded first. */
  if (packets > 0xffffffu) packets = 0xffffffu;
  return packets * (mss & 0xffffu) * (grows ? 10000000u : 8000000u) / srtt_x8_us;
}

/* Bytes of packets, with headers of `header` bytes, for bytes of payload. */
LN_INLINE ln_u64 astraea_with_headers(ln_u64 payload_Bps, ln_u32 mss, ln_u32 header) {
  return mss ? payload_Bps + payload_Bps * header / mss : payload_Bps;
}
LN_INLINE ln_u64 astraea_without_headers(ln_u64 Bps, ln_u32 mss, ln_u32 header) {
  return mss ? Bps * mss / (mss + header) : Bps;
}

#endif /* LOOMNET_EBPF_ASTRAEA_H */
