/* Forward's lookups in the kernel: included by forward.bpf.c, and by any program that falls through to
 * forward.h, behind xdp_host.h. */
#ifndef LOOMNET_EBPF_FORWARD_KERNEL_H
#define LOOMNET_EBPF_FORWARD_KERNEL_H

#include "forward.h"

LN_INLINE ln_u32 forward_find(struct ln_tables* tables, ln_u32 table, ln_u64 high, ln_u64 low) {
  ln_u32* row = ln_find(tables, table, high, low);
  return row ? *row : 0;
}
LN_INLINE ln_u32 forward_lookup_sid(struct ln_tables* tables, ln_u64 block_and_usid) {
  return forward_find(tables, FORWARD_TABLE_SID, block_and_usid, 0);
}
LN_INLINE ln_u32 forward_lookup_host(struct ln_tables* tables, ln_u64 high, ln_u64 low) {
  return forward_find(tables, FORWARD_TABLE_HOST, high, low);
}
LN_INLINE ln_u32 forward_lookup_member(struct ln_tables* tables, ln_u32 group, ln_u32 index) {
  return forward_find(tables, FORWARD_TABLE_MEMBER, group, index);
}

#endif /* LOOMNET_EBPF_FORWARD_KERNEL_H */
