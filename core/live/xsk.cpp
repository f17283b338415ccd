// AF_XDP rings through libxdp's xsk.h.
#include "live/xsk.hpp"

#include <linux/if_xdp.h>
#include <sys/socket.h>

#include <algorithm>

#include "live/system.hpp"

namespace loomnet {
namespace {

constexpr int kSendBuffer = 8 << 20;  // bytes of skbs in flight; the default stalls at 40 frames

}  // namespace

XskSocket::XskSocket(Umem& umem, const std::string& interface, const XskConfig& config)
    : umem_(umem), interface_(interface) {
  xsk_socket_config raw{};
  raw.rx_size = config.rx;
  raw.tx_size = config.tx;
  raw.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD;
  raw.bind_flags = XDP_COPY | XDP_USE_NEED_WAKEUP;
  const int error =
      xsk_socket__create_shared(&socket_, interface.c_str(), 0, umem.raw(), &rx_, &tx_, &fill_, &comp_, &raw);
  if (error) throw LiveError("bind AF_XDP socket to " + interface, -error);
  ::setsockopt(fd(), SOL_SOCKET, SO_SNDBUFFORCE, &kSendBuffer, sizeof kSendBuffer);
  fill_wanted_ = config.fill;
  refill();
}

XskSocket::~XskSocket() {
  if (socket_) xsk_socket__delete(socket_);
}

void XskSocket::refill(std::vector<std::uint32_t>* reserve) {
  const std::size_t there = reserve ? reserve->size() : umem_.free_frames();
  std::uint32_t count = static_cast<std::uint32_t>(std::min<std::size_t>(fill_wanted_, there));
  std::uint32_t at = 0;
  if (count == 0 || xsk_ring_prod__reserve(&fill_, count, &at) != count) return;
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint32_t handle = 0;
    if (reserve) {
      handle = reserve->back();
      reserve->pop_back();
    } else {
      umem_.take(handle);
    }
    *xsk_ring_prod__fill_addr(&fill_, at + i) = Umem::address(handle);
  }
  xsk_ring_prod__submit(&fill_, count);
  fill_wanted_ -= count;
}

std::size_t XskSocket::receive(std::span<ReceivedFrame> out, std::vector<std::uint32_t>* reserve) {
  std::uint32_t at = 0;
  const std::uint32_t count = xsk_ring_cons__peek(&rx_, static_cast<std::uint32_t>(out.size()), &at);
  if (count == 0) {
    if (fill_wanted_) refill(reserve);
    return 0;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    const xdp_desc* d = xsk_ring_cons__rx_desc(&rx_, at + i);
    out[i] = {umem_.handle_at(d->addr), d->len, umem_.area() + d->addr};
  }
  xsk_ring_cons__release(&rx_, count);
  fill_wanted_ += count;
  refill(reserve);
  return count;
}

bool XskSocket::transmit(std::uint32_t handle, std::uint32_t offset, std::uint32_t length) {
  std::uint32_t at = 0;
  if (xsk_ring_prod__reserve(&tx_, 1, &at) != 1) return false;
  xdp_desc* d = xsk_ring_prod__tx_desc(&tx_, at);
  d->addr = Umem::address(handle) + offset;
  d->len = length;
  d->options = 0;
  ++unsent_;
  return true;
}

bool XskSocket::flush() {
  if (unsent_) {
    // Publish everything queued since the last flush with one store.
    const std::uint32_t published = __atomic_load_n(tx_.producer, __ATOMIC_RELAXED);
    xsk_ring_prod__submit(&tx_, tx_.cached_prod - published);
  }
  while (unsent_) {
    if (xsk_ring_prod__needs_wakeup(&tx_) && ::sendto(fd(), nullptr, 0, MSG_DONTWAIT, nullptr, 0) < 0 &&
        errno != EAGAIN && errno != EBUSY && errno != ENOBUFS && errno != EINTR) {
      // EAGAIN: more to send than one call takes, or a full completion ring. Others: link down.
      ++send_errors_;
    }
    const std::uint32_t left = tx_.cached_prod - __atomic_load_n(tx_.consumer, __ATOMIC_ACQUIRE);
    const std::uint32_t gone = unsent_ - left;
    unsent_ = left;
    outstanding_ += gone;
    reap();
    if (gone == 0) return false;  // no progress: the next pass tries again
  }
  if (outstanding_) reap();
  return true;
}

void XskSocket::reap() {
  std::uint32_t at = 0;
  const std::uint32_t count = xsk_ring_cons__peek(&comp_, outstanding_, &at);
  if (count == 0) return;
  for (std::uint32_t i = 0; i < count; ++i) {
    umem_.put(umem_.handle_at(*xsk_ring_cons__comp_addr(&comp_, at + i)));
  }
  xsk_ring_cons__release(&comp_, count);
  outstanding_ -= count;
}

XskStatistics XskSocket::statistics() const {
  xdp_statistics raw{};
  socklen_t size = sizeof raw;
  if (::getsockopt(fd(), SOL_XDP, XDP_STATISTICS, &raw, &size) < 0) {
    throw LiveError("read statistics of the AF_XDP socket on " + interface_, errno);
  }
  return {raw.rx_dropped, raw.rx_ring_full, raw.rx_fill_ring_empty_descs, raw.rx_invalid_descs + raw.tx_invalid_descs};
}

}  // namespace loomnet
