/* The engine's end of a veth: every frame goes to the AF_XDP socket of its interface, metadata
 * kept. Beside it the pass program for host ends: a veth takes redirected frames only if it runs
 * one. */
#include "endpoint_abi.h"
#include "platform.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* One object serves every interface of the engine's namespace: ifindex -> slot -> socket. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, ENDPOINT_MAX_SOCKETS);
  __type(key, ln_u32);
  __type(value, ln_u32);
} ep_slots SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_XSKMAP);
  __uint(max_entries, ENDPOINT_MAX_SOCKETS);
  __type(key, ln_u32);
  __type(value, ln_u32);
} ep_sockets SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, ENDPOINT_COUNTER_COUNT);
  __type(key, ln_u32);
  __type(value, ln_u64);
} ep_counters SEC(".maps");

LN_INLINE void count(ln_u32 counter) {
  ln_u64* value = bpf_map_lookup_elem(&ep_counters, &counter);
  if (value) ln_count(value, 0);
}

SEC("xdp")
int endpoint(struct xdp_md* ctx) {
  ln_u32 ifindex = ctx->ingress_ifindex;
  ln_u32* slot = bpf_map_lookup_elem(&ep_slots, &ifindex);
  if (!slot) {
    count(ENDPOINT_DROP_NO_SLOT);
    return XDP_DROP;
  }
  long action = bpf_redirect_map(&ep_sockets, *slot, XDP_DROP);
  count(action == XDP_REDIRECT ? ENDPOINT_REDIRECTED : ENDPOINT_DROP_NO_SOCKET);
  return (int)action;
}

SEC("xdp")
int pass(struct xdp_md* ctx) {
  (void)ctx;
  return XDP_PASS;
}
