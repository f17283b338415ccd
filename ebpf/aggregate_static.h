/* The rules of SwitchML: each job has slots of its own, in two sets that take turns. */
#ifndef LOOMNET_EBPF_AGGREGATE_STATIC_H
#define LOOMNET_EBPF_AGGREGATE_STATIC_H

#include "aggregate_slot.h"

/* SwitchML: the sum is whole and leaves, upwards or, from the root, to `workers`. */
LN_INLINE ln_u32 aggregate_static_sum(const struct aggregate_config* config, struct ln_packet* packet,
                                      struct aggregate_header* header, const struct aggregate_job* job,
                                      const struct aggregate_slot* slot) {
  ln_relabel(packet, slot->flow, slot->message);
  aggregate_show(config, slot, header, job->root ? AGGREGATE_RESULT : AGGREGATE_AGG);
  header->workers = job->workers;
  return job->root ? AGGREGATE_SUM_DOWN : AGGREGATE_SUM_UP;
}

/* DATA and AGG under SwitchML: the slot is the fragment's own for as long as its window turns. Without
 * the generation check the published program's rule holds: a part is a duplicate where its bit is set,
 * the first part after all bits were cleared overwrites, and `missing` alone says when the sum is whole. */
LN_INLINE ln_u32 aggregate_static(const struct aggregate_config* config, struct ln_host* host, struct ln_packet* packet,
                                  const struct ln_meta* meta, struct aggregate_header* header,
                                  const struct aggregate_job* job, struct aggregate_slot* slot) {
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

#endif /* LOOMNET_EBPF_AGGREGATE_STATIC_H */
