/* What each congestion control for the kernel's TCP and its loader agree on: the names in its object.
 *   ln_slots        an array that the agent maps: a slot for each flow
 *   ln_control      the struct_ops; its name is a placeholder of 15 letters, which the loader overwrites
 *   .rodata.config  struct ln_control_config
 *   .data.counts    struct ln_control_counts
 *   ln_policy       of a control whose program can decide by itself: an array with one value, what it decides by
 *   ln_trial        the same: a program for BPF_PROG_TEST_RUN, and ln_trial_memory, an array with what it works on */
#ifndef LOOMNET_EBPF_CONTROL_ABI_H
#define LOOMNET_EBPF_CONTROL_ABI_H

#include "platform.h"

struct ln_control_config {
  ln_u32 slot_mask; /* slots - 1, a power of two less one */
  ln_u32 flags;     /* of a new flow's slot, until its agent says otherwise */
  ln_u32 decides;   /* 1: the program decides by itself, by what ln_policy holds; no agent does */
  ln_u32 reserved;
};

struct ln_control_counts {
  ln_u64 slotless; /* flows that found no free slot */
};

#endif /* LOOMNET_EBPF_CONTROL_ABI_H */
