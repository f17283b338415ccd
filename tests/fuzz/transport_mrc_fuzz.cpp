// An MRC NIC against arbitrary packets: input is a list of (port, length, bytes); every second
// packet gets a valid envelope first, so that the fuzzer reaches the queue pair. Nothing may crash,
// leak or hang.
#include <algorithm>
#include <cstdlib>

#include "transport/mrc/dscp.hpp"
#include "transport/mrc/mrc_transport.hpp"
#include "transport/mrc/wire.hpp"

namespace {

using namespace loomnet;

struct Sink final : TransportSink {
  explicit Sink(PacketPool& pool) : pool(pool) {}
  PacketPtr allocate() override { return pool.allocate(); }
  bool place(QpNumber, std::uint32_t key, std::uint64_t, const Payload&) override { return key != 1; }
  void complete(const Completion&) override {}
  void arrived(const Arrival&) override {}
  void event(const TransportEvent&) override {}
  void port_ready(PlanePort) override {}
  PacketPool& pool;
};

QpConfig config() {
  QpConfig c;
  c.local = 100, c.remote = 200, c.source = 0, c.destination = 1;
  PlanePaths p;
  p.row.usids = {usid_t0(1), usid_t1(0), usid_t0(2), usid_host(1)};
  p.row.count = 4;
  p.row.uplink_slot = 1;
  p.uplinks = {0, 1, 2, 3};
  c.planes.assign(2, p);
  return c;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static PacketPool pool;
  static const QpConfig qp = config();
  Sink sink(pool);
  mrc::MrcOptions options = mrc::MrcOptions::sim();
  options.base_rtt = microseconds(13);
  mrc::MrcTransport nic(options, sink, 2);
  Picoseconds now{};
  nic.connect(qp, now);
  WorkRequest request;
  request.length = 100'000;
  nic.on_post(100, request, now);
  bool envelope = false;
  while (size >= 2) {
    const PlanePort port = data[0] & 1;
    const bool payload = data[0] & 2;
    const std::size_t length = std::min<std::size_t>(data[1], size - 2);
    PacketPtr p = pool.allocate();
    if (envelope) {
      Bth bth;
      bth.opcode = static_cast<std::uint8_t>(0xc6 + (data[0] >> 2) % 25);
      bth.destination_qp = data[0] & 128 ? mrc::kEndpointQp : 100;
      bth.timestamp = true;
      bth.psn = length > 0 ? data[2] : 0;
      ByteWriter out = mrc::begin(
          *p, options, {1, 0, &qp.planes[port], EntropyValue(port, 1), mrc::dscp::kTrimmable, Ecn::ect0}, bth);
      out.copy({data + 2, std::min<std::size_t>(length, kMaxHeaderBytes - out.position())});
      mrc::finish(*p, out, {nullptr, payload ? 64u : 0u, 0, PayloadKind::none});
    } else {
      p->header_length = static_cast<std::uint16_t>(std::min(length, kMaxHeaderBytes));
      std::copy_n(data + 2, p->header_length, p->header.data());
      p->wire_length = static_cast<std::uint32_t>(length);
    }
    envelope = !envelope;
    nic.on_packet(port, std::move(p), now);
    for (PlanePort out = 0; out < 2; ++out) {
      for (const QueueClass q : {kControlClass, kDataClass}) {
        for (int i = 0; i < 64 && nic.pull(out, q, now).kind == Pulled::Kind::packet; ++i) {
        }
      }
    }
    now += microseconds(3);
    if (nic.next_deadline() <= now) nic.on_deadline(now);
    if (nic.next_deadline() <= now) std::abort();
    data += 2 + length;
    size -= 2 + length;
  }
  if (pool.outstanding() != 0) std::abort();
  return 0;
}
