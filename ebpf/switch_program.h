/* A switch program in one C file. The file defines the macros below, as it needs them, includes this header and
 * then defines one function:
 *
 *   struct ln_verdict ln_on_packet(const struct ln_options* options, struct ln_host* host,
 *                                 struct ln_packet* packet, const struct ln_meta* meta) { ... }
 *
 * Loomnet compiles the file for the engine with the system's C compiler, and for the kernel with clang.
 * docs/switch-programs.md shows how to write one.
 *
 *   LN_CONTRACT 1                the contract that the file is written for; Loomnet refuses another one
 *   LN_SUMMARY "..."             a line about the program
 *   LN_COUNTERS(X)               X(SYMBOL, "its name") for each counter; names of drops begin with drop_
 *   LN_OPTIONS(X)                X(limit, 0, 0, 1000, "packets") for each option: its default, least and greatest
 *                                value (whole numbers), and its unit; "bytes" and "ps" let users write "1 MB", "2 us"
 *   LN_ROWS 1024                 rows of state, each a struct ln_row, and the fields of a row:
 *   LN_ROW(FIELD, BYTES)         FIELD(ln_u64, packets) for a number, BYTES(name, 64) for raw bytes
 *   LN_PAYLOAD_AT 62             bytes of a frame that are its header ...
 *   LN_PAYLOAD_BYTES 64          ... and bytes of payload behind them that the program looks at; 0 unless defined */
#ifndef LOOMNET_SWITCH_PROGRAM_H
#define LOOMNET_SWITCH_PROGRAM_H

#include "flow_hash.h"
#include "forward_abi.h"

/* Rises with each change after which a file must be changed, or compiled anew: names and meaning of what this
 * header offers, and the layout of what the engine hands to the compiled object. */
#define LN_CONTRACT_HERE 1
#ifndef LN_CONTRACT
#define LN_CONTRACT LN_CONTRACT_HERE
#endif
#ifndef LN_SUMMARY
#define LN_SUMMARY ""
#endif
#ifndef LN_COUNTERS
#define LN_COUNTERS(X)
#endif
#ifndef LN_OPTIONS
#define LN_OPTIONS(X)
#endif
#ifndef LN_PAYLOAD_AT
#define LN_PAYLOAD_AT 62 /* behind Ethernet, IPv6 and UDP */
#endif
#ifndef LN_PAYLOAD_BYTES
#define LN_PAYLOAD_BYTES 0
#endif

/* Forward's counters come first: ln_route() counts them. */
enum ln_counter {
  LN_BEFORE_OWN_ = FORWARD_OWN_COUNTERS - 1,
#define LN_ENUM_(symbol, name) symbol,
  LN_COUNTERS(LN_ENUM_)
#undef LN_ENUM_
      LN_OWN_COUNTER_COUNT_
};

struct ln_options {
  ln_u64 none_; /* C has no empty struct */
#define LN_MEMBER_(name, fallback, least, most, unit) ln_u64 name;
  LN_OPTIONS(LN_MEMBER_)
#undef LN_MEMBER_
};

/* What both builds are configured with. */
struct ln_config_ {
  struct forward_config forward;
  struct ln_options options;
};

#ifdef LN_ROW
#ifndef LN_ROWS
#error "LN_ROW says what a row of state holds: define LN_ROWS, their number, too"
#endif
/* A program that runs on several CPUs of the kernel holds LN_LOCK(&row->lock) while it reads and writes a row. */
struct ln_row {
  struct ln_lock lock;
#define LN_NUMBER_(type, name) type name;
#define LN_BYTES_(name, bytes) ln_u8 name[bytes];
  LN_ROW(LN_NUMBER_, LN_BYTES_)
#undef LN_NUMBER_
#undef LN_BYTES_
};
#define LN_ROW_SIZE_ sizeof(struct ln_row)
#else
#ifdef LN_ROWS
#error "LN_ROWS is the number of rows of state: define LN_ROW, what a row holds, too"
#endif
#define LN_ROWS 0
#define LN_ROW_SIZE_ 0
#endif

/* --- what Loomnet reads of the compiled object, without running it --- */

#define LN_MAGIC_ "LOOMNET-SWITCH"
struct ln_fact_ {
  char kind[16];
  char name[64];
  char text[128];
  ln_u64 numbers[4];
};
#define LN_COUNTER_FACT_(symbol, name) {"counter", name, "", {symbol}},
#define LN_OPTION_FACT_(name, fallback, least, most, unit) {"option", #name, unit, {fallback, least, most}},
#define LN_NUMBER_FACT_(type, name) \
  {"number", #name, "", {__builtin_offsetof(struct ln_row, name), sizeof(type)}},
#define LN_BYTES_FACT_(name, bytes) {"bytes", #name, "", {__builtin_offsetof(struct ln_row, name), bytes}},
__attribute__((section(".loomnet"), used)) static const struct ln_fact_ ln_facts_[] = {
    {LN_MAGIC_, "", LN_SUMMARY, {LN_CONTRACT, LN_CONTRACT_HERE, sizeof(struct ln_fact_)}},
    {"payload", "", "", {LN_PAYLOAD_AT, LN_PAYLOAD_BYTES}},
    {"rows", "", "", {LN_ROWS, LN_ROW_SIZE_, sizeof(struct ln_config_)}},
    LN_COUNTERS(LN_COUNTER_FACT_) LN_OPTIONS(LN_OPTION_FACT_)
#ifdef LN_ROW
        LN_ROW(LN_NUMBER_FACT_, LN_BYTES_FACT_)
#endif
            {"end", "", "", {0}},
};

/* --- counters that there are --- */

#if !defined(__bpf__)
/* In the engine a number that no counter has would change other memory of the process: a constant is an error of the
 * compiler, another one ends the run. In the kernel the verifier refuses both. */
void ln_no_such_counter_(void)
#if defined(__has_attribute)
#if __has_attribute(error)
    __attribute__((error("no such counter: ln_count and ln_drop take the symbols of LN_COUNTERS")))
#endif
#endif
    ;
__attribute__((visibility("default"))) ln_u64 ln_switch_no_counter; /* 1 + the number; the engine says it */
LN_INLINE ln_u32 ln_counter_(ln_u32 counter) {
  if (LN_LIKELY(counter < LN_OWN_COUNTER_COUNT_)) return counter;
  if (__builtin_constant_p(counter)) ln_no_such_counter_();
  ln_switch_no_counter = 1ull + counter;
  __builtin_trap();
}
#define ln_count(row, counter) (ln_count)(row, ln_counter_(counter))
#define ln_drop(counters, reason) (ln_drop)(counters, ln_counter_(reason))
#endif

/* --- the program --- */

/* Defined by the file. */
LN_INLINE struct ln_verdict ln_on_packet(const struct ln_options* options, struct ln_host* host,
                                         struct ln_packet* packet, const struct ln_meta* meta);

/* Where the tables send the packet, and what `forward` makes of it: SRv6 uSIDs are shifted, plain IPv6 goes by ECMP,
 * the hop limit falls by one, what cannot be forwarded is dropped, and forward's counters count it. */
LN_INLINE struct ln_verdict ln_route(struct ln_host* host, struct ln_packet* packet);

/* The IPv6 header, or null where the packet has none; it is whole, 40 bytes. */
LN_INLINE ln_u8* ln_ipv6(struct ln_packet* packet) {
  ln_u8* ip = packet->frame + FORWARD_ETHERNET;
  if (ip + FORWARD_IPV6 > packet->end || ln_load_be16(packet->frame + 12) != FORWARD_ETHERTYPE_IPV6 || ip[0] >> 4 != 6)
    return (ln_u8*)0;
  return ip;
}
/* The UDP header right behind the IPv6 header, or null where there is none; it is whole, 8 bytes. */
LN_INLINE ln_u8* ln_udp(struct ln_packet* packet) {
  ln_u8* ip = ln_ipv6(packet);
  if (!ip || ip[6] != FORWARD_NH_UDP || ip + FORWARD_IPV6 + 8 > packet->end) return (ln_u8*)0;
  return ip + FORWARD_IPV6;
}
/* A hash of addresses, protocol and the ports of TCP and UDP, as ECMP takes it; 0 for a packet without IPv6. */
LN_INLINE ln_u64 ln_flow_hash(struct ln_packet* packet, ln_u64 seed) {
  return ln_ipv6(packet) ? forward_flow_hash(packet->frame, packet->end, seed) : 0;
}

/* A drop's reason is a counter whose name begins with drop_: reports add these up. */
LN_INLINE int ln_begins_with_drop_(const char* name) {
  return name[0] == 'd' && name[1] == 'r' && name[2] == 'o' && name[3] == 'p' && name[4] == '_';
}
LN_INLINE struct ln_verdict ln_checked_(struct ln_verdict verdict) {
  if (verdict.action != LN_DROP || (verdict.value >= FORWARD_DROP_TOO_SHORT && verdict.value < FORWARD_OWN_COUNTERS))
    return verdict;
#define LN_DROP_(symbol, name) \
  if (ln_begins_with_drop_(name) && verdict.value == symbol) return verdict;
  LN_COUNTERS(LN_DROP_)
#undef LN_DROP_
  return ln_verdict_of(0, 0); /* the host counts it as drop_bad_verdict */
}

#if defined(__bpf__)

#define LN_CONFIG struct ln_config_
#define LN_OWN_COUNTERS LN_OWN_COUNTER_COUNT_
#ifdef LN_ROW
#define LN_STATE_ROW struct ln_row
#define LN_STATE_ROWS LN_ROWS
#endif
#define LN_WANTS_CLOCK
#define LN_WANTS_SEQUENCE
#define LN_WANTS_LABELS
#define LN_CUTS
#include "xdp_host.h"

#include "forward_kernel.h"

LN_INLINE struct ln_verdict ln_route(struct ln_host* host, struct ln_packet* packet) {
  struct forward_config forward = ln_config.forward;
  return forward_ingress(host->tables, &forward, host->counters, packet->frame, packet->end, packet->length);
}
LN_INLINE struct ln_verdict ln_program(const struct ln_config_* config, struct ln_host* host, struct ln_packet* packet,
                                       const struct ln_meta* meta) {
#if LN_PAYLOAD_BYTES
  /* Of a frame that is shorter this lies behind payload_end, where the host has put the frame's end: the verifier
   * refuses arithmetic on that. */
  packet->payload = packet->frame + LN_PAYLOAD_AT;
#endif
  return ln_checked_(ln_on_packet(&config->options, host, packet, meta));
}

#else

/* What the engine hands in: the host of any program, and what this object calls back. */
struct ln_loaded_host_ {
  struct ln_host host;
  struct ln_verdict (*route)(struct ln_host* host, struct ln_packet* packet);
};
LN_INLINE struct ln_verdict ln_route(struct ln_host* host, struct ln_packet* packet) {
  return ((struct ln_loaded_host_*)host)->route(host, packet);
}

/* The names that the engine looks up. */
__attribute__((visibility("default"))) const ln_u32 ln_switch_contract = LN_CONTRACT_HERE;
__attribute__((visibility("default"))) struct ln_verdict ln_switch_program(const struct ln_config_* config,
                                                                           struct ln_host* host,
                                                                           struct ln_packet* packet,
                                                                           const struct ln_meta* meta) {
  return ln_checked_(ln_on_packet(&config->options, host, packet, meta));
}

#endif

#endif /* LOOMNET_SWITCH_PROGRAM_H */
