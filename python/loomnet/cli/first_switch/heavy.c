/* heavy: counts the packets and bytes of each flow, and drops what a flow sends beyond a limit. */
#define LN_CONTRACT 1
#define LN_SUMMARY "counts packets and bytes by flow, and drops those beyond a limit"

/* What it counts, beside what every switch counts. The name of a drop begins with drop_. */
#define LN_COUNTERS(X) X(COUNTED, "counted") X(DROP_BEYOND, "drop_beyond")

/* What fabric.program("*", "./heavy.c", limit=100) may set: default, least, greatest, unit. */
#define LN_OPTIONS(X) X(limit, 0, 0, 1000000000, "packets")

/* What a switch keeps: so many rows, all zeros at first, each with these fields. */
#define LN_ROWS 1024
#define LN_ROW(FIELD, BYTES) FIELD(ln_u64, packets) FIELD(ln_u64, bytes)

#include <loomnet/switch_program.h>

/* Called for each packet that comes in; says what becomes of the packet. */
struct ln_verdict ln_on_packet(const struct ln_options* options, struct ln_host* host, struct ln_packet* packet,
                               const struct ln_meta* meta) {
  ln_u64 packets;
  /* Two flows of one hash share a row: a sketch, as a switch's memory is small. */
  struct ln_row* row = ln_row(host->state, ln_flow_hash(packet, 0) % LN_ROWS);
  if (!row) return ln_route(host, packet); /* cannot happen: the verifier of the kernel asks */

  LN_LOCK(&row->lock); /* in the kernel several processors may run this */
  row->packets += 1;
  row->bytes += packet->length;
  packets = row->packets;
  LN_UNLOCK(&row->lock);

  if (options->limit && packets > options->limit) return ln_drop(host->counters, DROP_BEYOND);
  ln_count(host->counters, COUNTED);
  return ln_route(host, packet); /* on its way, as every switch would send it */
}
