// The sending half of a queue pair: messages, the window, the choice of path at the moment of
// transmission, loss, retransmission and probes. OCP MRC 1.0.
#pragma once

#include "packet/rdma.hpp"
#include "transport/congestion.hpp"
#include "transport/congestion/queue_delay.hpp"
#include "transport/mrc/context.hpp"
#include "transport/mrc/peer.hpp"
#include "transport/mrc/send_window.hpp"

namespace loomnet::mrc {

// Growable ring of the requests not yet completed, numbered from 0 for ever.
class MessageQueue {
 public:
  struct Message {
    WorkRequest request;
    PsnCount first = 0, last = 0;
    std::uint64_t begin = 0;  // payload bytes of all messages before it
    std::uint16_t rqmsn = 0;
  };
  std::uint64_t begin() const { return begin_; }
  std::uint64_t end() const { return end_; }
  bool empty() const { return begin_ == end_; }
  Message& operator[](std::uint64_t n) { return ring_[n & (ring_.size() - 1)]; }
  const Message& operator[](std::uint64_t n) const { return ring_[n & (ring_.size() - 1)]; }
  Message& push();
  void pop() { ++begin_; }
  const void* place(std::uint64_t n) const { return ring_.empty() ? nullptr : &(*this)[n]; }

 private:
  std::vector<Message> ring_;
  std::uint64_t begin_ = 0, end_ = 0;
};

class Sender {
 public:
  Sender(Context& context, Peer& peer, const QpConfig& config, std::uint32_t index, Picoseconds now);

  void post(const WorkRequest& request, Picoseconds now);
  // Data and window: something could leave if a port were free (READY).
  bool ready() const { return ready_; }
  bool outstanding() const { return !messages_.empty(); }
  bool failed() const { return failed_; }

  struct Offer {
    enum class Kind : std::uint8_t { packet, other_plane, blocked } kind = Kind::blocked;
    PacketPtr packet;
    int plane = -1;  // other_plane: whose turn it is
  };
  // A data packet for `port` if it is this plane's turn among `free`, drawn now.
  Offer offer(PlanePort port, PlaneMask free, Picoseconds now);

  void on_sack(const Seth& seth, const CcState& cc, bool retransmission_echo, Picoseconds now);
  void on_nack(const Neth& neth, Picoseconds now);
  void on_transport_ack(const Aeth& aeth, Picoseconds now);
  void on_deadline(Picoseconds now);
  Picoseconds next_deadline() const;
  // The peer's live planes or base RTT changed.
  void on_peer_change(Picoseconds now);
  // Other paths lead to the peer; planes of the mask `same` have theirs as before. The peer has changed.
  void on_paths(std::span<const PlanePaths> planes, PlaneMask same);
  static constexpr std::uint64_t kNobody = ~0ull;  // no request is to blame
  // Ends the queue pair: `culprit` gets `status`, every other request is flushed.
  void fail(Status status, std::uint64_t culprit, Picoseconds now);
  void fail(Status status, Picoseconds now) { fail(status, messages_.begin(), now); }

  const EvSet& evs() const { return evs_; }
  const CongestionControl& congestion() const { return *control_; }
  const FlowLimits& limits() const { return limits_; }
  void set_limits(const LimitsSet& set, Picoseconds now);
  const congestion::QueueDelay& delay() const { return delay_; }
  // Bytes that SACKs have told of, counted the same way.
  std::uint64_t delivered() const { return counts_payload() ? delivered_payload_ : delivered_; }
  // What the window counts: payload and headers, or, for a control that counts so, payload alone.
  bool counts_payload() const { return control_->traits.counts_payload; }
  std::uint64_t flight() const { return counts_payload() ? window_.payload_inflight() : window_.inflight(); }
  const SendWindow& window() const { return window_; }
  // Where the next call will look outside this object: the rows of the next and the oldest packet,
  // the message in transmission, the values in rotation.
  using Places = std::array<const void*, 6>;
  Places places() const {
    return {window_.place(window_.next()),
            window_.place(window_.una()),
            messages_.place(sending_),
            evs_.places()[0],
            evs_.places()[1],
            control_.get()};
  }
  bool deny(EntropyValue ev, bool denied, Picoseconds now);
  struct Identity {
    QpNumber local = 0, remote = 0;
    HostId source = 0, destination = 0;
    std::uint32_t flow = 0;
  };
  const Identity& config() const { return config_; }

 private:
  struct PathProbe {  // asks what of one path's packets has arrived
    EvIndex ev = kNoEv;
    std::uint16_t id = 0;
    Picoseconds sent{};
  };
  // Declared lost while packets are refused: the path is asked whether it delivered what was left.
  struct Suspect {
    PsnCount psn = 0;
    EvIndex ev = kNoEv;
    std::uint16_t probe = 0;
    bool deaf = false;  // when no answers came at all
    Picoseconds until{};
  };
  struct BadProbe {  // recovery of one ASSUMED_BAD value
    EvIndex ev = kNoEv;
    std::uint16_t id = 0;
    std::uint8_t answers = 0;
    bool waiting = false;
    Picoseconds at{}, interval{};
  };
  std::uint32_t payload_of(const MessageQueue::Message& m, PsnCount psn) const;
  std::uint64_t mss() const { return context_.options.mtu; }
  std::uint32_t charged(const Sent& s) const { return counts_payload() ? s.payload : s.nominal; }
  std::uint32_t full_charge() const;
  bool window_open(std::uint32_t charge) const;
  void make_control(std::size_t planes);
  void pace(std::uint32_t nominal, Picoseconds now);
  void update_ready(Picoseconds now);
  void count_held(Count why, PsnCount& last);
  std::uint32_t next_charge() const;
  std::uint64_t acked_end() const;
  std::uint64_t sent_end() const;
  bool more_follows() const;
  bool asks(std::uint32_t charge);
  PlaneMask below_share(PlaneMask among) const;
  void fly(PsnCount psn, EvIndex ev, Picoseconds now);
  void requeue(PsnCount psn);
  void note_swap(Picoseconds now);
  PacketPtr build(PsnCount psn, const Sent& sent, bool retransmission, bool ask, Picoseconds now);
  std::uint32_t acknowledge(PsnCount psn, bool is_trigger, bool retransmission_echo, Picoseconds now);
  void complete_arrived();
  void tell(Congestion kind, const Sent& packet, Picoseconds now);
  void charge_refusal(const Sent& packet, Picoseconds now);
  void declare_lost(PsnCount psn, Count why, Picoseconds now);
  void infer_losses(EvIndex acked_ev, Picoseconds acked_sent, bool missing, Picoseconds now);
  void lost_on_path(EvIndex ev, Picoseconds before, bool missing, Count why, Picoseconds now);
  void suspect(PsnCount psn, EvIndex ev, bool deaf, Picoseconds now);
  void convict(PsnCount psn, EvIndex ev, Picoseconds now);
  template <typename Test>
  void convict_all(Test&& test, Picoseconds now);
  bool acquit(PsnCount psn, EvIndex ev);
  void condemn(EvIndex ev, bool at_once, Picoseconds now);
  void readmit(EvIndex ev, bool marked, Picoseconds now);
  void absolve(Sent& sent, Picoseconds now);
  void on_probe_answer(const Seth& seth, const CcState& cc, bool missing, Picoseconds now);
  void drop_bad_probe(EvIndex ev);
  std::uint32_t answers_needed(EvIndex ev) const;
  void send_reliability_probe(EvIndex ev, std::uint16_t id);
  void probe_bad_evs(Picoseconds now);
  void probe_tail(Picoseconds now);
  void probe_path(EvIndex ev, Picoseconds now);
  bool report_missing(const CcState& cc, PsnCount cack) const;
  void ask_again(Picoseconds now);
  void retry_timeout(Picoseconds now);
  Picoseconds rtt() const;
  Picoseconds loaded_rtt() const;
  Picoseconds patience() const;
  bool in_doubt() const;
  Picoseconds rto() const;
  Picoseconds tail_at() const;

  Context& context_;
  Peer& peer_;
  Identity config_;
  std::uint32_t index_;
  EvSet evs_;
  congestion::QueueDelay delay_;
  FlowLimits limits_;
  std::unique_ptr<CongestionControl> control_;
  SendWindow window_;
  MessageQueue messages_;
  std::uint64_t sending_ = 0;  // message of window_.next()
  PsnCount posted_ = 0;        // first PSN no message has
  std::uint64_t posted_bytes_ = 0;
  // The last new packets that were counted as held back: by the window of PSNs, by writes with immediate under way.
  PsnCount held_by_psns_ = ~PsnCount{}, held_by_wimm_ = ~PsnCount{};
  std::uint32_t wimm_inflight_ = 0;
  std::uint16_t wimm_posted_ = 0;
  std::uint32_t window_psns_;
  std::uint32_t unasked_ = 0;  // bytes sent since a packet asked for an answer
  std::array<std::uint64_t, kMaxPlanes> plane_inflight_{};
  bool ready_ = false, failed_ = false;
  bool answered_ = false;  // ever, by a SACK or a refusal
  bool paced_ = false;     // pace_at_ is to come
  std::uint64_t delivered_ = 0, delivered_payload_ = 0;
  Picoseconds pace_at_{};  // until then a window below one packet lets none go

  std::uint32_t retries_ = 0, received_units_ = 0;
  Picoseconds last_rto_{-1}, last_sack_{}, last_progress_{};
  // The longest of late: from a packet's leaving to its refusal, and in the queues of its path.
  Picoseconds refusals_take_{}, longest_wait_{};
  std::uint16_t next_probe_id_ = 0;
  Picoseconds tail_sent_{}, asked_again_{};
  std::uint8_t tail_unanswered_ = 0;
  std::vector<PathProbe> path_probes_;  // unanswered, of the latest rounds
  std::vector<Suspect> suspects_;
  struct Readmission {
    EvIndex ev = kNoEv;
    Picoseconds at{};
  };
  std::vector<BadProbe> bad_;
  std::vector<Readmission> readmissions_;  // the latest of each value that has failed
  Picoseconds bad_at_ = kNever;
};

}  // namespace loomnet::mrc
