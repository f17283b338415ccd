/* The forward program in the kernel. */
#include "forward_abi.h"

#define LN_CONFIG struct forward_config
#define LN_OWN_COUNTERS FORWARD_OWN_COUNTERS
#include "xdp_host.h"

#include "forward_kernel.h"

LN_INLINE struct ln_verdict ln_program(const struct forward_config* config, struct ln_host* host,
                                       struct ln_packet* packet, const struct ln_meta* meta) {
  (void)meta;
  return forward_ingress(host->tables, config, host->counters, packet->frame, packet->end, packet->length);
}
