/* The aggregation program: sums gradient fragments in the switch's memory, by the rules of SwitchML,
 * ATP or ESA, and forwards everything else. aggregate_abi.h has the formats. Rules for a packet on its way
 * to the server, by their names in comments here and in tests:
 *   S0   it holds all workers below this switch: it goes up as AGG and needs no slot
 *   S1   it may use no slot (RESEND, EVICT, REPLY, BYPASS, FLOATS): it goes up as it is
 *   S2   the slot is free and had this fragment last: it goes up with BYPASS
 *   S3   the slot is free, or was just freed: the packet claims it
 *   S4   the slot keeps the fragment's whole sum: that goes up once more
 *   S5   the slot's sum has none of its workers: it is added, and a whole sum leaves
 *   S6   the slot's sum has all of its workers: it is absorbed
 *   S7   the slot's sum has some of its workers: it goes up with BYPASS
 *   S8   the slot has a fragment of its job that is a window or more older: the slot is freed
 *   S9   the slot has a fragment of its job that is a window or more newer: it is absorbed
 *   S10  dealloc "lazy", and the slot's sum is whole: the slot is freed
 *   S11  ESA, and the slot has a lower priority: they are swapped, and the slot's sum goes up as EVICT
 *   S12  anything else: it collides and goes up with BYPASS; ESA lowers the slot's priority */
#ifndef LOOMNET_EBPF_AGGREGATE_H
#define LOOMNET_EBPF_AGGREGATE_H

#include "aggregate_dynamic.h"
#include "aggregate_static.h"
#include "forward.h"

/* Lookups, each build's own: a job's row or null, the workers below a port (0: none), and a port with
 * AGGREGATE_FOUND above it (0: none). */
LN_INLINE const struct aggregate_job* aggregate_lookup_job(struct ln_tables* tables, ln_u32 job);
LN_INLINE ln_u64 aggregate_lookup_below(struct ln_tables* tables, ln_u32 job, ln_u32 port);
LN_INLINE ln_u32 aggregate_lookup_worker(struct ln_tables* tables, ln_u32 job, ln_u32 worker);
LN_INLINE ln_u32 aggregate_lookup_hop(struct ln_tables* tables, ln_u32 job, ln_u32 hop);

/* Whether each job has slots of its own, in which its packets are sent again as they were (SwitchML). */
LN_INLINE int aggregate_own_slots(const struct aggregate_config* config) {
  return config->resends == AGGREGATE_RESENDS_AGAIN;
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
LN_INLINE struct ln_verdict aggregate_from_server(const struct aggregate_config* config, struct ln_host* host,
                                                  struct ln_packet* packet, const struct ln_meta* meta,
                                                  struct aggregate_header* header, const struct aggregate_job* job) {
  struct aggregate_slot* slot = (struct aggregate_slot*)0;
  ln_u32 port, held;
  if (header->type == AGGREGATE_REMIND && header->hop != config->hop) {
    port = aggregate_lookup_hop(host->tables, header->job, header->hop);
    if (!(port & AGGREGATE_FOUND)) return ln_drop(host->counters, AGGREGATE_DROP_AGGREGATE_NO_HOP);
    ln_count(host->counters, AGGREGATE_DOWNWARDS);
    return ln_forward(port & 0xffff);
  }
  if (header->type == AGGREGATE_NAK) return aggregate_down(host, header, job);
  if (config->slots && !aggregate_own_slots(config) && job->scheme == config->policy)
    slot = (struct aggregate_slot*)ln_row(host->state, header->index % config->slots);
  if (header->type == AGGREGATE_RESULT) {
    if (slot) {
      LN_LOCK(&slot->lock);
      held = slot->state != AGGREGATE_FREE && slot->job == header->job + 1u && slot->sequence == header->sequence;
      if (held) aggregate_free(slot, host->counters, meta);
      LN_UNLOCK(&slot->lock);
      if (held) ln_count(host->counters, AGGREGATE_RELEASE);
    }
    return aggregate_down(host, header, job);
  }
  /* REMIND: of full length, because a frame cannot grow. */
  if (!aggregate_long_enough(config, packet)) return ln_drop(host->counters, AGGREGATE_DROP_AGGREGATE_SHORT);
  held = 0;
  if (slot) {
    LN_LOCK(&slot->lock);
    held = slot->state != AGGREGATE_FREE && slot->job == header->job + 1u && slot->sequence == header->sequence;
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

/* Upwards, with the header that the packet has now. */
LN_INLINE struct ln_verdict aggregate_up(struct ln_host* host, struct ln_packet* packet,
                                         struct aggregate_header* header, const struct aggregate_job* job) {
  const int whole = job->root == AGGREGATE_ANSWERS && header->type == AGGREGATE_AGG && header->workers == job->workers;
  if (whole) {
    ln_count(host->counters, AGGREGATE_ANSWERED);
    header->type = AGGREGATE_RESULT;
    header->next_index = AGGREGATE_NO_INDEX;
  }
  aggregate_store(packet->frame + AGGREGATE_AT, header);
  return whole ? ln_replicate(job->all) : ln_forward(job->up);
}

LN_INLINE struct ln_verdict aggregate_from_workers(const struct aggregate_config* config, struct ln_host* host,
                                                   struct ln_packet* packet, const struct ln_meta* meta,
                                                   struct aggregate_header* header, const struct aggregate_job* job) {
  ln_u8* at = packet->frame + AGGREGATE_AT;
  ln_u8* ip = packet->frame + FORWARD_ETHERNET;
  const int boot = header->flags & AGGREGATE_BOOT;
  const int flush = header->type == AGGREGATE_RESEND && config->resends == AGGREGATE_RESENDS_FLUSHING;
  const int own_slots = aggregate_own_slots(config);
  const struct aggregate_job* victim = (const struct aggregate_job*)0;
  struct aggregate_slot* slot;
  struct aggregate_slot* other = (struct aggregate_slot*)0;
  ln_u32 end, owner = 0, index;

  if (!boot && !aggregate_long_enough(config, packet)) return ln_drop(host->counters, AGGREGATE_DROP_AGGREGATE_SHORT);
  if (((ip[1] >> 4) & 3) == 3) header->flags |= AGGREGATE_ECN; /* CE */
  if ((header->type != AGGREGATE_DATA && header->type != AGGREGATE_AGG && !flush) ||
      header->flags & (AGGREGATE_BYPASS | AGGREGATE_FLOATS) || job->scheme != config->policy || config->slots == 0) {
    ln_count(host->counters, AGGREGATE_UPWARDS); /* S1 */
    aggregate_store(at, header);
    return ln_forward(job->up);
  }
  if (header->workers == job->workers && !flush && !(own_slots && job->root)) { /* S0 */
    ln_count(host->counters, AGGREGATE_SOLE);
    header->type = AGGREGATE_AGG;
    return aggregate_up(host, packet, header, job);
  }
  if (own_slots) {
    const ln_u32 turn = 2 * job->window;
    if (turn == 0) return ln_drop(host->counters, AGGREGATE_DROP_AGGREGATE_SHORT);
    index = job->base + header->index % turn;
    if (!config->generation_check) /* the same place in the other set */
      other = (struct aggregate_slot*)ln_row(host->state,
                                             (job->base + (header->index + job->window) % turn) % config->slots);
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
  if (!own_slots) {
    /* Looked up before the lock is taken, under which nothing may be; whether it still holds is seen
     * then, and if it does not the packet collides, which is always right. */
    owner = slot->job;
    if (owner) victim = aggregate_lookup_job(host->tables, owner - 1);
  }
  LN_LOCK(&slot->lock);
  if (own_slots) {
    end = aggregate_static(config, host, packet, meta, header, job, slot);
  } else if (flush) {
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
  if (end == AGGREGATE_SUM_UP) return aggregate_up(host, packet, header, job);
  ln_count(host->counters, AGGREGATE_UPWARDS);
  return ln_forward(job->up);
}

LN_INLINE struct ln_verdict aggregate_ingress(const struct aggregate_config* config, struct ln_host* host,
                                              struct ln_packet* packet, const struct ln_meta* meta) {
  const ln_u8* ip = packet->frame + FORWARD_ETHERNET;
  struct aggregate_header header;
  const struct aggregate_job* job;
  ln_u64 below;
  if (packet->frame + AGGREGATE_PAYLOAD_AT > packet->end || ip[0] >> 4 != 6 ||
      ln_load_be16(packet->frame + 12) != FORWARD_ETHERTYPE_IPV6 || ip[6] != FORWARD_NH_UDP ||
      ln_load_be16(ip + FORWARD_IPV6 + 2) != AGGREGATE_UDP_PORT)
    return forward_ingress(host->tables, &config->forward, host->counters, packet->frame, packet->end, packet->length);
  aggregate_load(&header, packet->frame + AGGREGATE_AT);
  job = aggregate_lookup_job(host->tables, header.job);
  if (!job) /* no part of the job's tree */
    return forward_ingress(host->tables, &config->forward, host->counters, packet->frame, packet->end, packet->length);
  if (header.version_scheme >> 4 != AGGREGATE_VERSION) return ln_drop(host->counters, AGGREGATE_DROP_AGGREGATE_VERSION);
  if ((header.version_scheme & 15) != job->scheme || header.type >= AGGREGATE_TYPES)
    return ln_drop(host->counters, AGGREGATE_DROP_AGGREGATE_TYPE);
  /* By type and not by port alone: a server may be on the host of one of its workers. */
  if (header.type == AGGREGATE_RESULT || header.type == AGGREGATE_NAK || header.type == AGGREGATE_REMIND) {
    if (meta->ingress != job->up) return ln_drop(host->counters, AGGREGATE_DROP_AGGREGATE_TYPE);
    return aggregate_from_server(config, host, packet, meta, &header, job);
  }
  below = aggregate_lookup_below(host->tables, header.job, meta->ingress);
  if (header.workers & ~below || (header.workers == 0 && header.type != AGGREGATE_REPLY))
    return ln_drop(host->counters, AGGREGATE_DROP_AGGREGATE_WORKERS);
  return aggregate_from_workers(config, host, packet, meta, &header, job);
}

#endif /* LOOMNET_EBPF_AGGREGATE_H */
