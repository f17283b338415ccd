// What the RoCE transport keeps per connection and queue pair, and what it counts. Only the
// roce_*.cpp files of this folder include it.
#pragma once

#include <array>

#include "transport/roce/roce_transport.hpp"

namespace loomnet::roce {

struct RoceTransport::Regulator {
  std::uint32_t index = 0;
  FlowLimits limits;
  std::unique_ptr<CongestionControl> control;
  Picoseconds next_send{};  // pacing lets none leave before
  // Packets that are timed: those that ask for an ACK and are sent once, the oldest first. One that finds
  // no place is not timed.
  struct Timed {
    std::uint64_t sequence;
    Picoseconds at;
  };
  static constexpr std::uint32_t kTimed = 8;
  std::array<Timed, kTimed> timed;
  std::uint32_t first_timed = 0, timed_count = 0;
  std::uint32_t marks = 0;  // that the peer has echoed
  Picoseconds srtt{}, min_rtt = kNever;
  std::uint64_t delivered = 0;  // payload bytes, short packets counted as full ones
  // In bytes as they are: of the queue pairs in whose place this one began, and of this one, acknowledged.
  std::uint64_t begin = 0, acked_end = 0;

  bool measures_rtt() const { return control->traits.sees_acks || control->traits.shows_rtt; }
};

struct RoceTransport::QueuePair {
  Connection* connection = nullptr;
  QueuePair* next_answer = nullptr;
  QueuePair* next_data = nullptr;
  QueuePair* next_cnp = nullptr;
  PlanePort port = 0;  // that it sends by; kNowhere: it has no path
  bool in_answers = false, in_data = false, in_cnps = false;
  bool in_deadlines = false;
  // Queue pairs that have begun in this one's place (on_renew): as sender, and as receiver of the peer's
  // requests. Each has another number and another first PSN, in each direction.
  std::uint32_t lives = 0, peer_lives = 0;
  std::uint32_t send_psn = 0, receive_psn = 0;  // of sequence 0
  std::uint32_t step = 0;  // ring step of its source port, where that changes with the steps
  bool stepped = false;    // false: none yet
  Requester requester;
  Responder responder;
  std::unique_ptr<Regulator> regulator;                 // null without a congestion control
  Picoseconds cnp_due{};                                // the next CNP no sooner
  std::uint32_t marks = 0;  // packets with CE that the responder has accepted
  FlowFront front{};  // lengths and class are set per packet
};

template <auto kNext, auto kWaits>
struct RoceTransport::Chain {
  // Behind all others; false for one that waits already.
  static bool push(ReadyList& list, QueuePair& qp) {
    if (qp.*kWaits) return false;
    qp.*kWaits = true;
    qp.*kNext = nullptr;
    (list.tail ? list.tail->*kNext : list.head) = &qp;
    list.tail = &qp;
    return true;
  }
  // The one whose turn it is, or null.
  static QueuePair* pop(ReadyList& list) {
    QueuePair* qp = list.head;
    if (!qp) return nullptr;
    list.head = qp->*kNext;
    if (!list.head) list.tail = nullptr;
    qp->*kWaits = false;
    return qp;
  }
};
struct RoceTransport::Answers : Chain<&QueuePair::next_answer, &QueuePair::in_answers> {};
struct RoceTransport::Data : Chain<&QueuePair::next_data, &QueuePair::in_data> {};
struct RoceTransport::Cnps : Chain<&QueuePair::next_cnp, &QueuePair::in_cnps> {};

struct RoceTransport::Connection {
  struct Message {
    std::uint64_t id = 0;
    const std::uint8_t* local = nullptr;
    std::uint64_t remote_address = 0;
    std::uint32_t remote_key = 0, length = 0, immediate = 0;
    bool with_immediate = false;
    std::uint8_t parts_open = 0;
    std::uint32_t number = 0;  // WorkRequest::message
    std::uint32_t framing = 0;
    Attributes attributes;
  };

  QpNumber local = 0, remote = 0;
  HostId source = 0, destination = 0;
  std::uint32_t flow = 0;
  std::uint32_t rerouted = 0;  // changes of its paths, and new beginnings
  bool failed = false;
  std::uint8_t ports = 0;  // of the NIC, that QpConfig names
  std::uint8_t planes = 0;  // that a message is striped over
  Ipv6Address local_address{}, remote_address{};
  std::unique_ptr<QueuePair[]> queue_pairs;  // by part of a message
  std::array<std::uint8_t, kMaxPlanes> part_at{};  // by NIC port; kNoPart: it carries none
  Ring<Message> messages;     // posted and not completed, in order
  std::uint64_t first_message = 0;  // number of messages.front()

  Message& message(std::uint64_t number) { return messages[number - first_message]; }
};

// The largest number whose queue pair can begin anew. The numbers of its later lives are above: they stand for
// what a NIC would draw, and what both ends would exchange out of band.
inline constexpr QpNumber kMostRenewable = 0xffff;
constexpr QpNumber number_in(std::uint32_t life, QpNumber first) { return first ^ (life & 0xff) << 16; }
constexpr std::uint32_t life_of(QpNumber number) { return number >> 16; }

struct RoceTransport::Counters {
  std::uint64_t packets_sent = 0, payload_bytes_sent = 0, retransmitted = 0, retransmitted_bytes = 0, acks_sent = 0,
                naks_sent = 0, acks_received = 0, naks_received = 0, acks_stale = 0, acks_out_of_range = 0,
                timeouts = 0, packets_placed = 0, bytes_placed = 0, duplicates_dropped = 0, out_of_order_dropped = 0,
                invalid_requests_dropped = 0, access_errors = 0, failed_qp_dropped = 0, malformed_dropped = 0,
                not_roce_dropped = 0, unknown_opcode_dropped = 0, unknown_qp_dropped = 0, wrong_peer_dropped = 0,
                wrong_port_dropped = 0, corrupt_dropped = 0, ce_received = 0, immediates_delivered = 0,
                immediates_inconsistent = 0, immediates_overflow = 0, messages_posted = 0, messages_completed = 0,
                messages_failed = 0, posts_unknown_qp = 0, connections_failed = 0, cnps_sent = 0, cnps_received = 0;
};

}  // namespace loomnet::roce
