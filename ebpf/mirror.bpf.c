/* The mirror program in the kernel. */
#include "mirror_abi.h"

#define LN_CONFIG struct mirror_config
#define LN_OWN_COUNTERS MIRROR_OWN_COUNTERS
#define LN_WANTS_SEQUENCE
#define LN_CUTS
#define LN_EGRESS_COUNTERS MIRROR_EGRESS_COUNTERS
#include "xdp_host.h"

#include "forward_kernel.h"
#include "mirror.h"

LN_INLINE struct ln_verdict ln_program(const struct mirror_config* config, struct ln_host* host,
                                       struct ln_packet* packet, const struct ln_meta* meta) {
  return mirror_ingress(config, host, packet, meta);
}
LN_INLINE ln_u32 ln_egress_program(const struct mirror_config* config, struct ln_egress_host* host,
                                   struct ln_packet* packet, const struct ln_egress_meta* meta) {
  return mirror_egress(config, host, packet, meta);
}
