/* The aggregation program in the kernel. */
#include "aggregate_abi.h"

#define LN_CONFIG struct aggregate_config
#define LN_OWN_COUNTERS AGGREGATE_OWN_COUNTERS
#define LN_STATE_ROW struct aggregate_slot
#define LN_STATE_ROWS 1 /* the loader gives it as many as the pool has slots */
#define LN_PAYLOAD_AT AGGREGATE_PAYLOAD_AT
#define LN_TABLE_ROW sizeof(struct aggregate_job)
#define LN_WANTS_CLOCK
#define LN_WANTS_LABELS
#include "xdp_host.h"

#include "aggregate.h"
#include "forward_kernel.h"

LN_INLINE const struct aggregate_job* aggregate_lookup_job(struct ln_tables* tables, ln_u32 job) {
  return (const struct aggregate_job*)ln_find(tables, AGGREGATE_TABLE_JOB, job, 0);
}
LN_INLINE ln_u64 aggregate_lookup_below(struct ln_tables* tables, ln_u32 job, ln_u32 port) {
  ln_u64* row = ln_find(tables, AGGREGATE_TABLE_BELOW, (ln_u64)job << 16 | port, 0);
  return row ? *row : 0;
}
LN_INLINE ln_u32 aggregate_lookup_worker(struct ln_tables* tables, ln_u32 job, ln_u32 worker) {
  ln_u32* row = ln_find(tables, AGGREGATE_TABLE_WORKER, (ln_u64)job << 16 | worker, 0);
  return row ? *row : 0;
}
LN_INLINE ln_u32 aggregate_lookup_hop(struct ln_tables* tables, ln_u32 job, ln_u32 hop) {
  ln_u32* row = ln_find(tables, AGGREGATE_TABLE_HOP, (ln_u64)job << 16 | hop, 0);
  return row ? *row : 0;
}

LN_INLINE struct ln_verdict ln_program(const struct aggregate_config* config, struct ln_host* host,
                                       struct ln_packet* packet, const struct ln_meta* meta) {
  return aggregate_ingress(config, host, packet, meta);
}
