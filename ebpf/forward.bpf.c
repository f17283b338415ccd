/* XDP entry of the forward program on one switch port: finds the ingress port, asks forward.h,
 * leaves verdict and generation as XDP metadata in front of the frame and redirects to the egress
 * veth. */
#include "forward.h"

#include "metadata.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before loading; plain types, so that the skeleton needs no header of ours. */
const volatile unsigned long long forward_hash_seed = 0;
const volatile unsigned int forward_options = FORWARD_DEFAULT_OPTIONS;

/* One row more than ports: packets of an interface without a port number are counted there. */
struct forward_row {
  ln_u64 counters[FORWARD_COUNTER_COUNT];
};
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, LN_MAX_XDP_PORTS + 1);
  __type(key, ln_u32);
  __type(value, struct forward_row);
} fw_counters SEC(".maps");

/* Interface numbers are the namespace's, port numbers the switch's. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, LN_MAX_XDP_PORTS);
  __type(key, ln_u32);
  __type(value, ln_u32);
} fw_ingress SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_DEVMAP);
  __uint(max_entries, LN_MAX_XDP_PORTS);
  __type(key, ln_u32);
  __type(value, ln_u32);
} fw_egress SEC(".maps");

/* All rows of one generation; the outer map's single slot is what a batch replaces. Sizes rather
 * than types: clang emits only a forward declaration for a struct named in an inner map. */
struct forward_inner {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 1);
  __uint(key_size, sizeof(struct forward_key));
  __uint(value_size, sizeof(ln_u32));
};
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
  __uint(max_entries, 1);
  __type(key, ln_u32);
  __array(values, struct forward_inner);
} fw_tables SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, ln_u32);
  __type(value, struct forward_last);
} fw_last SEC(".maps");

LN_INLINE ln_u32 forward_lookup(struct forward_tables* tables, ln_u32 table, ln_u64 high,
                                ln_u64 low) {
  struct forward_key key = {.table = table, .high = high, .low = low};
  ln_u32* row = bpf_map_lookup_elem(tables, &key);
  return row ? *row : 0;
}
LN_INLINE ln_u32 forward_lookup_sid(struct forward_tables* tables, ln_u64 block_and_usid) {
  return forward_lookup(tables, FORWARD_TABLE_SID, block_and_usid, 0);
}
LN_INLINE ln_u32 forward_lookup_host(struct forward_tables* tables, ln_u64 high, ln_u64 low) {
  return forward_lookup(tables, FORWARD_TABLE_HOST, high, low);
}
LN_INLINE ln_u32 forward_lookup_member(struct forward_tables* tables, ln_u32 group, ln_u32 index) {
  return forward_lookup(tables, FORWARD_TABLE_MEMBER, group, index);
}

LN_INLINE void remember(ln_u32 ingress, ln_u32 generation, struct ln_verdict verdict) {
  ln_u32 zero = 0;
  struct forward_last* last = bpf_map_lookup_elem(&fw_last, &zero);
  if (!last) return;
  last->action = verdict.action;
  last->value = verdict.value;
  last->ingress = ingress;
  last->generation = generation;
}

SEC("xdp")
int forward(struct xdp_md* ctx) {
  ln_u32 ifindex = ctx->ingress_ifindex, zero = 0, generation = 0, ingress = LN_MAX_XDP_PORTS;
  ln_u32* port = bpf_map_lookup_elem(&fw_ingress, &ifindex);
  if (port && *port < LN_MAX_XDP_PORTS) ingress = *port;
  struct forward_row* row = bpf_map_lookup_elem(&fw_counters, &ingress);
  if (!row) return XDP_ABORTED; /* cannot happen: the index is in range */
  ln_count(row->counters, FORWARD_RECEIVED);

  struct forward_tables* tables = bpf_map_lookup_elem(&fw_tables, &zero);
  if (tables) generation = forward_lookup(tables, FORWARD_TABLE_GENERATION, 0, 0);
  struct ln_verdict verdict;
  /* Metadata of a switch before us may still be there: make the area exactly ours. */
  int present = (int)((long)ctx->data - (long)ctx->data_meta);
  if (ingress >= LN_MAX_XDP_PORTS) {
    verdict = forward_drop(row->counters, FORWARD_DROP_UNKNOWN_INGRESS);
  } else if (!tables) {
    verdict = forward_drop(row->counters, FORWARD_DROP_NO_TABLES);
  } else if (bpf_xdp_adjust_meta(ctx, present - (int)sizeof(struct ln_metadata))) {
    verdict = forward_drop(row->counters, FORWARD_DROP_NO_HEADROOM);
  } else {
    ln_u8* frame = (ln_u8*)(long)ctx->data;
    ln_u8* end = (ln_u8*)(long)ctx->data_end;
    struct ln_metadata* metadata = (struct ln_metadata*)(long)ctx->data_meta;
    struct forward_config config = {.hash_seed = forward_hash_seed, .options = forward_options};
    verdict = forward_ingress(tables, &config, row->counters, frame, end, (ln_u32)(end - frame));
    if ((void*)(metadata + 1) <= (void*)frame) {
      metadata->magic = LN_METADATA_MAGIC;
      metadata->ingress = (ln_u16)ingress;
      metadata->action = verdict.action;
      metadata->value = verdict.value;
      metadata->reserved = 0;
      metadata->generation = generation;
    }
  }
  remember(ingress, generation, verdict);
  if (verdict.action != LN_FORWARD) return XDP_DROP;
  /* The low bits of the flags are what comes back when no interface is behind the port. */
  long action = bpf_redirect_map(&fw_egress, verdict.value, XDP_DROP);
  if (action != XDP_REDIRECT) ln_count(row->counters, FORWARD_DROP_NO_DEVICE);
  return (int)action;
}
