/* How a frame carries its identity through an XDP switch and its verdict back to the engine: the
 * uid as a locally administered source MAC, the verdict as XDP metadata in front of the frame, or in a
 * ring where no frame comes back. */
#ifndef LOOMNET_EBPF_METADATA_H
#define LOOMNET_EBPF_METADATA_H

#include "platform.h"

/* "LNFW" read as a little-endian word; a frame without it came from no switch program. */
#define LN_METADATA_MAGIC 0x57464e4cu

struct ln_metadata {
  ln_u32 magic;
  ln_u16 ingress;    /* port it came in through */
  ln_u16 action;     /* enum ln_action */
  ln_u16 value;      /* of the verdict: egress port or group */
  ln_u16 flags;      /* LN_META_* */
  ln_u32 generation; /* of the tables that decided */
};
#define LN_META_RELABELLED 1u /* a struct ln_label lies in front of this structure */
#define LN_META_CUT 2u        /* the program has cut the frame's tail */

struct ln_label {
  ln_u32 flow;
  ln_u32 message;
};

/* A packet that does not come back (absorbed, passed, dropped) is reported by its uid, in a ring. */
struct ln_report {
  ln_u64 uid;
  ln_u32 generation;
  ln_u16 action; /* enum ln_action */
  ln_u16 value;  /* of a drop: the reason */
};

/* 46 bits: the first byte's two low bits say unicast and locally administered. */
#define LN_UID_BITS 46
#define LN_UID_MASK ((1ull << LN_UID_BITS) - 1)

LN_INLINE void ln_uid_to_mac(ln_u64 uid, ln_u8* mac) {
  mac[0] = (ln_u8)((uid >> 40 & 0x3f) << 2 | 0x02);
  mac[1] = (ln_u8)(uid >> 32);
  mac[2] = (ln_u8)(uid >> 24);
  mac[3] = (ln_u8)(uid >> 16);
  mac[4] = (ln_u8)(uid >> 8);
  mac[5] = (ln_u8)uid;
}

/* The uid, or 0 (never a uid) where the address is not a locally administered unicast one. */
LN_INLINE ln_u64 ln_uid_from_mac(const ln_u8* mac) {
  if ((mac[0] & 0x03) != 0x02) return 0;
  return (ln_u64)(mac[0] >> 2) << 40 | (ln_u64)mac[1] << 32 | (ln_u64)mac[2] << 24 | (ln_u64)mac[3] << 16 |
         (ln_u64)mac[4] << 8 | (ln_u64)mac[5];
}

#endif /* LOOMNET_EBPF_METADATA_H */
