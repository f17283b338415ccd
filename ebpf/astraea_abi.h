/* What the kernel's half of Astraea (astraea.bpf.c) and the agent that decides for its flows share: a
 * slot of 256 bytes per flow, in an array that the agent maps into its memory. Lines of 64 bytes have one
 * writer each, so neither side takes a line from the other while packets flow. */
#ifndef LOOMNET_EBPF_ASTRAEA_ABI_H
#define LOOMNET_EBPF_ASTRAEA_ABI_H

#include "platform.h"

#define ASTRAEA_SLOTS 1024u
#define ASTRAEA_NO_SLOT 0xffffffffu
#define ASTRAEA_PROBES 64u               /* slots that a new flow looks at */
#define ASTRAEA_RECLAIM_NS 10000000000ull /* a released slot that no agent has freed is taken after it */
#define ASTRAEA_TIMEOUT_MS 150u          /* of a command, where the slot says 0 */
#define ASTRAEA_LEAST_WINDOW 4u          /* packets */
#define ASTRAEA_NO_SLOW_START 1u         /* of flags: the initial window stays until the first command */

enum astraea_state { ASTRAEA_FREE = 0, ASTRAEA_LIVE = 1, ASTRAEA_RELEASED = 2, ASTRAEA_CLAIMING = 3 };
enum astraea_mode { ASTRAEA_START = 0, ASTRAEA_AGENT = 1, ASTRAEA_FALLBACK = 2 };

/* Times are of CLOCK_MONOTONIC. Counters only grow, and those of 32 bits wrap: readers take differences. */
struct astraea_slot {
  /* Line 0: who the flow is. Written by the program before `state` becomes ASTRAEA_LIVE. */
  ln_u32 state; /* the agent changes ASTRAEA_RELEASED to ASTRAEA_FREE */
  ln_u32 gen;   /* one more for each flow that takes the slot */
  ln_u16 family, local_port, remote_port, reserved_14;
  ln_u32 netns; /* inode of the network namespace */
  ln_u32 reserved_20;
  ln_u64 init_ns;
  ln_u8 local[16], remote[16]; /* IPv4 as ::ffff:a.b.c.d */
  /* Lines 1 and 2: what the program publishes at each acknowledgement. */
  ln_u32 wseq; /* odd while the program writes */
  ln_u32 ca_state; /* 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss */
  ln_u64 last_ack_ns;
  ln_u64 rtt_sum_us, rate_sum_Bps;
  ln_u32 rtt_cnt, rate_cnt;
  ln_u32 delivered, lost, total_retrans; /* packets */
  ln_u32 acks;
  ln_u32 cwnd, srtt_x8_us;
  ln_u32 packets_out, retrans_out;
  ln_u32 min_rtt_us; /* of the flow's life; 0: no sample */
  ln_u32 mss;
  ln_u64 pacing_Bps; /* bytes of packets with their headers per second */
  ln_u64 bytes_acked;
  ln_u32 mode;
  ln_u32 epoch; /* the agent's, as of the last acknowledgement; these two are of it alone: */
  ln_u32 fallbacks;
  ln_u32 epoch_least_rtt_us;   /* 0: no sample */
  ln_u32 epoch_most_out;       /* the largest packets_out */
  ln_u32 decisions;            /* of the program where it decides itself, and of the policy alone */
  ln_u64 decided_us;           /* the last interval's end */
  /* Line 3: the agent's; of the program where that decides itself. */
  ln_u64 command;    /* milliseconds << 32 | window in packets; window 0: the flow is left to its start */
  ln_u64 pacing_cmd; /* as pacing_Bps; 0: follows from the window */
  ln_u32 flags;
  ln_u32 timeout_ms;  /* 0: ASTRAEA_TIMEOUT_MS */
  ln_u32 agent_epoch; /* one more for each interval */
  /* The last interval that the program ended itself: */
  ln_u32 intervals;   /* one more for each */
  ln_u64 seen_Bps;    /* mean of the delivery rates */
  ln_u32 seen_loss_Bps, seen_cwnd;
  ln_u32 seen_rtt_us, seen_min_rtt_us; /* mean, and least of the last 10 s */
  ln_u32 seen_queue_x256;              /* packets of the flow's own in queues, times 256 */
  ln_s32 action;                       /* times 32767 */
};

#define ASTRAEA_AT(field, offset) \
  _Static_assert(__builtin_offsetof(struct astraea_slot, field) == (offset), #field)
#if defined(__cplusplus)
#undef ASTRAEA_AT
#define ASTRAEA_AT(field, offset) static_assert(offsetof(struct astraea_slot, field) == (offset), #field)
#endif
ASTRAEA_AT(init_ns, 24);
ASTRAEA_AT(local, 32);
ASTRAEA_AT(wseq, 64);
ASTRAEA_AT(rtt_sum_us, 80);
ASTRAEA_AT(delivered, 104);
ASTRAEA_AT(cwnd, 120);
ASTRAEA_AT(packets_out, 128);
ASTRAEA_AT(pacing_Bps, 144);
ASTRAEA_AT(mode, 160);
ASTRAEA_AT(fallbacks, 168);
ASTRAEA_AT(decided_us, 184);
ASTRAEA_AT(command, 192);
ASTRAEA_AT(pacing_cmd, 200);
ASTRAEA_AT(flags, 208);
ASTRAEA_AT(timeout_ms, 212);
ASTRAEA_AT(intervals, 220);
#if defined(__cplusplus)
static_assert(sizeof(struct astraea_slot) == 256, "a slot has 256 bytes");
#else
_Static_assert(sizeof(struct astraea_slot) == 256, "a slot has 256 bytes");
#endif

#endif /* LOOMNET_EBPF_ASTRAEA_ABI_H */
