/* An optical circuit switch between veths: an XDP program and a tc program with the same table. The table is replaced
 * by one update of a map's slot, so every packet sees the entries of one generation. */
#include "panel.h"

#include <linux/pkt_cls.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define PANEL_MAX_PORTS 1024

/* Entries by ingress port. There are two tables: the slot refers to the one in use, and the loader writes the other. */
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
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, PANEL_MAX_PORTS);
  __type(key, ln_u32); /* egress port */
  __type(value, ln_u32); /* its ifindex, for the tc program, which cannot use a devmap */
} panel_links SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, PANEL_MAX_PORTS);
  __type(key, ln_u32);
  __type(value, struct panel_counters);
} panel_counts SEC(".maps");

/* The entry of an ingress port, or null for a port beyond the table. */
LN_INLINE struct panel_entry* panel_lookup(ln_u32 port) {
  ln_u32 zero = 0;
  void* table = bpf_map_lookup_elem(&panel_slot, &zero);
  return table ? bpf_map_lookup_elem(table, &port) : NULL;
}

/* Decides on a packet that came in by this interface and counts it. `*peer` becomes the egress port of a packet that is
 * forwarded. Returns PANEL_VERDICTS where the interface is not the panel's. */
LN_INLINE enum panel_verdict panel_pass(ln_u32 ifindex, ln_u64 packets, ln_u64 bytes, ln_u32* peer) {
  ln_u32* port = bpf_map_lookup_elem(&panel_ingress, &ifindex);
  struct panel_counters* counters;
  struct panel_entry* entry;
  enum panel_verdict verdict;
  if (!port) return PANEL_VERDICTS;
  counters = bpf_map_lookup_elem(&panel_counts, port);
  entry = panel_lookup(*port);
  if (!counters || !entry) return PANEL_VERDICTS;
  verdict = panel_decide(entry, bpf_ktime_get_ns(), entry->drop ? bpf_get_prandom_u32() : 0);
  if (verdict >= PANEL_VERDICTS) return PANEL_VERDICTS; /* for the verifier */
  counters->packets[verdict] += packets;
  if (verdict == PANEL_FORWARD) counters->bytes += bytes;
  *peer = entry->peer;
  return verdict;
}

SEC("xdp")
int panel(struct xdp_md* ctx) {
  ln_u32 peer = 0;
  enum panel_verdict verdict = panel_pass(ctx->ingress_ifindex, 1, ctx->data_end - ctx->data, &peer);
  if (verdict == PANEL_VERDICTS) return XDP_ABORTED;
  return verdict == PANEL_FORWARD ? bpf_redirect_map(&panel_egress, peer, XDP_DROP) : XDP_DROP;
}

/* With segmentation offload a packet stands for several. It is counted as that many packets; in bytes its headers are
 * counted once. */
SEC("tc")
int panel_tc(struct __sk_buff* ctx) {
  ln_u32 peer = 0, *link;
  enum panel_verdict verdict = panel_pass(ctx->ifindex, ctx->gso_segs > 1 ? ctx->gso_segs : 1, ctx->len, &peer);
  if (verdict != PANEL_FORWARD) return TC_ACT_SHOT;
  link = bpf_map_lookup_elem(&panel_links, &peer);
  return link ? bpf_redirect(*link, 0) : TC_ACT_SHOT;
}

/* For tests: the decision on a packet of any port at any time, also of a panel with more ports than the machine has
 * interfaces. The frame holds the question, and the answer is written into it. */
LN_INLINE int panel_answer(void* data, void* data_end) {
  struct panel_question* frame = data;
  struct panel_entry* entry;
  if ((void*)(frame + 1) > data_end) return 0;
  entry = panel_lookup(frame->port);
  if (!entry) return 0;
  frame->verdict = panel_decide(entry, frame->now ? frame->now : bpf_ktime_get_ns(),
                                frame->now ? frame->chance : bpf_get_prandom_u32());
  frame->peer = entry->peer;
  frame->generation = entry->generation;
  return 1;
}

SEC("xdp")
int panel_ask(struct xdp_md* ctx) {
  return panel_answer((void*)(long)ctx->data, (void*)(long)ctx->data_end) ? XDP_PASS : XDP_DROP;
}

SEC("tc")
int panel_ask_tc(struct __sk_buff* ctx) {
  return panel_answer((void*)(long)ctx->data, (void*)(long)ctx->data_end) ? TC_ACT_OK : TC_ACT_SHOT;
}
