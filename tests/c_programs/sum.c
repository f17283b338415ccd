/* The program `sum` of ebpf/sum.h as one C file: held against it, packet by packet. */
#define LN_CONTRACT 1
#define LN_SUMMARY "absorbs three packets and sends the fourth with their payload bytes added"
#define LN_COUNTERS(X) \
  X(SUMMED, "summed") X(DROP_SUM_SHORT, "drop_sum_short") X(DROP_SUM_NO_ROW, "drop_sum_no_row")
#define LN_ROWS 16
#define LN_ROW(FIELD, BYTES) \
  FIELD(ln_u32, count) FIELD(ln_u32, flow) FIELD(ln_u32, message) FIELD(ln_u64, since) BYTES(bytes, 64)
#define LN_PAYLOAD_AT 62
#define LN_PAYLOAD_BYTES 64
#include <loomnet/switch_program.h>

struct ln_verdict ln_on_packet(const struct ln_options* options, struct ln_host* host, struct ln_packet* packet,
                               const struct ln_meta* meta) {
  ln_u8* udp = ln_udp(packet);
  ln_u32 flow, message, last, i;
  struct ln_row* row;
  if (!udp || ln_load_be16(udp + 2) / LN_ROWS != 0xbf00 / LN_ROWS) return ln_route(host, packet);
  if (packet->payload + LN_PAYLOAD_BYTES > packet->payload_end) return ln_drop(host->counters, DROP_SUM_SHORT);
  row = ln_row(host->state, ln_load_be16(udp + 2) % LN_ROWS);
  if (!row) return ln_drop(host->counters, DROP_SUM_NO_ROW);
  LN_LOCK(&row->lock);
  if (row->count == 0) {
    row->flow = packet->flow;
    row->message = packet->message;
    row->since = meta->now;
  }
  flow = row->flow;
  message = row->message;
  last = row->count + 1 >= 4;
  row->count = last ? 0 : row->count + 1;
  if (last) ln_edit(packet); /* before the first write into the payload */
  for (i = 0; i < LN_PAYLOAD_BYTES; i++) {
    ln_u8 sum = (ln_u8)(row->bytes[i] + packet->payload[i]);
    row->bytes[i] = last ? 0 : sum;
    if (last) packet->payload[i] = sum;
  }
  LN_UNLOCK(&row->lock);
  if (!last) return ln_absorb();
  ln_store_be16(udp + 6, 0); /* no checksum: the bytes are others now */
  ln_relabel(packet, flow, message);
  ln_count(host->counters, SUMMED);
  return ln_route(host, packet);
}
