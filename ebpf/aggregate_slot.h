/* What the rules of all policies share: the header's bytes, a slot taken, merged into, shown and freed. */
#ifndef LOOMNET_EBPF_AGGREGATE_SLOT_H
#define LOOMNET_EBPF_AGGREGATE_SLOT_H

#include "aggregate_values.h"
#include "forward_abi.h"

/* --- the header's bytes, at any alignment --- */

#if defined(__bpf__)
LN_INLINE void aggregate_load(struct aggregate_header* header, const ln_u8* from) {
  ln_raw64* words = (ln_raw64*)header;
  words[0] = ln_raw_load64(from);
  words[1] = ln_raw_load64(from + 8);
  words[2] = ln_raw_load64(from + 16);
  words[3] = ln_raw_load64(from + 24);
}
LN_INLINE void aggregate_store(ln_u8* to, const struct aggregate_header* header) {
  const ln_raw64* words = (const ln_raw64*)header;
  ln_raw_store64(to, words[0]);
  ln_raw_store64(to + 8, words[1]);
  ln_raw_store64(to + 16, words[2]);
  ln_raw_store64(to + 24, words[3]);
}
#else
LN_INLINE void aggregate_load(struct aggregate_header* header, const ln_u8* from) {
  memcpy(header, from, sizeof *header);
}
LN_INLINE void aggregate_store(ln_u8* to, const struct aggregate_header* header) { memcpy(to, header, sizeof *header); }
#endif

/* --- the values of a packet; bounds are constants, as the verifier wants them --- */

/* `packet` has the values that aggregate_long_enough() has found. */
LN_INLINE ln_u32 aggregate_values(const struct aggregate_config* config, struct aggregate_slot* slot,
                                  struct ln_packet* packet, ln_u32 how) {
  if (config->values == 256) {
    if (packet->payload + 1024 > packet->payload_end) return 0;
    return aggregate_sum(slot, packet->payload, 256, how, config->saturate);
  }
  if (config->values == 128) {
    if (packet->payload + 512 > packet->payload_end) return 0;
    return aggregate_sum(slot, packet->payload, 128, how, config->saturate);
  }
  if (packet->payload + 256 > packet->payload_end) return 0;
  return aggregate_sum(slot, packet->payload, 64, how, config->saturate);
}

LN_INLINE int aggregate_long_enough(const struct aggregate_config* config, const struct ln_packet* packet) {
  if (config->values == 256) return packet->payload + 1024 <= packet->payload_end;
  if (config->values == 128) return packet->payload + 512 <= packet->payload_end;
  return packet->payload + 256 <= packet->payload_end;
}

/* --- a packet that leaves --- */

/* Where a value of a slot with BOOT is asked for there are none: the slot's sum is not looked at. */
LN_INLINE void aggregate_take_values(const struct aggregate_config* config, struct aggregate_slot* slot,
                                     struct ln_packet* packet, const struct aggregate_header* header, ln_u32 how) {
  if (!(header->flags & AGGREGATE_BOOT)) aggregate_values(config, slot, packet, how);
}

LN_INLINE ln_u64 aggregate_bits(ln_u64 x) { /* the kernel's machine counts no bits */
  x -= x >> 1 & 0x5555555555555555ull;
  x = (x & 0x3333333333333333ull) + (x >> 2 & 0x3333333333333333ull);
  x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0full;
  return x * 0x0101010101010101ull >> 56;
}

LN_INLINE int aggregate_newer(ln_u32 a, ln_u32 b) { return (ln_s32)(a - b) > 0; }

/* Rewrites the destination: the server of the job whose sum leaves. No checksum: the bytes are others. */
LN_INLINE void aggregate_address(ln_u8* ip, const struct aggregate_job* job) {
  ln_store_be64(ip + 24, job->server_high);
  ln_store_be64(ip + 32, job->server_low);
}

LN_INLINE void aggregate_free(struct aggregate_slot* slot, ln_u64* counters, const struct ln_meta* meta) {
  counters[AGGREGATE_HELD_PS] += meta->now - slot->since;
  slot->state = AGGREGATE_FREE; /* its last owner stays known, for S2 */
}

/* The slot becomes the packet's. */
LN_INLINE void aggregate_own(struct aggregate_slot* slot, const struct aggregate_header* header,
                             const struct ln_packet* packet, const struct ln_meta* meta) {
  slot->state = AGGREGATE_SUMMING;
  slot->priority = header->priority;
  slot->flags = header->flags & (AGGREGATE_STICKY | AGGREGATE_BOOT);
  slot->exponent = header->exponent;
  slot->job = (ln_u16)(header->job + 1);
  slot->values = header->values;
  slot->sequence = header->sequence;
  slot->workers = header->workers;
  slot->attempts = 0;
  slot->flow = packet->flow;
  slot->message = packet->message;
  slot->since = meta->now;
}

LN_INLINE void aggregate_merge(struct aggregate_slot* slot, struct aggregate_header* header) {
  slot->workers |= header->workers;
  slot->flags |= header->flags & AGGREGATE_STICKY;
  if ((signed char)header->exponent > (signed char)slot->exponent) slot->exponent = header->exponent;
  if (header->priority > slot->priority) slot->priority = header->priority;
  slot->attempts = 0;
}

/* The packet's header becomes that of the slot's sum; its values are the caller's to set. */
LN_INLINE void aggregate_show(const struct aggregate_config* config, const struct aggregate_slot* slot,
                              struct aggregate_header* header, ln_u32 type) {
  header->type = (ln_u8)type;
  header->flags = slot->flags;
  header->priority = slot->priority;
  header->job = (ln_u16)(slot->job - 1);
  header->sequence = slot->sequence;
  header->values = slot->values;
  header->exponent = slot->exponent;
  header->workers = slot->workers;
  header->source = AGGREGATE_FROM_SWITCH;
  header->hop = config->hop;
}

/* How a packet's visit of its slot ends; carried out once the lock is released. */
enum aggregate_end {
  AGGREGATE_ABSORB,    /* it is in the sum, or of no more use */
  AGGREGATE_UP,        /* as it is now, to the packet's own server */
  AGGREGATE_SUM_UP,    /* the slot's sum of the packet's own job, upwards */
  AGGREGATE_SWAPPED,   /* the victim's sum, to the victim's server */
  AGGREGATE_SUM_DOWN,  /* SwitchML: the result, to all workers */
  AGGREGATE_SUM_BACK,  /* SwitchML: the result, to the one who asks again; or a REPLY */
};

#endif /* LOOMNET_EBPF_AGGREGATE_SLOT_H */
