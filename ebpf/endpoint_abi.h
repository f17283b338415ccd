/* What the endpoint program and its loader agree on: the number of sockets and the counters. */
#ifndef LOOMNET_EBPF_ENDPOINT_ABI_H
#define LOOMNET_EBPF_ENDPOINT_ABI_H

#define ENDPOINT_MAX_SOCKETS 4096

#define ENDPOINT_COUNTERS(X)                                         \
  X(REDIRECTED, "redirected")         /* handed to a socket */       \
  X(DROP_NO_SLOT, "drop_no_slot")     /* interface not registered */ \
  X(DROP_NO_SOCKET, "drop_no_socket") /* no socket in its slot */

enum endpoint_counter {
#define ENDPOINT_ENUM_(symbol, name) ENDPOINT_##symbol,
  ENDPOINT_COUNTERS(ENDPOINT_ENUM_)
#undef ENDPOINT_ENUM_
      ENDPOINT_COUNTER_COUNT
};

#endif /* LOOMNET_EBPF_ENDPOINT_ABI_H */
