// One AF_XDP socket in copy mode on queue 0 of a veth: batched receive and transmit over frames of
// its group's UMEM, handed over without copying inside the group.
#pragma once

#include <xdp/xsk.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "live/netns.hpp"
#include "live/umem.hpp"

namespace loomnet {

struct XskConfig {
  // Small on purpose: frames that wait in fill rings are frames the UMEM lacks elsewhere.
  std::uint32_t fill = 128;
  std::uint32_t rx = 128;
  std::uint32_t tx = 128;
  std::uint32_t completion = 128;
};

struct ReceivedFrame {
  std::uint32_t handle = 0;      // now the caller's
  std::uint32_t length = 0;
  std::uint8_t* data = nullptr;  // XDP metadata, if any, ends here
};

// What the socket lost, and why.
struct XskStatistics {
  std::uint64_t rx_dropped = 0;       // no frame to copy into, or too long for one
  std::uint64_t rx_ring_full = 0;     // we did not take frames out in time
  std::uint64_t fill_ring_empty = 0;  // why: among rx_dropped, the fill ring had none
  std::uint64_t invalid = 0;          // descriptors the kernel refused
  std::uint64_t drops() const { return rx_dropped + rx_ring_full; }
};

class XskSocket {
 public:
  // Call inside the interface's namespace (Netns::run). Throws LiveError.
  XskSocket(Umem& umem, const std::string& interface, const XskConfig& config = {});
  ~XskSocket();
  XskSocket(const XskSocket&) = delete;
  XskSocket& operator=(const XskSocket&) = delete;

  // Takes up to out.size() frames and refills the fill ring by as many, from the UMEM's free frames or, where it is
  // given, from `reserve`, which was taken from them.
  std::size_t receive(std::span<ReceivedFrame> out, std::vector<std::uint32_t>* reserve = nullptr);

  // Queues a frame of this socket's group that starts at `offset`; it is the socket's until it is
  // sent. False: the ring is full (flush and try again, or count it), the frame stays the caller's.
  bool transmit(std::uint32_t handle, std::uint32_t offset, std::uint32_t length);
  // Wakes the kernel for the frames queued and takes back sent ones. True when all have gone.
  bool flush();
  bool pending() const { return unsent_ != 0; }

  int fd() const { return xsk_socket__fd(socket_); }
  Umem& umem() { return umem_; }
  const std::string& interface() const { return interface_; }
  XskStatistics statistics() const;
  std::uint64_t send_errors() const { return send_errors_; }

 private:
  void refill(std::vector<std::uint32_t>* reserve = nullptr);
  void reap();

  Umem& umem_;
  std::string interface_;
  xsk_socket* socket_ = nullptr;
  xsk_ring_prod fill_{}, tx_{};
  xsk_ring_cons rx_{}, comp_{};
  std::uint32_t fill_wanted_ = 0;   // frames the fill ring is short of
  std::uint32_t unsent_ = 0;        // queued in the TX ring, not yet taken by the kernel
  std::uint32_t outstanding_ = 0;   // given to the kernel, not yet completed
  std::uint64_t send_errors_ = 0;
};

}  // namespace loomnet
