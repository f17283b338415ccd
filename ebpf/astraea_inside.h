/* The part of Astraea's program in the kernel that decides without an agent: it keeps a flow's memory in the
 * socket's storage, tells astraea_decide.h when an interval has ended, and takes what comes out. */
#ifndef LOOMNET_EBPF_ASTRAEA_INSIDE_H
#define LOOMNET_EBPF_ASTRAEA_INSIDE_H

#include "astraea.h"
#include "astraea_decide.h"
#include "kernel_tcp.h"

/* Of the run; set before the object is loaded. */
const volatile struct ln_control_config ln_config SEC(".rodata.config") = {ASTRAEA_SLOTS - 1, 0, 0, 0};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, 1);
  __type(key, ln_u32);
  __type(value, struct astraea_policies);
} ln_policy SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_SK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, int);
  __type(value, struct astraea_memory);
} ln_memory SEC(".maps");

/* What a flow keeps in the 104 bytes that a control has in its socket. */
struct flow {
  ln_u32 slot; /* its number and one; ASTRAEA_NO_SLOT: none, for life; 0: ln_init has not been called yet */
  ln_u32 mode;
  ln_u32 min_rtt_us;
  /* Where the program decides: */
  ln_u32 command; /* packets; 0: none yet */
  ln_u64 due_us;  /* when the interval ends; 0: none is under way */
  ln_u64 judged_us, start_sum_us; /* the last test of the start-up, and the sum of round trips then … */
  ln_u32 start_cnt;               /* … and their number */
};

/* The policy that flows follow now; its version is 0 where there is none. */
LN_INLINE const struct astraea_bank* active_bank(void) {
  ln_u32 only = 0;
  struct astraea_policies* p = bpf_map_lookup_elem(&ln_policy, &only);
  return p ? &p->bank[*(volatile ln_u32*)&p->active & 1] : 0;
}

LN_INLINE void count_up(struct astraea_counters* to, const struct astraea_slot* s, ln_u64 now_us) {
  to->at_us = now_us;
  to->rtt_sum_us = s->rtt_sum_us;
  to->rate_sum_Bps = s->rate_sum_Bps;
  to->rtt_cnt = s->rtt_cnt;
  to->rate_cnt = s->rate_cnt;
  to->lost = s->lost;
}

/* Before the counters of an acknowledgement: the first one of a flow, or the first one after a pause, begins an
 * interval. A pause has no intervals. */
static __attribute__((noinline)) int begin_interval(struct sock* sk, struct astraea_slot* s, ln_u64 now_us) {
  struct astraea_memory* m = bpf_sk_storage_get(&ln_memory, sk, 0, 0);
  if (!m) return 0;
  count_up(&m->base, s, now_us);
  s->epoch_least_rtt_us = s->epoch_most_out = 0;
  return 1;
}

LN_INLINE void note_acknowledgement(struct sock* sk, struct flow* flow, struct astraea_slot* s,
                                    const struct astraea_bank* b, ln_u64 now_us) {
  ln_u64 interval = b->interval_us;
  if (flow->due_us && (s->packets_out || now_us - s->last_ack_ns / 1000 < interval)) return;
  flow->due_us = begin_interval(sk, s, now_us) ? now_us + interval : 0;
}

/* After the counters of an acknowledgement in a start-up: the window that ends it, 0 while it goes on. */
LN_INLINE ln_u32 leave_start(struct flow* flow, const struct astraea_slot* s, const struct astraea_bank* b,
                             const struct rate_sample* rs, ln_u64 now_us) {
  ln_u32 count = s->rtt_cnt - flow->start_cnt, over = s->lost || s->cwnd >= b->cwnd_max;
  ln_u64 to = s->cwnd;
  if (count >= ASTRAEA_START_SAMPLES && now_us - flow->judged_us >= b->look_us) {
    over |= astraea_start_over(s->rtt_sum_us - flow->start_sum_us, count, s->min_rtt_us);
    flow->judged_us = now_us;
    flow->start_sum_us = s->rtt_sum_us;
    flow->start_cnt = s->rtt_cnt;
  }
  if (!over) return 0;
  if (s->lost && s->mss) {
    ln_s32 delivered = rs->delivered;
    long interval = rs->interval_us;
    ln_u32 sampled = delivered >= 0 && interval > 0;
    ln_u64 rate = sampled ? (ln_u64)delivered * s->mss * 1000000 / (ln_u64)interval : 0;
    ln_u64 path = astraea_path_after_start(rate, sampled, s->min_rtt_us);
    if (path && path / s->mss < to) to = path / s->mss;
  }
  return astraea_bounded(b, to);
}

/* After the counters of the acknowledgement at which an interval has ended: the window to have, 0 for the one
 * that is there. The slot gets what was seen and decided. */
static __attribute__((noinline)) ln_u32 end_interval(struct sock* sk, struct astraea_slot* s,
                                                     const struct astraea_bank* b, struct flow* flow, ln_u64 now_us) {
  struct astraea_memory* m = bpf_sk_storage_get(&ln_memory, sk, 0, 0);
  if (!m) return 0;
  struct astraea_reading* now = &m->now;
  count_up(&now->sums, s, now_us);
  now->pacing_Bps = s->pacing_Bps;
  now->least_rtt_us = s->epoch_least_rtt_us;
  now->srtt_x8_us = s->srtt_x8_us;
  now->packets_out = s->packets_out;
  now->most_out = s->epoch_most_out;
  now->retrans_out = s->retrans_out;
  now->cwnd = s->cwnd;
  now->mss = s->mss;
  now->after_timeout = s->ca_state == TCP_CA_LOSS;
  now->command = flow->command;
  astraea_decide(m, b, flow->mode != ASTRAEA_START);
  m->base = m->now.sums;
  /* From this acknowledgement on: where they are rare, intervals from the former end on would be short ones in which
   * next to nothing is measured. */
  flow->due_us = now_us + b->interval_us;
  if (m->out.window) flow->command = m->out.window;
  ln_u32 seq = s->wseq;
  __sync_lock_test_and_set(&s->wseq, seq + 1);
  s->epoch_least_rtt_us = s->epoch_most_out = 0;
  s->decided_us = now_us;
  s->decisions += m->out.acted;
  s->intervals += 1;
  s->seen_Bps = m->out.throughput_Bps;
  s->seen_loss_Bps = (ln_u32)astraea_least(m->out.loss_Bps, 0xffffffff);
  s->seen_cwnd = now->cwnd;
  s->seen_rtt_us = m->out.rtt_us;
  s->seen_min_rtt_us = m->range.min_rtt_us;
  s->seen_queue_x256 = m->out.queue_x256;
  s->action = m->out.action;
  s->command = astraea_command((ln_u32)(now_us / 1000), flow->command);
  __sync_lock_test_and_set(&s->wseq, seq + 2);
  return m->out.window;
}

#endif /* LOOMNET_EBPF_ASTRAEA_INSIDE_H */
