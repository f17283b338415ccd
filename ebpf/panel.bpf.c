/* An optical circuit switch between veths. Its table is replaced whole, by one update of a slot: a
 * packet sees one generation. */
#include "panel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define PANEL_MAX_PORTS 1024

/* By ingress port. The slot holds one of two tables, and the other is written. */
struct panel_table {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, PANEL_MAX_PORTS);
  __type(key, ln_u32);
  __type(value, struct panel_entry);
} panel_first SEC(".maps"), panel_second SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
  __uint(max_entries, 1);
  __type(key, ln_u32);
  __array(values, struct panel_table);
} panel_slot SEC(".maps") = {.values = {[0] = &panel_first}};

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, PANEL_MAX_PORTS);
  __type(key, ln_u32); /* ifindex */
  __type(value, ln_u32);
} panel_ingress SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_DEVMAP);
  __uint(max_entries, PANEL_MAX_PORTS);
  __type(key, ln_u32); /* egress port */
  __type(value, ln_u32);
} panel_egress SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, PANEL_MAX_PORTS);
  __type(key, ln_u32);
  __type(value, struct panel_counters);
} panel_counts SEC(".maps");

/* Null for a port beyond the table. */
LN_INLINE struct panel_entry* panel_lookup(ln_u32 port) {
  ln_u32 zero = 0;
  void* table = bpf_map_lookup_elem(&panel_slot, &zero);
  return table ? bpf_map_lookup_elem(table, &port) : NULL;
}

SEC("xdp")
int panel(struct xdp_md* ctx) {
  ln_u32 ifindex = ctx->ingress_ifindex;
  ln_u32* port = bpf_map_lookup_elem(&panel_ingress, &ifindex);
  struct panel_counters* counters;
  struct panel_entry* entry;
  enum panel_verdict verdict;
  if (!port) return XDP_ABORTED;
  counters = bpf_map_lookup_elem(&panel_counts, port);
  entry = panel_lookup(*port);
  if (!counters || !entry) return XDP_ABORTED;
  verdict = panel_decide(entry, bpf_ktime_get_ns(), entry->drop ? bpf_get_prandom_u32() : 0);
  if (verdict >= PANEL_VERDICTS) return XDP_ABORTED; /* for the verifier */
  counters->packets[verdict]++;
  if (verdict != PANEL_FORWARD) return XDP_DROP;
  counters->bytes += ctx->data_end - ctx->data;
  return bpf_redirect_map(&panel_egress, entry->peer, XDP_DROP);
}

/* What panel() would do with a packet of any port: for tests of tables larger than a machine has
 * interfaces for. The frame is the question and, in its place, the answer. */
SEC("xdp")
int panel_ask(struct xdp_md* ctx) {
  struct panel_question* frame = (void*)(long)ctx->data;
  struct panel_entry* entry;
  if ((void*)(frame + 1) > (void*)(long)ctx->data_end) return XDP_ABORTED;
  entry = panel_lookup(frame->port);
  if (!entry) return XDP_DROP;
  frame->verdict = panel_decide(entry, bpf_ktime_get_ns(), entry->drop ? bpf_get_prandom_u32() : 0);
  frame->peer = entry->peer;
  frame->generation = entry->generation;
  return XDP_PASS;
}
