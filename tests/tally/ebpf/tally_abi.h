/* What the tally program, its loader and the engine agree on. */
#ifndef LOOMNET_EBPF_TALLY_ABI_H
#define LOOMNET_EBPF_TALLY_ABI_H

#include "forward_abi.h"

/* Forward's counters come first, because tally falls through to forward. */
enum tally_counter { TALLY_COUNTED = FORWARD_OWN_COUNTERS, TALLY_OWN_COUNTERS };
enum { TALLY_TABLE_PORT = FORWARD_TABLE_END }; /* high = a port: 1 */
struct tally_config {
  struct forward_config forward;
};

#endif
