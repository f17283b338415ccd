/* The forwarding entry of an optical circuit switch, and the counters of its ports. The kernel's map
 * and the engine's table hold the same bytes. */
#ifndef LOOMNET_EBPF_PANEL_ABI_H
#define LOOMNET_EBPF_PANEL_ABI_H

#include "platform.h"

#define PANEL_NO_PEER 0xffffffffu

/* Status of a simplex port, with the values of SAI's experimental OCS header. */
enum panel_status { PANEL_BLOCKED, PANEL_TUNING, PANEL_TUNED, PANEL_FAILED };

enum panel_flag {
  PANEL_FORCE_BLOCKED = 1, /* an override is set at either end */
  PANEL_SHUTTER_CLOSED = 2,
  PANEL_BELOW_LOS = 4 /* the port has failed, or the power is below the loss of signal */
};

/* Of one ingress port, in native byte order. */
struct panel_entry {
  ln_u32 peer;       /* egress port that the light leaves by, or PANEL_NO_PEER */
  ln_u8 status;      /* enum panel_status when the entry was written; for display, panel_decide() does not read it */
  ln_u8 flags;       /* enum panel_flag */
  ln_u16 reserved;   /* 0 */
  ln_u64 dark_until; /* ns of the clock that panel_decide() is called with */
  ln_u32 drop;       /* probability that a packet is lost to weak light, times 2^32 */
  ln_u32 delay;      /* 0; reserved for a delay in ns */
  ln_u64 generation; /* generation of the request that wrote the entry */
};

/* The verdict on a packet. Each verdict has a counter. */
enum panel_verdict {
  PANEL_FORWARD,
  PANEL_DROP_UNMAPPED, /* no cross-connect begins at the port */
  PANEL_DROP_BLOCKED,
  PANEL_DROP_DARK,  /* the cross-connect is not tuned yet */
  PANEL_DROP_LIGHT, /* lost to weak light, by chance */
  PANEL_VERDICTS
};

struct panel_counters {
  ln_u64 packets[PANEL_VERDICTS];
  ln_u64 bytes; /* of packets that were forwarded */
};

/* The frame that the test programs panel_ask and panel_ask_tc take: ingress port, time and random bits in, verdict
 * and egress port out. */
struct panel_question {
  ln_u32 port;
  ln_u32 verdict; /* enum panel_verdict */
  ln_u32 peer;
  ln_u32 chance; /* as panel_decide() takes it, where `now` is not 0 */
  ln_u64 generation;
  ln_u64 now; /* ns of the clock of the entries; 0: the kernel's, and its random bits */
};

#endif
