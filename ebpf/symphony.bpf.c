/* The symphony program in the kernel. */
#include "symphony_abi.h"

#define LN_CONFIG struct symphony_config
#define LN_OWN_COUNTERS FORWARD_OWN_COUNTERS
#define LN_TABLE_ROW sizeof(struct symphony_rule)
#define LN_EGRESS_COUNTERS SYMPHONY_COUNTER_COUNT
#define LN_EGRESS_ROW struct symphony_row
#define LN_EGRESS_ROW_2 struct symphony_tally
#define LN_EGRESS_TABLES
#include "xdp_host.h"

#include "forward_kernel.h"
#include "symphony.h"

LN_INLINE const struct symphony_job* symphony_lookup_job(struct ln_tables* tables, ln_u32 job) {
  return (const struct symphony_job*)ln_find(tables, SYMPHONY_TABLE_JOB, job, 0);
}
LN_INLINE ln_u32 symphony_lookup_address(struct ln_tables* tables, ln_u64 high, ln_u64 low) {
  return forward_find(tables, SYMPHONY_TABLE_ADDRESS, high, low);
}
LN_INLINE const struct symphony_rule* symphony_lookup_flow(struct ln_tables* tables, ln_u64 ends, ln_u64 port) {
  return (const struct symphony_rule*)ln_find(tables, SYMPHONY_TABLE_FLOW, ends, port);
}

LN_INLINE struct ln_verdict ln_program(const struct symphony_config* config, struct ln_host* host,
                                       struct ln_packet* packet, const struct ln_meta* meta) {
  (void)meta;
  return symphony_ingress(config, host, packet);
}
LN_INLINE ln_u32 ln_egress_program(const struct symphony_config* config, struct ln_egress_host* host,
                                   struct ln_packet* packet, const struct ln_egress_meta* meta) {
  return symphony_egress(config, host, packet, meta);
}
