/* What the forward program, its loader and its tests agree on: counters and drop reasons by name,
 * options, and how a table row is packed. The logic itself is in forward.h. */
#ifndef LOOMNET_EBPF_FORWARD_ABI_H
#define LOOMNET_EBPF_FORWARD_ABI_H

#include "platform.h"

/* Names are stable: reports and tests use them. A drop's reason is the number of its counter.
 * received = cross_connect_ua + forward_* + drop_*, but for drop_no_device: XDP finds no interface
 * only after the program has forwarded, and counts both. The host's counters follow. */
#define FORWARD_COUNTERS(X)                                                                   \
  X(RECEIVED, "received")                                                                     \
  X(SHIFT_UN, "shift_un")                         /* own uN uSIDs consumed */                 \
  X(CROSS_CONNECT_UA, "cross_connect_ua")         /* left by an own uA */                     \
  X(FORWARD_FIB, "forward_fib")                   /* left by the /48 of the next uSID */      \
  X(FORWARD_HOST, "forward_host")                 /* plain IPv6, left by an ECMP group */     \
  X(DROP_TOO_SHORT, "drop_too_short")             /* ends inside Ethernet or IPv6 header */   \
  X(DROP_NOT_IPV6, "drop_not_ipv6")               /* EtherType */                             \
  X(DROP_BAD_VERSION, "drop_bad_version")         /* IP version is not 6 */                   \
  X(DROP_TRUNCATED, "drop_truncated")             /* payload length beyond the frame's end */ \
  X(DROP_ROUTING_HEADER, "drop_routing_header")   /* next header 43 */                        \
  X(DROP_BAD_SOURCE, "drop_bad_source")           /* ::, ::1, link-local, multicast */        \
  X(DROP_BAD_DESTINATION, "drop_bad_destination") /* the same of the destination */           \
  X(DROP_EXHAUSTED, "drop_exhausted")             /* own uSID and nothing behind it */        \
  X(DROP_NO_ROUTE, "drop_no_route")                                                           \
  X(DROP_EMPTY_GROUP, "drop_empty_group")         /* every ECMP member is gone */             \
  X(DROP_HOP_LIMIT, "drop_hop_limit")

/* Drops follow one another from FORWARD_DROP_TOO_SHORT on. */
enum forward_counter {
#define FORWARD_ENUM_(symbol, name) FORWARD_##symbol,
  FORWARD_COUNTERS(FORWARD_ENUM_)
#undef FORWARD_ENUM_
      FORWARD_OWN_COUNTERS,
  FORWARD_DROP_NO_TABLES = FORWARD_OWN_COUNTERS + LN_HOST_DROP_NO_TABLES,
  FORWARD_DROP_UNKNOWN_INGRESS = FORWARD_OWN_COUNTERS + LN_HOST_DROP_UNKNOWN_INGRESS,
  FORWARD_DROP_NO_DEVICE = FORWARD_OWN_COUNTERS + LN_HOST_DROP_NO_DEVICE,
  FORWARD_COUNTER_COUNT = FORWARD_OWN_COUNTERS + LN_HOST_COUNTER_COUNT
};

/* What Linux drops on input too; on by default. */
#define FORWARD_CHECK_ADDRESSES 1u
/* Let a payload length point beyond the frame: trimmed packets that kept their original lengths
 * (LinkConfig.trim_fix_lengths = false). Off by default. */
#define FORWARD_ALLOW_STALE_LENGTH 2u
#define FORWARD_DEFAULT_OPTIONS FORWARD_CHECK_ADDRESSES

struct forward_config {
  ln_u64 hash_seed; /* of the flow hash; different in every switch, or the layers polarise */
  ln_u32 options;
  ln_u32 reserved;
};

/* A SID row: kind above a port number; 0 is no row. Own SIDs win over the FIB, so one row per
 * (block, uSID) holds whichever applies and each step costs one lookup. */
#define FORWARD_SID_UN 0x4000u  /* shift, then look the new destination up */
#define FORWARD_SID_UA 0x8000u  /* shift, then leave by the port without a lookup */
#define FORWARD_SID_FIB 0xc000u /* not ours: leave by the port unchanged */
#define FORWARD_SID_KIND 0xc000u
#define FORWARD_SID_PORT 0x3fffu
#define FORWARD_MAX_PORTS 0x4000u

/* A host row: found flag, ECMP group, number of its members. A member row: found flag, port. */
#define FORWARD_FOUND 0x80000000u
#define FORWARD_MAX_GROUPS 0x8000u
#define FORWARD_MAX_MEMBERS 0xffffu

LN_INLINE ln_u32 forward_host_row(ln_u32 group, ln_u32 members) { return FORWARD_FOUND | group << 16 | members; }

/* ::, ::1, fe80::/10 and ff00::/8 are neither sent from nor forwarded to. */
LN_INLINE int forward_unroutable(ln_u64 high, ln_u64 low) {
  return (high == 0 && low <= 1) || high >> 54 == 0xfe80u >> 6 || high >> 56 == 0xff;
}

/* Numbers of the tables that hold forward's rows in the kernel (struct ln_key in xdp_abi.h). A
 * program that falls through to forward numbers its own from FORWARD_TABLE_END on. */
enum forward_table {
  FORWARD_TABLE_SID = 1,    /* high = block << 16 | uSID */
  FORWARD_TABLE_HOST = 2,   /* the address's two halves */
  FORWARD_TABLE_MEMBER = 3, /* high = group, low = index */
  FORWARD_TABLE_END = 4,
};

#endif /* LOOMNET_EBPF_FORWARD_ABI_H */
