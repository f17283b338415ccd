/* The tally program in the kernel. */
#include "tally_abi.h"

#define LN_CONFIG struct tally_config
#define LN_OWN_COUNTERS TALLY_OWN_COUNTERS
#include "xdp_host.h"

#include "forward_kernel.h"
#include "tally.h"

LN_INLINE ln_u32 tally_lookup_port(struct ln_tables* tables, ln_u32 port) {
  return forward_find(tables, TALLY_TABLE_PORT, port, 0);
}
LN_INLINE struct ln_verdict ln_program(const struct tally_config* config, struct ln_host* host,
                                       struct ln_packet* packet, const struct ln_meta* meta) {
  return tally_ingress(config, host, packet, meta);
}
