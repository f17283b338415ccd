/* The decision of an optical circuit switch on one packet: forward it, or drop it for a reason. The decision
 * depends on the ingress port's entry and on the time alone; no byte of the packet is read. The entry holds the
 * time at which its dark time ends, so the port forwards again without any action of userspace. */
#ifndef LOOMNET_EBPF_PANEL_H
#define LOOMNET_EBPF_PANEL_H

#include "panel_abi.h"

/* `chance`: 32 random bits, looked at only where the entry has a drop probability. */
LN_INLINE enum panel_verdict panel_decide(const struct panel_entry* entry, ln_u64 now_ns, ln_u32 chance) {
  if (entry->peer == PANEL_NO_PEER) return PANEL_DROP_UNMAPPED;
  if (entry->flags) return PANEL_DROP_BLOCKED;
  if (now_ns < entry->dark_until) return PANEL_DROP_DARK;
  if (chance < entry->drop) return PANEL_DROP_LIGHT;
  return PANEL_FORWARD;
}

#endif
