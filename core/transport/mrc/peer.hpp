// What a NIC knows of one other NIC: which planes reach it, the reverse path of each plane, port
// status both ways, and the base RTT. OCP MRC 1.0.
#pragma once

#include "clock/random.hpp"
#include "packet/rdma.hpp"
#include "transport/mrc/context.hpp"

namespace loomnet::mrc {

class Peer {
 public:
  Peer(Context& context, std::uint32_t index, const QpConfig& config, Picoseconds now);

  HostId host() const { return host_; }
  HostId self() const { return self_; }
  const PlanePaths& paths(PlanePort plane) const { return planes_[plane]; }
  std::size_t plane_count() const { return planes_.size(); }
  // Planes in use for data towards this peer.
  PlaneMask live() const { return live_; }
  // Planes that our ports with carrier are on, as the peer is told of them.
  PlaneMask status_mask() const;
  // False while the base RTT is being measured; data waits.
  bool ready() const { return measured_; }
  // Of a probe, and of a whole packet with its SACK back.
  Picoseconds base_rtt() const { return base_rtt_; }
  Picoseconds whole_rtt() const { return base_rtt_ + extra_; }
  // Of an answer that meets on each link of its way back a whole packet that the link is sending.
  Picoseconds ack_wait() const;
  // What a packet charged so many bytes is serialised sooner than a whole one on its way there.
  Picoseconds sooner(std::uint32_t nominal) const;

  // Plane for the next control packet, round-robin over the healthy ones; -1 if no port is up.
  int control_plane();
  // On the longest path.
  std::uint32_t switches() const { return switches_; }
  // Whether an answer can go by the value that this came by.
  bool leads_back(EntropyValue ev) const;
  EntropyValue reverse(PlanePort plane) const { return {plane, reverse_[plane].uplink}; }
  // Feedback from data: this value works, or it does not.
  void data_acknowledged(EntropyValue ev, Picoseconds now);
  void data_lost(EntropyValue ev);
  // Data came in by this value; `repeated`: such as had come before, so its answer may be lost.
  void data_received(EntropyValue ev, bool repeated, Picoseconds now);

  // Carrier of our own port changed (Context::own_up is already right).
  void on_own_port(PlanePort plane, bool up, Picoseconds now);
  static void name_plane(PlanePaths& paths, PlanePort port) {
    if (paths.plane == PlanePaths::kPlaneOfPort) paths.plane = port;
  }
  // Other paths lead to the peer; as many planes as before, and each with its number.
  void on_paths(std::span<const PlanePaths> planes, Picoseconds now);
  void on_request(PlanePort plane, EntropyValue ev, const Bth& bth, const Erth& request, Picoseconds now);
  void on_response(PlanePort plane, const Bth& bth, const Eeth& response, Picoseconds now);
  void on_deadline(Picoseconds now);
  Picoseconds next_deadline() const;
  // Of the next probe of a reverse path, one of the deadlines; kNever while no data comes in.
  Picoseconds refresh_at() const { return refresh_at_; }
  // Set when live() or ready() changed; the NIC tells the queue pairs and clears it.
  bool changed = false;

 private:
  struct Reverse {
    std::uint16_t uplink = 0;
    std::uint8_t misses = 0;
    bool proven = false;  // an answer has come by it, and no doubt since
  };
  struct Recovery {  // of a plane that was down at either end
    bool active = false;
    std::uint8_t answers = 0;
    std::uint16_t id = 0;
    Picoseconds at{}, interval{};
  };
  void take_paths();
  void set_extra();
  std::uint16_t random_uplink(PlanePort plane);
  std::uint16_t send_probe(PlanePort plane, std::uint16_t uplink);
  void miss(PlanePort plane);
  void follow(EntropyValue ev);
  void start_recovery(PlanePort plane, Picoseconds now);
  void update_live();
  void announce_ports(Picoseconds now);
  void send_status(Picoseconds now);
  void measure(Picoseconds now);
  void next_round(Picoseconds now);
  Picoseconds refresh_period() const;
  Picoseconds next_refresh(Picoseconds now);
  void refresh_reverse(Picoseconds now);
  Picoseconds probe_timeout() const;

  Context& context_;
  std::uint32_t index_;
  HostId host_, self_;
  std::vector<PlanePaths> planes_;
  std::array<Reverse, kMaxPlanes> reverse_{};
  PlaneMask peer_up_ = 0xff, live_ = 0, usable_ = 0;
  std::uint8_t control_turn_ = 0, refresh_turn_ = 0;

  Picoseconds base_rtt_{};
  bool stale_rtt_ = false;  // base_rtt_ is of other paths: the next sample replaces it
  Picoseconds extra_{};  // of a whole packet and its SACK, over a probe and its answer
  // Of all links of a path, as if each had the port's rate; a packet that is back sooner than that
  // lowers the RTT (ours).
  double path_ps_per_byte_ = 0;
  std::uint32_t switches_ = 0;
  bool measured_ = true;
  // EV probe of a reverse path.
  Picoseconds refresh_at_ = kNever, last_inbound_{-1}, last_acknowledged_{-1};

  // What no data packet touches.
  RandomStream random_;
  std::array<Recovery, kMaxPlanes> recovery_{};
  std::uint32_t measure_answers_ = 0, measure_timeouts_ = 0;  // of all rounds
  std::uint16_t measure_first_ = 0, measure_sent_ = 0, measure_missing_ = 0;  // of this one
  Picoseconds measure_until_ = kNever;

  struct Refresh {
    bool waiting = false;
    std::uint16_t uplink = 0;
    std::uint16_t id = 0;
    Picoseconds sent{};
  };
  std::array<Refresh, kMaxPlanes> refresh_{};

  std::uint16_t next_probe_id_ = 0;
  std::uint16_t status_id_ = 0;
  Picoseconds status_at_ = kNever, status_interval_{};
  std::uint16_t accepted_id_ = 0;
  bool accepted_any_ = false;
};

}  // namespace loomnet::mrc
