// An emulated NIC: ports, memory regions, transports side by side in its silicon, clients of several
// jobs, and the mux by which kernel traffic of the host shares each port's link.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "clock/event_queue.hpp"
#include "link/half_link.hpp"
#include "nic/later_queue_pairs.hpp"
#include "nic/local_link.hpp"
#include "nic/memory_regions.hpp"
#include "nic/nic_clients.hpp"
#include "packet/tap.hpp"
#include "transport/transport.hpp"

namespace loomnet {

// Takes frames that leave the NIC for the host's kernel (live only).
class HostKernel {
 public:
  virtual ~HostKernel() = default;
  virtual void to_host(HostId host, PlanePort port, PacketPtr packet, Picoseconds now) = 0;
  // The transports' deadline of that time is being served.
  virtual void deadline_served(Picoseconds due) { (void)due; }
};

struct NicCounters {
  std::uint64_t kernel_queue_full = 0;  // kernel frames dropped: the port's queue was full
  std::uint64_t events_unlogged = 0;    // of paths and queue pairs, beyond what is kept
  std::uint64_t kernel_absent = 0;      // kernel frames received where no kernel is attached
  std::uint64_t transport_absent = 0;   // frames whose protocol no transport here has
  std::uint64_t port_down = 0;          // kernel frames offered to a port without carrier
  std::uint64_t placement_refused = 0;  // payload for an unknown key or outside its region
  std::uint64_t foreign_key_refused = 0;  // payload of one job's queue pair for another job's region
};

class alignas(64) Nic final : public LinkReceiver, public EventHandler, private TransportSink {
 public:
  Nic(EventQueue& events, PacketPool& pool, HostId host, std::size_t ports, Picoseconds meter_bin,
      Domain domain = kAnybody);
  ~Nic() override;

  void attach(PlanePort port, HalfLink& egress) { ports_.at(port).egress = &egress; }
  // Adds a transport. It takes the place of one of the same name, which must have no queue pairs.
  // Throws std::invalid_argument where two transports have the same protocol.
  // `number`: what its packets have as Packet::carrier.
  void set_transport(std::unique_ptr<Transport> transport, std::uint8_t number = 0);
  // The sink to construct the transport with.
  TransportSink& sink() { return *this; }
  Transport* transport() { return transport_; }  // the first; null: none
  Transport* transport(std::string_view name);   // null: none of that name
  const std::vector<std::unique_ptr<Transport>>& transports() const { return transports_; }
  NicClients& clients() { return clients_; }
  const NicClients& clients() const { return clients_; }
  void set_kernel(HostKernel* kernel) { kernel_ = kernel; }
  void watch(Tap* tap) { tap_ = tap; }

  // Registers memory of a job: only queue pairs of that job may write it. `base` null: ranges are
  // checked, bytes are not moved. Addresses of remote requests run from `address`.
  std::uint32_t register_region(std::uint8_t* base, std::uint64_t address, std::uint64_t length, JobId job = {}) {
    return regions_.add(base, address, length, clients_.job(job));
  }
  void set_base(std::uint32_t key, std::uint8_t* base) { regions_.at(key).base = base; }
  void deregister(std::uint32_t key) { regions_.remove(key); }
  // When bytes were last placed in this region; -1: never.
  Picoseconds last_placed(std::uint32_t key) { return regions_.at(key).placed; }

  // Rate and delay between queue pairs of this host. Throws std::invalid_argument where there are some.
  void set_local_link(const LocalLinkConfig& config);
  const LocalLink* local_link() const { return local_.get(); }  // null until one is used or set

  // Connects a queue pair by the transport of that name; without a name, by the first. One whose
  // destination is this host goes by the local link, whatever the name.
  void connect(const QpConfig& config, Picoseconds now, const QpOwner& owner = {}, std::string_view transport = {});
  // The same at a later time, by an event of this NIC. Requests are posted later than `at`: at `at` itself an event of
  // no host comes first. The number is taken now. Until then the transport does not know the queue pair, whose paths
  // and trees may be changed as those of any other. What the transport refuses, it refuses then.
  void connect_at(Picoseconds at, QpConfig config, const QpOwner& owner = {}, std::string_view transport = {});
  // A queue pair goes by other paths from now on; see Transport::on_paths.
  void set_paths(QpNumber qp, std::vector<PlanePaths> planes, Picoseconds now);
  // As Transport::on_renew.
  void renew(QpNumber qp, Picoseconds now);
  // As Transport::ahead.
  bool ahead(QpNumber qp) { return carrier_of(qp).ahead(qp); }
  // As Transport::acked, of each part.
  std::vector<std::uint64_t> acked(QpNumber qp);
  // As Transport::pupil; null, too, before the queue pair is connected.
  Pupil* pupil(QpNumber qp, std::size_t part);
  // As Transport::on_limits.
  void set_limits(QpNumber qp, std::size_t part, const LimitsSet& set, Picoseconds now);
  // As Transport::on_trees.
  void set_trees(QpNumber qp, std::vector<std::vector<std::uint16_t>> trees, Picoseconds now);
  void post(QpNumber qp, WorkRequest request, Picoseconds now);
  // A frame of the host's kernel wants out by `port`.
  void from_kernel(PlanePort port, PacketPtr packet, Picoseconds now);
  // A transport of this NIC has something new that no call of the NIC has brought about.
  void look(Picoseconds now) {
    now_ = now;
    settle(now);
  }
  void set_port(PlanePort port, bool up, Picoseconds now);
  bool port_up(PlanePort port) const { return ports_.at(port).up; }

  void receive(std::uint16_t port, PacketPtr packet, Picoseconds now) override;
  void on_event(std::uint64_t what, Picoseconds now) override;
  void prepare(std::uint64_t what, int stage) const override;
  void prepare(std::uint16_t port, const Packet& packet, int stage) const override;

  HostId host() const { return host_; }
  std::size_t ports() const { return ports_.size(); }
  // What this host saw of a job.
  WorkMeter& meter(JobId job = {}) { return clients_.job(job).meter; }
  const NicCounters& counters() const { return counters_; }
  const std::vector<TransportEvent>& events() const { return log_; }
  std::uint64_t timeouts() const { return timeouts_; }  // events rto, those that are not kept included
  std::size_t held() const;
  void clear();

 private:
  struct Port {
    HalfLink* egress = nullptr;
    bool up = true;
    bool ready = false;  // the transport may have something for this port
    bool kernel_turn = false;  // round robin between transport data and kernel frames
    std::uint8_t turn = 0;  // the transport that is asked first, where there are several
    Picoseconds wake = kNever;  // earliest pending event for this port
    PacketFifo kernel;
    std::uint32_t kernel_bytes = 0;
  };
  // Events; any other is of the port of that number.
  static constexpr std::uint64_t kDeadline = ~0ull;  // of a transport
  static constexpr std::uint64_t kConnect = kDeadline - 1;  // queue pairs of connect_at()
  static constexpr std::size_t kMostEvents = 1 << 16;  // kept: of a loss of 1 %, minutes
  static constexpr std::uint32_t kKernelQueue = 262'144;  // bytes per port, as a NIC's own ring

  // TransportSink
  PacketPtr allocate() override { return pool_.allocate(); }
  bool place(QpNumber qp, std::uint32_t key, std::uint64_t address, const Payload& payload) override;
  void complete(const Completion& completion) override { completions_.push_back(completion); }
  void arrived(const Arrival& arrival) override { arrivals_.push_back(arrival); }
  void event(const TransportEvent& event) override {
    timeouts_ += event.kind == EventKind::rto;
    if (log_.size() < kMostEvents) {
      log_.push_back(event);
    } else {
      ++counters_.events_unlogged;
    }
  }
  void port_ready(PlanePort port) override;
  void caught_up(QpNumber qp) override { caught_up_.push_back(qp); }

  Transport* transport_for(const Packet& packet);
  Transport* stepped_to(const Packet& packet) const;
  // The transport that is to connect a queue pair, whose number and owner are noted.
  Transport& take_number(const QpConfig& config, const QpOwner& owner, std::string_view transport);
  void connect_due(Picoseconds now);
  QpConfig* later(QpNumber qp) { return later_ ? later_->find(qp) : nullptr; }
  Transport& carrier_of(QpNumber qp);
  Transport& connected_by(QpNumber qp, const char* what);
  void obey_pause(std::uint16_t port, const Packet& packet, Picoseconds now);
  void settle(Picoseconds now);  // after every call into the transport
  void send(PlanePort port, Picoseconds now);
  void wake(PlanePort port, Picoseconds at);
  PacketPtr next_packet(PlanePort port, Picoseconds now);
  Pulled pull_in_turn(PlanePort port, QueueClass queue, Picoseconds now);
  Picoseconds earliest_deadline() const;
  void find_alone() { alone_ = transports_.size() == 1 && !local_; }

  EventQueue& events_;
  PacketPool& pool_;
  HostId host_;
  ObjectId id_;
  Picoseconds now_{};
  Picoseconds deadline_ = kNever;
  std::uint32_t ready_ports_ = 0;  // bit per port that became ready inside a transport call
  bool settling_ = false;
  std::vector<Port> ports_;
  Transport* transport_ = nullptr;  // the first
  bool alone_ = false;  // one transport and no local link: nothing to choose per packet
  MemoryRegions regions_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::uint8_t> carriers_;  // Packet::carrier, of each of them
  std::unique_ptr<LocalLink> local_;
  std::unique_ptr<LaterQueuePairs> later_;  // null: none waits
  NicClients clients_;
  HostKernel* kernel_ = nullptr;
  Tap* tap_ = nullptr;
  std::vector<Completion> completions_;
  std::vector<Arrival> arrivals_;
  std::vector<QpNumber> caught_up_;
  NicCounters counters_;
  std::vector<TransportEvent> log_;
  std::uint64_t timeouts_ = 0;
};

}  // namespace loomnet
