/* What the mirror program, its loader and its tests agree on. */
#ifndef LOOMNET_EBPF_MIRROR_ABI_H
#define LOOMNET_EBPF_MIRROR_ABI_H

#include "forward_abi.h"

/* Forward's counters come first, because mirror falls through to forward. */
#define MIRROR_COUNTERS(X)                                             \
  X(ECHOED, "echoed")                     /* echo requests answered */ \
  X(MULTICAST, "multicast")               /* sent to a group */        \
  X(DROP_NOT_SAMPLED, "drop_not_sampled") /* echo request left out */

enum mirror_counter {
  MIRROR_BEFORE_ = FORWARD_OWN_COUNTERS - 1,
#define MIRROR_ENUM_(symbol, name) MIRROR_##symbol,
  MIRROR_COUNTERS(MIRROR_ENUM_)
#undef MIRROR_ENUM_
      MIRROR_OWN_COUNTERS
};

#define MIRROR_HEADER 62 /* Ethernet, IPv6, UDP: all bytes that mirror looks at */

struct mirror_config {
  struct forward_config forward;
  ln_u32 sample; /* one of so many echo requests is answered */
  ln_u32 snap;   /* bytes of its frame that an answer keeps at most; 0: all */
  /* The egress hook: bytes of the packet's class above which half of the packets are marked; 0: none. */
  ln_u64 mark_above;
};

/* Counters of the egress hook. */
enum mirror_egress_counter {
  MIRROR_ABOVE = 0, /* packets that left more than mark_above behind */
  MIRROR_EGRESS_COUNTERS
};

#endif /* LOOMNET_EBPF_MIRROR_ABI_H */
