/* Counts packets that come in by a listed port, and forwards all. */
#ifndef LOOMNET_EBPF_TALLY_H
#define LOOMNET_EBPF_TALLY_H

#include "forward.h"
#include "tally_abi.h"

LN_INLINE ln_u32 tally_lookup_port(struct ln_tables* tables, ln_u32 port);

LN_INLINE struct ln_verdict tally_ingress(const struct tally_config* config, struct ln_host* host,
                                          struct ln_packet* packet, const struct ln_meta* meta) {
  if (tally_lookup_port(host->tables, meta->ingress)) ln_count(host->counters, TALLY_COUNTED);
  return forward_ingress(host->tables, &config->forward, host->counters, packet->frame, packet->end, packet->length);
}

#endif
