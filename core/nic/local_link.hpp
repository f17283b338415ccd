// What joins the ranks of one host (NVLink, PCIe, shared memory): writes between two queue pairs of one
// NIC, which no frame and no port of the NIC takes part in.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <vector>

#include "transport/number_index.hpp"
#include "transport/transport.hpp"

namespace loomnet {

struct LocalLinkConfig {
  // 900 GB/s, of the fourth generation of NVLink with 18 links (NVIDIA H100). The delay is our choice:
  // peer-to-peer copies of few bytes are seen after 1 to 2 us.
  BitsPerSecond rate{7'200'000'000'000};
  Picoseconds delay = microseconds(1);
};

// One link for all queue pairs of the host. Its writes take turns by pieces of 64 KiB; a piece takes
// its length over the rate, and is in place a delay later. A completion takes one more delay. Nothing
// is lost, so a write fails only where the target refuses it.
class LocalLink final : public Transport {
 public:
  // Throws std::invalid_argument naming the field.
  LocalLink(TransportSink& sink, const LocalLinkConfig& config);

  std::string_view name() const override { return "local"; }
  void connect(const QpConfig& config, Picoseconds now) override;
  void on_post(QpNumber qp, const WorkRequest& request, Picoseconds now) override;
  void on_packet(PlanePort, PacketPtr, Picoseconds) override {}  // never called: it has no frames
  void on_port(PlanePort, bool, Picoseconds) override {}
  void on_renew(QpNumber, Picoseconds) override {}  // nothing is shared that a new one would find free
  void on_deadline(Picoseconds now) override;
  Pulled pull(PlanePort, QueueClass, Picoseconds) override { return Pulled::idle(); }
  Picoseconds next_deadline() const override;
  bool outstanding() const override { return open_ > 0; }
  void counters(std::vector<TransportCounter>& out) const override;

  bool has_queue_pairs() const { return !queue_pairs_.empty(); }

 private:
  static constexpr std::uint32_t kPiece = 65'536;
  struct QueuePair {
    QpNumber local = 0, remote = 0;
    bool waiting = false;            // in turns_
    bool refused = false;            // a write was refused at the target: nothing more is sent or placed
    bool failed = false;             // and its completion is back
    std::deque<WorkRequest> writes;  // not completed, in order
    std::size_t sending = 0;         // index of the write that is sent next, or in part
    std::uint32_t sent = 0;          // bytes of that write that have left
    std::size_t arriving = 0;        // index of the write whose bytes arrive next
  };
  struct Piece {
    Picoseconds at{};
    QueuePair* of = nullptr;
    std::uint32_t offset = 0, length = 0;
  };
  struct Answer {
    Picoseconds at{};
    QueuePair* to = nullptr;
    Status status = Status::ok;
  };
  void send(Picoseconds now);
  void arrive(const Piece& piece);
  void end(const Answer& answer);
  void complete(QueuePair& qp, Status status);

  TransportSink& sink_;
  LocalLinkConfig config_;
  std::vector<std::unique_ptr<QueuePair>> queue_pairs_;
  NumberIndex by_number_;
  std::deque<QueuePair*> turns_;  // with something to send
  std::deque<Piece> under_way_;   // in order of time
  std::deque<Answer> answers_;    // on their way back, in order of time
  Picoseconds free_at_{};
  std::size_t open_ = 0;
  std::uint64_t writes_ = 0, bytes_ = 0, failed_ = 0, access_errors_ = 0, unknown_peer_ = 0;
};

}  // namespace loomnet
