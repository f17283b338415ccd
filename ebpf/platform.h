/* What both builds offer a switch program: types, byte order, counters, meta and verdict. The same
 * program compiles with clang -target bpf for the kernel (XDP), as C and as C++20 for the engine.
 */
#ifndef LOOMNET_EBPF_PLATFORM_H
#define LOOMNET_EBPF_PLATFORM_H

#if defined(__bpf__)
/* libbpf's helpers need the kernel's types before them. */
/* clang-format off */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
/* clang-format on */
typedef __u8 ln_u8;
typedef __u16 ln_u16;
typedef __u32 ln_u32;
typedef __u64 ln_u64;
typedef __s32 ln_s32;
#define LN_INLINE static __always_inline
#define LN_LIKELY(x) __builtin_expect(!!(x), 1)
#define LN_UNLIKELY(x) __builtin_expect(!!(x), 0)
/* Shared state of one map value: a lock in the kernel, nothing in the engine's single thread. */
#define LN_LOCK(lock) bpf_spin_lock(lock)
#define LN_UNLOCK(lock) bpf_spin_unlock(lock)
#else
#include <stdint.h>
#include <string.h>
typedef uint8_t ln_u8;
typedef uint16_t ln_u16;
typedef uint32_t ln_u32;
typedef uint64_t ln_u64;
typedef int32_t ln_s32;
#define LN_INLINE static inline __attribute__((always_inline, unused))
#define LN_LIKELY(x) __builtin_expect(!!(x), 1)
#define LN_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define LN_LOCK(lock) ((void)(lock))
#define LN_UNLOCK(lock) ((void)(lock))
#endif

/* Ports are numbered from 0 in every switch; an XDP switch has at most this many. */
#define LN_MAX_XDP_PORTS 128u

/* --- bytes: network order in packets, host order in variables --- */

#if defined(__bpf__)
/* Packet memory may be read at any width; may_alias keeps the compiler from reordering. */
typedef ln_u16 __attribute__((may_alias)) ln_raw16;
typedef ln_u64 __attribute__((may_alias)) ln_raw64;
LN_INLINE ln_u16 ln_raw_load16(const ln_u8* p) { return *(const ln_raw16*)p; }
LN_INLINE ln_u64 ln_raw_load64(const ln_u8* p) { return *(const ln_raw64*)p; }
LN_INLINE void ln_raw_store16(ln_u8* p, ln_u16 v) { *(ln_raw16*)p = v; }
LN_INLINE void ln_raw_store64(ln_u8* p, ln_u64 v) { *(ln_raw64*)p = v; }
#else
LN_INLINE ln_u16 ln_raw_load16(const ln_u8* p) {
  ln_u16 v;
  memcpy(&v, p, sizeof v);
  return v;
}
LN_INLINE ln_u64 ln_raw_load64(const ln_u8* p) {
  ln_u64 v;
  memcpy(&v, p, sizeof v);
  return v;
}
LN_INLINE void ln_raw_store16(ln_u8* p, ln_u16 v) { memcpy(p, &v, sizeof v); }
LN_INLINE void ln_raw_store64(ln_u8* p, ln_u64 v) { memcpy(p, &v, sizeof v); }
#endif

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define LN_SWAP16(v) __builtin_bswap16(v)
#define LN_SWAP64(v) __builtin_bswap64(v)
#else
#define LN_SWAP16(v) (v)
#define LN_SWAP64(v) (v)
#endif

LN_INLINE ln_u16 ln_load_be16(const ln_u8* p) { return (ln_u16)LN_SWAP16(ln_raw_load16(p)); }
LN_INLINE ln_u64 ln_load_be64(const ln_u8* p) { return LN_SWAP64(ln_raw_load64(p)); }
LN_INLINE void ln_store_be16(ln_u8* p, ln_u16 v) { ln_raw_store16(p, (ln_u16)LN_SWAP16(v)); }
LN_INLINE void ln_store_be64(ln_u8* p, ln_u64 v) { ln_raw_store64(p, LN_SWAP64(v)); }

/* --- randomness and hashes: the SplitMix64 finaliser, as core/clock/random.hpp --- */

#define LN_GOLDEN 0x9e3779b97f4a7c15ull

LN_INLINE ln_u64 ln_mix64(ln_u64 x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/* --- meta: what a program is told beside the bytes --- */

struct ln_meta {
  ln_u64 now;      /* emulated picoseconds; 0 where a program that reads no clock is entered */
  ln_u64 seed;     /* of the run and switch */
  ln_u64 sequence; /* packets that came in through `ingress` before this one */
  ln_u32 ingress;  /* port number */
};

/* rand = hash(seed, program, ingress, sequence): computed only by a program that asks for it. */
LN_INLINE ln_u64 ln_rand(const struct ln_meta* meta, ln_u32 program) {
  ln_u64 key = ln_mix64(meta->seed + LN_GOLDEN) ^ ((ln_u64)program << 32 | meta->ingress);
  return ln_mix64(ln_mix64(key) + meta->sequence * LN_GOLDEN);
}

/* --- verdict --- */

enum ln_action {
  LN_FORWARD = 1,   /* value = egress port */
  LN_DROP = 2,      /* value = reason: the program's counter of that drop */
  LN_REPLICATE = 3, /* value = group: one copy per member, the bytes as they are now */
  LN_REPLY = 4,     /* value = egress port: the program turned the packet into an answer */
  LN_PASS = 5,      /* to the node's own stack */
};

struct ln_verdict {
  ln_u16 action; /* enum ln_action */
  ln_u16 value;
};

LN_INLINE struct ln_verdict ln_verdict_of(ln_u32 action, ln_u32 value) {
  struct ln_verdict verdict;
  verdict.action = (ln_u16)action;
  verdict.value = (ln_u16)value;
  return verdict;
}
LN_INLINE struct ln_verdict ln_forward(ln_u32 port) { return ln_verdict_of(LN_FORWARD, port); }
LN_INLINE struct ln_verdict ln_drop(ln_u32 reason) { return ln_verdict_of(LN_DROP, reason); }
LN_INLINE struct ln_verdict ln_replicate(ln_u32 group) {
  return ln_verdict_of(LN_REPLICATE, group);
}
LN_INLINE struct ln_verdict ln_reply(ln_u32 port) { return ln_verdict_of(LN_REPLY, port); }
LN_INLINE struct ln_verdict ln_pass(void) { return ln_verdict_of(LN_PASS, 0); }

/* One row of counters per ingress port (per CPU in the kernel), so an increment needs no lock. */
LN_INLINE void ln_count(ln_u64* row, ln_u32 counter) { row[counter] += 1; }

#endif /* LOOMNET_EBPF_PLATFORM_H */
