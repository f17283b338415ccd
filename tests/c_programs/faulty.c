/* Goes wrong from its second packet on, in the way that an option says. */
#define LN_CONTRACT 1
#define LN_OPTIONS(X) X(how, 0, 0, 4, "")
#define LN_ROWS 1
#define LN_ROW(FIELD, BYTES) FIELD(ln_u32, packets)
#include <loomnet/switch_program.h>

static __attribute__((noinline)) int deep(int n) {
  volatile char room[4096];
  room[0] = (char)n;
  return deep(n + 1) + room[0];
}

struct ln_verdict ln_on_packet(const struct ln_options* options, struct ln_host* host, struct ln_packet* packet,
                               const struct ln_meta* meta) {
  struct ln_row* row = ln_row(host->state, 0);
  volatile ln_u64 zero = 0, *nowhere = (volatile ln_u64*)16;
  if (row->packets++ == 0) return ln_route(host, packet);
  switch (options->how) {
    case 1:
      *nowhere = 1;
      break;
    case 2:
      zero = options->how / zero;
      break;
    case 3:
      deep(0);
      break;
    case 4:
      while (!zero) {
      }
  }
  return ln_route(host, packet);
}
