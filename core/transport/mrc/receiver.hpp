// The receiving half of a queue pair: placement out of order, the bitmap, immediates in order,
// and answers to the sender. OCP MRC 1.0.
#pragma once

#include "transport/mrc/context.hpp"
#include "transport/mrc/peer.hpp"
#include "transport/mrc/receive_window.hpp"
#include "transport/mrc/wire.hpp"

namespace loomnet::mrc {

class Receiver {
 public:
  Receiver(Context& context, Peer& peer, QpNumber local, std::uint32_t index);

  // False: the request was refused and answered with a transport NAK; the queue pair must end.
  bool on_data(const Inbound& in, const Payload& payload, Picoseconds now);
  void on_probe(const Inbound& in, const Peth& peth);
  // Anything that reaches a queue pair in ERROR.
  void refuse(const Inbound& in);

  // Fills the SACK that leaves now. True: another one must follow at once.
  bool fill_sack(const Control& control, Seth& seth, CcState& cc);
  const ReceiveWindow& window() const { return window_; }
  // Where the next packet will look outside this object.
  using Places = std::array<const void*, 2>;
  Places places() const { return window_.places(); }

 private:
  struct PendingImmediate {
    PsnCount psn = 0;  // of the message's last packet
    Arrival arrival;
    std::uint16_t rqmsn = 0;
  };
  struct Refusal {
    PsnCount psn = 0;
    std::uint32_t entropy = 0;
    std::uint16_t tx_ts = 0;
    std::uint8_t reason = 0;
    bool repeated = false;
  };
  void answer(const Control& control);
  void repeat_refusals(EntropyValue ev, PlanePort plane);
  void send_sack(const Inbound& in, PsnCount psn, const Tseth& stamp);
  void send_nack(const Inbound& in, PsnCount psn, const Tseth& stamp, NackReason reason);
  bool send_nak(std::uint8_t syndrome, std::uint16_t msn);
  bool release_immediates();

  Context& context_;
  Peer& peer_;
  QpNumber local_;
  std::uint32_t index_;
  ReceiveWindow window_;
  std::vector<PendingImmediate> pending_;  // sorted by PSN, at most max_wimm
  std::vector<Refusal> refused_;  // the latest of trimmed packets, a ring once it is full
  std::uint64_t refusals_ = 0;
  std::uint64_t received_bytes_ = 0;
  PsnCount asked_ = 0;  // the highest PSN that asked for an answer; owed while above cack
  std::uint32_t trigger_ = 0;
  std::uint16_t immediates_ = 0;  // RQMSN of the last one delivered
};

}  // namespace loomnet::mrc
