/* A flow's decisions by Astraea's program alone, as core/transport/congestion/astraea/agent.cpp takes them: the
 * extremes of the last 10 s, the drain before the least round trip is forgotten, the end of the start-up, and
 * what the policy does to the window. Liao et al., EuroSys 2024; extremes, drain and start-up are ours. */
#ifndef LOOMNET_EBPF_ASTRAEA_DECIDE_H
#define LOOMNET_EBPF_ASTRAEA_DECIDE_H

#include "astraea_frame.h"
#include "astraea_net.h"

#define ASTRAEA_START_SAMPLES 8u
#define ASTRAEA_SHORT_PATH_US 8000u

/* --- extremes --- */

LN_INLINE void astraea_widen(struct astraea_range* range, ln_u64 rate_Bps, ln_u32 rtt_us) {
  if (rate_Bps > range->max_tput_Bps) range->max_tput_Bps = rate_Bps;
  if (rtt_us && (!range->min_rtt_us || rtt_us < range->min_rtt_us)) range->min_rtt_us = rtt_us;
}

/* The bucket that row `i` holds where `newest` is the newest one. */
LN_INLINE ln_u64 astraea_bucket_of(ln_u64 newest, ln_u32 i) {
  return newest - (newest % ASTRAEA_BUCKETS + ASTRAEA_BUCKETS - i) % ASTRAEA_BUCKETS;
}

LN_APART ln_u32 astraea_remember(struct astraea_memory* m, ln_u32 extremes) {
  if (!m) return 0;
  ln_u64 rate = m->out.throughput_Bps, bucket = m->now.sums.at_us / ASTRAEA_BUCKET_US + ASTRAEA_BUCKETS;
  ln_u32 rtt = m->now.least_rtt_us;
  if (extremes == ASTRAEA_LIFETIME) {
    astraea_widen(&m->range, rate, rtt);
    return 1;
  }
  m->range.max_tput_Bps = 0;
  m->range.min_rtt_us = 0;
  for (ln_u32 i = 0; i < ASTRAEA_BUCKETS; ++i) {
    struct astraea_range* row = &m->buckets[i];
    ln_u64 held = astraea_bucket_of(bucket, i);
    if (held > m->bucket) { /* it takes the place of one that is 10 s old */
      row->max_tput_Bps = 0;
      row->min_rtt_us = 0;
    }
    if (held == bucket) astraea_widen(row, rate, rtt);
    astraea_widen(&m->range, row->max_tput_Bps, row->min_rtt_us);
  }
  m->bucket = bucket;
  return 1;
}

/* Whether the least round trip is forgotten within `ahead` from now: no later sample equals it. */
LN_APART ln_u32 astraea_forgets(const struct astraea_memory* m, ln_u64 ahead_us) {
  ln_u64 newest = 0;
  if (!m || !m->range.min_rtt_us) return 0;
  for (ln_u32 i = 0; i < ASTRAEA_BUCKETS; ++i) {
    ln_u64 held = astraea_bucket_of(m->bucket, i);
    if (m->buckets[i].min_rtt_us == m->range.min_rtt_us && held > newest) newest = held;
  }
  /* Numbers of buckets begin at ASTRAEA_BUCKETS. */
  return m->now.sums.at_us + ahead_us >= newest * ASTRAEA_BUCKET_US;
}

/* --- start-up --- */

/* Whether the mean of `count` round trips is above the least one by more than a start-up is to cause. */
LN_INLINE ln_u32 astraea_start_over(ln_u64 sum_us, ln_u32 count, ln_u32 least_us) {
  ln_u32 rise = least_us / 8, least = least_us / 2 < 4000 ? least_us / 2 : 4000;
  if (rise < least) rise = least;
  if (rise > 16000) rise = 16000;
  return sum_us > (ln_u64)count * ((ln_u64)least_us + rise);
}

/* Bytes that the window of a flow whose start ended at a loss becomes at most; 0: it is kept. `rate_Bps` is of the
 * last delivery, 2^44 at most; `sampled`: there is one. */
LN_INLINE ln_u64 astraea_path_after_start(ln_u64 rate_Bps, ln_u32 sampled, ln_u32 least_us) {
  ln_u64 bytes = rate_Bps * least_us / 1000000;
  if (!least_us || least_us >= ASTRAEA_SHORT_PATH_US || !sampled) return 0;
  return bytes ? bytes : 1;
}

/* --- decisions --- */

LN_INLINE ln_u32 astraea_bounded(const struct astraea_bank* b, ln_u64 window) {
  return window < b->cwnd_min ? b->cwnd_min : window > b->cwnd_max ? b->cwnd_max : (ln_u32)window;
}

LN_INLINE void astraea_measure(struct astraea_memory* m) {
  const struct astraea_counters *now = &m->now.sums, *base = &m->base;
  ln_u32 rates = now->rate_cnt - base->rate_cnt, rtts = now->rtt_cnt - base->rtt_cnt;
  ln_u64 lost = astraea_least(now->lost - base->lost, ASTRAEA_MOST_LOST) * (m->now.mss & 0xffff);
  ln_u64 lasted = now->at_us > base->at_us ? now->at_us - base->at_us : 1;
  m->out.throughput_Bps = rates ? (now->rate_sum_Bps - base->rate_sum_Bps) / rates : 0;
  m->out.rtt_us = rtts ? (ln_u32)((now->rtt_sum_us - base->rtt_sum_us) / rtts) : 0;
  m->out.loss_Bps = lost * 1000000 / lasted;
}

LN_INLINE void astraea_keep_frame(struct astraea_memory* m, const struct astraea_bank* b) {
  if (m->features != b->features) { /* another policy's */
    m->features = b->features;
    m->filled = 0;
  }
  astraea_frame(m, b->features);
  m->next += 1;
  if (m->filled < ASTRAEA_DEPTH) m->filled += 1;
}

/* Whether the window is to be halved, so that a round trip without the flow's own queue is measured. */
LN_INLINE ln_u32 astraea_drains(struct astraea_memory* m, const struct astraea_bank* b) {
  ln_u64 interval = b->interval_us, min = m->range.min_rtt_us, now = m->now.sums.at_us;
  ln_u64 lasts = (min > interval ? min : interval) + interval, ahead = lasts + interval;
  ln_u64 sum = m->now.sums.rtt_sum_us - m->base.rtt_sum_us, rtts = m->now.sums.rtt_cnt - m->base.rtt_cnt;
  /* Mean above 1.05 times the least. */
  if (now < m->drain_again_us || 20 * sum <= 21 * rtts * min || !astraea_forgets(m, ahead)) return 0;
  m->drained_at_us = now + lasts;
  m->drain_again_us = now + ahead;
  return 1;
}

/* An interval has ended: from m->base and m->now to m->out. `acting`: the start-up is over. Returns 1. */
LN_APART ln_u32 astraea_decide(struct astraea_memory* m, const struct astraea_bank* b, ln_u32 acting) {
  if (!m || !b) return 0;
  const struct astraea_reading* now = &m->now;
  /* While the window grows back after a timeout, actions are on the window that it grows to. */
  ln_u32 window = now->after_timeout && now->command ? now->command : now->cwnd;
  ln_u32 most_out = now->packets_out > now->most_out ? now->packets_out : now->most_out;
  ln_u32 version = *(const volatile ln_u32*)&b->version;
  m->out.window = m->out.acted = 0;
  m->out.action = 0;
  astraea_measure(m);
  astraea_remember(m, b->extremes);
  astraea_keep_frame(m, b);
  m->out.queue_x256 = (ln_u32)((astraea_queue(now->cwnd, now->sums.rtt_sum_us - m->base.rtt_sum_us,
                                              now->sums.rtt_cnt - m->base.rtt_cnt, m->range.min_rtt_us) -
                                ASTRAEA_LOG_ONE) >>
                               12);
  if (!acting) return 1;
  if (m->draining) {
    if (now->sums.at_us < m->drained_at_us) return 1;
    m->draining = 0;
    m->out.window = astraea_bounded(b, m->restored);
    return 1;
  }
  if (b->extremes == ASTRAEA_DRAINED && astraea_drains(m, b)) {
    m->draining = 1;
    m->restored = window;
    m->out.window = window / 2 > b->cwnd_min ? window / 2 : b->cwnd_min;
    return 1;
  }
  ln_s32 action = astraea_policy(m, b);
  /* User space has written the bank meanwhile: the next interval has the new policy. */
  if (*(const volatile ln_u32*)&b->version != version) return 1;
  m->out.acted = 1;
  m->out.action = action;
  ln_u32 to = astraea_bounded(b, astraea_acted(window, action, b->alpha_millionths));
  /* A window that was not used does not grow. */
  if (to <= window || window < 2 * most_out) m->out.window = to;
  return 1;
}

#endif /* LOOMNET_EBPF_ASTRAEA_DECIDE_H */
