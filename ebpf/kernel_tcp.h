/* What a congestion control for the kernel's TCP sees of it: the members that are read, by their names in
 * the running kernel's BTF (CO-RE), the functions of the kernel's that it may call, and its operations. */
#ifndef LOOMNET_EBPF_KERNEL_TCP_H
#define LOOMNET_EBPF_KERNEL_TCP_H

#include "control_abi.h"
#include "platform.h"
/* clang-format off */
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
/* clang-format on */

#pragma clang diagnostic ignored "-Wunused-parameter" /* of what BPF_PROG makes */

#define TCP_CA_CWR 2
#define TCP_CA_RECOVERY 3
#define TCP_CA_LOSS 4
#define TCP_CONG_NON_RESTRICTED 1u /* any namespace may have it as its default */
#define SK_PACING_NEEDED 1u
#define AF_INET 2
#define AF_INET6 10

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
  unsigned int inum;
};
struct net {
  struct ns_common ns;
};
typedef struct {
  struct net* net;
} possible_net_t;
struct in6_addr {
  union {
    __u8 u6_addr8[16];
    __u32 u6_addr32[4];
  } in6_u;
};
struct sock_common {
  __u32 skc_daddr, skc_rcv_saddr;
  __u16 skc_dport, skc_num;
  unsigned short skc_family;
  possible_net_t skc_net;
  struct in6_addr skc_v6_daddr, skc_v6_rcv_saddr;
};
struct sock {
  struct sock_common __sk_common;
  unsigned long sk_pacing_rate, sk_max_pacing_rate;
  __u32 sk_pacing_status;
};
struct inet_sock {
  struct sock sk;
};
struct inet_connection_sock {
  struct inet_sock icsk_inet;
  __u8 icsk_ca_state : 5;
  __u64 icsk_ca_priv[13];
};
struct tcp_sock {
  struct inet_connection_sock inet_conn;
  __u16 tcp_header_len;
  __u32 snd_cwnd, snd_ssthresh, snd_cwnd_clamp;
  __u32 packets_out, retrans_out, delivered, lost, total_retrans, srtt_us, mss_cache;
  __u64 bytes_acked, tcp_mstamp; /* tcp_mstamp: CLOCK_MONOTONIC in us as of the segment that came last */
};
struct rate_sample {
  __s32 delivered;
  long interval_us, rtt_us;
  int losses;
  __u32 acked_sacked;
};

#pragma clang attribute pop

struct tcp_congestion_ops {
  char name[16];
  __u32 flags;
  void (*init)(struct sock* sk);
  void (*release)(struct sock* sk);
  __u32 (*ssthresh)(struct sock* sk);
  __u32 (*undo_cwnd)(struct sock* sk);
  void (*cong_control)(struct sock* sk, __u32 ack, int flag, const struct rate_sample* rs);
};

extern void tcp_reno_cong_avoid(struct sock* sk, __u32 ack, __u32 acked) __ksym;

#endif /* LOOMNET_EBPF_KERNEL_TCP_H */
