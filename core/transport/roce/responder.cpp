// The responder's checks, in the order the architecture gives them: PSN, opcode sequence, length.
#include "transport/roce/responder.hpp"

#include "transport/roce/requester.hpp"

namespace loomnet::roce {

Responder::Verdict Responder::judge(const Received& packet, std::uint32_t initial_psn, std::uint32_t mtu) {
  if (error_ != 0) {
    ack_due_ = true;
    return Verdict::refused_state;
  }
  const std::int64_t distance = psn_distance(packet.psn, initial_psn, expected_);
  if (distance < 0) {
    ack_due_ = true;
    return Verdict::duplicate;
  }
  if (distance > 0) {
    if (!nak_sent_) {
      nak_sent_ = nak_due_ = true;
      ack_due_ = false;
      nak_sequence_ = expected_;
      nak_msn_ = msn_;
    }
    return Verdict::gap;
  }

  const bool starts = starts_message(packet.opcode);
  if (starts == in_message_) {
    fail(Aeth::kNakInvalidRequest);
    return Verdict::invalid;
  }
  const std::uint32_t total = starts ? packet.reth.dma_length : total_;
  const std::uint32_t remaining = starts ? packet.reth.dma_length : remaining_;
  const bool fits = ends_message(packet.opcode) ? packet.payload_length == remaining && packet.payload_length <= mtu
                                                : packet.payload_length == mtu && packet.payload_length < remaining;
  if (!fits) {
    fail(Aeth::kNakInvalidRequest);
    return Verdict::invalid;
  }
  if (starts) {
    start_ = address_ = packet.reth.address;
    key_ = packet.reth.key;
    total_ = total;
    remaining_ = remaining;
  }
  return Verdict::accept;
}

bool Responder::placed(const Received& packet, Executed& out) {
  ++expected_;
  nak_sent_ = false;
  in_message_ = !ends_message(packet.opcode);
  address_ += packet.payload_length;
  remaining_ -= packet.payload_length;
  if (packet.ack_request) ack_due_ = true;
  if (in_message_) return false;
  msn_ = (msn_ + 1) & kMask24;
  if (!carries_immediate(packet.opcode)) return false;
  out = {start_, total_, packet.immediate};
  return true;
}

Responder::Answer Responder::answer() {
  if (nak_due_) {
    nak_due_ = false;
    return {Aeth::kNakSequence, nak_sequence_, nak_msn_};
  }
  ack_due_ = false;
  if (error_ != 0) return {error_, expected_, msn_};
  return {Aeth::kAck, expected_ - 1, msn_};
}

}  // namespace loomnet::roce
