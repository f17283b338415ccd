/* Ring, rank and progress of a packet: finds its transport header behind VLAN tags, IPv6 extension
 * headers and one tunnel, and reads the step header, the UDP source port or a sequence number. A packet
 * that has none of the three bypasses the program. */
#ifndef LOOMNET_EBPF_SYMPHONY_IDENTITY_H
#define LOOMNET_EBPF_SYMPHONY_IDENTITY_H

#include "symphony_abi.h"

/* Lookups of each build; null or 0: none. */
LN_INLINE const struct symphony_job* symphony_lookup_job(struct ln_tables* tables, ln_u32 job);
LN_INLINE ln_u32 symphony_lookup_address(struct ln_tables* tables, ln_u64 high, ln_u64 low);
LN_INLINE const struct symphony_rule* symphony_lookup_flow(struct ln_tables* tables, ln_u64 ends, ln_u64 port);

#define SYMPHONY_HEADERS 8 /* IP and extension headers that are looked behind */
#define SYMPHONY_IN_IPV4 4u
#define SYMPHONY_IN_IPV6 41u
#define SYMPHONY_TCP 6u
#define SYMPHONY_UDP 17u

struct symphony_place {
  ln_u8* ip;       /* of the innermost IP header */
  ln_u8* at;       /* transport header */
  ln_u32 protocol; /* SYMPHONY_UDP or SYMPHONY_TCP; 0: neither was found */
  ln_u32 family;   /* SYMPHONY_IN_IPV4 or SYMPHONY_IN_IPV6 */
  ln_u32 ecn;      /* the outer header's two bits */
};

/* A packet as the algorithm takes it. */
struct symphony_tag {
  ln_u32 prog;
  ln_u32 unit; /* units of progress in a step ... */
  ln_u32 pow2; /* ... and the power of two that is not less */
  ln_u32 tau;
  ln_u32 span;
  ln_u32 g;
  ln_u16 job;
  ln_u16 ring;
  ln_u16 rank;
  ln_u16 nranks;
  ln_u8 gen;
  ln_u8 flags;
  ln_u8 mode;
  ln_u8 whole; /* progress counts whole steps alone */
};

LN_INLINE void symphony_locate(const struct ln_packet* packet, struct symphony_place* place) {
  ln_u8* at = packet->frame;
  const ln_u8* end = packet->end;
  ln_u32 type, next, levels = 0, i;
  place->protocol = 0;
  if (at + 14 > end) return;
  type = ln_load_be16(at + 12);
  at += 14;
  for (i = 0; i < 2; i++) {
    if (type != 0x8100 && type != 0x88a8) break;
    if (at + 4 > end) return;
    type = ln_load_be16(at + 2);
    at += 4;
  }
  if (type != 0x86dd && type != 0x0800) return;
  next = type == 0x86dd ? SYMPHONY_IN_IPV6 : SYMPHONY_IN_IPV4;
  if (at + 2 > end) return;
  place->ecn = next == SYMPHONY_IN_IPV6 ? at[1] >> 4 & 3 : at[1] & 3;
  place->ip = at;
  place->family = next;
  for (i = 0; i < SYMPHONY_HEADERS; i++) {
    if (next == SYMPHONY_UDP || next == SYMPHONY_TCP) {
      place->at = at;
      place->protocol = next;
      return;
    }
    if (next == SYMPHONY_IN_IPV6) {
      if (at + 40 > end || at[0] >> 4 != 6 || levels == 2) return;
      levels += 1;
      place->ip = at;
      place->family = next;
      next = at[6];
      at += 40;
    } else if (next == SYMPHONY_IN_IPV4) {
      ln_u32 words;
      if (at + 20 > end || at[0] >> 4 != 4 || levels == 2) return;
      words = at[0] & 15;
      if (words < 5 || ln_load_be16(at + 6) & 0x1fff) return; /* a later fragment */
      levels += 1;
      place->ip = at;
      place->family = next;
      next = at[9];
      at += words * 4;
    } else if (next == 0 || next == 43 || next == 60) { /* hop-by-hop, routing, destination */
      if (at + 8 > end) return;
      next = at[0];
      at += ((ln_u32)at[1] + 1) * 8;
    } else if (next == 44) { /* fragment */
      if (at + 8 > end || ln_load_be16(at + 2) & 0xfff8) return;
      next = at[0];
      at += 8;
    } else {
      return;
    }
  }
}

/* The rule of a packet's ends and port, or of its ends alone. */
LN_INLINE const struct symphony_rule* symphony_rule_of(struct ln_egress_host* host, const struct ln_packet* packet,
                                                       const struct symphony_place* place, ln_u32 protocol,
                                                       ln_u32 port) {
  struct ln_tables* tables = ln_egress_tables(host);
  const struct symphony_rule* rule;
  ln_u8* ip = place->ip;
  ln_u64 high = 0, low, far_high = 0, far_low, ends;
  ln_u32 source, destination;
  if (!tables) return (const struct symphony_rule*)0;
  if (place->family == SYMPHONY_IN_IPV6) {
    if (ip + 40 > packet->end) return (const struct symphony_rule*)0;
    high = ln_load_be64(ip + 8);
    low = ln_load_be64(ip + 16);
    far_high = ln_load_be64(ip + 24);
    far_low = ln_load_be64(ip + 32);
  } else { /* as ::ffff:a.b.c.d */
    if (ip + 20 > packet->end) return (const struct symphony_rule*)0;
    far_low = ln_load_be64(ip + 12);
    low = 0xffffull << 32 | far_low >> 32;
    far_low = 0xffffull << 32 | (far_low & 0xffffffffu);
  }
  source = symphony_lookup_address(tables, high, low);
  if (!source) return (const struct symphony_rule*)0;
  destination = symphony_lookup_address(tables, far_high, far_low);
  if (!destination) return (const struct symphony_rule*)0;
  ends = (ln_u64)source << 32 | destination;
  rule = symphony_lookup_flow(tables, ends, (ln_u64)protocol << 32 | port);
  if (rule) return rule;
  return symphony_lookup_flow(tables, ends, (ln_u64)protocol << 32 | SYMPHONY_ANY_PORT);
}

LN_INLINE void symphony_tag_by(const struct symphony_rule* rule, struct symphony_tag* tag) {
  tag->unit = rule->unit;
  tag->pow2 = rule->span;
  tag->job = rule->job;
  tag->ring = rule->ring;
  tag->rank = rule->rank;
  tag->nranks = rule->nranks;
  tag->gen = rule->gen;
  tag->flags = 0;
}

/* The header's fields; 0: the packet has none. */
LN_INLINE int symphony_read_header(const struct ln_packet* packet, const struct symphony_place* place,
                                   struct symphony_tag* tag) {
  const ln_u8* udp = place->at;
  struct step_header header;
  if (place->protocol != SYMPHONY_UDP || udp + 8 + STEP_HEADER_BYTES > packet->end) return 0;
  if (ln_load_be16(udp + 2) != STEP_UDP_PORT || ln_load_be16(udp + 4) < 8 + STEP_HEADER_BYTES) return 0;
  if (!step_header_load(udp + 8, &header)) return 0;
  tag->prog = header.prog;
  tag->unit = tag->pow2 = 1u << 16;
  tag->job = header.job;
  tag->ring = header.ring;
  tag->rank = header.rank;
  tag->nranks = header.nranks;
  tag->gen = header.gen;
  tag->flags = header.flags;
  return 1;
}

LN_INLINE int symphony_read_port(struct ln_egress_host* host, const struct ln_packet* packet,
                                 const struct symphony_place* place, struct symphony_tag* tag) {
  const ln_u8* udp = place->at;
  const struct symphony_rule* rule;
  if (place->protocol != SYMPHONY_UDP || udp + 8 > packet->end) return 0;
  rule = symphony_rule_of(host, packet, place, SYMPHONY_UDP, ln_load_be16(udp + 2));
  if (!rule) return 0;
  symphony_tag_by(rule, tag);
  tag->prog = (ln_u32)(ln_load_be16(udp) & 0xfff) << 20;
  tag->whole = 1;
  return 1;
}

/* The thresholds of a packet's ring in its own units of progress. */
LN_INLINE void symphony_thresholds(const struct symphony_config* config, ln_u32 job_g, struct symphony_tag* tag) {
  ln_u64 steps = job_g ? job_g : config->g ? config->g : config->g_factor * (ln_u32)tag->nranks;
  ln_u64 g = steps * tag->unit;
  ln_u64 tau = config->tau_units ? config->tau : (ln_u64)config->tau * tag->unit >> 16;
  ln_u64 span = (ln_u64)config->span * tag->pow2 >> 16;
  if (tag->whole && tau) tau -= 1; /* a step ahead is marked, not only more than one */
  tag->g = g > 0x7fffffffu ? 0x7fffffffu : (ln_u32)g;
  tag->tau = tau > 0x7fffffffu ? 0x7fffffffu : (ln_u32)tau;
  tag->span = span == 0 ? 1 : span > 0x40000000u ? 0x40000000u : (ln_u32)span;
}

/* What identity seq reads of a packet's transport header. */
struct symphony_sequence {
  const struct symphony_rule* rule; /* null: the packet bypasses */
  ln_u32 number;                    /* TCP's sequence number, RoCE's PSN */
  ln_u32 opens;                     /* 1: a SYN, whose number is the one before the first byte's */
};

LN_INLINE void symphony_read_sequence(struct ln_egress_host* host, const struct ln_packet* packet,
                                      const struct symphony_place* place, struct symphony_sequence* found) {
  const ln_u8* at = place->at;
  found->rule = (const struct symphony_rule*)0;
  found->opens = 0;
  if (place->protocol == SYMPHONY_TCP) {
    const ln_u8* ip = place->ip;
    ln_u32 behind; /* the IP header's bytes with TCP and data, from its own first byte */
    if (at + 20 > packet->end || ip + 20 > packet->end) return;
    behind = place->family == SYMPHONY_IN_IPV6 ? (ln_u32)ln_load_be16(ip + 4) + 40 : ln_load_be16(ip + 2);
    found->number = (ln_u32)ln_load_be16(at + 4) << 16 | ln_load_be16(at + 6);
    found->opens = at[13] >> 1 & 1;
    /* An acknowledgement alone says nothing of progress. */
    if (!found->opens && behind <= (ln_u32)(at - ip) + (ln_u32)(at[12] >> 4) * 4) return;
    found->rule = symphony_rule_of(host, packet, place, SYMPHONY_TCP, ln_load_be16(at + 2));
  } else if (place->protocol == SYMPHONY_UDP) {
    ln_u32 pair;
    if (at + 20 > packet->end || ln_load_be16(at + 2) != 4791) return;
    if (at[8] < 0x06 || at[8] > 0x0b) return; /* RDMA writes alone */
    pair = (ln_u32)at[13] << 16 | ln_load_be16(at + 14);
    found->number = (ln_u32)at[17] << 16 | ln_load_be16(at + 18);
    found->rule = symphony_rule_of(host, packet, place, SYMPHONY_ROCE, pair);
  }
}

#endif /* LOOMNET_EBPF_SYMPHONY_IDENTITY_H */
