// Every constant of MRC in one place, with the published defaults of both run modes.
// Source: OCP MRC 1.0 unless another one is named. [api]: the MRC API headers that the Open Compute Project
// publishes; [code: uet-htsim]: htsim's model of Ultra Ethernet; (ours): no publication states it.
#pragma once

#include <cstdint>
#include <string>

#include "clock/time.hpp"
#include "packet/step_stamp.hpp"
#include "packet/usid.hpp"
#include "transport/congestion.hpp"

namespace loomnet::mrc {

enum class LossInference : std::uint8_t { sleek, same_ev, rto_only };
enum class SackBase : std::uint8_t { covering, max, trigger };
enum class QueueDelayBy : std::uint8_t { sample, median };             // arXiv 2509.07907
// How turns go to planes whose paths are not all in use. `paths`: a plane's share of the
// packets and of the window is that of its values in rotation, as rotation over all values gives it.
// `equal`: each plane has the same share whatever it has lost, as where one of U uplinks of a plane
// costs 1/U of a node's rate; a mark then moves no turn to another plane.
enum class PlaneTurns : std::uint8_t { paths, equal };
// What an ECN mark does. `path`: the marked path passes its next turn, and the congestion control is told.
// `window`: the control alone is told (ours, to compare with hosts that have one path).
enum class EcnReaction : std::uint8_t { path, window };

// What a sender tells a congestion control.
inline constexpr Signals kSignals = signal::rtt | signal::marks | signal::refusals | signal::line_rate;

struct MrcOptions {
  bool software_time = false;  // net(), not sim(), is what the options are on top of

  // --- packets -------------------------------------------------------------------------------
  std::uint32_t mtu = 4096;       // payload bytes per packet: 4096 sim, 2048 net (ours)
  std::uint16_t udp_port = 4971;  // as printed in the specification
  // none or hdr: data carries a step header between UDP and BTH. An addition of Loomnet's.
  StepIdentity identity = StepIdentity::none;
  EvOrder ev_order = EvOrder::flow_label_then_port;
  bool coarse_timestamps = false;  // tsr: 128 ns sim, 1 us net (OCP MRC 1.0 and ours)
  bool ecn = true;                 // ECT(0) on data
  bool trim_nack = true;           // data is TRIMMABLE; false: NO_TRIM
  std::uint32_t first_psn = 0;     // both ends alike (ours)

  // --- the path's scale ------------------------------------------------------------------------
  Picoseconds network_rtt = microseconds(13);  // 13 us at 800G; what NSCC is scaled by
  BitsPerSecond port_rate = gigabits(100);     // of one plane
  // Of a QP, a whole packet there and its SACK back; 0: measured at connect by 16 EV probes, to
  // which the time is added that a whole packet takes longer over the links of the path.
  Picoseconds base_rtt{};
  std::uint32_t rtt_probes = 16;               // (ours)
  std::uint32_t rtt_probe_rounds = 3;  // unanswered rounds before network_rtt is taken (ours)

  // --- entropy values ----------------------------------------------------------------------
  std::uint32_t evs_per_qp = 256;           // E = min(256, P*U) (ours); 128-256 (arXiv 2605.04333)
  double backup_share = 0.25;               // of the active ones per plane, at least 1 (ours)
  double min_active_share = 0.25;           // ev_min_active = E/4 [api]
  std::uint32_t losses_to_bad = 1;          // 1 (arXiv 2605.04333); 1-3
  std::uint32_t readmit_answers = 3;        // consecutive probe answers (ours)
  std::uint32_t readmit_answers_again = 5;  // if the EV had failed before (ours)
  // Doubled at every further failure, up to this: a path that loses a share p of its packets
  // answers n probes in a row with (1-p)^n, so 5 answers let 20 % loss back within milliseconds,
  // again and again (ours). A path that then served for 100 probe caps starts anew (ours).
  std::uint32_t readmit_answers_most = 64;
  std::uint32_t readmit_forget_caps = 100;
  PlaneTurns plane_turns = PlaneTurns::paths;
  EcnReaction ecn_reaction = EcnReaction::path;
  std::uint32_t probe_start_rtts = 4;       // first probe of a bad EV (ours)
  Picoseconds probe_cap = milliseconds(1);  // 1 ms sim, 200 ms net (ours)
  Picoseconds probe_timeout = microseconds(50);  // max(4 RTT, 50 us) sim, 100 ms net (ours)

  // --- loss and timers ---------------------------------------------------------------------
  LossInference loss_infer = LossInference::sleek;
  std::uint32_t sleek_packets = 5;         // never fewer than 5 packets [code: uet-htsim]
  Picoseconds rto = microseconds(100);     // floor: 100 us sim, 1.024 us * 2^14 net (ours)
  std::uint32_t rto_drains = 6;  // at least RTT + 6 queue drains, or two per switch on the way (ours)
  // … and so many more while packets are refused: a control queue of four times the data queue at the
  // last hop, 6 BDP, drains at a quarter of the link in 24 RTT. It and this are twice as much for
  // packets half as long as 4,096 B, and so on (ours).
  std::uint32_t rto_refused_drains = 24;
  Picoseconds rto_max = milliseconds(1);   // doubling stops here, as for probes (ours)
  std::uint32_t retries_linear = 7;        // [api]
  std::uint32_t retries_exponential = 25;  // 25 = for ever [api]
  // No byte acknowledged for so long while data waits: retry_exceeded, even where retries have no
  // end, so that a dead peer ends in an error (ours). 0: never.
  Picoseconds peer_timeout = seconds(1);

  // --- windows
  // -------------------------------------------------------------------------------------
  // In 128 PSNs; 0: as many as hold two bandwidth-delay products, at least the 8 of [api], which
  // would cap eight ports of 400 Gb/s at two thirds of their rate.
  std::uint8_t mpr = 0;
  bool dynamic_mpr = true;       // a SACK's mpr replaces the window
  std::uint32_t max_wimm = 128;  // writes with immediate in flight [api]

  // --- acknowledgement
  // -----------------------------------------------------------------------
  SackBase sack_base = SackBase::covering;
  std::uint32_t sack_bytes = 16'384;  // [code: uet-htsim]
  std::uint32_t min_charge = 1'024;   // per packet towards sack_bytes (OCP MRC 1.0)

  // --- congestion control
  // --------------------------------------------------------------------
  std::string congestion = "nscc";  // by registered name
  OptionValues congestion_options;  // of that control
  QueueDelayBy nscc_delay = QueueDelayBy::sample;

  // --- ports and reverse paths
  // ---------------------------------------------------------------
  std::uint32_t port_up_answers = 3;  // EV probes answered before a port is used again (ours)
  Picoseconds port_status_start{};    // 0: 4 RTT (sim); 20 ms net (ours)
  Picoseconds port_status_cap = milliseconds(1);  // doubling to 1 ms sim; fixed 20 ms net (ours)
  Picoseconds reverse_probe_floor{};  // period max(RTT, floor): RTT sim, 10 ms net (arXiv 2605.04333)
  std::uint32_t reverse_misses = 3;   // probes unanswered before a plane is avoided (ours)

  std::uint64_t seed = 1;  // of the EV shuffles and random reverse EVs

  // Constants of hardware time, for models on the virtual clock.
  static MrcOptions sim(Picoseconds net_rtt = microseconds(13), BitsPerSecond port_rate = gigabits(100));
  // Constants of software time, for real packets.
  static MrcOptions net(Picoseconds net_rtt = milliseconds(1), BitsPerSecond port_rate = megabits(125));

  // What mpr = 0 stands for on a NIC of so many ports.
  std::uint8_t window_for(std::size_t ports) const;
  static const OptionTable<MrcOptions>& table();
  // Options by name on top of sim() or net(), those of the congestion control among them. Throws
  // std::invalid_argument.
  static MrcOptions of(const OptionValues& values);
  // Throws std::invalid_argument naming the field.
  void check() const;
  bool operator==(const MrcOptions&) const = default;

  Picoseconds timestamp_unit() const { return coarse_timestamps ? microseconds(1) : nanoseconds(128); }
  std::uint16_t timestamp(Picoseconds now) const { return static_cast<std::uint16_t>(now / timestamp_unit()); }
  // Time since an echoed timestamp, modulo its wrap.
  Picoseconds since(std::uint16_t echoed, Picoseconds now) const {
    return timestamp_unit() * static_cast<std::uint16_t>(timestamp(now) - echoed);
  }
};

}  // namespace loomnet::mrc
