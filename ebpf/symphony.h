/* Keeps the steps of a ring together: gives packets of a ring's leading senders an extra ECN mark.
 * The idea is Symphony's (Jin et al., arXiv 2604.16880), of which the abstract is known; the algorithm
 * below, the rows and the constants are our completion. Packets are never dropped, delayed or
 * reordered. Everything that does not leave by a tracked port is forward's. */
#ifndef LOOMNET_EBPF_SYMPHONY_H
#define LOOMNET_EBPF_SYMPHONY_H

#include "forward.h"
#include "symphony_identity.h"

#define SYMPHONY_DRAW 1u /* the number of its random draw */

LN_INLINE struct ln_verdict symphony_ingress(const struct symphony_config* config, struct ln_host* host,
                                             struct ln_packet* packet) {
  return forward_ingress(host->tables, &config->forward, host->counters, packet->frame, packet->end, packet->length);
}

/* Where an event of a packet is counted: of the half-link, and of the packet's job there. */
struct symphony_books {
  ln_u64* all;
  struct symphony_tally* job; /* null: the job has none */
};
LN_INLINE void symphony_count(const struct symphony_books* books, ln_u32 counter) {
  books->all[counter] += 1;
  if (books->job) books->job->counters[counter] += 1;
}
LN_INLINE void symphony_raise(const struct symphony_books* books, ln_u32 counter, ln_u64 value) {
  if (books->all[counter] < value) books->all[counter] = value;
  if (books->job && books->job->counters[counter] < value) books->job->counters[counter] = value;
}

/* The counters of a job; `claim`: it gets a free slot. */
LN_INLINE struct symphony_tally* symphony_tally_of(struct ln_egress_host* host, ln_u32 job, ln_u32 egress, int claim) {
  struct symphony_tally* tally = (struct symphony_tally*)ln_egress_row(host, 1, job & (SYMPHONY_JOB_ROWS - 1));
  if (!tally) return (struct symphony_tally*)0;
  if (tally->used && tally->job == job) return tally;
  if (!claim) return (struct symphony_tally*)0;
  if (tally->used) {
    tally = (struct symphony_tally*)ln_egress_row(host, 1, SYMPHONY_JOB_ROWS);
    if (!tally) return (struct symphony_tally*)0;
    job = 0xffff;
  }
  tally->used = 1;
  tally->job = (ln_u16)job;
  tally->egress = (ln_u16)egress;
  return tally;
}

/* The row of a key; else one that may be taken, `*found` 0, or null. */
LN_INLINE struct symphony_row* symphony_find(const struct symphony_config* config, struct ln_egress_host* host,
                                             ln_u32 kind, ln_u32 job, ln_u32 ring, ln_u32 e, int* found) {
  ln_u32 first = ((((job << 16 | ring) * 0x9e3779b1u >> 16) + kind) & config->sets) * SYMPHONY_WAYS, i;
  struct symphony_row* spare = (struct symphony_row*)0;
  *found = 0;
#if defined(__bpf__)
#pragma unroll
#endif
  for (i = 0; i < SYMPHONY_WAYS; i++) {
    struct symphony_row* row = (struct symphony_row*)ln_egress_row(host, 0, first + i);
    if (!row) return (struct symphony_row*)0;
    if (row->state & kind && row->job == job && row->ring == ring) {
      *found = 1;
      return row;
    }
    if (!spare && (row->state == SYMPHONY_FREE || e - row->e_last >= config->idle)) spare = row;
  }
  return spare;
}

LN_INLINE void symphony_init(const struct symphony_config* config, struct symphony_row* row,
                             const struct symphony_tag* tag, ln_u32 egress, ln_u32 e) {
  row->job = tag->job;
  row->ring = tag->ring;
  row->egress = (ln_u16)egress;
  row->gen = tag->gen;
  row->state = SYMPHONY_RING;
  row->low = tag->prog;
  row->owner = tag->flags & STEP_FLAG_LAST ? SYMPHONY_NONE : tag->rank;
  row->credit = config->credit;
  row->e_owner = row->e_last = row->e_epoch = row->e_init = e;
  row->pk = 1;
  row->xm = 0;
  row->marks = 0;
  row->gap = 0;
  row->nranks = tag->nranks;
  row->order = config->base == SYMPHONY_BASE_NOT_LEADER ? tag->prog : 0;
  row->spared = row->owner;
  row->e_spared = (ln_u16)e;
}

/* The place of a sender in the random order that holds while one owner follows another. */
LN_INLINE ln_u32 symphony_lot(const struct ln_egress_meta* meta, ln_u32 owners, ln_u32 rank) {
  return (ln_u32)(ln_mix64(ln_mix64(meta->seed ^ owners) + rank * LN_GOLDEN) >> 32);
}

/* Of the controls NOT_RANDOM and NOT_LEADER: `spared` changes hands by the owner's rules, in another order
 * than that of the rearmost first. 1: this packet is the spared sender's. */
LN_INLINE int symphony_spared(const struct symphony_config* config, struct symphony_row* row,
                              const struct symphony_tag* tag, ln_u32 e, const struct ln_egress_meta* meta) {
  ln_u32 stale = config->stale > 0xffffu ? 0xffffu : config->stale;
  int by_lot = config->base == SYMPHONY_BASE_NOT_RANDOM, spared;
  if (row->spared == SYMPHONY_NONE || row->spared == tag->rank ||
      (by_lot ? symphony_lot(meta, row->order, tag->rank) < symphony_lot(meta, row->order, row->spared)
              : (ln_s32)(tag->prog - row->order) > 0) ||
      (ln_u32)(ln_u16)((ln_u16)e - row->e_spared) >= stale) {
    if (!by_lot) row->order = tag->prog;
    row->spared = tag->rank;
    row->e_spared = (ln_u16)e;
  }
  spared = row->spared == tag->rank;
  if (spared && tag->flags & STEP_FLAG_LAST) row->spared = SYMPHONY_NONE;
  return spared;
}

/* Where in progress a connection's packet is; 0: its beginning was not seen. */
LN_INLINE int symphony_progress(const struct symphony_config* config, struct ln_egress_host* host,
                                const struct symphony_sequence* seen, ln_u32 e, struct symphony_tag* tag) {
  const struct symphony_rule* rule = seen->rule;
  struct symphony_row* row;
  int found;
  symphony_tag_by(rule, tag);
  if (rule->mtu) {
    tag->prog = (seen->number - rule->base) << (rule->mtu & 31);
    return 1;
  }
  if (rule->known) {
    tag->prog = seen->number - rule->base;
    return !seen->opens;
  }
  row = symphony_find(config, host, SYMPHONY_FLOW, rule->number & 0xffff, rule->number >> 16, e, &found);
  if (!row || (!found && !seen->opens)) return 0;
  row->e_last = e;
  if (seen->opens) {
    row->job = (ln_u16)rule->number;
    row->ring = (ln_u16)(rule->number >> 16);
    row->state = SYMPHONY_FLOW;
    row->low = seen->number + 1;
    return 0;
  }
  tag->prog = seen->number - row->low;
  return 1;
}

/* One packet of a ring on the ring's row: what becomes of it, enum ln_egress_action. `low` follows the
 * rearmost sender that is still sending, its owner: the owner's own packets move it, a packet farther behind
 * takes it over, and the last packet of a step releases it. `waiting` packets of `bytes` stay behind. */
LN_INLINE ln_u32 symphony_row_mark(const struct symphony_config* config, struct symphony_row* row, int found,
                                   const struct symphony_tag* tag, const struct symphony_books* books, ln_u32 egress,
                                   ln_u32 e, ln_u32 waiting, ln_u64 bytes, int unmarkable,
                                   const struct ln_egress_meta* meta, ln_s32* ahead) {
  ln_s32 d, gap;
  int spared;
  if (!found || row->gen != tag->gen || e - row->e_last >= config->idle) {
    symphony_init(config, row, tag, egress, e);
    symphony_count(books, SYMPHONY_INIT);
    return LN_EGRESS_LEAVE;
  }
  row->e_last = e;
  if (e != row->e_epoch) {
    ln_u32 n = e - row->e_epoch, credit = row->credit;
    if (n > 256) n = 256;
    credit += n - 1;
    credit = row->xm ? credit - (credit > 0) : credit + 1;
    row->credit = (ln_u8)(credit > config->credit ? config->credit : credit);
    row->pk = row->xm = 0;
    row->e_epoch = e;
  }
  row->pk += 1;
  if (!(row->state & SYMPHONY_ACT) && e - row->e_init >= config->warm) row->state |= SYMPHONY_ACT;
  d = (ln_s32)(tag->prog - row->low);
  if (d > (ln_s32)tag->g || d < -(ln_s32)tag->g) {
    symphony_init(config, row, tag, egress, e);
    symphony_count(books, SYMPHONY_INIT);
    symphony_count(books, SYMPHONY_IMPLAUSIBLE);
    return LN_EGRESS_LEAVE;
  }
  if (row->owner == SYMPHONY_NONE || row->owner == tag->rank || d < 0 || e - row->e_owner >= config->stale) {
    if (row->owner != SYMPHONY_NONE && row->owner != tag->rank && d >= 0) symphony_count(books, SYMPHONY_STALE);
    if (config->base == SYMPHONY_BASE_NOT_RANDOM) row->order += row->owner != tag->rank;
    row->low = tag->prog;
    row->owner = tag->rank;
    row->e_owner = e;
  }
  gap = (ln_s32)((tag->prog & config->mask) - (row->low & config->mask));
  *ahead = gap;
  spared = config->base == SYMPHONY_BASE_NOT_OWNER ? row->owner == tag->rank
           : config->base == SYMPHONY_BASE_LEADERS ? gap <= (ln_s32)tag->tau
           : config->base == SYMPHONY_BASE_ALL     ? 0
                                                   : symphony_spared(config, row, tag, e, meta);
  if (tag->flags & STEP_FLAG_LAST && row->owner == tag->rank) row->owner = SYMPHONY_NONE;
  if (gap > 0) {
    if (row->gap < (ln_u32)gap) row->gap = (ln_u32)gap;
    symphony_raise(books, SYMPHONY_GAP, (ln_u64)gap);
  }
  if (!(row->state & SYMPHONY_ACT)) return LN_EGRESS_LEAVE;
  if (meta->own_mark && spared) return LN_EGRESS_UNMARK;
  if (gap <= (ln_s32)tag->tau) return LN_EGRESS_LEAVE;
  if (unmarkable) return LN_EGRESS_LEAVE;
  if (waiting < config->gate || bytes < config->gate_bytes) return LN_EGRESS_LEAVE;
  if (config->credit && row->credit == 0) {
    symphony_count(books, SYMPHONY_NO_CREDIT);
    return LN_EGRESS_LEAVE;
  }
  if (tag->mode == SYMPHONY_SPACED) {
    if (row->xm) return LN_EGRESS_LEAVE;
  } else {
    ln_u32 over = (ln_u32)gap - tag->tau;
    if (2 * row->xm >= row->pk) return LN_EGRESS_LEAVE;
    if (over < tag->span && ((ln_u32)(ln_egress_rand(meta, SYMPHONY_DRAW) >> 32) & (tag->span - 1)) >= over)
      return LN_EGRESS_LEAVE;
  }
  row->xm += 1;
  row->marks += 1;
  return LN_EGRESS_MARK;
}

LN_INLINE ln_u32 symphony_egress(const struct symphony_config* config, struct ln_egress_host* host,
                                 struct ln_packet* packet, const struct ln_egress_meta* meta) {
  struct symphony_place place;
  struct symphony_tag tag;
  struct symphony_books books;
  struct symphony_row* row;
  ln_u32 e, queue = meta->queue & (LN_CLASSES - 1), waiting = meta->packets[queue];
  ln_u32 job_g = 0, action;
  ln_s32 gap = 0;
  int tagged = 0, found = 0;
  if (!config->enable) return LN_EGRESS_LEAVE;
  books.all = host->counters;
  books.job = (struct symphony_tally*)0;
  e = (ln_u32)(meta->now / 1000 >> config->shift);
  tag.mode = config->mode;
  tag.whole = 0;
  place.protocol = 0;
  if (config->identity != SYMPHONY_NOTHING) symphony_locate(packet, &place);
  if (place.protocol) {
    if (config->identity == SYMPHONY_HDR) {
      tagged = symphony_read_header(packet, &place, &tag);
    } else if (config->identity == SYMPHONY_SPORT) {
      tagged = symphony_read_port(host, packet, &place, &tag);
    } else {
      struct symphony_sequence seen;
      symphony_read_sequence(host, packet, &place, &seen);
      if (seen.rule) tagged = symphony_progress(config, host, &seen, e, &tag);
    }
  }
  if (!tagged) {
    symphony_count(&books, SYMPHONY_BYPASS);
    return LN_EGRESS_LEAVE;
  }
  if (config->jobs != SYMPHONY_ANY_JOB) {
    struct ln_tables* tables = ln_egress_tables(host);
    const struct symphony_job* job = tables ? symphony_lookup_job(tables, tag.job) : (const struct symphony_job*)0;
    tagged = job && job->enable;
    if (job) {
      tag.mode = job->mode;
      job_g = job->g;
    }
  }
  if (!tagged || tag.flags & STEP_FLAG_OTHER || tag.nranks < 2 || tag.nranks > SYMPHONY_MAX_RANKS ||
      tag.rank >= tag.nranks) {
    books.job = symphony_tally_of(host, tag.job, meta->port, 0);
    symphony_count(&books, SYMPHONY_BYPASS);
    return LN_EGRESS_LEAVE;
  }
  books.job = symphony_tally_of(host, tag.job, meta->port, 1);
  symphony_count(&books, SYMPHONY_TAGGED);
  symphony_thresholds(config, job_g, &tag);
  action = LN_EGRESS_LEAVE;
  row = (struct symphony_row*)0;
  if (!config->retx || !(tag.flags & STEP_FLAG_AGAIN)) {
    row = symphony_find(config, host, SYMPHONY_RING, tag.job, tag.ring, e, &found);
    if (row)
      action = symphony_row_mark(config, row, found, &tag, &books, meta->port, e, waiting, meta->queued[queue],
                                 meta->marked || place.ecn == 3 || place.ecn == 0, meta, &gap);
    else
      symphony_count(&books, SYMPHONY_NO_ROW);
  }
  if (action == LN_EGRESS_UNMARK)
    symphony_count(&books, SYMPHONY_UNMARKED);
  else if (meta->marked)
    symphony_count(&books, SYMPHONY_BASE);
  if (!row || action != LN_EGRESS_MARK) return action;
  symphony_count(&books, SYMPHONY_EXTRA);
  /* The owner's own packets have no gap, so a marked packet has not released its witness. */
  host->note[SYMPHONY_NOTE_job] = tag.job;
  host->note[SYMPHONY_NOTE_ring] = tag.ring;
  host->note[SYMPHONY_NOTE_rank] = tag.rank;
  host->note[SYMPHONY_NOTE_prog] = tag.prog;
  host->note[SYMPHONY_NOTE_owner] = row->owner;
  host->note[SYMPHONY_NOTE_low] = row->low;
  host->note[SYMPHONY_NOTE_gap] = (ln_u32)gap;
  host->note[SYMPHONY_NOTE_waiting] = waiting;
  return LN_EGRESS_MARK;
}

#endif /* LOOMNET_EBPF_SYMPHONY_H */
