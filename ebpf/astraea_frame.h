/* What Astraea's policy sees of an interval, in whole numbers: core/transport/congestion/astraea/features.cpp
 * has the same features in floats. Inputs count 1/4096 and differ from the rounded floats by one at most, on paths
 * of 1 Mb/s and more (tests/cpp/transport/astraea_kernel_policy_test.cpp). Liao et al., EuroSys 2024. */
#ifndef LOOMNET_EBPF_ASTRAEA_FRAME_H
#define LOOMNET_EBPF_ASTRAEA_FRAME_H

#include "astraea_fixed.h"

#define ASTRAEA_MOST_RATIO (2 * ASTRAEA_ONE) /* ratios above 2 say nothing more */
#define ASTRAEA_MOST_RATE 0x3fffffffffull    /* bytes per second, 2^38: beyond it features stay as they are */
#define ASTRAEA_MOST_LOST 0xfffffu           /* packets of one interval: so no product overflows */
#define ASTRAEA_MOST_SUM 0xffffffffffffull   /* of round trips of one interval, 2^48 us */

/* The window of a flow times 1,460 bytes and 0.8, over its bandwidth-delay product, as published. */
LN_INLINE ln_u32 astraea_relative_window(ln_u32 cwnd, const struct astraea_range* range) {
  ln_u64 max = astraea_least(range->max_tput_Bps, ASTRAEA_MOST_RATE);
  ln_u64 min = astraea_least(range->min_rtt_us, 0xffffff);
  if (!max || !min) return 0;
  return astraea_ratio(astraea_least(cwnd, ASTRAEA_WINDOW_BOUND) * 1168000000ull, max * min, ASTRAEA_MOST_RATIO);
}

/* 1 and the flow's own packets in queues, by how much longer its round trips are than the least; times 2^20. */
LN_APART ln_u64 astraea_queue(ln_u32 cwnd, ln_u64 rtt_sum, ln_u32 rtts, ln_u32 min) {
  ln_u64 without = (ln_u64)rtts * min;
  if (rtt_sum <= without) return ASTRAEA_LOG_ONE;
  ln_u32 top = astraea_top_bit(rtt_sum), shift = top > 31 ? top - 31 : 0;
  ln_u64 whole = rtt_sum >> shift;
  ln_u64 part = ((rtt_sum - without) >> shift) * astraea_least(cwnd, ASTRAEA_WINDOW_BOUND);
  return ASTRAEA_LOG_ONE + (part / whole << 20) + (part % whole << 20) / whole;
}

/* The next frame of the ring: the interval that ends, m->out, from m->base to m->now. The range contains it
 * already. Returns how many features there are. */
LN_APART ln_u32 astraea_frame(struct astraea_memory* m, ln_u32 features) {
  if (!m) return 0;
  ln_s32* out = m->ring + (m->next & (ASTRAEA_DEPTH - 1)) * ASTRAEA_COLUMNS;
  const struct astraea_reading* now = &m->now;
  const struct astraea_range* range = &m->range;
  ln_u64 max = astraea_least(range->max_tput_Bps, ASTRAEA_MOST_RATE);
  ln_u64 min = range->min_rtt_us, cwnd = now->cwnd;
  ln_u32 rtts = now->sums.rtt_cnt - m->base.rtt_cnt, at = 4;
  ln_u64 rtt_sum = astraea_least(now->sums.rtt_sum_us - m->base.rtt_sum_us, ASTRAEA_MOST_SUM);
  ln_u64 rate = astraea_least(m->out.throughput_Bps, ASTRAEA_MOST_RATE);
  out[0] = !rate ? ASTRAEA_ONE / 2 : max ? astraea_ratio(rate, max, ASTRAEA_INPUT_MOST) : 0;
  /* Without a sample a round trip counts as long. */
  out[1] = !rtts || !rtt_sum ? ASTRAEA_MOST_RATIO : min ? astraea_ratio(rtt_sum, rtts * min, ASTRAEA_MOST_RATIO) : 0;
  out[2] = !now->srtt_x8_us ? ASTRAEA_MOST_RATIO
           : min            ? astraea_ratio(now->srtt_x8_us, 8 * min, ASTRAEA_MOST_RATIO)
                            : 0;
  out[3] = astraea_relative_window(now->cwnd, range);
  if (features == ASTRAEA_ASTRAEA10) {
    out[4] = astraea_ratio(max, 10000000, ASTRAEA_INPUT_MOST);
    out[5] = astraea_ratio(min, 500000, ASTRAEA_INPUT_MOST);
    at = 6;
  } else if (features == ASTRAEA_OURS11) {
    out[4] = astraea_log_input(ASTRAEA_LOG_ONE + max * ASTRAEA_LOG_ONE / 100000, 12);
    out[5] = astraea_log_input(ASTRAEA_LOG_ONE + min * ASTRAEA_LOG_ONE / 1000, 8);
    out[10] = astraea_log_input(astraea_queue(now->cwnd, rtt_sum, rtts, range->min_rtt_us), 8);
    at = 6;
  }
  out[at] = max ? astraea_ratio(astraea_least(m->out.loss_Bps, 1ull << 46), max, ASTRAEA_INPUT_MOST) : 0;
  out[at + 1] = cwnd ? astraea_ratio(now->packets_out, cwnd, ASTRAEA_INPUT_MOST) : 0;
  out[at + 2] = max ? astraea_ratio(astraea_least(now->pacing_Bps, 1ull << 46), max, ASTRAEA_MOST_RATIO) : 0;
  out[at + 3] = cwnd ? astraea_ratio(now->retrans_out, cwnd, ASTRAEA_INPUT_MOST) : 0;
  return features == ASTRAEA_OURS11 ? at + 5 : at + 4;
}

#endif /* LOOMNET_EBPF_ASTRAEA_FRAME_H */
