// One NIC against a script: what leaves is pulled and looked at, what arrives is written by hand.
// Every action is remembered; a failed expectation prints the history.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <sstream>

#include "mrc_bed.hpp"
#include "transport/mrc/wire.hpp"

namespace loomnet::mrc {

constexpr HostId kSelf = 0, kFar = 1;
constexpr QpNumber kLocal = 100, kRemote = 200;
constexpr std::uint32_t kMtu = 4096;

// Ends an expectation about the script `s`.
#define HISTORY << s.history()

// A packet that left, taken apart.
struct Left {
  PlanePort port = 0;
  Inbound in;
  Bth bth;
  EntropyValue ev;
  std::uint8_t dscp = 0;
  Meth meth;
  Tseth stamp;
  Reth reth;
  Seth seth;
  CcState cc;
  Neth neth;
  Peth peth;
  Erth erth;
  Eeth eeth;
  Aeth aeth;
  std::uint32_t immediate = 0;
  std::uint32_t payload = 0, wire = 0;
};

class Script : public TransportSink {
 public:
  explicit Script(MrcOptions options, std::size_t planes = 4, std::size_t uplinks = 4)
      : options(options), pool(64), nic(options, *this, planes), planes_(planes) {
    QpConfig c;
    c.local = kLocal;
    c.remote = kRemote;
    c.source = kSelf;
    c.destination = kFar;
    c.planes = c.reverse = cross_paths(planes, uplinks, kFar);
    nic.connect(c, now);
  }

  // --- the sink ---
  PacketPtr allocate() override { return pool.allocate(); }
  bool place(QpNumber, std::uint32_t key, std::uint64_t address, const Payload& p) override {
    note("placed ", p.length, " at ", address);
    placed += p.length;
    return key != 0xbad;
  }
  void complete(const Completion& c) override {
    note("completed ", c.id, " ", to_string(c.status));
    completions.push_back(c);
  }
  void arrived(const Arrival& a) override {
    note("arrived ", a.immediate);
    arrivals.push_back(a);
  }
  void event(const TransportEvent& e) override {
    note("event ", static_cast<int>(e.kind), " ", e.value);
    events.push_back(e);
  }
  void port_ready(PlanePort p) override { woken |= 1u << p; }

  // --- actions ---
  void advance(Picoseconds t) {
    const Picoseconds end = now + t;
    while (nic.next_deadline() <= end) {
      now = std::max(now, nic.next_deadline());
      note("deadline");
      nic.on_deadline(now);
      ASSERT_LT(++deadlines_, 1'000'000) << "deadlines do not move on" << history();
    }
    now = end;
  }
  void post(std::uint32_t length, bool immediate = false, std::uint32_t key = 7) {
    WorkRequest w;
    w.id = ++last_id;
    w.length = length;
    w.remote_address = 0x1000;
    w.remote_key = key;
    w.opcode = immediate ? Opcode::write_with_immediate : Opcode::write;
    w.immediate = static_cast<std::uint32_t>(w.id);
    note("post ", w.id, " length ", length);
    nic.on_post(kLocal, w, now);
  }
  // Pulls what every port has, control first, up to `max` packets; ports take turns.
  std::vector<Left> pull_all(std::size_t max = 10'000) {
    std::vector<Left> out;
    while (out.size() < max) {
      const std::size_t before = out.size();
      Picoseconds later = kNever;
      for (PlanePort p = 0; p < planes_ && out.size() < max; ++p) {
        for (const QueueClass q : {kControlClass, kDataClass}) {
          Pulled pulled = nic.pull(p, q, now);
          if (pulled.kind == Pulled::Kind::not_before) later = std::min(later, pulled.not_before);
          if (pulled.kind != Pulled::Kind::packet) continue;
          EXPECT_EQ(pulled.packet->queue, q);
          out.push_back(read(p, *pulled.packet));
          break;
        }
      }
      if (out.size() > before) continue;
      if (later == kNever) break;
      EXPECT_GT(later, now);
      now = later;  // every port has been asked at this instant
    }
    return out;
  }
  Left read(PlanePort port, const Packet& p) {
    Left l;
    l.port = port;
    const auto why = parse(p, options, l.in);
    EXPECT_FALSE(why) << "malformed packet left: " << to_string(why.value_or(Count::kCount));
    note("  out p", int{port}, " ", describe_packet(p.header_bytes()));
    l.bth = l.in.bth;
    l.ev = l.in.ev;
    l.dscp = l.in.dscp;
    l.payload = p.payload.length;
    l.wire = p.wire_length;
    ByteReader r(l.in.body);
    switch (l.in.op) {
      case Op::sack:
        l.seth = Seth::parse(r), l.cc = CcState::parse(r);
        break;
      case Op::nack:
        l.neth = Neth::parse(r);
        break;
      case Op::transport_ack:
        l.aeth = Aeth::parse(r);
        break;
      case Op::reliability_probe:
        l.peth = Peth::parse(r);
        break;
      case Op::endpoint_request:
        l.erth = Erth::parse(r);
        break;
      case Op::endpoint_response:
        l.eeth = Eeth::parse(r);
        break;
      default:
        l.meth = Meth::parse(r), l.stamp = Tseth::parse(r), l.reth = Reth::parse(r);
        if (has_immediate(l.in.op)) l.immediate = ImmDt::parse(r).immediate;
    }
    EXPECT_TRUE(r.ok());
    l.in.body = {};
    return l;
  }

  // --- packets of the far side ---
  template <typename... Headers>
  void receive(PlanePort port, Op op, std::uint32_t psn, std::uint32_t qp, std::uint8_t dscp, Ecn ecn, EntropyValue ev,
               const std::function<void(Bth&)>& edit, std::uint32_t payload, const Headers&... headers) {
    Bth bth;
    bth.opcode = static_cast<std::uint8_t>(op);
    bth.destination_qp = qp;
    bth.psn = psn;
    if (edit) edit(bth);
    static const auto back = cross_paths(8, 256, kSelf);
    PacketPtr p = pool.allocate();
    ByteWriter w = begin(*p, options, {kFar, kSelf, &back[port], ev, dscp, ecn}, bth);
    (headers.serialize(w), ...);
    finish(*p, w, {nullptr, payload, 0, PayloadKind::none});
    note("  in  p", int{port}, " ", describe_packet(p->header_bytes()));
    nic.on_packet(port, std::move(p), now);
  }
  // Acknowledges up to `cack`, with `bits` from cack + 1 on, triggered by `of`.
  void sack(const Left& of, std::uint32_t cack, std::uint64_t bits = 0, Mark mark = Mark::none) {
    Seth s;
    s.cack_psn = cack;
    s.ack_psn_offset = static_cast<std::int16_t>(Psn(of.bth.psn) - Psn(cack));
    s.sack_offset = 1;
    s.bitmap = bits;
    s.mark = static_cast<std::uint8_t>(mark);
    s.entropy = of.ev.value;
    CcState c;
    c.tx_ts = of.stamp.tx_ts;
    c.rcvd_bytes = rcvd_units;
    receive(
        of.port, Op::sack, cack, kLocal, dscp::kControl, Ecn::not_ect, of.ev,
        [&](Bth& b) { b.retransmission = of.bth.retransmission; }, 0, s, c);
  }
  void nack(const Left& of, NackReason reason) {
    Neth n;
    n.reason = static_cast<std::uint8_t>(reason);
    n.nack_psn = of.bth.psn;
    n.entropy = of.ev.value;
    n.tx_ts = of.stamp.tx_ts;
    receive(of.port, Op::nack, of.bth.psn, kLocal, dscp::kControl, Ecn::not_ect, of.ev, nullptr, 0, n);
  }
  void answer_probe(const Left& probe, std::uint32_t cack, std::uint64_t bits = 0) {
    Seth s;
    s.probe_reply = true;
    s.ack_psn_offset = static_cast<std::int16_t>(probe.peth.probe_id);
    s.cack_psn = cack;
    s.sack_offset = 1;
    s.bitmap = bits;
    s.entropy = probe.ev.value;
    CcState c;
    c.tx_ts = probe.peth.stamp.tx_ts;
    receive(probe.port, Op::sack, cack, kLocal, dscp::kControl, Ecn::not_ect, probe.ev, nullptr, 0, s, c);
  }
  void answer_endpoint(const Left& request) {
    Eeth e;
    e.op = request.erth.op;
    e.tx_ts = request.erth.stamp.tx_ts;
    receive(request.port, Op::endpoint_response, request.bth.psn, kEndpointQp, dscp::kControl, Ecn::not_ect, request.ev,
            nullptr, 0, e);
  }
  struct Data {
    std::uint32_t psn = 0;
    Op op = Op::write_middle;
    std::uint32_t payload = 4096, dma_length = 1 << 20;
    std::uint16_t rqmsn = 0, msn = 0;
    std::uint32_t immediate = 0, key = 7;
    std::uint64_t address = 0x1000;
    bool ask = false, retransmission = false;
    std::uint8_t dscp = dscp::kTrimmable;
    Ecn ecn = Ecn::ect0;
    PlanePort port = 0;
    std::uint16_t uplink = 1;
  };
  void data(const Data& d) {
    const EntropyValue ev(d.port, d.uplink);
    const auto edit = [&](Bth& b) {
      b.timestamp = true;
      b.ack_request = d.ask;
      b.retransmission = d.retransmission;
    };
    const Meth meth{d.rqmsn, d.msn};
    const Tseth stamp{0x1234, false};
    const Reth reth{d.address, d.key, d.dma_length};
    if (has_immediate(d.op)) {
      receive(d.port, d.op, d.psn, kLocal, d.dscp, d.ecn, ev, edit, d.payload, meth, stamp, reth, ImmDt{d.immediate});
    } else {
      receive(d.port, d.op, d.psn, kLocal, d.dscp, d.ecn, ev, edit, d.payload, meth, stamp, reth);
    }
  }

  EvState ev_state(EntropyValue ev) {
    const EvSet& evs = nic.sender(kLocal).evs();
    return evs.state(evs.find(ev));
  }
  std::uint64_t count(Count c) const { return nic.counter(c); }

  template <typename... Args>
  void note(const Args&... args) {
    std::ostringstream line;
    line << now.microseconds() << " us  ";
    (line << ... << args);
    lines_.push_back(line.str());
  }
  std::string history() const {
    std::string out = "\n";
    for (std::size_t i = lines_.size() > 120 ? lines_.size() - 120 : 0; i < lines_.size(); ++i) {
      out += lines_[i] + "\n";
    }
    return out;
  }

  MrcOptions options;
  PacketPool pool;
  Picoseconds now = microseconds(1);
  MrcTransport nic;
  std::vector<Completion> completions;
  std::vector<Arrival> arrivals;
  std::vector<TransportEvent> events;
  std::uint64_t placed = 0, last_id = 0;
  std::uint32_t rcvd_units = 0;
  unsigned woken = 0;

 private:
  std::size_t planes_;
  std::vector<std::string> lines_;
  int deadlines_ = 0;
};

}  // namespace loomnet::mrc
