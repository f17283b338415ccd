/* What the kernel's half of the program host (xdp_host.h) and its loader agree on: the names of maps,
 * the settings of one switch, and how a table's row is found. */
#ifndef LOOMNET_EBPF_XDP_ABI_H
#define LOOMNET_EBPF_XDP_ABI_H

#include "platform.h"

/* Names in every program's object; a map that a program does not need is not there.
 *   ln_switch    the XDP program       ln_dequeue   the egress hook, for BPF_PROG_TEST_RUN
 *   ln_ingress   ifindex -> port       ln_egress    port -> interface
 *   ln_counters  one row per port      ln_tables    the batch published last
 *   ln_rows      the program's state   ln_sequence  packets per port
 *   ln_reports   packets that end here ln_labels    flow and message by uid
 *   ln_last      the last verdict      ln_hook      what ln_dequeue is told
 *   ln_hook_rows, ln_hook_rows_2         rows that ln_dequeue keeps
 *   .data.settings: struct ln_settings; .rodata.config: the program's own NAME_config. */

struct ln_settings {
  ln_u64 seed; /* of ln_meta */
  /* now = emulated_start + (bpf_ktime_get_ns - wall_start) * rate >> 32 */
  ln_u64 wall_start;     /* nanoseconds */
  ln_u64 emulated_start; /* picoseconds */
  ln_u64 rate;           /* picoseconds per nanosecond << 32: 1000 << 32 without dilation */
};

/* ns * rate >> 32 without overflow, which 64 bits alone would reach within seconds. */
LN_INLINE ln_u64 ln_emulated(ln_u64 ns, ln_u64 rate) {
  ln_u64 high = ns >> 32, low = ns & 0xffffffffu;
  return (high * rate) + low * (rate >> 32) + (low * (rate & 0xffffffffu) >> 32);
}

/* In the kernel one hash map holds all rows of a batch, so that replacing it replaces all at once.
 * Table 0 holds one row, the generation. */
#define LN_TABLE_GENERATION 0u
struct ln_key {
  ln_u32 table;
  ln_u32 reserved;
  ln_u64 high;
  ln_u64 low;
};

/* Whose a packet is, for a program that asks for labels: slot uid & LN_LABEL_MASK, written before the
 * frame is sent. */
#define LN_LABEL_SLOTS 65536u
#define LN_LABEL_MASK (LN_LABEL_SLOTS - 1)
struct ln_labelled {
  ln_u64 uid;
  ln_u32 flow;
  ln_u32 message;
};

/* What the program did with the last packet on this CPU: BPF_PROG_TEST_RUN shows no redirect
 * target. */
struct ln_last {
  ln_u32 action;
  ln_u32 value;
  ln_u32 ingress;
  ln_u32 generation;
};

#endif /* LOOMNET_EBPF_XDP_ABI_H */
