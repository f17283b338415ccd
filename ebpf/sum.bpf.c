/* The sum program in the kernel. */
#include "sum_abi.h"

#define LN_CONFIG struct sum_config
#define LN_OWN_COUNTERS SUM_OWN_COUNTERS
#define LN_STATE_ROW struct sum_row
#define LN_STATE_ROWS SUM_ROWS
#define LN_PAYLOAD_AT SUM_PAYLOAD_AT
#define LN_WANTS_CLOCK
#define LN_WANTS_LABELS
#include "xdp_host.h"

#include "forward_kernel.h"
#include "sum.h"

LN_INLINE struct ln_verdict ln_program(const struct sum_config* config, struct ln_host* host, struct ln_packet* packet,
                                       const struct ln_meta* meta) {
  return sum_ingress(config, host, packet, meta);
}
