/* The step header: 16 bytes behind UDP that say how far a packet's sender is in its ring, for switch
 * programs that compare the senders of one ring. An addition of Loomnet's: the publication (Symphony,
 * arXiv 2604.16880) carries the step in the UDP source port. */
#ifndef LOOMNET_EBPF_STEP_HEADER_H
#define LOOMNET_EBPF_STEP_HEADER_H

#include "platform.h"

#define STEP_UDP_PORT 18771u /* UDP destination of packets that carry the header */
#define STEP_HEADER_BYTES 16u
#define STEP_MAGIC 0x5359u
#define STEP_VERSION 1u

#define STEP_FLAG_OTHER 1u /* C: in no ring's step, or control */
#define STEP_FLAG_LAST 2u  /* L: the last packet of its sender's step */
#define STEP_FLAG_AGAIN 4u /* R: a retransmission */

/* Big-endian on the wire, in this order; version and flags share a byte, version in the high half. */
struct step_header {
  ln_u8 flags;
  ln_u8 gen; /* +1 each time the communicator is made again */
  ln_u16 job;
  ln_u16 ring; /* communicator and channel */
  ln_u16 rank;
  ln_u16 nranks;
  ln_u32 prog; /* ring steps since the communicator was made, Q16.16, modulo 2^32 */
};

LN_INLINE void step_header_store(ln_u8* p, const struct step_header* header) {
  ln_store_be16(p, STEP_MAGIC);
  p[2] = (ln_u8)(STEP_VERSION << 4 | (header->flags & 0xfu));
  p[3] = header->gen;
  ln_store_be16(p + 4, header->job);
  ln_store_be16(p + 6, header->ring);
  ln_store_be16(p + 8, header->rank);
  ln_store_be16(p + 10, header->nranks);
  ln_store_be16(p + 12, (ln_u16)(header->prog >> 16));
  ln_store_be16(p + 14, (ln_u16)header->prog);
}

/* 1 where the 16 bytes at `p` are a step header of this version. */
LN_INLINE int step_header_load(const ln_u8* p, struct step_header* header) {
  if (ln_load_be16(p) != STEP_MAGIC || p[2] >> 4 != STEP_VERSION) return 0;
  header->flags = p[2] & 0xf;
  header->gen = p[3];
  header->job = ln_load_be16(p + 4);
  header->ring = ln_load_be16(p + 6);
  header->rank = ln_load_be16(p + 8);
  header->nranks = ln_load_be16(p + 10);
  header->prog = (ln_u32)ln_load_be16(p + 12) << 16 | ln_load_be16(p + 14);
  return 1;
}

#endif /* LOOMNET_EBPF_STEP_HEADER_H */
