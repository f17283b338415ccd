/* Astraea in the kernel's TCP (Liao et al., EuroSys 2024): a struct_ops congestion control whose window an
 * agent in user space sets through a slot that both map, or that the program itself sets by a policy in whole
 * numbers (ln_config.decides; astraea_inside.h). A flow that neither attends to is in additive increase and
 * multiplicative decrease by the kernel's own functions. astraea.h has the arithmetic, astraea_abi.h the slot.
 *
 * cong_control has four arguments from Linux 6.10 on and two before; astraea_rs.bpf.c is the other form. */
#include "astraea_inside.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct ln_control_counts ln_counts SEC(".data.counts") = {0};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, ASTRAEA_SLOTS);
  __type(key, ln_u32);
  __type(value, struct astraea_slot);
} ln_slots SEC(".maps");

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
  flow->min_rtt_us = flow->command = flow->start_cnt = 0;
  flow->due_us = flow->judged_us = flow->start_sum_us = 0;
  int kept = !ln_config.decides || bpf_sk_storage_get(&ln_memory, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
  ln_u32 first = (ln_u32)ln_mix64(sk->__sk_common.skc_num);
  for (ln_u32 i = 0; kept && i < ASTRAEA_PROBES; ++i) {
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
    s->timeout_ms = s->agent_epoch = s->decisions = s->intervals = 0;
    s->decided_us = s->seen_Bps = 0;
    s->seen_loss_Bps = s->seen_cwnd = s->seen_rtt_us = s->seen_min_rtt_us = s->seen_queue_x256 = 0;
    s->action = 0;
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

/* Sets the pacing of the socket, in payload, and returns it; 0 where no round trip is known. `asked`: with headers,
 * 0 for what follows from the window. */
LN_INLINE ln_u64 pace(struct sock* sk, struct tcp_sock* tp, ln_u64 asked, int grows) {
  ln_u64 rate = asked ? astraea_without_headers(asked, tp->mss_cache, header_bytes(tp))
                      : astraea_pacing(tp->snd_cwnd, tp->packets_out, tp->mss_cache, tp->srtt_us, grows);
  ln_u64 most = sk->sk_max_pacing_rate;
  if (rate) sk->sk_pacing_rate = rate < most ? rate : most;
  return rate;
}

/* Where the program decides: a start-up or an interval may end with this acknowledgement, whose counters are in the
 * slot. */
LN_INLINE void look(struct sock* sk, struct tcp_sock* tp, struct flow* flow, struct astraea_slot* s,
                    const struct astraea_bank* bank, const struct rate_sample* rs, ln_u64 now_us) {
  ln_u32 to = 0;
  if (flow->mode == ASTRAEA_START) {
    to = (s->flags & ASTRAEA_NO_SLOW_START) ? astraea_bounded(bank, s->cwnd) : leave_start(flow, s, bank, rs, now_us);
    if (to) {
      flow->command = to;
      flow->mode = ASTRAEA_AGENT;
    }
  }
  if (flow->due_us && now_us >= flow->due_us) {
    ln_u32 decided = end_interval(sk, s, bank, flow, now_us);
    if (decided) to = decided;
  }
  if (!to) return;
  tp->snd_cwnd = astraea_window(to, tp->snd_cwnd_clamp, s->ca_state == TCP_CA_LOSS, tp->snd_cwnd, 0);
  s->cwnd = tp->snd_cwnd;
  s->mode = flow->mode;
  ln_u64 rate = pace(sk, tp, 0, 0);
  if (rate) s->pacing_Bps = astraea_with_headers(rate, tp->mss_cache, header_bytes(tp));
}

LN_INLINE void on_ack(struct sock* sk, ln_u32 ack, const struct rate_sample* rs) {
  struct tcp_sock* tp = (struct tcp_sock*)sk;
  struct flow* flow = flow_of(sk);
  /* The acknowledgement of the SYN comes before ln_init. */
  if (!flow->slot) return;
  ln_u64 now_us = tp->tcp_mstamp, command = 0, pacing = 0; /* the kernel has just read the clock */
  ln_u32 timeout = 0, flags = 0, wanted;
  int attended;
  ln_u32 state = BPF_CORE_READ_BITFIELD((struct inet_connection_sock*)sk, icsk_ca_state);
  struct astraea_slot* s = slot_of(flow);
  const struct astraea_bank* bank = 0;
  if (ln_config.decides) {
    if (s) {
      bank = active_bank();
      flags = s->flags;
    }
    attended = bank && *(volatile ln_u32*)&bank->version;
    if (attended) {
      if (flow->mode == ASTRAEA_FALLBACK) { /* the policy is there again, and goes on from the kernel's window */
        flow->command = tp->snd_cwnd;
        flow->due_us = 0;
      }
      note_acknowledgement(sk, flow, s, bank, now_us);
    }
    wanted = flow->command;
  } else {
    if (s) {
      command = *(volatile ln_u64*)&s->command;
      pacing = s->pacing_cmd;
      timeout = s->timeout_ms;
      flags = s->flags;
    }
    attended = astraea_attended(command, (ln_u32)(now_us / 1000), timeout);
    wanted = astraea_command_window(command);
  }
  if (attended && wanted) {
    tp->snd_cwnd = astraea_window(wanted, tp->snd_cwnd_clamp, state == TCP_CA_LOSS, tp->snd_cwnd, rs->acked_sacked);
    flow->mode = ASTRAEA_AGENT;
  } else if (flow->mode == ASTRAEA_START && (flags & ASTRAEA_NO_SLOW_START)) {
    /* The initial window stays. */
  } else if (flow->mode == ASTRAEA_START && attended && (state >= TCP_CA_CWR || rs->losses > 0)) {
    /* A loss ends the start; who decides, and is there, says with which window. */
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
  int steered = flow->mode == ASTRAEA_AGENT;
  ln_u64 rate = pace(sk, tp, steered ? pacing : 0, !steered);
  if (!s) return;
  publish(s, tp, flow, rs, now_us, state, rate);
  if (ln_config.decides && bank && attended) look(sk, tp, flow, s, bank, rs, now_us);
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

/* One decision of a flow that is in memory alone, for BPF_PROG_TEST_RUN: so the program's arithmetic is compared with
 * the engine's, and timed. Loaded on request. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, 1);
  __type(key, ln_u32);
  __type(value, struct astraea_trial);
} ln_trial_memory SEC(".maps");

SEC("syscall")
int ln_trial(void* context) {
  ln_u32 only = 0;
  struct astraea_trial* trial = bpf_map_lookup_elem(&ln_trial_memory, &only);
  const struct astraea_bank* bank = active_bank();
  (void)context;
  if (!trial || !bank) return 1;
  astraea_decide(&trial->memory, bank, trial->acting);
  return 0;
}
