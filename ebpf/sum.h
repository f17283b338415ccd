/* An example of a switch program with state: absorbs three packets of UDP port SUM_PORT + row and sends
 * the fourth with their payload bytes added (modulo 256), as the first one's. Forwards the rest. */
#ifndef LOOMNET_EBPF_SUM_H
#define LOOMNET_EBPF_SUM_H

#include "forward.h"
#include "sum_abi.h"

LN_INLINE struct ln_verdict sum_ingress(const struct sum_config* config, struct ln_host* host, struct ln_packet* packet,
                                        const struct ln_meta* meta) {
  ln_u8* ip = packet->frame + FORWARD_ETHERNET;
  ln_u8* udp = ip + FORWARD_IPV6;
  ln_u32 flow, message, last, i;
  struct sum_row* row;
  if (packet->frame + SUM_PAYLOAD_AT <= packet->end && ip[0] >> 4 == 6 &&
      ln_load_be16(packet->frame + 12) == FORWARD_ETHERTYPE_IPV6 && ip[6] == FORWARD_NH_UDP &&
      ln_load_be16(udp + 2) / SUM_ROWS == SUM_PORT / SUM_ROWS) {
    if (packet->payload + SUM_PAYLOAD_BYTES > packet->payload_end) return ln_drop(host->counters, SUM_DROP_SUM_SHORT);
    row = (struct sum_row*)ln_row(host->state, ln_load_be16(udp + 2) % SUM_ROWS);
    if (!row) return ln_drop(host->counters, SUM_DROP_SUM_NO_ROW);
    LN_LOCK(&row->lock);
    if (row->count == 0) {
      row->flow = packet->flow;
      row->message = packet->message;
      row->since = meta->now;
    }
    flow = row->flow;
    message = row->message;
    last = row->count + 1 >= SUM_OF;
    row->count = last ? 0 : row->count + 1;
    if (last) ln_edit(packet);
    for (i = 0; i < SUM_PAYLOAD_BYTES; i++) {
      ln_u8 sum = (ln_u8)(row->bytes[i] + packet->payload[i]);
      row->bytes[i] = last ? 0 : sum;
      if (last) packet->payload[i] = sum;
    }
    LN_UNLOCK(&row->lock);
    if (!last) return ln_absorb();
    ln_store_be16(udp + 6, 0); /* no checksum: the bytes are others now */
    ln_relabel(packet, flow, message);
    ln_count(host->counters, SUM_SUMMED);
  }
  return forward_ingress(host->tables, &config->forward, host->counters, packet->frame, packet->end, packet->length);
}

#endif /* LOOMNET_EBPF_SUM_H */
