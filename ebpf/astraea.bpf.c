/* Astraea in the kernel's TCP (Liao et al., EuroSys 2024): a struct_ops congestion control whose window an
 * agent in user space sets through a slot that both map. A flow that no agent attends to is in additive
 * increase and multiplicative decrease by the kernel's own functions. astraea.h has the arithmetic,
 * astraea_abi.h the slot.
 *
 * cong_control has four arguments from Linux 6.10 on and two before; astraea_rs.bpf.c is the other form. */
#include "astraea.h"
#include "kernel_tcp.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Of the run; set before the object is loaded. */
const volatile struct ln_control_config ln_config SEC(".rodata.config") = {ASTRAEA_SLOTS - 1, 0};

struct ln_control_counts ln_counts SEC(".data.counts") = {0};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, ASTRAEA_SLOTS);
  __type(key, ln_u32);
  __type(value, struct astraea_slot);
} ln_slots SEC(".maps");

/* What a flow keeps in the 104 bytes that a control has in its socket. */
struct flow {
  ln_u32 slot; /* its number and one; ASTRAEA_NO_SLOT: none, for life; 0: ln_init has not been called yet */
  ln_u32 mode;
  ln_u32 min_rtt_us;
};

LN_INLINE struct flow* flow_of(struct sock* sk) {
  return (struct flow*)((struct inet_connection_sock*)sk)->icsk_ca_priv;
}

LN_INLINE struct astraea_slot* slot_of(const struct flow* flow) {
  ln_u32 index = flow->slot - 1;
  return bpf_map_lookup_elem(&ln_slots, &index); /* null for what is no slot's number */
}

LN_INLINE ln_u32 header_bytes(const struct tcp_sock* tp) {
  ln_u32 ip = ((const struct sock*)tp)->__sk_common.skc_family == AF_INET6 ? 40 : 20;
  return ip + tp->tcp_header_len;
}

LN_INLINE void identify(struct astraea_slot* s, struct sock* sk) {
  const struct sock_common* c = &sk->__sk_common;
  s->family = c->skc_family;
  s->local_port = c->skc_num;
  s->remote_port = LN_SWAP16(c->skc_dport);
  s->netns = c->skc_net.net->ns.inum;
  ln_u32* local = (ln_u32*)s->local;
  ln_u32* remote = (ln_u32*)s->remote;
  if (c->skc_family == AF_INET6) {
    for (int i = 0; i < 4; ++i) {
      local[i] = c->skc_v6_rcv_saddr.in6_u.u6_addr32[i];
      remote[i] = c->skc_v6_daddr.in6_u.u6_addr32[i];
    }
  } else {
    local[0] = local[1] = local[2] = remote[0] = remote[1] = remote[2] = 0;
    s->local[10] = s->local[11] = s->remote[10] = s->remote[11] = 0xff;
    local[3] = c->skc_rcv_saddr;
    remote[3] = c->skc_daddr;
  }
}

LN_INLINE int take(struct astraea_slot* s, ln_u64 now) {
  ln_u32 state = s->state;
  if (state == ASTRAEA_FREE) {
    return __sync_val_compare_and_swap(&s->state, ASTRAEA_FREE, ASTRAEA_CLAIMING) == ASTRAEA_FREE;
  }
  if (state != ASTRAEA_RELEASED || now - s->last_ack_ns < ASTRAEA_RECLAIM_NS) return 0;
  return __sync_val_compare_and_swap(&s->state, ASTRAEA_RELEASED, ASTRAEA_CLAIMING) == ASTRAEA_RELEASED;
}

SEC("struct_ops/ln_init")
void BPF_PROG(ln_init, struct sock* sk) {
  struct flow* flow = flow_of(sk);
  ln_u64 now = bpf_ktime_get_ns();
  flow->slot = ASTRAEA_NO_SLOT;
  flow->mode = ASTRAEA_START;
  flow->min_rtt_us = 0;
  ln_u32 first = (ln_u32)ln_mix64(sk->__sk_common.skc_num);
  for (ln_u32 i = 0; i < ASTRAEA_PROBES; ++i) {
    ln_u32 index = (first + i) & ln_config.slot_mask;
    struct astraea_slot* s = bpf_map_lookup_elem(&ln_slots, &index);
    if (!s || !take(s, now)) continue;
    s->gen += 1;
    identify(s, sk);
    s->init_ns = s->last_ack_ns = now;
    /* Lines 1 and 2, but for the two words before last_ack_ns, and line 3. */
    s->rtt_sum_us = s->rate_sum_Bps = 0;
    s->rtt_cnt = s->rate_cnt = s->delivered = s->lost = s->total_retrans = s->acks = 0;
    s->cwnd = s->srtt_x8_us = s->packets_out = s->retrans_out = s->min_rtt_us = s->mss = 0;
    s->pacing_Bps = s->bytes_acked = 0;
    s->mode = s->epoch = s->fallbacks = s->epoch_least_rtt_us = s->epoch_most_out = 0;
    s->ca_state = s->wseq = 0;
    s->command = s->pacing_cmd = 0;
    s->flags = ln_config.flags;
    s->timeout_ms = s->agent_epoch = 0;
    __sync_lock_test_and_set(&s->state, ASTRAEA_LIVE);
    flow->slot = index + 1;
    break;
  }
  if (flow->slot == ASTRAEA_NO_SLOT) __sync_fetch_and_add(&ln_counts.slotless, 1);
  sk->sk_pacing_status = SK_PACING_NEEDED;
}

LN_INLINE void publish(struct astraea_slot* s, struct tcp_sock* tp, struct flow* flow, const struct rate_sample* rs,
                       ln_u64 now_us, ln_u32 state, ln_u64 payload_Bps) {
  long rtt = rs->rtt_us, interval = rs->interval_us;
  ln_s32 delivered = rs->delivered;
  ln_u32 seq = s->wseq;
  /* Exchanges order what is written between them on every processor; plain increments do not. */
  __sync_lock_test_and_set(&s->wseq, seq + 1);
  ln_u32 epoch = s->agent_epoch;
  if (epoch != s->epoch) {
    s->epoch = epoch;
    s->epoch_least_rtt_us = s->epoch_most_out = 0;
  }
  if (rtt > 0) {
    s->rtt_sum_us += rtt;
    s->rtt_cnt += 1;
    if (!s->epoch_least_rtt_us || (ln_u32)rtt < s->epoch_least_rtt_us) s->epoch_least_rtt_us = rtt;
    if (!flow->min_rtt_us || (ln_u32)rtt < flow->min_rtt_us) flow->min_rtt_us = rtt;
  }
  if (delivered >= 0 && interval > 0) {
    s->rate_sum_Bps += (ln_u64)delivered * tp->mss_cache * 1000000 / (ln_u64)interval;
    s->rate_cnt += 1;
  }
  ln_u32 out = tp->packets_out;
  if (out > s->epoch_most_out) s->epoch_most_out = out;
  s->ca_state = state;
  s->last_ack_ns = now_us * 1000;
  s->delivered = tp->delivered;
  s->lost = tp->lost;
  s->total_retrans = tp->total_retrans;
  s->acks += 1;
  s->cwnd = tp->snd_cwnd;
  s->srtt_x8_us = tp->srtt_us;
  s->packets_out = out;
  s->retrans_out = tp->retrans_out;
  s->min_rtt_us = flow->min_rtt_us;
  s->mss = tp->mss_cache;
  s->pacing_Bps = astraea_with_headers(payload_Bps, tp->mss_cache, header_bytes(tp));
  s->bytes_acked = tp->bytes_acked;
  s->mode = flow->mode;
  __sync_lock_test_and_set(&s->wseq, seq + 2);
}

LN_INLINE void on_ack(struct sock* sk, ln_u32 ack, const struct rate_sample* rs) {
  struct tcp_sock* tp = (struct tcp_sock*)sk;
  struct flow* flow = flow_of(sk);
  /* The acknowledgement of the SYN comes before ln_init. */
  if (!flow->slot) return;
  ln_u64 now_us = tp->tcp_mstamp, command = 0, pacing = 0; /* the kernel has just read the clock */
  ln_u32 timeout = 0, flags = 0;
  ln_u32 state = BPF_CORE_READ_BITFIELD((struct inet_connection_sock*)sk, icsk_ca_state);
  struct astraea_slot* s = slot_of(flow);
  if (s) {
    command = *(volatile ln_u64*)&s->command;
    pacing = s->pacing_cmd;
    timeout = s->timeout_ms;
    flags = s->flags;
  }
  int attended = astraea_attended(command, (ln_u32)(now_us / 1000), timeout);
  ln_u32 wanted = astraea_command_window(command);
  if (attended && wanted) {
    tp->snd_cwnd = astraea_window(wanted, tp->snd_cwnd_clamp, state == TCP_CA_LOSS, tp->snd_cwnd, rs->acked_sacked);
    flow->mode = ASTRAEA_AGENT;
  } else if (flow->mode == ASTRAEA_START && (flags & ASTRAEA_NO_SLOW_START)) {
    /* The initial window stays. */
  } else if (flow->mode == ASTRAEA_START && attended && (state >= TCP_CA_CWR || rs->losses > 0)) {
    /* A loss ends the start; the agent, which is there, says with which window. */
  } else {
    if (flow->mode == ASTRAEA_AGENT) {
      flow->mode = ASTRAEA_FALLBACK;
      if (s) s->fallbacks += 1;
      tp->snd_ssthresh = tp->snd_cwnd; /* in congestion avoidance */
    }
    if (state == TCP_CA_CWR || state == TCP_CA_RECOVERY) {
      ln_u32 to = tp->snd_ssthresh;
      tp->snd_cwnd = to < ASTRAEA_LEAST_WINDOW ? ASTRAEA_LEAST_WINDOW : to;
    } else {
      tcp_reno_cong_avoid(sk, ack, rs->acked_sacked);
    }
  }
  /* The kernel paces payload. */
  ln_u64 rate = pacing && flow->mode == ASTRAEA_AGENT ? astraea_without_headers(pacing, tp->mss_cache, header_bytes(tp))
                                                      : astraea_pacing(tp->snd_cwnd, tp->packets_out, tp->mss_cache,
                                                                       tp->srtt_us, flow->mode != ASTRAEA_AGENT);
  if (rate) {
    ln_u64 most = sk->sk_max_pacing_rate;
    sk->sk_pacing_rate = rate < most ? rate : most;
  }
  if (s) publish(s, tp, flow, rs, now_us, state, rate);
}

SEC("struct_ops/ln_cong_control")
#if defined(LN_TWO_ARGUMENTS)
void BPF_PROG(ln_cong_control, struct sock* sk, const struct rate_sample* rs) {
  on_ack(sk, 0, rs); /* tcp_reno_cong_avoid does not use its `ack` */
}
#else
void BPF_PROG(ln_cong_control, struct sock* sk, ln_u32 ack, int flag, const struct rate_sample* rs) {
  (void)flag;
  on_ack(sk, ack, rs);
}
#endif

SEC("struct_ops/ln_ssthresh")
ln_u32 BPF_PROG(ln_ssthresh, struct sock* sk) {
  ln_u32 window = ((struct tcp_sock*)sk)->snd_cwnd;
  if (flow_of(sk)->mode == ASTRAEA_AGENT) return window > 10 ? window : 10;
  return window / 2 > ASTRAEA_LEAST_WINDOW ? window / 2 : ASTRAEA_LEAST_WINDOW;
}

SEC("struct_ops/ln_undo_cwnd")
ln_u32 BPF_PROG(ln_undo_cwnd, struct sock* sk) { return ((struct tcp_sock*)sk)->snd_cwnd; }

SEC("struct_ops/ln_release")
void BPF_PROG(ln_release, struct sock* sk) {
  struct astraea_slot* s = slot_of(flow_of(sk));
  if (s) __sync_lock_test_and_set(&s->state, ASTRAEA_RELEASED);
}

/* The loader puts the run's own name into these bytes: struct_ops objects have no other way before
 * libbpf 1.4. */
SEC(".struct_ops")
struct tcp_congestion_ops ln_control = {
    .name = "ln_control_name",
    .flags = TCP_CONG_NON_RESTRICTED,
    .init = (void*)ln_init,
    .release = (void*)ln_release,
    .ssthresh = (void*)ln_ssthresh,
    .undo_cwnd = (void*)ln_undo_cwnd,
    .cong_control = (void*)ln_cong_control,
};
