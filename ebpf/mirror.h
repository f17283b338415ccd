/* An example of a switch program: answers UDP echo requests (RFC 862) itself, sends a packet with a
 * multicast destination to the group that the address's last 16 bits name, hands such a packet whose
 * hop limit is used up to the switch's own network stack, and forwards the rest. */
#ifndef LOOMNET_EBPF_MIRROR_H
#define LOOMNET_EBPF_MIRROR_H

#include "forward.h"
#include "mirror_abi.h"

#define MIRROR_ECHO_PORT 7
#define MIRROR_ECHO_DRAW 1u  /* numbers of independent random draws */
#define MIRROR_MARK_DRAW 2u

/* Addresses and ports change places, so the checksum stays right; a cut frame goes without. */
LN_INLINE struct ln_verdict mirror_echo(const struct mirror_config* config, struct ln_host* host,
                                        struct ln_packet* packet) {
  ln_u8* ip = packet->frame + FORWARD_ETHERNET;
  ln_u8* udp = ip + FORWARD_IPV6;
  ln_u64 high = ln_load_be64(ip + 8), low = ln_load_be64(ip + 16);
  ln_u16 port = ln_load_be16(udp);
  ln_store_be64(ip + 8, ln_load_be64(ip + 24));
  ln_store_be64(ip + 16, ln_load_be64(ip + 32));
  ln_store_be64(ip + 24, high);
  ln_store_be64(ip + 32, low);
  ln_store_be16(udp, ln_load_be16(udp + 2));
  ln_store_be16(udp + 2, port);
  ip[7] = 64;
  if (config->snap >= MIRROR_HEADER && packet->length > config->snap) {
    packet->length = config->snap;
    ln_store_be16(ip + 4, (ln_u16)(config->snap - FORWARD_ETHERNET - FORWARD_IPV6));
    ln_store_be16(udp + 4, (ln_u16)(config->snap - FORWARD_ETHERNET - FORWARD_IPV6));
    ln_store_be16(udp + 6, 0);
  }
  ln_count(host->counters, MIRROR_ECHOED);
  return ln_reply();
}

LN_INLINE struct ln_verdict mirror_ingress(const struct mirror_config* config, struct ln_host* host,
                                           struct ln_packet* packet, const struct ln_meta* meta) {
  ln_u8* ip = packet->frame + FORWARD_ETHERNET;
  ln_u8* udp = ip + FORWARD_IPV6;
  if (packet->frame + MIRROR_HEADER <= packet->end && ip[0] >> 4 == 6 &&
      ln_load_be16(packet->frame + 12) == FORWARD_ETHERTYPE_IPV6) {
    if (ip[24] == 0xff) {
      if (ip[7] <= 1) return ln_pass(); /* as a router, whose own stack answers that */
      ip[7] = (ln_u8)(ip[7] - 1);
      ln_count(host->counters, MIRROR_MULTICAST);
      return ln_replicate(ln_load_be16(ip + 38));
    }
    if (ip[6] == FORWARD_NH_UDP && ln_load_be16(udp + 2) == MIRROR_ECHO_PORT) {
      if ((ln_rand(meta, MIRROR_ECHO_DRAW) >> 32) * config->sample >> 32)
        return ln_drop(host->counters, MIRROR_DROP_NOT_SAMPLED);
      return mirror_echo(config, host, packet);
    }
  }
  return forward_ingress(host->tables, &config->forward, host->counters, packet->frame, packet->end, packet->length);
}

/* Marks half of the packets that leave a long queue behind. */
LN_INLINE ln_u32 mirror_egress(const struct mirror_config* config, struct ln_egress_host* host,
                               struct ln_packet* packet, const struct ln_egress_meta* meta) {
  (void)packet;
  if (config->mark_above == 0 || meta->marked) return LN_EGRESS_LEAVE;
  if (meta->queued[meta->queue & (LN_CLASSES - 1)] <= config->mark_above) return LN_EGRESS_LEAVE;
  ln_count(host->counters, MIRROR_ABOVE);
  host->note[0] = (ln_u32)meta->queued[meta->queue & (LN_CLASSES - 1)];
  return ln_egress_rand(meta, MIRROR_MARK_DRAW) & 1 ? LN_EGRESS_MARK : LN_EGRESS_LEAVE;
}

#endif /* LOOMNET_EBPF_MIRROR_H */
