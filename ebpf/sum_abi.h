/* What the sum program, its loader and its tests agree on. */
#ifndef LOOMNET_EBPF_SUM_ABI_H
#define LOOMNET_EBPF_SUM_ABI_H

#include "forward_abi.h"

/* Forward's counters come first, because sum falls through to forward. */
#define SUM_COUNTERS(X)                                     \
  X(SUMMED, "summed")                   /* fourths sent */  \
  X(DROP_SUM_SHORT, "drop_sum_short")   /* too few bytes */ \
  X(DROP_SUM_NO_ROW, "drop_sum_no_row") /* cannot happen: SUM_ROWS is the state's size */

enum sum_counter {
  SUM_BEFORE_ = FORWARD_OWN_COUNTERS - 1,
#define SUM_ENUM_(symbol, name) SUM_##symbol,
  SUM_COUNTERS(SUM_ENUM_)
#undef SUM_ENUM_
      SUM_OWN_COUNTERS
};

#define SUM_PORT 0xbf00u     /* UDP destination ports from here on, one for each row */
#define SUM_ROWS 16u
#define SUM_OF 4u            /* packets that become one */
#define SUM_PAYLOAD_AT 62    /* behind Ethernet, IPv6 and UDP */
#define SUM_PAYLOAD_BYTES 64 /* bytes that are summed; more stay those of the fourth packet */

struct sum_config {
  struct forward_config forward;
};

struct sum_row {
  struct ln_lock lock;
  ln_u32 count;   /* packets absorbed */
  ln_u32 flow;    /* of the first of them ... */
  ln_u32 message; /* ... and its message */
  ln_u64 since;   /* emulated picoseconds at which the first came */
  ln_u8 bytes[SUM_PAYLOAD_BYTES];
};

/* The row's fields as a snapshot shows them. */
#define SUM_FIELDS(X) X(sum_row, count) X(sum_row, flow) X(sum_row, message) X(sum_row, since) X(sum_row, bytes)

#endif /* LOOMNET_EBPF_SUM_ABI_H */
