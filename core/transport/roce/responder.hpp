// Receiving half of one RC queue pair: accepts requests in PSN order only, checks each against the
// message it belongs to, and decides what acknowledgement is due.
// InfiniBand Architecture Vol. 1, 9.7.4 (responder checks) and 9.9.3 (responder error behaviour).
#pragma once

#include <cstdint>

#include "transport/roce/packet_format.hpp"
#include "transport/roce/ring.hpp"

namespace loomnet::roce {

// One part's write-with-immediate that has executed on this queue pair.
struct Executed {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint32_t immediate = 0;
};

class Responder {
 public:
  enum class Verdict : std::uint8_t {
    accept,        // in order and sound: place it, then call placed() or refuse()
    duplicate,     // seen before: acknowledged again, not executed
    gap,           // beyond a hole: dropped; the first one of a hole draws a NAK
    invalid,       // in order, but not what the message allows: NAK invalid request
    refused_state  // the queue pair has failed; its NAK is repeated
  };

  Verdict judge(const Received& packet, std::uint32_t initial_psn, std::uint32_t mtu);
  // Where the accepted packet's payload belongs.
  std::uint64_t address() const { return address_; }
  std::uint32_t key() const { return key_; }
  // The payload is in memory. True if that ended a message with immediate: take it from `out`.
  bool placed(const Received& packet, Executed& out);
  // The accepted packet cannot be executed: this queue pair is done, `syndrome` says why.
  void refuse(std::uint8_t syndrome) { fail(syndrome); }
  // It has sent, or will send, a NAK that ends the connection; repeated should it get lost.
  bool failed() const { return error_ != 0; }

  bool answer_due() const { return nak_due_ || ack_due_; }
  // The oldest answer that is due, as (syndrome, PSN count it names). Another one may be due behind it.
  struct Answer {
    std::uint8_t syndrome;
    std::uint64_t sequence;
    std::uint32_t msn;
  };
  Answer answer();

  Ring<Executed> executed;  // waiting for the other planes' parts

 private:
  void fail(std::uint8_t syndrome) {
    error_ = syndrome;
    nak_due_ = false;
    ack_due_ = true;
  }

  std::uint64_t expected_ = 0;  // PSN count
  std::uint64_t address_ = 0;   // of the next byte
  std::uint64_t start_ = 0;     // of the message
  std::uint32_t key_ = 0;
  std::uint32_t total_ = 0, remaining_ = 0;  // bytes of the message
  std::uint32_t msn_ = 0;                    // messages completed, 24 bits
  std::uint8_t error_ = 0;                   // NAK syndrome once failed
  bool in_message_ = false;
  // A NAK acknowledges all below its PSN, so it takes the place of an ACK that was due before it. What was
  // dropped behind the hole is sent again because of the NAK alone: so a NAK that waits for the port leaves
  // even where the missing packet comes first, and an ACK that falls due meanwhile leaves behind it.
  bool nak_due_ = false;
  bool ack_due_ = false;
  bool nak_sent_ = false;  // one NAK per hole (9.7.5.1.2): a lost one is the timer's business
  std::uint64_t nak_sequence_ = 0;  // of the NAK that is due: the PSN count that was missing
  std::uint32_t nak_msn_ = 0;
};

}  // namespace loomnet::roce
