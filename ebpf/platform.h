/* The contract of a switch program: types, byte order, state, counters, packet, meta and verdict. The
 * same program compiles with clang -target bpf for the kernel (XDP), as C and as C++20 for the
 * engine. docs/switch-programs.md shows how to write one. */
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
typedef __s64 ln_s64;
#define LN_INLINE static __always_inline
#define LN_LIKELY(x) __builtin_expect(!!(x), 1)
#define LN_UNLIKELY(x) __builtin_expect(!!(x), 0)
/* A struct ln_lock guards one state row: a spin lock in the kernel, nothing in the engine's single
 * thread. A row has at most one, and no lookup happens while the lock is held. */
#define ln_lock bpf_spin_lock /* no typedef: the kernel finds a lock in a row by this very type */
#define LN_LOCK(lock) bpf_spin_lock(lock)
#define LN_UNLOCK(lock) bpf_spin_unlock(lock)
#else
#include <stddef.h>
#include <stdint.h>
#include <string.h>
typedef uint8_t ln_u8;
typedef uint16_t ln_u16;
typedef uint32_t ln_u32;
typedef uint64_t ln_u64;
typedef int32_t ln_s32;
typedef int64_t ln_s64;
#define LN_INLINE static inline __attribute__((always_inline, unused))
#define LN_LIKELY(x) __builtin_expect(!!(x), 1)
#define LN_UNLIKELY(x) __builtin_expect(!!(x), 0)
struct ln_lock {
  ln_u32 word;
};
#define LN_LOCK(lock) ((void)(lock))
#define LN_UNLOCK(lock) ((void)(lock))
#endif

/* Ports are numbered from 0 in every switch; an XDP switch has at most this many. */
#define LN_MAX_XDP_PORTS 128u
/* A program cuts no frame below what Ethernet sends, its FCS left out. */
#define LN_MIN_FRAME 60u

/* --- bytes: network order in packets, host order in variables --- */

#if defined(__bpf__)
/* Packet memory may be read at any width; may_alias keeps the compiler from reordering. */
typedef ln_u16 __attribute__((may_alias)) ln_raw16;
typedef ln_u32 __attribute__((may_alias)) ln_raw32;
typedef ln_u64 __attribute__((may_alias)) ln_raw64;
LN_INLINE ln_u16 ln_raw_load16(const ln_u8* p) { return *(const ln_raw16*)p; }
LN_INLINE ln_u32 ln_raw_load32(const ln_u8* p) { return *(const ln_raw32*)p; }
LN_INLINE ln_u64 ln_raw_load64(const ln_u8* p) { return *(const ln_raw64*)p; }
LN_INLINE void ln_raw_store16(ln_u8* p, ln_u16 v) { *(ln_raw16*)p = v; }
LN_INLINE void ln_raw_store32(ln_u8* p, ln_u32 v) { *(ln_raw32*)p = v; }
LN_INLINE void ln_raw_store64(ln_u8* p, ln_u64 v) { *(ln_raw64*)p = v; }
#else
LN_INLINE ln_u16 ln_raw_load16(const ln_u8* p) {
  ln_u16 v;
  memcpy(&v, p, sizeof v);
  return v;
}
LN_INLINE ln_u32 ln_raw_load32(const ln_u8* p) {
  ln_u32 v;
  memcpy(&v, p, sizeof v);
  return v;
}
LN_INLINE ln_u64 ln_raw_load64(const ln_u8* p) {
  ln_u64 v;
  memcpy(&v, p, sizeof v);
  return v;
}
LN_INLINE void ln_raw_store16(ln_u8* p, ln_u16 v) { memcpy(p, &v, sizeof v); }
LN_INLINE void ln_raw_store32(ln_u8* p, ln_u32 v) { memcpy(p, &v, sizeof v); }
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
  ln_u64 now;      /* emulated picoseconds; in the kernel 0 unless the program asks for the clock */
  ln_u64 seed;     /* of the run and switch */
  ln_u64 sequence; /* packets that came in through `ingress` before this one */
  ln_u32 ingress;  /* port number */
};

/* rand = hash(seed, program, ingress, sequence): computed only by a program that calls it. `program`
 * is a number of the program's own choice, another one for each independent draw. */
LN_INLINE ln_u64 ln_rand(const struct ln_meta* meta, ln_u32 program) {
  ln_u64 key = ln_mix64(meta->seed + LN_GOLDEN) ^ ((ln_u64)program << 32 | meta->ingress);
  return ln_mix64(ln_mix64(key) + meta->sequence * LN_GOLDEN);
}

/* --- packet: what a program sees, edits and says of one packet --- */

/* Header bytes are edited in place. Bytes 6 to 11, the source MAC, must stay: they carry the packet's
 * uid through a kernel-placed switch. Both builds drop a packet whose source MAC has changed. */
struct ln_packet {
  ln_u8* frame; /* Ethernet header on; read and written below PAYLOAD_AT only */
  ln_u8* end;   /* behind the header bytes at hand; in the kernel the frame's end */
  /* Bytes from frame offset PAYLOAD_AT on, at most PAYLOAD_BYTES of them; both are constants of the
   * program. payload == payload_end where the frame is shorter or the program asks for none. A packet
   * without bytes (lengths only) shows zeros, and what is written there is lost. */
  ln_u8* payload;
  ln_u8* payload_end; /* in the kernel the frame's end, which may lie behind PAYLOAD_BYTES */
  ln_u32 length;      /* of the frame without FCS; less on return: the host cuts the frame's tail */
  ln_u32 flow;        /* whose the packet is: the sender's flow number ... */
  ln_u32 message;     /* ... and the message it is part of; 0: none */
#if !defined(__bpf__)
  void (*edit)(struct ln_packet* packet); /* the engine's copy on write; null: nothing to copy */
#endif
};

/* To be called before the first write into the payload: the engine's payload may be the sender's own
 * memory, and this copies it. `payload` and `payload_end` may be others afterwards. */
LN_INLINE void ln_edit(struct ln_packet* packet) {
#if defined(__bpf__)
  (void)packet;
#else
  if (packet->edit) packet->edit(packet);
#endif
}

/* Says whose a rewritten packet is from now on, for captures, recorders and statistics. */
LN_INLINE void ln_relabel(struct ln_packet* packet, ln_u32 flow, ln_u32 message) {
  packet->flow = flow;
  packet->message = message;
}

/* --- host: what a program is given to work with --- */

struct ln_tables; /* the batch published last, as each build keeps it */
struct ln_state;  /* rows of one struct, the same number in both builds; zeros after a reset */

struct ln_host {
  struct ln_tables* tables;
  struct ln_state* state;
  ln_u64* counters; /* of the ingress port */
};

#if !defined(__bpf__)
struct ln_state {
  ln_u8* rows;
  ln_u32 row_bytes;
  ln_u32 count;
};
/* The state's row of this number, null if the state has fewer rows. */
LN_INLINE void* ln_row(struct ln_state* state, ln_u32 index) {
  return index < state->count ? state->rows + (size_t)index * state->row_bytes : NULL;
}
#else
LN_INLINE void* ln_row(struct ln_state* state, ln_u32 index); /* xdp_host.h */
#endif

/* One row of counters per ingress port (per CPU in the kernel), so an increment needs no lock.
 * Counter 0 of every program is "received", and the host's own follow behind the program's last. */
LN_INLINE void ln_count(ln_u64* row, ln_u32 counter) { row[counter] += 1; }

#define LN_RECEIVED 0u
#define LN_HOST_COUNTERS(X)                                                                       \
  X(DROP_NO_TABLES, "drop_no_tables")             /* no batch was published yet */                \
  X(DROP_UNKNOWN_INGRESS, "drop_unknown_ingress") /* XDP: interface has no port number */         \
  X(DROP_NO_HEADROOM, "drop_no_headroom")         /* XDP: no room for the metadata */             \
  X(DROP_NO_DEVICE, "drop_no_device")             /* no link at the port that was chosen */       \
  X(DROP_NO_GROUP, "drop_no_group")               /* replicate to a group the batch has not */    \
  X(DROP_SOURCE_MAC, "drop_source_mac")           /* the program changed it */                    \
  X(DROP_BAD_VERDICT, "drop_bad_verdict")         /* no such action, or a longer frame */         \
  X(REPLIED, "replied")                           /* sent out of the port they came in by */      \
  X(REPLICATED, "replicated")                     /* packets ... */                               \
  X(COPIES, "copies")                             /* ... and what became of them, all counted */  \
  X(ABSORBED, "absorbed")                         /* taken into the state */                      \
  X(PASSED, "passed")                             /* to the switch's own network stack */         \
  X(UNREPORTED, "unreported")                     /* XDP: absorbed or passed, but the ring full */

enum ln_host_counter {
#define LN_HOST_ENUM_(symbol, name) LN_HOST_##symbol,
  LN_HOST_COUNTERS(LN_HOST_ENUM_)
#undef LN_HOST_ENUM_
      LN_HOST_COUNTER_COUNT
};

/* --- verdict: one per packet, with at most one distinct packet out --- */

enum ln_action {
  LN_FORWARD = 1,   /* value = egress port */
  LN_DROP = 2,      /* value = reason: the program's counter of that drop */
  LN_REPLICATE = 3, /* value = group of the batch: one copy per member, the bytes as they are now */
  LN_REPLY = 4,     /* out of the ingress port: the program turned the packet into an answer */
  LN_PASS = 5,      /* to the switch's own network stack, where the packet's way ends */
  LN_ABSORB = 6,    /* taken into the switch's state: neither lost nor sent */
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
/* A number that a verdict cannot hold stays one that no port and no group has. */
LN_INLINE ln_u32 ln_number_(ln_u32 number) { return number < 0xffff ? number : 0xffff; }
LN_INLINE struct ln_verdict ln_forward(ln_u32 port) { return ln_verdict_of(LN_FORWARD, ln_number_(port)); }
/* Counts the reason, which is a counter of the program's own. */
LN_INLINE struct ln_verdict ln_drop(ln_u64* counters, ln_u32 reason) {
  ln_count(counters, reason);
  return ln_verdict_of(LN_DROP, reason);
}
LN_INLINE struct ln_verdict ln_replicate(ln_u32 group) { return ln_verdict_of(LN_REPLICATE, ln_number_(group)); }
LN_INLINE struct ln_verdict ln_reply(void) { return ln_verdict_of(LN_REPLY, 0); }
LN_INLINE struct ln_verdict ln_pass(void) { return ln_verdict_of(LN_PASS, 0); }
LN_INLINE struct ln_verdict ln_absorb(void) { return ln_verdict_of(LN_ABSORB, 0); }

/* --- egress: the second hook, when a packet leaves the queue of a port --- */

/* The hook runs for every packet at the moment it leaves the queue, one that found the port idle too.
 * Half-links of one switch may be asked out of time order, so the hook's state, its counters and its
 * random stream belong to the half-link. The owner of the queue calls it: it always runs in the
 * engine, and its kernel build is for BPF_PROG_TEST_RUN. */
#define LN_CLASSES 8
struct ln_egress_meta {
  ln_u64 now;                 /* emulated picoseconds at which the packet leaves the queue */
  ln_u64 seed;                /* of the run and half-link */
  ln_u64 sequence;            /* packets that left by this half-link before */
  ln_u64 queued[LN_CLASSES];  /* bytes that stay behind in the queue of each class ... */
  ln_u32 packets[LN_CLASSES]; /* ... and packets */
  ln_u32 half;                /* the half-link's number in the run */
  ln_u32 port;                /* of the switch */
  ln_u32 queue;               /* class of the packet */
  ln_u32 marked;              /* 1: carries CE already, or the port's own rule marks it */
  ln_u32 own_mark;            /* 1: the port's own rule marks it, and it came without CE */
  ln_u32 unused;
};

enum ln_egress_action {
  LN_EGRESS_LEAVE = 0, /* as it is; header bytes that the hook edited count */
  LN_EGRESS_MARK = 1,  /* the host sets CE, where the packet is ECN-capable */
  /* The host takes the mark of the port's own rule away. A mark that the packet came with stays. */
  LN_EGRESS_UNMARK = 2,
};

#define LN_EGRESS_STATES 2u /* a half-link's state: so many lots of rows, each of one struct */
#define LN_EGRESS_NOTES 8u

/* What the hook is given to work with, all of the half-link but the tables, which are the switch's. */
struct ln_egress_host {
#if !defined(__bpf__)
  struct ln_tables* tables;                /* null: no batch was published yet */
  struct ln_state state[LN_EGRESS_STATES]; /* zeros after a reset */
#endif
  ln_u64* counters; /* by the program's own numbers */
  ln_u32* note;     /* LN_EGRESS_NOTES numbers: of a packet that the hook marks, why */
};

#if !defined(__bpf__)
LN_INLINE struct ln_tables* ln_egress_tables(struct ln_egress_host* host) { return host->tables; }
/* A row of one of the lots, null if the lot has fewer. */
LN_INLINE void* ln_egress_row(struct ln_egress_host* host, ln_u32 lot, ln_u32 index) {
  return ln_row(&host->state[lot], index);
}
#else
LN_INLINE struct ln_tables* ln_egress_tables(struct ln_egress_host* host); /* xdp_host.h */
LN_INLINE void* ln_egress_row(struct ln_egress_host* host, ln_u32 lot, ln_u32 index);
#endif

LN_INLINE ln_u64 ln_egress_rand(const struct ln_egress_meta* meta, ln_u32 program) {
  ln_u64 key = ln_mix64(meta->seed + LN_GOLDEN) ^ ((ln_u64)program << 32 | meta->half);
  return ln_mix64(ln_mix64(key) + meta->sequence * LN_GOLDEN);
}

#endif /* LOOMNET_EBPF_PLATFORM_H */
