/* The aggregation program: sums gradient fragments in the switch's memory, by the rules of SwitchML,
 * ATP or ESA, and forwards everything else. aggregate_abi.h has the formats. Rules are named S0 to S12 in
 * counters, tests and docs/ina.md. */
#ifndef LOOMNET_EBPF_AGGREGATE_H
#define LOOMNET_EBPF_AGGREGATE_H

#include "aggregate_abi.h"
#include "forward.h"

/* Lookups, each build's own: a job's row or null, the workers below a port (0: none), and a port with
 * AGGREGATE_FOUND above it (0: none). */
LN_INLINE const struct aggregate_job* aggregate_lookup_job(struct ln_tables* tables, ln_u32 job);
LN_INLINE ln_u64 aggregate_lookup_below(struct ln_tables* tables, ln_u32 job, ln_u32 port);
LN_INLINE ln_u32 aggregate_lookup_worker(struct ln_tables* tables, ln_u32 job, ln_u32 worker);
LN_INLINE ln_u32 aggregate_lookup_hop(struct ln_tables* tables, ln_u32 job, ln_u32 hop);

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
LN_INLINE ln_s32 aggregate_get(const ln_u8* payload, ln_u32 i) {
  return (ln_s32)ln_raw_load32(payload + 4 * i);
}
LN_INLINE void aggregate_put(ln_u8* payload, ln_u32 i, ln_s32 value) {
  *(ln_raw32*)(payload + 4 * i) = (ln_u32)value;
}
#else
LN_INLINE void aggregate_load(struct aggregate_header* header, const ln_u8* from) {
  memcpy(header, from, sizeof *header);
}
LN_INLINE void aggregate_store(ln_u8* to, const struct aggregate_header* header) {
  memcpy(to, header, sizeof *header);
}
LN_INLINE ln_s32 aggregate_get(const ln_u8* payload, ln_u32 i) {
  ln_s32 value;
  memcpy(&value, payload + 4 * i, sizeof value);
  return value;
}
LN_INLINE void aggregate_put(ln_u8* payload, ln_u32 i, ln_s32 value) {
  memcpy(payload + 4 * i, &value, sizeof value);
}
#endif

/* --- what happens to the values; bounds are constants, as the verifier wants them --- */

enum aggregate_how {
  AGGREGATE_CLAIM_SUM, /* slot = packet */
  AGGREGATE_ADD,       /* slot += packet */
  AGGREGATE_FINISH,    /* slot += packet, packet = slot */
  AGGREGATE_SWAP,      /* slot <-> packet */
  AGGREGATE_READ,      /* packet = slot */
};

LN_INLINE ln_s32 aggregate_wrap(ln_s32 a, ln_s32 b) { return (ln_s32)((ln_u32)a + (ln_u32)b); }

/* Keeps clang from turning what it knows of a value into a branch. */
#if defined(__bpf__)
#define AGGREGATE_OPAQUE(value) __asm__ volatile("" : "+r"(value))
#else
#define AGGREGATE_OPAQUE(value) ((void)0)
#endif

/* Returns not 0 if an addition left the range of an int32, with `saturate`. */
LN_INLINE ln_u32 aggregate_loop(struct aggregate_slot* slot, ln_u8* payload, ln_u32 values,
                                ln_u32 how, ln_u32 saturate) {
  ln_u32 i, left = 0;
  if (how == AGGREGATE_CLAIM_SUM) {
    for (i = 0; i < values; i++) slot->sum[i] = aggregate_get(payload, i);
  } else if (how == AGGREGATE_SWAP) {
    for (i = 0; i < values; i++) {
      ln_s32 old = slot->sum[i];
      slot->sum[i] = aggregate_get(payload, i);
      aggregate_put(payload, i, old);
    }
  } else if (how == AGGREGATE_READ) {
    for (i = 0; i < values; i++) aggregate_put(payload, i, slot->sum[i]);
  } else if (!saturate) {
    if (how == AGGREGATE_ADD) {
      for (i = 0; i < values; i++)
        slot->sum[i] = aggregate_wrap(slot->sum[i], aggregate_get(payload, i));
    } else {
      for (i = 0; i < values; i++) {
        ln_s32 sum = aggregate_wrap(slot->sum[i], aggregate_get(payload, i));
        slot->sum[i] = sum;
        aggregate_put(payload, i, sum);
      }
    }
  } else {
    /* No branch and no mask of the sign: the verifier follows both sides of either, for every value. */
    for (i = 0; i < values; i++) {
      ln_u32 a = (ln_u32)slot->sum[i], b = (ln_u32)aggregate_get(payload, i), sum = a + b;
      ln_u32 out = ((a ^ sum) & (b ^ sum)) >> 31; /* 1: both of one sign, the sum of the other */
      AGGREGATE_OPAQUE(out);
      sum += out * (2147483647u + (a >> 31) - sum);
      left |= out;
      slot->sum[i] = (ln_s32)sum;
      if (how == AGGREGATE_FINISH) aggregate_put(payload, i, (ln_s32)sum);
    }
  }
  return left;
}

/* `packet` has the values that aggregate_long_enough() has found. */
LN_INLINE ln_u32 aggregate_values(const struct aggregate_config* config, struct aggregate_slot* slot,
                                  struct ln_packet* packet, ln_u32 how) {
  if (config->values == 256) {
    if (packet->payload + 1024 > packet->payload_end) return 0;
    return aggregate_loop(slot, packet->payload, 256, how, config->saturate);
  }
  if (config->values == 128) {
    if (packet->payload + 512 > packet->payload_end) return 0;
    return aggregate_loop(slot, packet->payload, 128, how, config->saturate);
  }
  if (packet->payload + 256 > packet->payload_end) return 0;
  return aggregate_loop(slot, packet->payload, 64, how, config->saturate);
}

LN_INLINE int aggregate_long_enough(const struct aggregate_config* config,
                                    const struct ln_packet* packet) {
  if (config->values == 256) return packet->payload + 1024 <= packet->payload_end;
  if (config->values == 128) return packet->payload + 512 <= packet->payload_end;
  return packet->payload + 256 <= packet->payload_end;
}

/* --- a packet that leaves --- */

/* Where a value of a slot with BOOT is asked for there are none: the slot's sum is not looked at. */
LN_INLINE void aggregate_take_values(const struct aggregate_config* config,
                                     struct aggregate_slot* slot, struct ln_packet* packet,
                                     const struct aggregate_header* header, ln_u32 how) {
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

LN_INLINE void aggregate_free(struct aggregate_slot* slot, ln_u64* counters,
                              const struct ln_meta* meta) {
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
LN_INLINE void aggregate_show(const struct aggregate_config* config,
                              const struct aggregate_slot* slot, struct aggregate_header* header,
                              ln_u32 type) {
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

/* DATA and AGG under ATP and ESA, S2 to S12. `owner`, `victim`: the slot's owner as read before the lock
 * was taken, and that job's row. */
LN_INLINE ln_u32 aggregate_dynamic(const struct aggregate_config* config, struct ln_host* host,
                                   struct ln_packet* packet, const struct ln_meta* meta,
                                   struct aggregate_header* header, const struct aggregate_job* job,
                                   struct aggregate_slot* slot, ln_u32 owner,
                                   const struct aggregate_job* victim) {
  ln_u64* counters = host->counters;
  const int mine = slot->job == header->job + 1u;
  const int same = mine && slot->sequence == header->sequence;
  if (slot->state == AGGREGATE_FREE) {
    if (same) { /* S2: finished or taken away before; it must not start again */
      ln_count(counters, AGGREGATE_REMEMBERED);
      header->flags |= AGGREGATE_BYPASS;
      return AGGREGATE_UP;
    }
  } else if (same) {
    if ((slot->flags ^ header->flags) & AGGREGATE_BOOT) { /* no fragment is both */
      header->flags |= AGGREGATE_BYPASS;
      ln_count(counters, AGGREGATE_OVERLAP);
      return AGGREGATE_UP;
    }
    if (slot->state == AGGREGATE_DONE) { /* S4 */
      ln_count(counters, AGGREGATE_AGAIN);
      ln_edit(packet);
      aggregate_take_values(config, slot, packet, header, AGGREGATE_READ);
      aggregate_show(config, slot, header, AGGREGATE_AGG);
      ln_relabel(packet, slot->flow, slot->message);
      return AGGREGATE_SUM_UP;
    }
    if ((slot->workers & header->workers) == 0) { /* S5 */
      ln_u32 left = 0;
      ln_count(counters, AGGREGATE_MERGE);
      aggregate_merge(slot, header);
      if (slot->workers != job->workers) {
        if (!(header->flags & AGGREGATE_BOOT))
          left = aggregate_values(config, slot, packet, AGGREGATE_ADD);
        if (left) slot->flags |= AGGREGATE_OVERFLOW, ln_count(counters, AGGREGATE_SATURATED);
        return AGGREGATE_ABSORB;
      }
      ln_count(counters, AGGREGATE_COMPLETE);
      ln_edit(packet);
      if (!(header->flags & AGGREGATE_BOOT))
        left = aggregate_values(config, slot, packet, AGGREGATE_FINISH);
      if (left) slot->flags |= AGGREGATE_OVERFLOW, ln_count(counters, AGGREGATE_SATURATED);
      aggregate_show(config, slot, header, AGGREGATE_AGG);
      ln_relabel(packet, slot->flow, slot->message);
      counters[AGGREGATE_USEFUL_PS] += meta->now - slot->since;
      slot->state = AGGREGATE_DONE;
      if (config->dealloc == AGGREGATE_ON_COMPLETION) aggregate_free(slot, counters, meta);
      return AGGREGATE_SUM_UP;
    }
    if ((header->workers & ~slot->workers) == 0) { /* S6 */
      ln_count(counters, AGGREGATE_DUPLICATE);
      return AGGREGATE_ABSORB;
    }
    ln_count(counters, AGGREGATE_OVERLAP); /* S7 */
    header->flags |= AGGREGATE_BYPASS;
    return AGGREGATE_UP;
  } else if (mine && (ln_s32)(header->sequence - slot->sequence) >= (ln_s32)job->window) {
    ln_count(counters, AGGREGATE_TAKEOVER); /* S8: whoever lacks the older result asks for it */
    aggregate_free(slot, counters, meta);
  } else if (mine && (ln_s32)(slot->sequence - header->sequence) >= (ln_s32)job->window) {
    ln_count(counters, AGGREGATE_GHOST); /* S9 */
    return AGGREGATE_ABSORB;
  } else if (slot->job == owner && !victim) {
    ln_count(counters, AGGREGATE_TAKEOVER); /* of a job that has ended */
    aggregate_free(slot, counters, meta);
  } else if (slot->state == AGGREGATE_DONE && config->dealloc == AGGREGATE_LAZILY) {
    aggregate_free(slot, counters, meta); /* S10 */
  } else if (config->policy == AGGREGATE_ESA && header->priority > slot->priority &&
             slot->job == owner && !(header->flags & AGGREGATE_BOOT)) { /* S11 */
    struct aggregate_header claim = *header;
    ln_u32 flow = slot->flow, message = slot->message;
    ln_count(counters, AGGREGATE_PREEMPT);
    counters[AGGREGATE_EVICT_WORKERS] += aggregate_bits(slot->workers);
    counters[AGGREGATE_HELD_PS] += meta->now - slot->since;
    ln_edit(packet);
    aggregate_values(config, slot, packet, AGGREGATE_SWAP);
    aggregate_show(config, slot, header, AGGREGATE_EVICT);
    header->flags |= AGGREGATE_BYPASS;
    aggregate_own(slot, &claim, packet, meta);
    ln_relabel(packet, flow, message);
    return AGGREGATE_SWAPPED;
  } else { /* S12 */
    ln_count(counters, AGGREGATE_COLLIDE);
    slot->attempts += 1;
    if (config->policy == AGGREGATE_ESA && config->downgrade && config->downgrade_every &&
        slot->attempts % config->downgrade_every == 0)
      slot->priority >>= config->downgrade & 7;
    header->flags |= AGGREGATE_BYPASS | AGGREGATE_COLLISION;
    return AGGREGATE_UP;
  }
  ln_count(counters, AGGREGATE_CLAIM); /* S3 */
  aggregate_own(slot, header, packet, meta);
  aggregate_take_values(config, slot, packet, header, AGGREGATE_CLAIM_SUM);
  return AGGREGATE_ABSORB;
}

/* A worker's RESEND under ATP empties the slot: its sum goes to the server with the sender's part. */
LN_INLINE ln_u32 aggregate_flush(const struct aggregate_config* config, struct ln_host* host,
                                 struct ln_packet* packet, const struct ln_meta* meta,
                                 struct aggregate_header* header, struct aggregate_slot* slot) {
  const ln_u8 source = header->source;
  ln_u32 left = 0, how = AGGREGATE_READ;
  if (slot->state == AGGREGATE_FREE || slot->job != header->job + 1u ||
      slot->sequence != header->sequence || (slot->flags ^ header->flags) & AGGREGATE_BOOT)
    return AGGREGATE_UP;
  if ((slot->workers & header->workers) == 0) {
    aggregate_merge(slot, header);
    how = AGGREGATE_FINISH;
  } else if (header->workers & ~slot->workers) {
    return AGGREGATE_UP;
  }
  ln_count(host->counters, AGGREGATE_FLUSH);
  ln_edit(packet);
  if (!(header->flags & AGGREGATE_BOOT)) left = aggregate_values(config, slot, packet, how);
  if (left) slot->flags |= AGGREGATE_OVERFLOW, ln_count(host->counters, AGGREGATE_SATURATED);
  aggregate_show(config, slot, header, AGGREGATE_RESEND);
  header->flags |= AGGREGATE_BYPASS;
  header->source = source; /* to whom the server sends a result that it has */
  ln_relabel(packet, slot->flow, slot->message);
  aggregate_free(slot, host->counters, meta);
  return AGGREGATE_UP;
}

/* SwitchML: the sum is whole and leaves, upwards or, from the root, to `workers`. */
LN_INLINE ln_u32 aggregate_static_sum(const struct aggregate_config* config,
                                      struct ln_packet* packet, struct aggregate_header* header,
                                      const struct aggregate_job* job,
                                      const struct aggregate_slot* slot) {
  ln_relabel(packet, slot->flow, slot->message);
  aggregate_show(config, slot, header, job->root ? AGGREGATE_RESULT : AGGREGATE_AGG);
  header->workers = job->workers;
  return job->root ? AGGREGATE_SUM_DOWN : AGGREGATE_SUM_UP;
}

/* DATA and AGG under SwitchML: the slot is the fragment's own for as long as its window turns. Without
 * the generation check the published program's rule holds: a part is a duplicate where its bit is set,
 * the first part after all bits were cleared overwrites, and `missing` alone says when the sum is whole. */
LN_INLINE ln_u32 aggregate_static(const struct aggregate_config* config, struct ln_host* host,
                                  struct ln_packet* packet, const struct ln_meta* meta,
                                  struct aggregate_header* header, const struct aggregate_job* job,
                                  struct aggregate_slot* slot) {
  ln_u64* counters = host->counters;
  const int mine = slot->job == header->job + 1u;
  ln_u32 left = 0, fresh, whole;
  if (config->generation_check) {
    if (mine && aggregate_newer(slot->sequence, header->sequence)) {
      ln_count(counters, AGGREGATE_GHOST);
      return AGGREGATE_ABSORB;
    }
    fresh = !mine || slot->sequence != header->sequence;
  } else {
    fresh = !mine || slot->workers == 0;
  }
  if (!fresh && (slot->workers & header->workers) != 0) {
    const ln_u64 asker = header->workers;
    if (slot->state != AGGREGATE_DONE || asker & ~slot->workers) {
      ln_count(counters, asker & ~slot->workers ? AGGREGATE_OVERLAP : AGGREGATE_DUPLICATE);
      return AGGREGATE_ABSORB;
    }
    ln_count(counters, AGGREGATE_AGAIN);
    ln_edit(packet);
    aggregate_take_values(config, slot, packet, header, AGGREGATE_READ);
    aggregate_static_sum(config, packet, header, job, slot);
    if (!job->root) return AGGREGATE_SUM_UP;
    header->workers = asker;
    header->flags |= AGGREGATE_UNICAST;
    return AGGREGATE_SUM_BACK;
  }
  ln_count(counters, fresh ? AGGREGATE_CLAIM : AGGREGATE_MERGE);
  if (fresh) {
    aggregate_own(slot, header, packet, meta);
    slot->missing = job->parts;
    aggregate_take_values(config, slot, packet, header, AGGREGATE_CLAIM_SUM);
  } else {
    aggregate_merge(slot, header);
    slot->sequence = header->sequence;
    if (slot->missing == 0) slot->missing = job->parts; /* only without the check */
    if (slot->state == AGGREGATE_DONE) slot->state = AGGREGATE_SUMMING;
  }
  slot->missing -= 1;
  whole = slot->missing == 0;
  if (!fresh && !(header->flags & AGGREGATE_BOOT)) {
    if (whole) ln_edit(packet);
    left = aggregate_values(config, slot, packet, whole ? AGGREGATE_FINISH : AGGREGATE_ADD);
    if (left) slot->flags |= AGGREGATE_OVERFLOW, ln_count(counters, AGGREGATE_SATURATED);
  }
  if (!whole) return AGGREGATE_ABSORB;
  ln_count(counters, AGGREGATE_COMPLETE);
  counters[AGGREGATE_USEFUL_PS] += meta->now - slot->since;
  slot->state = AGGREGATE_DONE;
  return aggregate_static_sum(config, packet, header, job, slot);
}

/* To the workers below that the packet names. */
LN_INLINE struct ln_verdict aggregate_down(struct ln_host* host, const struct aggregate_header* header,
                                           const struct aggregate_job* job) {
  const ln_u64 below = header->workers & job->workers;
  if (below == 0) return ln_drop(host->counters, AGGREGATE_DROP_AGGREGATE_DEAD);
  ln_count(host->counters, AGGREGATE_DOWNWARDS);
  if ((below & (below - 1)) == 0) {
    ln_u32 worker = 0, port;
    ln_u64 bit = below;
    if (bit >> 32) worker += 32, bit >>= 32;
    if (bit >> 16) worker += 16, bit >>= 16;
    if (bit >> 8) worker += 8, bit >>= 8;
    if (bit >> 4) worker += 4, bit >>= 4;
    if (bit >> 2) worker += 2, bit >>= 2;
    if (bit >> 1) worker += 1;
    port = aggregate_lookup_worker(host->tables, header->job, worker);
    if (port & AGGREGATE_FOUND) return ln_forward(port & 0xffff);
  }
  return ln_replicate(job->down);
}

/* From the server: RESULT, NAK and REMIND. */
LN_INLINE struct ln_verdict aggregate_from_server(const struct aggregate_config* config,
                                                  struct ln_host* host, struct ln_packet* packet,
                                                  const struct ln_meta* meta,
                                                  struct aggregate_header* header,
                                                  const struct aggregate_job* job) {
  struct aggregate_slot* slot = (struct aggregate_slot*)0;
  ln_u32 port, held;
  if (header->type == AGGREGATE_REMIND && header->hop != config->hop) {
    port = aggregate_lookup_hop(host->tables, header->job, header->hop);
    if (!(port & AGGREGATE_FOUND)) return ln_drop(host->counters, AGGREGATE_DROP_AGGREGATE_NO_HOP);
    ln_count(host->counters, AGGREGATE_DOWNWARDS);
    return ln_forward(port & 0xffff);
  }
  if (header->type == AGGREGATE_NAK) return aggregate_down(host, header, job);
  if (config->slots && job->scheme != AGGREGATE_SWITCHML && job->scheme == config->policy)
    slot = (struct aggregate_slot*)ln_row(host->state, header->index % config->slots);
  if (header->type == AGGREGATE_RESULT) {
    if (slot) {
      LN_LOCK(&slot->lock);
      held = slot->state != AGGREGATE_FREE && slot->job == header->job + 1u &&
             slot->sequence == header->sequence;
      if (held) aggregate_free(slot, host->counters, meta);
      LN_UNLOCK(&slot->lock);
      if (held) ln_count(host->counters, AGGREGATE_RELEASE);
    }
    return aggregate_down(host, header, job);
  }
  /* REMIND: of full length, because a frame cannot grow. */
  if (!aggregate_long_enough(config, packet))
    return ln_drop(host->counters, AGGREGATE_DROP_AGGREGATE_SHORT);
  held = 0;
  if (slot) {
    LN_LOCK(&slot->lock);
    held = slot->state != AGGREGATE_FREE && slot->job == header->job + 1u &&
           slot->sequence == header->sequence;
    if (held) {
      aggregate_free(slot, host->counters, meta);
      ln_edit(packet);
      if (!(slot->flags & AGGREGATE_BOOT)) aggregate_values(config, slot, packet, AGGREGATE_READ);
      aggregate_show(config, slot, header, AGGREGATE_REPLY);
      ln_relabel(packet, slot->flow, slot->message);
    }
    LN_UNLOCK(&slot->lock);
  }
  ln_count(host->counters, held ? AGGREGATE_REMIND_HIT : AGGREGATE_REMIND_EMPTY);
  header->type = AGGREGATE_REPLY;
  if (!held) header->workers = 0;
  header->flags |= AGGREGATE_BYPASS;
  header->source = AGGREGATE_FROM_SWITCH;
  header->hop = config->hop;
  aggregate_store(packet->frame + AGGREGATE_AT, header);
  aggregate_address(packet->frame + FORWARD_ETHERNET, job);
  return ln_reply();
}

LN_INLINE struct ln_verdict aggregate_from_workers(const struct aggregate_config* config,
                                                   struct ln_host* host, struct ln_packet* packet,
                                                   const struct ln_meta* meta,
                                                   struct aggregate_header* header,
                                                   const struct aggregate_job* job) {
  ln_u8* at = packet->frame + AGGREGATE_AT;
  ln_u8* ip = packet->frame + FORWARD_ETHERNET;
  const int boot = header->flags & AGGREGATE_BOOT;
  const int atp_resend = header->type == AGGREGATE_RESEND && config->policy == AGGREGATE_ATP;
  const struct aggregate_job* victim = (const struct aggregate_job*)0;
  struct aggregate_slot* slot;
  struct aggregate_slot* other = (struct aggregate_slot*)0;
  ln_u32 end, owner = 0, index;

  if (!boot && !aggregate_long_enough(config, packet))
    return ln_drop(host->counters, AGGREGATE_DROP_AGGREGATE_SHORT);
  if (((ip[1] >> 4) & 3) == 3) header->flags |= AGGREGATE_ECN; /* CE */
  if ((header->type != AGGREGATE_DATA && header->type != AGGREGATE_AGG && !atp_resend) ||
      header->flags & AGGREGATE_BYPASS || job->scheme != config->policy || config->slots == 0) {
    ln_count(host->counters, AGGREGATE_UPWARDS); /* S1 */
    aggregate_store(at, header);
    return ln_forward(job->up);
  }
  if (header->workers == job->workers && !atp_resend &&
      !(job->scheme == AGGREGATE_SWITCHML && job->root)) { /* S0 */
    ln_count(host->counters, AGGREGATE_SOLE);
    header->type = AGGREGATE_AGG;
    aggregate_store(at, header);
    return ln_forward(job->up);
  }
  if (job->scheme == AGGREGATE_SWITCHML) {
    const ln_u32 turn = 2 * job->window;
    if (turn == 0) return ln_drop(host->counters, AGGREGATE_DROP_AGGREGATE_SHORT);
    index = job->base + header->sequence % turn;
    if (!config->generation_check) /* the same place in the other set */
      other = (struct aggregate_slot*)ln_row(
          host->state, (job->base + (header->sequence + job->window) % turn) % config->slots);
  } else {
    index = header->index;
  }
  slot = (struct aggregate_slot*)ln_row(host->state, index % config->slots);
  if (!slot) { /* cannot happen: the state has config->slots rows */
    ln_count(host->counters, AGGREGATE_UPWARDS);
    return ln_forward(job->up);
  }
  if (other) {
    LN_LOCK(&other->lock);
    if (other->job == header->job + 1u) other->workers &= ~header->workers;
    LN_UNLOCK(&other->lock);
  }
  if (job->scheme != AGGREGATE_SWITCHML) {
    /* Looked up before the lock is taken, under which nothing may be; whether it still holds is seen
     * then, and if it does not the packet collides, which is always right. */
    owner = slot->job;
    if (owner) victim = aggregate_lookup_job(host->tables, owner - 1);
  }
  LN_LOCK(&slot->lock);
  if (job->scheme == AGGREGATE_SWITCHML) {
    end = aggregate_static(config, host, packet, meta, header, job, slot);
  } else if (atp_resend) {
    end = aggregate_flush(config, host, packet, meta, header, slot);
  } else {
    end = aggregate_dynamic(config, host, packet, meta, header, job, slot, owner, victim);
  }
  LN_UNLOCK(&slot->lock);
  if (end == AGGREGATE_ABSORB) return ln_absorb();
  aggregate_store(at, header);
  ln_store_be16(packet->frame + AGGREGATE_AT - 2, 0); /* UDP checksum: the bytes are others now */
  if (end == AGGREGATE_SWAPPED) {
    if (!victim) return ln_absorb(); /* cannot happen: no swap without the victim's row */
    aggregate_address(ip, victim);
    return ln_forward(victim->up);
  }
  if (end == AGGREGATE_SUM_DOWN) return ln_replicate(job->down);
  if (end == AGGREGATE_SUM_BACK) return ln_reply();
  if (end == AGGREGATE_UP) ln_count(host->counters, AGGREGATE_UPWARDS);
  return ln_forward(job->up);
}

LN_INLINE struct ln_verdict aggregate_ingress(const struct aggregate_config* config,
                                              struct ln_host* host, struct ln_packet* packet,
                                              const struct ln_meta* meta) {
  const ln_u8* ip = packet->frame + FORWARD_ETHERNET;
  struct aggregate_header header;
  const struct aggregate_job* job;
  ln_u64 below;
  if (packet->frame + AGGREGATE_PAYLOAD_AT > packet->end || ip[0] >> 4 != 6 ||
      ln_load_be16(packet->frame + 12) != FORWARD_ETHERTYPE_IPV6 || ip[6] != FORWARD_NH_UDP ||
      ln_load_be16(ip + FORWARD_IPV6 + 2) != AGGREGATE_UDP_PORT)
    return forward_ingress(host->tables, &config->forward, host->counters, packet->frame,
                           packet->end, packet->length);
  aggregate_load(&header, packet->frame + AGGREGATE_AT);
  job = aggregate_lookup_job(host->tables, header.job);
  if (!job) /* no part of the job's tree */
    return forward_ingress(host->tables, &config->forward, host->counters, packet->frame,
                           packet->end, packet->length);
  if (header.version_scheme >> 4 != AGGREGATE_VERSION)
    return ln_drop(host->counters, AGGREGATE_DROP_AGGREGATE_VERSION);
  if ((header.version_scheme & 15) != job->scheme || header.type >= AGGREGATE_TYPES)
    return ln_drop(host->counters, AGGREGATE_DROP_AGGREGATE_TYPE);
  if (meta->ingress == job->up) {
    if (header.type != AGGREGATE_RESULT && header.type != AGGREGATE_NAK &&
        header.type != AGGREGATE_REMIND)
      return ln_drop(host->counters, AGGREGATE_DROP_AGGREGATE_TYPE);
    return aggregate_from_server(config, host, packet, meta, &header, job);
  }
  if (header.type == AGGREGATE_RESULT || header.type == AGGREGATE_NAK ||
      header.type == AGGREGATE_REMIND)
    return ln_drop(host->counters, AGGREGATE_DROP_AGGREGATE_TYPE);
  below = aggregate_lookup_below(host->tables, header.job, meta->ingress);
  if (header.workers & ~below || (header.workers == 0 && header.type != AGGREGATE_REPLY))
    return ln_drop(host->counters, AGGREGATE_DROP_AGGREGATE_WORKERS);
  return aggregate_from_workers(config, host, packet, meta, &header, job);
}

#endif /* LOOMNET_EBPF_AGGREGATE_H */
