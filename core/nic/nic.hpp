// An emulated NIC: plane ports, memory regions, the transport in its silicon, and the mux by which
// kernel traffic of the host shares each port's link.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "clock/event_queue.hpp"
#include "link/half_link.hpp"
#include "nic/work_meter.hpp"
#include "packet/tap.hpp"
#include "transport/transport.hpp"

namespace loomnet {

// The user of a NIC: a rank's shared-memory port or a traffic model. Called after the transport has
// returned, so posting from within is safe.
class NicClient {
 public:
  virtual ~NicClient() = default;
  virtual void on_completion(const Completion& completion, Picoseconds now) = 0;
  virtual void on_arrival(const Arrival& arrival, Picoseconds now) = 0;
};

// Takes frames that leave the NIC for the host's kernel (live only).
class HostKernel {
 public:
  virtual ~HostKernel() = default;
  virtual void to_host(HostId host, PlanePort port, PacketPtr packet, Picoseconds now) = 0;
};

struct NicCounters {
  std::uint64_t kernel_queue_full = 0;  // kernel frames dropped: the port's queue was full
  std::uint64_t events_unlogged = 0;    // of paths and queue pairs, beyond what is kept
  std::uint64_t kernel_absent = 0;      // kernel frames received where no kernel is attached
  std::uint64_t transport_absent = 0;   // frames for a transport where none is attached
  std::uint64_t port_down = 0;          // kernel frames offered to a port without carrier
  std::uint64_t placement_refused = 0;  // payload for an unknown key or outside its region
};

class alignas(64) Nic final : public LinkReceiver, public EventHandler, private TransportSink {
 public:
  Nic(EventQueue& events, PacketPool& pool, HostId host, std::size_t ports, Picoseconds meter_bin,
      Domain domain = kAnybody);
  ~Nic() override;

  void attach(PlanePort port, HalfLink& egress) { ports_.at(port).egress = &egress; }
  void set_transport(std::unique_ptr<Transport> transport) { transport_ = std::move(transport); }
  // The sink to construct the transport with.
  TransportSink& sink() { return *this; }
  Transport* transport() { return transport_.get(); }
  void set_client(NicClient* client) { client_ = client; }
  void set_kernel(HostKernel* kernel) { kernel_ = kernel; }
  void watch(Tap* tap) { tap_ = tap; }

  // Registers memory; `base` null: ranges are checked, bytes are not moved. Addresses of remote
  // requests run from `address`. The key is never 0; one that is no longer in use is given again with
  // another number in its upper 8 bits, so that a late packet of the old one finds nothing.
  std::uint32_t register_region(std::uint8_t* base, std::uint64_t address, std::uint64_t length);
  void deregister(std::uint32_t key);
  // When bytes were last placed in this region; -1: never.
  Picoseconds last_placed(std::uint32_t key);

  void connect(const QpConfig& config, Picoseconds now);
  void post(QpNumber qp, WorkRequest request, Picoseconds now);
  // A frame of the host's kernel wants out by `port`.
  void from_kernel(PlanePort port, PacketPtr packet, Picoseconds now);
  void set_port(PlanePort port, bool up, Picoseconds now);

  void receive(std::uint16_t port, PacketPtr packet, Picoseconds now) override;
  void on_event(std::uint64_t what, Picoseconds now) override;
  void prepare(std::uint64_t what, int stage) const override;
  void prepare(std::uint16_t port, const Packet& packet, int stage) const override;

  HostId host() const { return host_; }
  std::size_t ports() const { return ports_.size(); }
  WorkMeter& meter() { return meter_; }
  const NicCounters& counters() const { return counters_; }
  const std::vector<TransportEvent>& events() const { return log_; }
  std::size_t held() const;
  void clear();

 private:
  struct Region {
    std::uint8_t* base = nullptr;
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    Picoseconds placed{-1};  // last
    std::uint32_t key = 0;   // 0: not in use
    std::uint8_t use = 0;    // how often it has been given
  };
  static constexpr std::uint32_t kRegionBits = 24;
  Region* region(std::uint32_t key);
  struct Port {
    HalfLink* egress = nullptr;
    bool up = true;
    bool ready = false;        // the transport may have something for this port
    bool kernel_turn = false;  // round robin between transport data and kernel frames
    Picoseconds wake = kNever; // earliest pending event for this port
    PacketFifo kernel;
    std::uint32_t kernel_bytes = 0;
  };
  static constexpr std::uint64_t kDeadline = ~0ull;     // event: transport deadline
  static constexpr std::size_t kMostEvents = 1 << 16;  // kept: of a loss of 1 %, minutes
  static constexpr std::uint32_t kKernelQueue = 262'144;  // bytes per port, as a NIC's own ring

  // TransportSink
  PacketPtr allocate() override { return pool_.allocate(); }
  bool place(QpNumber qp, std::uint32_t key, std::uint64_t address, const Payload& payload) override;
  void complete(const Completion& completion) override { completions_.push_back(completion); }
  void arrived(const Arrival& arrival) override { arrivals_.push_back(arrival); }
  void event(const TransportEvent& event) override {
    if (log_.size() < kMostEvents) {
      log_.push_back(event);
    } else {
      ++counters_.events_unlogged;
    }
  }
  void port_ready(PlanePort port) override;

  void obey_pause(std::uint16_t port, const Packet& packet, Picoseconds now);
  void settle(Picoseconds now);  // after every call into the transport
  void send(PlanePort port, Picoseconds now);
  void wake(PlanePort port, Picoseconds at);
  PacketPtr next_packet(PlanePort port, Picoseconds now);

  EventQueue& events_;
  PacketPool& pool_;
  HostId host_;
  ObjectId id_;
  Picoseconds now_{};
  Picoseconds deadline_ = kNever;
  std::uint32_t ready_ports_ = 0;  // bit per port that became ready inside a transport call
  bool settling_ = false;
  std::vector<Port> ports_;
  std::vector<Region> regions_;  // by the lower bits of their keys, less 1
  std::vector<std::uint32_t> free_regions_;
  std::unique_ptr<Transport> transport_;
  NicClient* client_ = nullptr;
  HostKernel* kernel_ = nullptr;
  Tap* tap_ = nullptr;
  std::vector<Completion> completions_;
  std::vector<Arrival> arrivals_;
  WorkMeter meter_;
  NicCounters counters_;
  std::vector<TransportEvent> log_;
};

}  // namespace loomnet
