/* The forward program: SRv6 uSID shift-and-forward (uN, uA, F3216) and plain IPv6 by ECMP, as pure
 * decisions on one packet (RFC 9800). Each build defines three
 * lookups before it calls forward_ingress; nothing here allocates, waits or queues. */
#ifndef LOOMNET_EBPF_FORWARD_H
#define LOOMNET_EBPF_FORWARD_H

#include "flow_hash.h"
#include "forward_abi.h"

/* A row that is absent reads as 0. */
LN_INLINE ln_u32 forward_lookup_sid(struct ln_tables* tables, ln_u64 block_and_usid);
LN_INLINE ln_u32 forward_lookup_host(struct ln_tables* tables, ln_u64 high, ln_u64 low);
LN_INLINE ln_u32 forward_lookup_member(struct ln_tables* tables, ln_u32 group, ln_u32 index);

/* Where the tables send a packet. */
struct forward_route {
  ln_u64 high, low; /* the destination with which it leaves */
  ln_u32 port;
  ln_u32 outcome; /* the counter of how it leaves, or of why it is dropped */
  ln_u32 shifted; /* high and low differ from the packet's destination */
};

/* Looks up the destination high:low of `frame`, whose IPv6 header must be there. Changes nothing
 * but the counter of own uN uSIDs in `row` (null: none is counted). */
LN_INLINE struct forward_route forward_walk(struct ln_tables* tables, const struct forward_config* config, ln_u64* row,
                                            const ln_u8* frame, const ln_u8* end, ln_u64 high, ln_u64 low) {
  struct forward_route route;
  ln_u32 entry, chosen = 0;
  int step;

  route.port = route.shifted = 0;
  for (step = 0; step < FORWARD_USIDS; step++) {
    entry = forward_lookup_sid(tables, high >> 16);
    if (!entry) break;
    route.port = entry & FORWARD_SID_PORT;
    if ((entry & FORWARD_SID_KIND) == FORWARD_SID_FIB) {
      route.outcome = FORWARD_FORWARD_FIB;
      goto found;
    }
    if (LN_UNLIKELY((high & 0xffff) == 0 && low == 0)) {
      route.outcome = FORWARD_DROP_EXHAUSTED;
      goto found;
    }
    /* Shift the uSIDs behind the block left by 16 bits, zeroes come in. */
    high = (high & 0xffffffff00000000ull) | (high & 0xffff) << 16 | low >> 48;
    low <<= 16;
    route.shifted = 1;
    if ((entry & FORWARD_SID_KIND) == FORWARD_SID_UA) {
      route.outcome = FORWARD_CROSS_CONNECT_UA;
      goto found;
    }
    if (row) ln_count(row, FORWARD_SHIFT_UN);
  }

  entry = forward_lookup_host(tables, high, low);
  route.outcome = FORWARD_DROP_NO_ROUTE;
  if (LN_UNLIKELY(!entry)) goto found;
  route.outcome = FORWARD_DROP_EMPTY_GROUP;
  if (LN_UNLIKELY(!(entry & 0xffff))) goto found;
  /* A multiplication spreads the hash over any number of members without a division; of one
   * there is nothing to choose. */
  if ((entry & 0xffff) > 1)
    chosen = (ln_u32)((forward_flow_hash(frame, end, config->hash_seed) >> 32) * (entry & 0xffff) >> 32);
  entry = forward_lookup_member(tables, entry >> 16 & 0x7fff, chosen);
  if (LN_UNLIKELY(!entry)) goto found;
  route.port = entry & FORWARD_SID_PORT;
  route.outcome = FORWARD_FORWARD_HOST;

found:
  route.high = high;
  route.low = low;
  return route;
}

/* The verdict that forward_ingress would likely give, for a frame whose IPv6 header is there: it
 * checks nothing but the tables and changes nothing. */
LN_INLINE struct ln_verdict forward_peek(struct ln_tables* tables, const struct forward_config* config,
                                         const ln_u8* frame, const ln_u8* end) {
  const ln_u8* ip = frame + FORWARD_ETHERNET;
  struct forward_route route =
      forward_walk(tables, config, 0, frame, end, ln_load_be64(ip + 24), ln_load_be64(ip + 32));
  if (route.outcome >= FORWARD_DROP_TOO_SHORT) return ln_verdict_of(LN_DROP, route.outcome);
  return ln_forward(route.port);
}

/* `frame`..`end`: the bytes at hand (at least the first 58 of a frame that has them), edited in
 * place only where the verdict is a forward. `row`: counters of the ingress port. */
LN_INLINE struct ln_verdict forward_ingress(struct ln_tables* tables, const struct forward_config* config, ln_u64* row,
                                            ln_u8* frame, const ln_u8* end, ln_u32 frame_length) {
  ln_u8* ip = frame + FORWARD_ETHERNET;
  ln_u64 high, low, source_high, source_low;
  struct forward_route route;

  if (LN_UNLIKELY(frame + FORWARD_ETHERNET > end)) return ln_drop(row, FORWARD_DROP_TOO_SHORT);
  if (LN_UNLIKELY(ln_load_be16(frame + 12) != FORWARD_ETHERTYPE_IPV6)) return ln_drop(row, FORWARD_DROP_NOT_IPV6);
  if (LN_UNLIKELY(frame + FORWARD_ETHERNET + FORWARD_IPV6 > end)) return ln_drop(row, FORWARD_DROP_TOO_SHORT);
  if (LN_UNLIKELY(ip[0] >> 4 != 6)) return ln_drop(row, FORWARD_DROP_BAD_VERSION);
  if (LN_UNLIKELY(!(config->options & FORWARD_ALLOW_STALE_LENGTH) &&
                  (ln_u32)ln_load_be16(ip + 4) + FORWARD_ETHERNET + FORWARD_IPV6 > frame_length))
    return ln_drop(row, FORWARD_DROP_TRUNCATED);
  if (LN_UNLIKELY(ip[6] == FORWARD_NH_ROUTING)) return ln_drop(row, FORWARD_DROP_ROUTING_HEADER);

  source_high = ln_load_be64(ip + 8);
  source_low = ln_load_be64(ip + 16);
  high = ln_load_be64(ip + 24);
  low = ln_load_be64(ip + 32);
  if (config->options & FORWARD_CHECK_ADDRESSES) {
    if (LN_UNLIKELY(forward_unroutable(source_high, source_low))) return ln_drop(row, FORWARD_DROP_BAD_SOURCE);
    if (LN_UNLIKELY(forward_unroutable(high, low))) return ln_drop(row, FORWARD_DROP_BAD_DESTINATION);
  }

  route = forward_walk(tables, config, row, frame, end, high, low);
  if (LN_UNLIKELY(route.outcome >= FORWARD_DROP_TOO_SHORT)) return ln_drop(row, route.outcome);
  if (LN_UNLIKELY(ip[7] <= 1)) return ln_drop(row, FORWARD_DROP_HOP_LIMIT);
  ip[7] = (ln_u8)(ip[7] - 1); /* once per switch, however many own uSIDs it consumed */
  if (route.shifted) {
    ln_store_be64(ip + 24, route.high);
    ln_store_be64(ip + 32, route.low);
  }
  ln_count(row, route.outcome);
  return ln_forward(route.port);
}

#endif /* LOOMNET_EBPF_FORWARD_H */
