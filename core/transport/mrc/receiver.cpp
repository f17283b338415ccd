// Data in, answers out; see receiver.hpp.
#include "transport/mrc/receiver.hpp"

#include <algorithm>

#include "transport/mrc/dscp.hpp"

namespace loomnet::mrc {
namespace {

constexpr std::size_t kRefusalsKept = 64;  // to be repeated when asked (ours)

}  // namespace

Receiver::Receiver(Context& context, Peer& peer, QpNumber local, std::uint32_t index)
    : context_(context), peer_(peer), local_(local), index_(index) {
  window_.start(kPsnOrigin + context.options.first_psn);
}

void Receiver::answer(const Control& control) {
  const int plane = peer_.control_plane();
  if (plane < 0) return context_.count(Count::drop_control_no_path);
  context_.push_control(static_cast<PlanePort>(plane), control);
}

void Receiver::send_sack(const Inbound& in, PsnCount psn, const Tseth& stamp) {
  Control c;
  c.kind = Op::sack;
  c.owner = index_;
  c.psn = psn;
  c.entropy = in.ev.value;
  c.tx_ts = stamp.tx_ts;
  c.retransmission = in.bth.retransmission;
  c.mark = static_cast<std::uint8_t>(in.ecn == Ecn::ce ? Mark::skip_once : Mark::none);
  c.prompt = in.ecn == Ecn::ce || in.bth.ack_request;
  trigger_ = 0;
  answer(c);
}

void Receiver::send_nack(const Inbound& in, PsnCount psn, const Tseth& stamp, NackReason reason) {
  Control c;
  c.kind = Op::nack;
  c.owner = index_;
  c.psn = psn;
  c.entropy = in.ev.value;
  c.tx_ts = stamp.tx_ts;
  c.code = static_cast<std::uint8_t>(reason);
  answer(c);
}

bool Receiver::send_nak(std::uint8_t syndrome, std::uint16_t msn) {
  Control c;
  c.kind = Op::transport_ack;
  c.owner = index_;
  c.code = syndrome;
  c.message = msn;
  answer(c);
  return false;
}

void Receiver::refuse(const Inbound& in) {
  context_.count(Count::drop_qp_error);
  if (is_data(in.op) || in.op == Op::reliability_probe) {
    send_nack(in, in.bth.psn, {}, NackReason::unexpected_event);
  }
}

bool Receiver::on_data(const Inbound& in, const Payload& payload, Picoseconds now) {
  const auto drop = [&](Count why) {
    context_.count(why);
    return true;
  };
  if (!in.bth.timestamp) return drop(Count::drop_no_timestamp);
  ByteReader reader(in.body);
  const Meth meth = Meth::parse(reader);
  const Tseth stamp = Tseth::parse(reader);
  if (stamp.format != kFormatTimestamp) return drop(Count::drop_no_timestamp);
  const PsnCount psn = Psn(in.bth.psn).unwrap(window_.cack());
  const std::uint32_t mpr = context_.options.mpr;
  if (in.ecn == Ecn::ce) context_.count(Count::ce_received);
  if (in.trimmed) context_.count(Count::trimmed_received);
  const Arrived arrived = window_.classify(psn, mpr);
  // Sent again, whole: the sender may not have heard of it.
  const bool again = !in.trimmed && (in.bth.retransmission || arrived == Arrived::duplicate);
  peer_.data_received(in.way(), again, now);

  switch (arrived) {
    case Arrived::beyond_window:
      send_nack(in, psn, stamp, NackReason::psn_out_of_window);
      return true;
    case Arrived::duplicate:  // whole or trimmed
      context_.count(Count::data_duplicate);
      send_sack(in, psn, stamp);
      return true;
    case Arrived::fresh:
      break;
  }
  if (in.trimmed) {
    const bool last_hop = in.dscp == dscp::kTrimmedLastHop;
    const auto reason = last_hop ? NackReason::trimmed_last_hop : NackReason::trimmed;
    send_nack(in, psn, stamp, reason);
    if (refused_.size() < kRefusalsKept) refused_.emplace_back();
    refused_[refusals_++ % kRefusalsKept] = {psn, in.ev.value, stamp.tx_ts, static_cast<std::uint8_t>(reason), false};
    if (in.bth.ack_request) {
      // The trimmed packet's ask holds for the packets before it, some of which may arrive later.
      asked_ = std::max(asked_, psn - 1);
      if (trigger_ > 0) send_sack(in, window_.cack(), stamp);
    }
    return true;
  }

  const Reth reth = Reth::parse(reader);
  const bool whole = in.op == Op::write_only || in.op == Op::write_only_immediate;
  if (!reader.ok() || payload.length > reth.dma_length || (whole && payload.length != reth.dma_length) ||
      (!whole && payload.length == 0)) {
    return drop(Count::drop_bad_message);
  }
  const bool immediate = has_immediate(in.op);
  if (immediate && pending_.size() >= context_.options.max_wimm) {
    return send_nak(Aeth::kNakInvalidRequest, meth.msn);
  }
  if (!context_.sink->place(local_, reth.key, reth.address, payload)) {
    return send_nak(Aeth::kNakRemoteAccess, meth.msn);
  }
  if (immediate) {
    PendingImmediate p;
    p.psn = psn;
    p.rqmsn = meth.rqmsn;
    p.arrival = {local_, ImmDt::parse(reader).immediate, reth.dma_length,
                 reth.address + payload.length - reth.dma_length};
    if (pending_.capacity() == 0) pending_.reserve(std::min(16u, context_.options.max_wimm));
    const auto at =
        std::find_if(pending_.rbegin(), pending_.rend(), [psn](const PendingImmediate& q) { return q.psn < psn; });
    pending_.insert(at.base(), p);
  }
  const std::uint32_t nominal = nominal_bytes(payload.length, immediate);
  received_bytes_ += nominal;
  context_.count(Count::data_received);
  context_.count(Count::bytes_placed, payload.length);
  const bool owed = asked_ > window_.cack();
  window_.accept(psn, mpr);
  if (!release_immediates()) return send_nak(Aeth::kNakInvalidRequest, meth.msn);

  trigger_ += std::max(nominal, context_.options.min_charge);
  // A packet that asks often overtakes others on longer queues, above all the short last one of a
  // message; what they add is asked for as well, or it would wait for the sender's tail probe. So
  // the ask is answered once more when all up to it has arrived (ours).
  const bool settled = owed && asked_ <= window_.cack();
  if (in.bth.ack_request) asked_ = std::max(asked_, psn);
  if (in.ecn == Ecn::ce || in.bth.retransmission || in.bth.ack_request || settled ||
      trigger_ >= context_.options.sack_bytes) {
    send_sack(in, psn, stamp);
  }
  return true;
}

// An immediate is executed once every PSN up to its message's last has arrived: all that was posted
// before it is in place, and immediates come in the order of posting (ours, stricter than OCP MRC 1.0).
bool Receiver::release_immediates() {
  std::size_t done = 0;
  bool in_order = true;
  for (; done < pending_.size() && pending_[done].psn <= window_.cack(); ++done) {
    if (pending_[done].rqmsn != static_cast<std::uint16_t>(immediates_ + 1)) {
      in_order = false;
      break;
    }
    ++immediates_;
    context_.count(Count::immediates_delivered);
    context_.sink->arrived(pending_[done].arrival);
  }
  if (done > 0) pending_.erase(pending_.begin(), pending_.begin() + static_cast<long>(done));
  return in_order;
}

// A probe asks what has become of the packets of its path. Refusals of them are repeated ahead of its
// answer: one that was lost would leave a packet that was trimmed looking like one that the path lost.
// Once it has come whole, one repetition is enough: more, to many probes, would fill the way back.
void Receiver::repeat_refusals(EntropyValue ev, PlanePort plane) {
  const std::uint64_t oldest = refusals_ - refused_.size();
  for (std::uint64_t n = oldest; n < refusals_; ++n) {
    Refusal& r = refused_[n % kRefusalsKept];
    if (r.entropy != ev.value) continue;
    const bool missing = window_.classify(r.psn, context_.options.mpr) == Arrived::fresh;
    if (r.repeated && !missing) continue;
    r.repeated = true;
    Control c;
    c.kind = Op::nack;
    c.owner = index_;
    c.psn = r.psn;
    c.entropy = r.entropy;
    c.tx_ts = r.tx_ts;
    c.code = r.reason;
    context_.push_control(plane, c);
  }
}

void Receiver::on_probe(const Inbound& in, const Peth& peth) {
  window_.forget_reports();
  // The way it came, where that leads back (ours): a sender that hears nothing asks several paths,
  // and learns of one that delivers both ways.
  const bool back = peer_.leads_back(in.way());
  const int plane = back ? static_cast<int>(in.port) : peer_.control_plane();
  if (plane < 0) return context_.count(Count::drop_control_no_path);
  repeat_refusals(in.ev, static_cast<PlanePort>(plane));
  Control c;
  c.fixed_path = back;
  c.uplink = in.ev.uplink();
  c.kind = Op::sack;
  c.owner = index_;
  c.probe_reply = true;
  c.id = peth.probe_id;
  c.entropy = in.ev.value;
  c.tx_ts = peth.stamp.tx_ts;
  c.mark = static_cast<std::uint8_t>(in.ecn == Ecn::ce ? Mark::skip_once : Mark::none);
  trigger_ = 0;
  context_.push_control(static_cast<PlanePort>(plane), c);
}

bool Receiver::fill_sack(const Control& control, Seth& seth, CcState& cc) {
  const PsnCount cack = window_.cack();
  const ReceiveWindow::Sack sack = window_.build(context_.options.sack_base, control.psn, control.prompt);
  seth.entropy = control.entropy;
  seth.cack_psn = Psn::wrap(cack).raw();
  seth.mpr = context_.options.dynamic_mpr ? context_.options.mpr : 0;
  seth.sack_offset = static_cast<std::int16_t>(sack.base - cack);
  seth.bitmap = sack.bitmap;
  // A probe's answer comes last, after SACKs that tell all there is: silence then means loss.
  seth.probe_reply = control.probe_reply && !sack.more;
  if (control.probe_reply) {
    seth.ack_psn_offset = seth.probe_reply ? static_cast<std::int16_t>(control.id) : 0;
  } else {
    const auto offset = static_cast<std::int64_t>(control.psn - cack);
    seth.ack_psn_offset = static_cast<std::int16_t>(std::clamp<std::int64_t>(offset, -32'768, 32'767));
  }
  if (control.first || seth.probe_reply) seth.mark = control.mark;
  cc.tx_ts = control.tx_ts;
  cc.ooo = static_cast<std::uint16_t>(std::min(window_.out_of_order(), 0x7fffu));
  cc.rcvd_bytes = static_cast<std::uint32_t>((received_bytes_ + 255) / 256) & kMask24;
  return sack.more;
}

}  // namespace loomnet::mrc
