/* What the symphony program, its loader and its tests agree on: configuration, the rows that a
 * half-link keeps, the tables, the counters. The logic is in symphony.h. */
#ifndef LOOMNET_EBPF_SYMPHONY_ABI_H
#define LOOMNET_EBPF_SYMPHONY_ABI_H

#include "forward_abi.h"
#include "step_header.h"

#define SYMPHONY_WAYS 4u
#define SYMPHONY_MAX_RANKS 8192u
#define SYMPHONY_NONE 0xffffu    /* owner: no rank */
#define SYMPHONY_JOB_ROWS 64u    /* that count by job; one row behind them counts what has none */
#define SYMPHONY_CREDIT_MAX 255u

enum symphony_mode { SYMPHONY_SPACED = 0, SYMPHONY_PROB = 1 };
enum symphony_identity {
  SYMPHONY_HDR = 0,      /* the step header behind UDP */
  SYMPHONY_SPORT = 1,    /* the low 12 bits of the UDP source port are the step */
  SYMPHONY_SEQ = 2,      /* TCP's sequence number or RoCE's PSN */
  SYMPHONY_NOTHING = 3,  /* every packet bypasses */
};
/* Which packets of a ring whose warm-up is over keep the mark of the port's own rule. All but the first
 * are ours. The last two are controls: they spare as many senders as NOT_OWNER, whatever their progress. */
enum symphony_base {
  SYMPHONY_BASE_ALL = 0,
  SYMPHONY_BASE_NOT_OWNER = 1,  /* those that are not the owner's */
  SYMPHONY_BASE_LEADERS = 2,    /* those more than tau ahead */
  SYMPHONY_BASE_NOT_RANDOM = 3, /* those that are not a random sender's, another one with each owner */
  SYMPHONY_BASE_NOT_LEADER = 4, /* those that are not the foremost sender's */
};
enum symphony_jobs {
  SYMPHONY_ANY_JOB = 0, /* jobs have no rows: all are tracked by the program's own options */
  SYMPHONY_LISTED = 1,  /* a job without a row is unknown, and its packets bypass */
};

struct symphony_config {
  struct forward_config forward;
  ln_u32 sets;    /* of SYMPHONY_WAYS rows, less one: a mask */
  ln_u32 tau;     /* lead that is not marked; 65,536 are a step, or units of progress if tau_units */
  ln_u32 span;    /* prob: lead beyond tau from which on marks are certain; as tau, a power of two */
  ln_u32 mask;    /* of both sides of a comparison: all ones, or without the fraction of a step */
  ln_u32 g;       /* steps that two senders may be apart; 0: g_factor * nranks */
  ln_u32 g_factor;
  ln_u32 stale;   /* epochs without a packet of the owner, after which another takes over */
  ln_u32 warm;    /* epochs without marks after a row is made */
  ln_u32 idle;    /* epochs after which a row may be another's */
  ln_u32 gate;        /* packets of its class that must wait behind a marked packet */
  ln_u32 gate_bytes;  /* and bytes */
  ln_u8 enable;
  ln_u8 mode;     /* enum symphony_mode */
  ln_u8 identity; /* enum symphony_identity */
  ln_u8 shift;    /* an epoch is 2^shift nanoseconds */
  ln_u8 credit;   /* epochs; 0: marks without a budget */
  ln_u8 retx;     /* 1: a retransmission touches neither progress nor marks */
  ln_u8 jobs;     /* enum symphony_jobs */
  ln_u8 hosts;    /* 1: ports to hosts are tracked too */
  ln_u8 tau_units;
  ln_u8 base; /* enum symphony_base */
  ln_u8 unused[2];
};

/* --- state of one half-link: its rows, and the counters of its jobs --- */

#define SYMPHONY_FREE 0u
#define SYMPHONY_RING 1u
#define SYMPHONY_FLOW 2u /* of identity seq: where a connection began */
#define SYMPHONY_ACT 4u  /* of a ring's row: the warm-up is over */

/* 64 bytes. The key's egress is the half-link, which has a table of its own; `egress` shows it. */
struct symphony_row {
  ln_u16 job;
  ln_u16 ring;
  ln_u16 egress;
  ln_u8 gen;
  ln_u8 state;
  ln_u32 low;   /* progress in the owner's most recent packet; of a flow: its first byte's number */
  ln_u16 owner; /* rank that holds `low` */
  ln_u8 credit;
  ln_u8 unused;
  ln_u32 e_owner; /* epochs of the owner's last packet ... */
  ln_u32 e_last;  /* ... of the row's last one ... */
  ln_u32 e_epoch; /* ... that pk and xm belong to ... */
  ln_u32 e_init;  /* ... and in which the row was made */
  ln_u32 pk;      /* packets in this epoch ... */
  ln_u32 xm;      /* ... and extra marks among them */
  ln_u32 lock;    /* 0: a half-link has one owner */
  ln_u32 marks;   /* extra ones since the row was made */
  ln_u32 gap;     /* the largest since then */
  ln_u32 nranks;
  /* Of the two controls: the sender whose base marks are taken back, the low bits of the epoch of its last
   * packet, and the foremost's progress or the number of owners so far. */
  ln_u32 order;
  ln_u16 spared;
  ln_u16 e_spared;
};
#define SYMPHONY_ROW_FIELDS(X)                                                             \
  X(job) X(ring) X(egress) X(gen) X(state) X(low) X(owner) X(credit) X(e_owner) X(e_last)  \
  X(e_epoch) X(e_init) X(pk) X(xm) X(marks) X(gap) X(nranks)

/* Counters of the egress hook, of a half-link and of each job there. The largest gap is in units of
 * progress: 65,536 are one step of the step header's. */
#define SYMPHONY_COUNTERS(X)                                                          \
  X(TAGGED, tagged)               /* packets of aligned rings */                      \
  X(EXTRA, extra_marks)                                                               \
  X(BASE, base_marks)             /* tagged ones that carry CE without our doing */   \
  X(UNMARKED, unmarked)           /* tagged ones whose base mark was taken back */    \
  X(BYPASS, bypass)               /* untagged, control, or of a job that is not tracked */ \
  X(NO_ROW, no_row)               /* the table is full */                             \
  X(INIT, init)                   /* rows made, or made again */                      \
  X(IMPLAUSIBLE, implausible)     /* farther from `low` than g */                     \
  X(STALE, stale_takes)           /* from an owner that had fallen silent */          \
  X(NO_CREDIT, credit_exhausted)  /* marks withheld */                                \
  X(GAP, largest_gap)

enum symphony_counter {
#define SYMPHONY_ENUM_(symbol, name) SYMPHONY_##symbol,
  SYMPHONY_COUNTERS(SYMPHONY_ENUM_)
#undef SYMPHONY_ENUM_
      SYMPHONY_COUNTER_COUNT
};

/* A job's counters at one half-link, in the slot of its low bits. A job that finds its slot taken is
 * counted in the last row, whose job reads 65535. */
struct symphony_tally {
  ln_u16 job;
  ln_u16 egress;
  ln_u32 used;
  ln_u64 counters[SYMPHONY_COUNTER_COUNT];
};

/* Why a packet is marked, as the hook notes it for recorders. */
#define SYMPHONY_NOTES(X) X(job) X(ring) X(rank) X(prog) X(owner) X(low) X(gap) X(waiting)
enum symphony_note {
#define SYMPHONY_ENUM_(name) SYMPHONY_NOTE_##name,
  SYMPHONY_NOTES(SYMPHONY_ENUM_)
#undef SYMPHONY_ENUM_
      SYMPHONY_NOTE_COUNT
};

/* --- tables: jobs, and rules for the flows whose packets have no step header --- */

/* What carries a flow: an IP protocol number, or RoCE. */
#define SYMPHONY_TCP_FLOW 6u
#define SYMPHONY_UDP_FLOW 17u
#define SYMPHONY_ROCE 0xfeu
#define SYMPHONY_ANY_PORT 0xffffffffu

enum symphony_table {
  SYMPHONY_TABLE_JOB = FORWARD_TABLE_END, /* high = job: struct symphony_job */
  SYMPHONY_TABLE_ADDRESS, /* the address's two halves: its number plus one, u32 */
  SYMPHONY_TABLE_FLOW,    /* high = source << 32 | destination, low = protocol << 32 | port: a rule */
  SYMPHONY_TABLE_END,
};

/* Of one job, instead of what the options say. */
struct symphony_job {
  ln_u32 g;     /* steps; 0: as the options say */
  ln_u8 enable; /* 0: its packets bypass */
  ln_u8 mode;
  ln_u8 unused[2];
};

/* Ring and rank of a flow without step headers, and the units of its progress. */
struct symphony_rule {
  ln_u16 job;
  ln_u16 ring;
  ln_u16 rank;
  ln_u16 nranks;
  ln_u32 number; /* of the rule, below 2^32: names the flow's row */
  ln_u32 base;   /* of `known`: RoCE's first PSN, or TCP's first byte's number */
  ln_u32 unit; /* units of progress in a step: its bytes, or 2^20 of a step in the source port */
  ln_u32 span; /* the power of two that is not less */
  ln_u8 gen;
  ln_u8 known;   /* 0: the base is learnt from the SYN */
  ln_u8 mtu;   /* RoCE: log2 of its bytes, 8 and more, so that 24 bits of PSN fill 32 of progress */
  ln_u8 unused;
};

#endif /* LOOMNET_EBPF_SYMPHONY_ABI_H */
