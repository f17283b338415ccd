/* What the aggregation program, its loader, the hosts' transport and its tests agree on: the packet's
 * header, the slots of the pool, the tables and the counters. The logic itself is in aggregate.h.
 *
 * Three published designs share it: SwitchML (Sapio et al., NSDI 2021), ATP (Lao et al., NSDI 2021)
 * and ESA (Wang et al., arXiv 2201.06398). They have one header here, so that they are compared at the
 * same payload; docs/ina.md says which rules are published and which are a reconstruction. */
#ifndef LOOMNET_EBPF_AGGREGATE_ABI_H
#define LOOMNET_EBPF_AGGREGATE_ABI_H

#include "aggregate_policies.h"
#include "forward_abi.h"

/* --- the packet: Ethernet, IPv6, UDP, this header, then `values` int32 --- */

/* Fields of more than one byte are little-endian, the values too: the processors that add them are. */
#define AGGREGATE_UDP_PORT 0xbed0u
#define AGGREGATE_VERSION 1u
#define AGGREGATE_AT 62        /* offset of the header in the frame */
#define AGGREGATE_HEADER 32    /* its bytes */
#define AGGREGATE_PAYLOAD_AT (AGGREGATE_AT + AGGREGATE_HEADER)
#define AGGREGATE_MAX_VALUES 256u
#define AGGREGATE_MAX_WORKERS 64u
#define AGGREGATE_NO_INDEX 0xffffu
#define AGGREGATE_FROM_SERVER 0xfeu /* in `source` */
#define AGGREGATE_FROM_SWITCH 0xffu

struct aggregate_header {
  ln_u8 version_scheme; /* version << 4 | enum aggregate_scheme */
  ln_u8 type;           /* enum aggregate_type */
  ln_u8 flags;          /* AGGREGATE_BYPASS ... */
  ln_u8 priority;       /* 255 is the most urgent */
  ln_u16 job;           /* never reused within a run */
  ln_u16 index;         /* of the slot, modulo the pool's size; SwitchML: among the job's own, 2 W */
  ln_u32 sequence;      /* of the fragment, over the whole life of the job */
  ln_u16 values;        /* real ones; the packet is padded with zeros to the pool's fragment size */
  ln_u8 source;         /* worker number, AGGREGATE_FROM_SERVER or AGGREGATE_FROM_SWITCH */
  ln_u8 exponent;       /* int8: block exponent, combined by maximum */
  ln_u64 workers;       /* bitmap: workers in the sum, or those that the packet is for */
  ln_u16 next_index;    /* of a RESULT: the index of fragment sequence + window; else NO_INDEX */
  ln_u16 hop;           /* switch that rewrote it last; in a REMIND the switch that it is for */
  ln_u32 time;          /* sender's clock in microseconds; a REPLY echoes the REMIND's */
};

enum aggregate_type {
  AGGREGATE_DATA = 0,   /* worker to server, first transmission: alone may use switch memory */
  AGGREGATE_RESEND = 1, /* worker to server */
  AGGREGATE_EVICT = 2,  /* switch to the server of the job whose partial sum it swapped out */
  AGGREGATE_AGG = 3,    /* switch upwards: complete at this switch; its parent treats it as DATA */
  AGGREGATE_REMIND = 4, /* server to one switch: send what the slot holds, and free it */
  AGGREGATE_REPLY = 5,  /* the switch's answer; no workers: it held nothing */
  AGGREGATE_RESULT = 6, /* server to workers: the sum; frees slots on its way */
  AGGREGATE_NAK = 7,    /* server to workers: send the fragment again; carries no values */
  AGGREGATE_TYPES = 8,
};

#define AGGREGATE_BYPASS 0x01u    /* no switch may use memory for it */
#define AGGREGATE_COLLISION 0x02u /* it found its slot taken */
#define AGGREGATE_ECN 0x04u
#define AGGREGATE_NONFINITE 0x08u /* a worker's block held NaN or infinity */
#define AGGREGATE_OVERFLOW 0x10u  /* an addition saturated */
#define AGGREGATE_BOOT 0x20u      /* carries an exponent and no values */
#define AGGREGATE_UNICAST 0x40u
#define AGGREGATE_FLOATS 0x80u    /* float32: no switch adds them, the server does (ATP: what overflowed) */
/* Kept by slots and sums once a contribution has them. */
#define AGGREGATE_STICKY (AGGREGATE_ECN | AGGREGATE_NONFINITE | AGGREGATE_OVERFLOW)

/* --- the pool --- */

enum aggregate_state { AGGREGATE_FREE = 0, AGGREGATE_SUMMING = 1, AGGREGATE_DONE = 2 };

/* A FREE slot keeps its last owner. `job` is stored plus one, so that zeros after a reset mean no job.
 * flow and message are the emulator's own and count in no memory budget: AGGREGATE_SLOT_BYTES does. */
struct aggregate_slot {
  struct ln_lock lock;
  ln_u8 state;
  ln_u8 priority;
  ln_u8 flags;
  ln_u8 exponent; /* int8 */
  ln_u16 job;
  ln_u16 values;  /* of `sum`, real ones */
  ln_u32 sequence;
  ln_u64 workers; /* that `sum` is over */
  ln_u32 attempts; /* that failed since the last merge */
  ln_u32 flow;     /* whose the first contribution was ... */
  ln_u32 message;  /* ... and its message */
  ln_u32 missing;  /* SwitchML without the check: parts that the sum still lacks */
  ln_u64 since;    /* emulated picoseconds of the claim */
  ln_u64 unused[2]; /* `sum` begins and ends with a cache line */
  ln_s32 sum[AGGREGATE_MAX_VALUES];
};
/* Of a switch's memory, for a slot of that many values ("SwitchML", "ATP": metadata beside the sum). */
#define AGGREGATE_SLOT_BYTES(values) (32u + 4u * (values))

#define AGGREGATE_FIELDS(X)                                                                       \
  X(state) X(priority) X(flags) X(exponent) X(job) X(values) X(sequence) X(workers) X(attempts)   \
  X(flow) X(message) X(since) X(sum)

/* --- tables: a job's place in its tree, as this switch sees it --- */

/* Upwards is towards the job's parameter server; the tree's root is next to it. A switch without a row
 * for a packet's job forwards it by its addresses. */
struct aggregate_job {
  ln_u64 workers;     /* below this switch */
  ln_u64 server_high; /* address of the parameter server */
  ln_u64 server_low;
  ln_u32 window;      /* W, fragments; SwitchML: slots of one of its two sets */
  ln_u32 base;        /* SwitchML: the first of its 2 W slots */
  ln_u16 up;          /* port */
  ln_u16 down;        /* group with one port for each way to workers */
  ln_u8 scheme;       /* enum aggregate_scheme */
  ln_u8 root;         /* enum aggregate_root */
  ln_u16 parts;       /* that a whole sum here is made of: each switch below sends one, each worker too */
  ln_u16 all;         /* AGGREGATE_ANSWERS: group of the ports of `down` and `up` */
  ln_u16 unused[3];
};
enum aggregate_root {
  AGGREGATE_INNER = 0,   /* a switch below the root */
  AGGREGATE_ROOT = 1,
  AGGREGATE_ANSWERS = 2, /* a root that sends whole sums to server and workers at once, as RESULTs */
};
/* Value of a port row: found flag above the port. */
#define AGGREGATE_FOUND 0x80000000u

enum aggregate_table {
  AGGREGATE_TABLE_JOB = FORWARD_TABLE_END,    /* high = job: struct aggregate_job */
  AGGREGATE_TABLE_BELOW,                      /* high = job << 16 | port: workers below that port, u64 */
  AGGREGATE_TABLE_WORKER,                     /* high = job << 16 | worker: port to it, u32 */
  AGGREGATE_TABLE_HOP,                        /* high = job << 16 | switch: port to it, u32 */
  AGGREGATE_TABLE_END,
};

struct aggregate_config {
  struct forward_config forward;
  ln_u32 slots;     /* of the pool; 0: nothing is aggregated */
  ln_u32 values;    /* of every packet that is aggregated: 64, 128 or 256 */
  ln_u8 policy;     /* enum aggregate_scheme; packets of another scheme are not aggregated */
  ln_u8 dealloc;    /* enum aggregate_dealloc */
  ln_u8 downgrade;  /* bits that a resisting slot's priority is shifted by; 0: none */
  ln_u8 downgrade_every; /* failed attempts for each shift, 1 and more */
  ln_u8 saturate;   /* additions saturate and set OVERFLOW; else they wrap */
  ln_u8 generation_check; /* SwitchML: a packet of an older turn of its slot is dropped */
  ln_u16 hop;       /* this switch's number */
  ln_u8 preempts;   /* this and the next: of the policy's row */
  ln_u8 resends;    /* enum aggregate_resends */
  ln_u8 unused[2];
};

/* --- counters; forward's come first, because the program falls through to forward --- */
#define AGGREGATE_COUNTERS(X)                                                             \
  X(CLAIM, "claim")                         /* S3, S10 */                                 \
  X(MERGE, "merge")                         /* S5, the last one too */                    \
  X(COMPLETE, "complete")                   /* S5: sums that left upwards or downwards */ \
  X(SOLE, "sole")                           /* S0: no other worker below this switch */   \
  X(DUPLICATE, "duplicate")                 /* S6 */                                      \
  X(OVERLAP, "overlap")                     /* S7; a fragment both with and without values */ \
  X(AGAIN, "again")                         /* S4: a kept sum sent once more */           \
  X(COLLIDE, "collide")                     /* S12 */                                     \
  X(PREEMPT, "preempt")                     /* S11 */                                     \
  X(EVICT_WORKERS, "evict_workers")         /* contributions in the sums swapped out */   \
  X(REMEMBERED, "remembered")               /* S2 */                                      \
  X(TAKEOVER, "takeover")                   /* S8 */                                      \
  X(GHOST, "ghost")                         /* S9, and SwitchML's older turns */          \
  X(FLUSH, "flush")                         /* ATP: slots that a RESEND emptied */        \
  X(RELEASE, "release")                     /* slots that a RESULT freed */               \
  X(REMIND_HIT, "remind_hit")                                                             \
  X(REMIND_EMPTY, "remind_empty")                                                         \
  X(USEFUL_PS, "useful_ps")                 /* claim to completion, of sums completed here */ \
  X(HELD_PS, "held_ps")                     /* claim to release, of all slots released */ \
  X(SATURATED, "saturated")                 /* packets whose addition left the range */   \
  X(ANSWERED, "answered")                   /* whole sums sent to server and workers at once */ \
  X(UPWARDS, "upwards")                     /* passed on to the server as they are */     \
  X(DOWNWARDS, "downwards")                                                               \
  X(DROP_AGGREGATE_SHORT, "drop_aggregate_short")       /* fewer values than the pool's */\
  X(DROP_AGGREGATE_VERSION, "drop_aggregate_version")                                     \
  X(DROP_AGGREGATE_TYPE, "drop_aggregate_type")         /* unknown, or another way round */ \
  X(DROP_AGGREGATE_WORKERS, "drop_aggregate_workers")   /* not of those behind its port */ \
  X(DROP_AGGREGATE_DEAD, "drop_aggregate_dead")         /* downwards, for nobody below */ \
  X(DROP_AGGREGATE_NO_HOP, "drop_aggregate_no_hop")     /* REMIND for a switch not below */

enum aggregate_counter {
  AGGREGATE_BEFORE_ = FORWARD_OWN_COUNTERS - 1,
#define AGGREGATE_ENUM_(symbol, name) AGGREGATE_##symbol,
  AGGREGATE_COUNTERS(AGGREGATE_ENUM_)
#undef AGGREGATE_ENUM_
      AGGREGATE_OWN_COUNTERS
};

#endif /* LOOMNET_EBPF_AGGREGATE_ABI_H */
