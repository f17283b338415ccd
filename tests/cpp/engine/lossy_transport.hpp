// A transport that gives up bytes, for tests of what happens above it: one port, no loss of its own making
// needed, as it leaves out a share of the packets that its requests let it lose. The last frame of a request
// has no payload and says what is missing.
#pragma once

#include <cstring>
#include <deque>
#include <map>

#include "clock/random.hpp"
#include "transport/transport.hpp"

namespace loomnet::testing {

class LossyTransport final : public Transport {
 public:
  // Leaves out `lost_of_100` in 100 of the packets that may be lost, as far as each request's tolerance goes.
  LossyTransport(TransportSink& sink, std::uint32_t packet, std::uint32_t lost_of_100, std::uint64_t seed)
      : sink_(sink), packet_(packet), lost_of_100_(lost_of_100), random_(seed, 0, 0) {}

  std::uint64_t lost_bytes = 0;

  std::string_view name() const override { return "lossy"; }
  void connect(const QpConfig& config, Picoseconds) override { pairs_[config.local].remote = config.remote; }
  void on_post(QpNumber qp, const WorkRequest& request, Picoseconds) override {
    Pair& pair = pairs_.at(qp);
    pair.waiting.push_back({request, Missing::of(request.length, packet_)});
    ++open_;
    sink_.port_ready(0);
  }
  void on_packet(PlanePort, PacketPtr packet, Picoseconds) override {
    Frame f;
    std::memcpy(&f, packet->header.data() + kEthernet, sizeof f);
    if (f.kind == Kind::data) {
      sink_.place(f.qp, f.key, f.address + f.offset, packet->payload);
    } else if (f.kind == Kind::end) {
      if (f.has_immediate) {
        sink_.arrived(
            {.qp = f.qp, .immediate = f.immediate, .length = f.length, .address = f.address, .missing = f.missing});
      }
      answers_.push_back(pairs_.at(f.qp).remote);
      sink_.port_ready(0);
    } else {
      Pair& pair = pairs_.at(f.qp);
      const Request done = pair.sent.front();
      pair.sent.pop_front();
      --open_;
      sink_.complete({.qp = f.qp, .id = done.request.id, .length = done.request.length, .missing = done.missing});
    }
  }
  void on_port(PlanePort, bool, Picoseconds) override {}
  void on_deadline(Picoseconds) override {}
  Pulled pull(PlanePort, QueueClass queue, Picoseconds) override {
    if (queue == kControlClass) {
      if (answers_.empty()) return Pulled::idle();
      PacketPtr packet = frame({.kind = Kind::answer, .qp = answers_.front()}, kControlClass);
      answers_.pop_front();
      return Pulled::of(std::move(packet));
    }
    for (auto& [number, pair] : pairs_) {
      if (!pair.waiting.empty()) return Pulled::of(next(pair));
    }
    return Pulled::idle();
  }
  Picoseconds next_deadline() const override { return kNever; }
  bool outstanding() const override { return open_ > 0; }
  void counters(std::vector<TransportCounter>& out) const override { out.push_back({"lost_bytes", lost_bytes}); }

 private:
  static constexpr std::size_t kEthernet = 14;
  enum class Kind : std::uint8_t { data, end, answer };
  struct Frame {
    Kind kind = Kind::data;
    bool has_immediate = false;
    QpNumber qp = 0;  // the receiver's
    std::uint32_t key = 0, immediate = 0, offset = 0, length = 0;
    std::uint64_t address = 0;
    Missing missing{};
  };
  struct Request {
    WorkRequest request;
    Missing missing;
    std::uint32_t at = 0;
  };
  struct Pair {
    QpNumber remote = 0;
    std::deque<Request> waiting, sent;
  };

  PacketPtr frame(const Frame& f, QueueClass queue) {
    PacketPtr packet = sink_.allocate();
    std::memset(packet->header.data(), 0, kEthernet);
    std::memcpy(packet->header.data() + kEthernet, &f, sizeof f);
    packet->header_length = kEthernet + sizeof f;
    packet->wire_length = packet->header_length;
    packet->queue = queue;
    return packet;
  }
  // The next packet of the oldest request; those that are lost on the way there are left out.
  PacketPtr next(Pair& pair) {
    Request& r = pair.waiting.front();
    const WorkRequest& q = r.request;
    Frame f{.has_immediate = q.opcode == Opcode::write_with_immediate,
            .qp = pair.remote,
            .key = q.remote_key,
            .immediate = q.immediate,
            .length = q.length,
            .address = q.remote_address};
    const double most = static_cast<double>(q.length - q.framing) * q.attributes.loss_tolerance;
    while (r.at < q.length) {
      const std::uint32_t at = r.at, bytes = std::min(packet_, q.length - at);
      r.at += bytes;
      const Attributes own = attributes_at(q.attributes, q.framing, at);
      if (own.loss_tolerance > 0 && r.missing.bytes + bytes <= most && random_.below(100) < lost_of_100_) {
        r.missing.add(at, bytes);
        lost_bytes += bytes;
        continue;
      }
      f.offset = at;
      PacketPtr packet = frame(f, kDataClass);
      packet->attributes = own;
      packet->payload.length = bytes;
      if (q.local) {
        packet->payload.data = q.local + at;
        packet->payload.kind = PayloadKind::region;
      }
      packet->wire_length += bytes;
      return packet;
    }
    f.kind = Kind::end;
    f.missing = r.missing;
    pair.sent.push_back(r);
    pair.waiting.pop_front();
    return frame(f, kDataClass);
  }

  TransportSink& sink_;
  std::uint32_t packet_, lost_of_100_;
  RandomStream random_;
  std::map<QpNumber, Pair> pairs_;
  std::deque<QpNumber> answers_;
  std::size_t open_ = 0;
};

}  // namespace loomnet::testing
