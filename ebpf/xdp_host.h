/* The kernel's half of the program host: an XDP entry around any program. NAME.bpf.c defines what its
 * program needs, includes this file and then defines ln_program, which calls NAME_ingress. The entry
 * finds the ingress port, hands in packet and meta, carries the verdict out, and reports each packet
 * that does not come back. */
#ifndef LOOMNET_EBPF_XDP_HOST_H
#define LOOMNET_EBPF_XDP_HOST_H

#include "metadata.h"
#include "xdp_abi.h"

/* To be defined before: LN_CONFIG (the type of the program's configuration) and LN_OWN_COUNTERS. As
 * the program needs: LN_STATE_ROW (a type) with LN_STATE_ROWS, LN_PAYLOAD_AT with LN_PAYLOAD_BYTES,
 * LN_TABLE_ROW (bytes of the largest row), and one or more of
 *   LN_WANTS_CLOCK     meta.now            LN_WANTS_SEQUENCE  meta.sequence, ln_rand
 *   LN_WANTS_LABELS    packet.flow and message, ln_relabel
 *   LN_CUTS            packet.length may come back less
 *   LN_EGRESS_COUNTERS their number: the program has an egress hook, ln_egress_program; with it
 *   LN_EGRESS_ROW and LN_EGRESS_ROW_2, types of its state's rows, and LN_EGRESS_TABLES, if it reads
 *   tables */
#ifndef LN_TABLE_ROW
#define LN_TABLE_ROW sizeof(ln_u32)
#endif
#define LN_HOST_COUNTER(which) (LN_OWN_COUNTERS + LN_HOST_##which)

LN_INLINE struct ln_verdict ln_program(const LN_CONFIG* config, struct ln_host* host, struct ln_packet* packet,
                                       const struct ln_meta* meta);

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile LN_CONFIG ln_config SEC(".rodata.config") = {};
volatile struct ln_settings ln_settings SEC(".data.settings") = {};

/* One row more than ports: packets of an interface without a port number are counted there. */
struct ln_counter_row {
  ln_u64 counters[LN_OWN_COUNTERS + LN_HOST_COUNTER_COUNT];
};
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, LN_MAX_XDP_PORTS + 1);
  __type(key, ln_u32);
  __type(value, struct ln_counter_row);
} ln_counters SEC(".maps");

/* Interface numbers are the namespace's, port numbers the switch's. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, LN_MAX_XDP_PORTS);
  __type(key, ln_u32);
  __type(value, ln_u32);
} ln_ingress SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_DEVMAP);
  __uint(max_entries, LN_MAX_XDP_PORTS);
  __type(key, ln_u32);
  __type(value, ln_u32);
} ln_egress SEC(".maps");

/* All rows of one generation; the outer map's single slot is what a batch replaces. Sizes rather
 * than types: clang emits only a forward declaration for a struct named in an inner map. */
struct ln_inner {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 1);
  __uint(key_size, sizeof(struct ln_key));
  __uint(value_size, LN_TABLE_ROW);
};
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
  __uint(max_entries, 1);
  __type(key, ln_u32);
  __array(values, struct ln_inner);
} ln_tables SEC(".maps");

/* The loader lets all switches of a run share one ring. */
struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 65536);
} ln_reports SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, ln_u32);
  __type(value, struct ln_last);
} ln_last SEC(".maps");

#ifdef LN_STATE_ROW
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, LN_STATE_ROWS);
  __type(key, ln_u32);
  __type(value, LN_STATE_ROW);
} ln_rows SEC(".maps");

LN_INLINE void* ln_row(struct ln_state* state, ln_u32 index) {
  (void)state;
  return bpf_map_lookup_elem(&ln_rows, &index);
}
#endif

#ifdef LN_WANTS_SEQUENCE
/* Not per CPU: a veth's one queue is polled by one CPU at a time, so the increment needs no lock. */
struct ln_sequence_row {
  ln_u64 packets;
  ln_u64 alone_in_its_cache_line[7];
};
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, LN_MAX_XDP_PORTS);
  __type(key, ln_u32);
  __type(value, struct ln_sequence_row);
} ln_sequence SEC(".maps");
#endif

#ifdef LN_WANTS_LABELS
/* Mapped into the engine, which writes a packet's label before it sends the frame. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, LN_LABEL_SLOTS);
  __type(key, ln_u32);
  __type(value, struct ln_labelled);
} ln_labels SEC(".maps");
#define LN_METADATA_BYTES (sizeof(struct ln_metadata) + sizeof(struct ln_label))
#else
#define LN_METADATA_BYTES sizeof(struct ln_metadata)
#endif

/* The row of a key, or null. The caller reads no more than LN_TABLE_ROW bytes. */
LN_INLINE void* ln_find(struct ln_tables* tables, ln_u32 table, ln_u64 high, ln_u64 low) {
  struct ln_key key = {.table = table, .high = high, .low = low};
  return bpf_map_lookup_elem(tables, &key);
}

LN_INLINE struct ln_verdict ln_host_drop(ln_u64* counters, ln_u32 which) {
  ln_count(counters, LN_OWN_COUNTERS + which);
  return ln_verdict_of(LN_DROP, LN_OWN_COUNTERS + which);
}

LN_INLINE void ln_remember(ln_u32 ingress, ln_u32 generation, struct ln_verdict verdict) {
  ln_u32 zero = 0;
  struct ln_last* last = bpf_map_lookup_elem(&ln_last, &zero);
  if (!last) return;
  last->action = verdict.action;
  last->value = verdict.value;
  last->ingress = ingress;
  last->generation = generation;
}

LN_INLINE void ln_end(ln_u64* counters, ln_u64 uid, ln_u32 generation, struct ln_verdict verdict) {
  struct ln_report* report;
  if (uid == 0) return; /* not of the engine: there is no record to free */
  report = bpf_ringbuf_reserve(&ln_reports, sizeof(*report), 0);
  if (!report) {
    if (verdict.action != LN_DROP) ln_count(counters, LN_HOST_COUNTER(UNREPORTED));
    return;
  }
  report->uid = uid;
  report->generation = generation;
  report->action = verdict.action;
  report->value = verdict.value;
  bpf_ringbuf_submit(report, BPF_RB_NO_WAKEUP); /* the live loop looks at every pass */
}

/* Runs the program on the frame and writes the metadata; `cut` becomes the bytes to take off. */
LN_INLINE struct ln_verdict ln_decide(struct xdp_md* ctx, struct ln_tables* tables, ln_u64* counters, ln_u32 ingress,
                                      ln_u32 generation, ln_u64 uid, int* cut) {
  ln_u8* frame = (ln_u8*)(long)ctx->data;
  ln_u8* end = (ln_u8*)(long)ctx->data_end;
  ln_u8* area = (ln_u8*)(long)ctx->data_meta;
  struct ln_host host = {.tables = tables, .state = (struct ln_state*)0, .counters = counters};
  struct ln_packet packet = {.frame = frame, .end = end, .length = (ln_u32)(end - frame)};
  struct ln_meta meta = {.seed = ln_settings.seed, .ingress = ingress};
  LN_CONFIG config = ln_config;
  struct ln_verdict verdict;
  struct ln_metadata* metadata;
  ln_u16 flags = 0, mac_high;
  ln_u32 mac_low;
  ln_u32 length = packet.length;

  if (frame + 12 > end || area + LN_METADATA_BYTES > frame)
    return ln_host_drop(counters, LN_HOST_DROP_NO_HEADROOM); /* XDP frames have 14 bytes and more */
  mac_high = ln_raw_load16(frame + 6);
  mac_low = ln_raw_load32(frame + 8);
  packet.payload = packet.payload_end = end;
#ifdef LN_PAYLOAD_AT
  if (frame + LN_PAYLOAD_AT <= end) packet.payload = frame + LN_PAYLOAD_AT;
#endif
#ifdef LN_WANTS_CLOCK
  meta.now = ln_settings.emulated_start + ln_emulated(bpf_ktime_get_ns() - ln_settings.wall_start, ln_settings.rate);
#endif
#ifdef LN_WANTS_SEQUENCE
  struct ln_sequence_row* sequence = bpf_map_lookup_elem(&ln_sequence, &ingress);
  if (sequence) meta.sequence = sequence->packets++;
#endif
#ifdef LN_WANTS_LABELS
  ln_u32 slot = uid & LN_LABEL_MASK;
  struct ln_labelled* label = bpf_map_lookup_elem(&ln_labels, &slot);
  ln_u32 flow = 0, message = 0;
  if (label && label->uid == uid) flow = label->flow, message = label->message;
  ln_relabel(&packet, flow, message);
#endif

  verdict = ln_program(&config, &host, &packet, &meta);

  switch (verdict.action) {
    case LN_FORWARD:
    case LN_REPLY:
    case LN_REPLICATE:
      if (mac_high != ln_raw_load16(frame + 6) || mac_low != ln_raw_load32(frame + 8)) {
        verdict = ln_host_drop(counters, LN_HOST_DROP_SOURCE_MAC);
        break;
      }
#ifdef LN_CUTS
      if (packet.length > length) {
        verdict = ln_host_drop(counters, LN_HOST_DROP_BAD_VERDICT);
        break;
      }
      if (packet.length < LN_MIN_FRAME) packet.length = length < LN_MIN_FRAME ? length : LN_MIN_FRAME;
      *cut = (int)(length - packet.length);
      if (*cut) flags |= LN_META_CUT;
#endif
#ifdef LN_WANTS_LABELS
      if (packet.flow != flow || packet.message != message) {
        struct ln_label* whose = (struct ln_label*)area; /* in front of the metadata */
        whose->flow = packet.flow;
        whose->message = packet.message;
        flags |= LN_META_RELABELLED;
      }
#endif
      break;
    case LN_DROP:
    case LN_PASS:
    case LN_ABSORB:
      break;
    default:
      verdict = ln_host_drop(counters, LN_HOST_DROP_BAD_VERDICT);
  }
  metadata = (struct ln_metadata*)(area + LN_METADATA_BYTES - sizeof(struct ln_metadata));
  metadata->magic = LN_METADATA_MAGIC;
  metadata->ingress = (ln_u16)ingress;
  metadata->action = verdict.action;
  metadata->value = verdict.value;
  metadata->flags = flags;
  metadata->generation = generation;
  (void)length, (void)uid, (void)cut;
  return verdict;
}

SEC("xdp")
int ln_switch(struct xdp_md* ctx) {
  ln_u32 ifindex = ctx->ingress_ifindex, zero = 0, generation = 0, ingress = LN_MAX_XDP_PORTS;
  ln_u64 uid = 0;
  int cut = 0;
  ln_u32* port = bpf_map_lookup_elem(&ln_ingress, &ifindex);
  if (port && *port < LN_MAX_XDP_PORTS) ingress = *port;
  struct ln_counter_row* row = bpf_map_lookup_elem(&ln_counters, &ingress);
  if (!row) return XDP_ABORTED; /* cannot happen: the index is in range */
  ln_count(row->counters, LN_RECEIVED);
  if ((long)ctx->data + 12 <= (long)ctx->data_end) uid = ln_uid_from_mac((const ln_u8*)(long)ctx->data + 6);

  struct ln_tables* tables = bpf_map_lookup_elem(&ln_tables, &zero);
  if (tables) {
    ln_u32* number = ln_find(tables, LN_TABLE_GENERATION, 0, 0);
    if (number) generation = *number;
  }
  struct ln_verdict verdict;
  /* Metadata of a switch before us may still be there: make the area exactly ours. */
  int present = (int)((long)ctx->data - (long)ctx->data_meta);
  if (ingress >= LN_MAX_XDP_PORTS) {
    verdict = ln_host_drop(row->counters, LN_HOST_DROP_UNKNOWN_INGRESS);
  } else if (!tables) {
    verdict = ln_host_drop(row->counters, LN_HOST_DROP_NO_TABLES);
  } else if (bpf_xdp_adjust_meta(ctx, present - (int)LN_METADATA_BYTES)) {
    verdict = ln_host_drop(row->counters, LN_HOST_DROP_NO_HEADROOM);
  } else {
    verdict = ln_decide(ctx, tables, row->counters, ingress, generation, uid, &cut);
  }
#ifdef LN_CUTS
  if (cut && bpf_xdp_adjust_tail(ctx, -cut)) verdict = ln_host_drop(row->counters, LN_HOST_DROP_BAD_VERDICT);
#endif
  ln_remember(ingress, generation, verdict);

  /* The low bits of the flags are what comes back when no interface is behind the port. */
  ln_u32 egress = verdict.value;
  switch (verdict.action) {
    case LN_FORWARD:
      break;
    case LN_REPLY:
      ln_count(row->counters, LN_HOST_COUNTER(REPLIED));
      egress = ingress;
      break;
    case LN_REPLICATE: /* one frame goes back, and the engine makes the copies of it */
      ln_count(row->counters, LN_HOST_COUNTER(REPLICATED));
      egress = ingress;
      break;
    case LN_ABSORB:
      ln_count(row->counters, LN_HOST_COUNTER(ABSORBED));
      ln_end(row->counters, uid, generation, verdict);
      return XDP_DROP;
    case LN_PASS:
      ln_count(row->counters, LN_HOST_COUNTER(PASSED));
      ln_end(row->counters, uid, generation, verdict);
      return XDP_PASS;
    default:
      ln_end(row->counters, uid, generation, verdict);
      return XDP_DROP;
  }
  long action = bpf_redirect_map(&ln_egress, egress, XDP_DROP);
  if (action != XDP_REDIRECT) {
    ln_count(row->counters, LN_HOST_COUNTER(DROP_NO_DEVICE));
    ln_end(row->counters, uid, generation, ln_verdict_of(LN_DROP, LN_HOST_COUNTER(DROP_NO_DEVICE)));
  }
  return (int)action;
}

#ifdef LN_EGRESS_COUNTERS
/* The egress hook's kernel build, for BPF_PROG_TEST_RUN alone: told of the queue by a map. The state
 * of the one half-link is in maps that the loader gives as many rows as the engine's build has. */
LN_INLINE ln_u32 ln_egress_program(const LN_CONFIG* config, struct ln_egress_host* host, struct ln_packet* packet,
                                   const struct ln_egress_meta* meta);

struct ln_hook_row {
  struct ln_egress_meta meta;
  ln_u64 action; /* enum ln_egress_action, the answer */
  ln_u32 note[LN_EGRESS_NOTES];
  ln_u64 counters[LN_EGRESS_COUNTERS + 1];
};
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, ln_u32);
  __type(value, struct ln_hook_row);
} ln_hook SEC(".maps");

#ifdef LN_EGRESS_ROW
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, ln_u32);
  __type(value, LN_EGRESS_ROW);
} ln_hook_rows SEC(".maps");
#endif
#ifdef LN_EGRESS_ROW_2
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, ln_u32);
  __type(value, LN_EGRESS_ROW_2);
} ln_hook_rows_2 SEC(".maps");
#endif

LN_INLINE void* ln_egress_row(struct ln_egress_host* host, ln_u32 lot, ln_u32 index) {
  (void)host, (void)lot, (void)index;
#ifdef LN_EGRESS_ROW_2
  if (lot == 1) return bpf_map_lookup_elem(&ln_hook_rows_2, &index);
#endif
#ifdef LN_EGRESS_ROW
  if (lot == 0) return bpf_map_lookup_elem(&ln_hook_rows, &index);
#endif
  return (void*)0;
}
LN_INLINE struct ln_tables* ln_egress_tables(struct ln_egress_host* host) {
  (void)host;
#ifdef LN_EGRESS_TABLES
  ln_u32 zero = 0;
  return bpf_map_lookup_elem(&ln_tables, &zero);
#else
  return (struct ln_tables*)0;
#endif
}

SEC("xdp")
int ln_dequeue(struct xdp_md* ctx) {
  ln_u32 zero = 0;
  struct ln_hook_row* hook = bpf_map_lookup_elem(&ln_hook, &zero);
  struct ln_packet packet = {.frame = (ln_u8*)(long)ctx->data, .end = (ln_u8*)(long)ctx->data_end};
  LN_CONFIG config = ln_config;
  struct ln_egress_host host;
  if (!hook) return XDP_ABORTED; /* cannot happen: the index is in range */
  host.counters = hook->counters;
  host.note = hook->note;
  packet.payload = packet.payload_end = packet.end;
  packet.length = (ln_u32)(packet.end - packet.frame);
  hook->action = ln_egress_program(&config, &host, &packet, &hook->meta);
  return XDP_PASS;
}
#endif

#endif /* LOOMNET_EBPF_XDP_HOST_H */
