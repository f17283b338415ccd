/* What Astraea's program needs to decide by itself, without an agent: the policy's weights, in two banks that
 * user space maps, and a flow's memory from one decision to the next. The policy is in whole numbers:
 * activations and weights count 2^-12, sums and biases 2^-24, an action counts 1/32767. */
#ifndef LOOMNET_EBPF_ASTRAEA_POLICY_ABI_H
#define LOOMNET_EBPF_ASTRAEA_POLICY_ABI_H

#include "platform.h"

#define ASTRAEA_LAYERS 8u
#define ASTRAEA_WIDTH 256u      /* numbers that a layer takes or gives, at most */
#define ASTRAEA_WEIGHTS 65536u  /* of all layers, rows filled up to multiples of ASTRAEA_LANES */
#define ASTRAEA_BIASES 2048u    /* ASTRAEA_LAYERS * ASTRAEA_WIDTH */
#define ASTRAEA_LANES 8u        /* products between two looks at the end of a row */
#define ASTRAEA_ZERO 32768u     /* a weight of 0, see `weights` */
#define ASTRAEA_TANH_ROWS 257u
#define ASTRAEA_DEPTH 32u       /* frames that a flow keeps */
#define ASTRAEA_COLUMNS 16u     /* from one frame to the next; a frame has 11 features at most */
#define ASTRAEA_BUCKETS 10u     /* seconds that a flow remembers its extremes for */
#define ASTRAEA_BUCKET_US 1000000u

/* The numbers are those of the policy file and of the option `extremes`. */
enum astraea_features { ASTRAEA_ASTRAEA10 = 1, ASTRAEA_OURS11 = 2, ASTRAEA_REL8 = 3 };
enum astraea_extremes { ASTRAEA_LIFETIME = 0, ASTRAEA_WINDOWED = 1, ASTRAEA_DRAINED = 2 };

struct astraea_layer {
  ln_u32 in, out;
  ln_u32 weights, bias; /* where the layer's begin in the bank's arrays */
};

struct astraea_bank {
  ln_u32 version; /* 0: no policy, and while user space writes the bank */
  ln_u32 features;
  ln_u32 width; /* of a frame */
  ln_u32 frames;
  ln_u32 doubled; /* frames lie 1, 2, 4, 8 … intervals back, not 1, 2, 3, 4 … */
  ln_u32 extremes;
  ln_u32 interval_us;
  ln_u32 look_us; /* from one test of a start-up's round trips to the next */
  ln_u32 alpha_millionths;
  ln_u32 cwnd_min, cwnd_max; /* packets */
  ln_u32 layers;
  struct astraea_layer layer[ASTRAEA_LAYERS];
  ln_s32 tanh[ASTRAEA_TANH_ROWS + 7]; /* 32767 times tanh(row / 64) */
  ln_s32 bias[ASTRAEA_BIASES];
  /* Row by row, each plus 32768: so a load needs no extension of the sign, which older instruction sets
   * do in two more instructions for each product. The end is for a last row that begins late. */
  ln_u16 weights[ASTRAEA_WEIGHTS + ASTRAEA_WIDTH];
};

/* User space writes the bank that is not active, and then makes it the active one. */
struct astraea_policies {
  ln_u32 active; /* 0 or 1 */
  ln_u32 reserved;
  struct astraea_bank bank[2];
};

/* Counters that only grow, as of the acknowledgement at which an interval began or ended. */
struct astraea_counters {
  ln_u64 at_us; /* CLOCK_MONOTONIC */
  ln_u64 rtt_sum_us, rate_sum_Bps;
  ln_u32 rtt_cnt, rate_cnt, lost, reserved;
};

/* The flow at the end of an interval. */
struct astraea_reading {
  struct astraea_counters sums;
  ln_u64 pacing_Bps;   /* with headers */
  ln_u32 least_rtt_us; /* of the interval; 0: no sample */
  ln_u32 srtt_x8_us;
  ln_u32 packets_out, most_out; /* now, and the largest of the interval */
  ln_u32 retrans_out;
  ln_u32 cwnd;
  ln_u32 mss;
  ln_u32 after_timeout, command; /* the window grows back to the command */
  ln_u32 reserved;
};

struct astraea_range {
  ln_u64 max_tput_Bps; /* 0: unknown, as the next */
  ln_u32 min_rtt_us;
  ln_u32 reserved;
};

/* What an interval came to. */
struct astraea_outcome {
  ln_u64 throughput_Bps, loss_Bps;
  ln_u32 rtt_us;      /* mean; 0: no sample */
  ln_u32 queue_x256;  /* packets of the flow's own in queues, times 256 */
  ln_u32 window;      /* packets to have from now on; 0: as it is */
  ln_s32 action;      /* times 32767 */
  ln_u32 acted;       /* 1: the policy decided */
  ln_u32 reserved;
};

/* Of one flow; zeros at first. */
struct astraea_memory {
  struct astraea_counters base; /* as the interval began */
  struct astraea_reading now;
  struct astraea_outcome out;
  struct astraea_range range, buckets[ASTRAEA_BUCKETS];
  ln_u64 bucket; /* number of the newest */
  ln_u64 drained_at_us, drain_again_us;
  ln_u32 draining, restored;          /* the window before a drain */
  ln_u32 features;                    /* of the frames kept */
  ln_u32 next, filled;                /* row of the next frame, and how many there are */
  ln_u32 reserved;
  ln_s32 ring[ASTRAEA_DEPTH * ASTRAEA_COLUMNS];
  ln_s64 x[2 * ASTRAEA_WIDTH]; /* what a layer takes, and what it gives */
};

/* For BPF_PROG_TEST_RUN: one decision of a flow that is in memory alone. */
struct astraea_trial {
  struct astraea_memory memory;
  ln_u32 acting;
  ln_u32 reserved;
};

#endif /* LOOMNET_EBPF_ASTRAEA_POLICY_ABI_H */
