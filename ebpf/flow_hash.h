/* Where headers lie in a frame, and the hash by which ECMP tells flows. */
#ifndef LOOMNET_EBPF_FLOW_HASH_H
#define LOOMNET_EBPF_FLOW_HASH_H

#include "platform.h"

#define FORWARD_ETHERNET 14
#define FORWARD_IPV6 40
#define FORWARD_USIDS 6
#define FORWARD_ETHERTYPE_IPV6 0x86dd
#define FORWARD_NH_TCP 6
#define FORWARD_NH_UDP 17
#define FORWARD_NH_ROUTING 43

/* Flow hash: the words source (2), destination (2) and next header << 32 | source port << 16 |
 * destination port, each folded in by xor, multiply by 2^64/phi and a 32-bit xor-shift, closed by
 * the SplitMix64 finaliser. Ports are those of TCP and UDP right behind the IPv6 header, else 0.
 * The flow label stays out: Linux changes it in mid-connection. */
LN_INLINE ln_u64 forward_hash_word(ln_u64 hash, ln_u64 word) {
  hash = (hash ^ word) * LN_GOLDEN;
  return hash ^ hash >> 32;
}

LN_INLINE ln_u64 forward_flow_hash(const ln_u8* frame, const ln_u8* end, ln_u64 seed) {
  const ln_u8* ip = frame + FORWARD_ETHERNET;
  const ln_u8* ports = ip + FORWARD_IPV6;
  ln_u64 word = (ln_u64)ip[6] << 32;
  ln_u64 hash = ln_mix64(seed);
  if ((ip[6] == FORWARD_NH_TCP || ip[6] == FORWARD_NH_UDP) && ports + 4 <= end)
    word |= (ln_u64)ln_load_be16(ports) << 16 | ln_load_be16(ports + 2);
  hash = forward_hash_word(hash, ln_load_be64(ip + 8));
  hash = forward_hash_word(hash, ln_load_be64(ip + 16));
  hash = forward_hash_word(hash, ln_load_be64(ip + 24));
  hash = forward_hash_word(hash, ln_load_be64(ip + 32));
  return ln_mix64(forward_hash_word(hash, word));
}

#endif /* LOOMNET_EBPF_FLOW_HASH_H */
