/* The rules of ATP and ESA: any fragment may claim any slot. */
#ifndef LOOMNET_EBPF_AGGREGATE_DYNAMIC_H
#define LOOMNET_EBPF_AGGREGATE_DYNAMIC_H

#include "aggregate_slot.h"

/* DATA and AGG under ATP and ESA, S2 to S12. `owner`, `victim`: the slot's owner as read before the lock
 * was taken, and that job's row. */
LN_INLINE ln_u32 aggregate_dynamic(const struct aggregate_config* config, struct ln_host* host,
                                   struct ln_packet* packet, const struct ln_meta* meta,
                                   struct aggregate_header* header, const struct aggregate_job* job,
                                   struct aggregate_slot* slot, ln_u32 owner, const struct aggregate_job* victim) {
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
        if (!(header->flags & AGGREGATE_BOOT)) left = aggregate_values(config, slot, packet, AGGREGATE_ADD);
        if (left) slot->flags |= AGGREGATE_OVERFLOW, ln_count(counters, AGGREGATE_SATURATED);
        return AGGREGATE_ABSORB;
      }
      ln_count(counters, AGGREGATE_COMPLETE);
      ln_edit(packet);
      if (!(header->flags & AGGREGATE_BOOT)) left = aggregate_values(config, slot, packet, AGGREGATE_FINISH);
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
    ln_count(counters, AGGREGATE_TAKEOVER); /* S8: a worker that lacks the older result asks for it */
    aggregate_free(slot, counters, meta);
  } else if (mine && (ln_s32)(slot->sequence - header->sequence) >= (ln_s32)job->window) {
    ln_count(counters, AGGREGATE_GHOST); /* S9 */
    return AGGREGATE_ABSORB;
  } else if (slot->job == owner && !victim) {
    ln_count(counters, AGGREGATE_TAKEOVER); /* of a job that has ended */
    aggregate_free(slot, counters, meta);
  } else if (slot->state == AGGREGATE_DONE && config->dealloc == AGGREGATE_LAZILY) {
    aggregate_free(slot, counters, meta); /* S10 */
  } else if (config->preempts && header->priority > slot->priority && slot->job == owner &&
             !(header->flags & AGGREGATE_BOOT)) { /* S11 */
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
    if (config->preempts && config->downgrade && config->downgrade_every &&
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
LN_INLINE ln_u32 aggregate_flush(const struct aggregate_config* config, struct ln_host* host, struct ln_packet* packet,
                                 const struct ln_meta* meta, struct aggregate_header* header,
                                 struct aggregate_slot* slot) {
  const ln_u8 source = header->source;
  ln_u32 left = 0, how = AGGREGATE_READ;
  if (slot->state == AGGREGATE_FREE || slot->job != header->job + 1u || slot->sequence != header->sequence ||
      (slot->flags ^ header->flags) & AGGREGATE_BOOT)
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

#endif /* LOOMNET_EBPF_AGGREGATE_DYNAMIC_H */
