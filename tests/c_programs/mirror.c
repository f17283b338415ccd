/* The ingress of the program `mirror` of ebpf/mirror.h as one C file: held against it, packet by packet. */
#define LN_CONTRACT 1
#define LN_SUMMARY "answers UDP echo requests, sends multicast packets to a group"
#define LN_COUNTERS(X) \
  X(ECHOED, "echoed") X(MULTICAST, "multicast") X(DROP_NOT_SAMPLED, "drop_not_sampled")
#define LN_OPTIONS(X) X(sample, 1, 1, 1000000000, "requests") X(snap, 0, 0, 65535, "bytes")
#include <loomnet/switch_program.h>

struct ln_verdict ln_on_packet(const struct ln_options* options, struct ln_host* host, struct ln_packet* packet,
                               const struct ln_meta* meta) {
  ln_u8 *ip = ln_ipv6(packet), *udp;
  ln_u64 high, low;
  ln_u32 i, kept;
  ln_u16 port;
  if (!ip || packet->frame + LN_PAYLOAD_AT > packet->end) return ln_route(host, packet);
  if (ip[24] == 0xff) {
    if (ip[7] <= 1) return ln_pass();
    ip[7] = (ln_u8)(ip[7] - 1);
    ln_count(host->counters, MULTICAST);
    return ln_replicate(ln_load_be16(ip + 38));
  }
  udp = ln_udp(packet);
  if (!udp || ln_load_be16(udp + 2) != 7) return ln_route(host, packet);
  if ((ln_rand(meta, 1) >> 32) * options->sample >> 32) return ln_drop(host->counters, DROP_NOT_SAMPLED);
  for (i = 0; i < 16; i += 8) { /* the addresses change places, then the ports */
    high = ln_load_be64(ip + 8 + i);
    low = ln_load_be64(ip + 24 + i);
    ln_store_be64(ip + 8 + i, low);
    ln_store_be64(ip + 24 + i, high);
  }
  port = ln_load_be16(udp);
  ln_store_be16(udp, ln_load_be16(udp + 2));
  ln_store_be16(udp + 2, port);
  ip[7] = 64;
  if (options->snap >= LN_PAYLOAD_AT && packet->length > options->snap) {
    kept = (ln_u32)options->snap;
    packet->length = kept; /* the host cuts the frame's tail */
    ln_store_be16(ip + 4, (ln_u16)(kept - 54));
    ln_store_be16(udp + 4, (ln_u16)(kept - 54));
    ln_store_be16(udp + 6, 0);
  }
  ln_count(host->counters, ECHOED);
  return ln_reply();
}
