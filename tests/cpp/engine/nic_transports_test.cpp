// Several transports on one NIC: whose turn it is, whose frame it is, whose deadline, and three real
// ones under load and loss at once.
#include "engine/nic_bed.hpp"
#include "packet/ethernet.hpp"
#include "packet/ipv6.hpp"
#include "packet/udp.hpp"
#include "traffic/flow_traffic.hpp"

namespace loomnet {
namespace {

using testing::Clos;
using testing::ClosShape;
using testing::counter;

// Sends what a test has laid out for it and notes what reaches it.
class Scripted final : public Transport {
 public:
  Scripted(TransportSink& sink, std::string name, std::uint16_t port)
      : sink_(sink), name_(std::move(name)), port_(port) {}
  std::string_view name() const override { return name_; }
  FrameProtocol protocol() const override { return {kNextHeaderUdp, port_}; }
  void connect(const QpConfig&, Picoseconds) override {}
  void on_post(QpNumber, const WorkRequest&, Picoseconds) override {}
  void on_packet(PlanePort, PacketPtr packet, Picoseconds) override { heard.push_back(packet->queue); }
  void on_port(PlanePort, bool, Picoseconds) override {}
  void on_deadline(Picoseconds now) override {
    served.push_back(now);
    deadline = kNever;
  }
  Pulled pull(PlanePort, QueueClass queue, Picoseconds) override {
    unsigned& left = queue == kControlClass ? control : data;
    if (left == 0) return Pulled::idle();
    --left;
    PacketPtr packet = sink_.allocate();
    ByteWriter out(packet->header);
    EthernetHeader{}.serialize(out);
    Ipv6Header ip;
    ip.next_header = kNextHeaderUdp;
    ip.payload_length = 1000;
    ip.serialize(out);
    UdpHeader udp;
    udp.destination_port = port_;
    udp.length = 1000;
    udp.serialize(out);
    packet->header_length = static_cast<std::uint16_t>(out.position());
    packet->wire_length = 54 + 1000;
    packet->queue = queue;
    packet->flow = port_;
    return Pulled::of(std::move(packet));
  }
  Picoseconds next_deadline() const override { return deadline; }
  bool outstanding() const override { return control + data > 0; }
  void counters(std::vector<TransportCounter>&) const override {}

  unsigned control = 0, data = 0;
  Picoseconds deadline = kNever;
  std::vector<QueueClass> heard;
  std::vector<Picoseconds> served;

 private:
  TransportSink& sink_;
  std::string name_;
  std::uint16_t port_;
};

// Two hosts on one link, with scripted transports on UDP ports 1 and 2; `sent` are the ports of the
// frames that host 0 sent, in order.
struct Pair {
  Network network{1};
  std::array<Scripted*, 2> near{}, far{};
  Pair() {
    for (unsigned h = 0; h < 2; ++h) {
      Nic& nic = network.nic(network.add_host(1));
      for (std::uint16_t port = 1; port <= 2; ++port) {
        auto made = std::make_unique<Scripted>(nic.sink(), "scripted" + std::to_string(port), port);
        (h == 0 ? near : far)[port - 1] = made.get();
        nic.set_transport(std::move(made));
      }
    }
    const LinkConfig link{.rate = gigabits(100), .delay = microseconds(1)};
    network.connect({0, 0}, {1, 0}, link, link);
  }
};

TEST(NicTransports, ControlOfAnyGoesBeforeDataAndEachHasItsTurn) {
  Pair pair;
  for (Scripted* t : pair.near) t->control = 2, t->data = 10;
  pair.near[1]->data = 4;
  pair.network.nic(0).sink().port_ready(0);
  pair.network.nic(0).set_port(0, true, {});  // any call lets the NIC send
  // In the time of four frames the four of control pass; in that of eight more, four data each.
  const Picoseconds frame = serialization_time(1054 + kFramingOverhead, gigabits(100));
  const auto after = [&](int frames) { pair.network.run_until(microseconds(1) + frame * frames); };
  after(4);
  for (Scripted* t : pair.far) EXPECT_EQ(t->heard, std::vector<QueueClass>(2, kControlClass));
  after(12);
  for (Scripted* t : pair.far) EXPECT_EQ(t->heard.size(), 6u);
  after(18);  // the second had no more
  EXPECT_EQ(pair.far[0]->heard.size(), 12u);
  EXPECT_EQ(pair.far[1]->heard.size(), 6u);
  EXPECT_EQ(pair.network.nic(1).counters().transport_absent, 0u);
}

TEST(NicTransports, EachIsCalledAtItsOwnDeadline) {
  Pair pair;
  pair.near[0]->deadline = microseconds(30);
  pair.near[1]->deadline = microseconds(10);
  pair.network.nic(0).set_port(0, true, {});
  pair.network.run_until(milliseconds(1));
  EXPECT_EQ(pair.near[0]->served, std::vector{microseconds(30)});
  EXPECT_EQ(pair.near[1]->served, std::vector{microseconds(10)});
}

TEST(NicTransports, FramesOfNoTransportAreCounted) {
  Pair pair;
  Scripted other(pair.network.nic(0).sink(), "other", 9);
  other.data = 1;
  PacketPtr frame = other.pull(0, kDataClass, {}).packet;
  pair.network.nic(1).receive(0, std::move(frame), {});
  const std::uint8_t noise[100] = {};
  pair.network.inject({1, 0}, noise);
  EXPECT_EQ(pair.network.nic(1).counters().transport_absent, 2u);
  EXPECT_EQ(pair.network.pool().outstanding(), 0u);
}

TEST(NicTransports, TwoThatCannotBeToldApartAreRefused) {
  Pair pair;
  Nic& nic = pair.network.nic(0);
  EXPECT_THROW(nic.set_transport(std::make_unique<Scripted>(nic.sink(), "other", 2)), std::invalid_argument);
  // One of the same name takes the place of the old, until that has queue pairs.
  nic.set_transport(std::make_unique<Scripted>(nic.sink(), "scripted1", 7));
  EXPECT_EQ(nic.transports().size(), 2u);
  nic.connect({.local = 300, .destination = 1}, {}, {}, "scripted1");
  EXPECT_THROW(nic.set_transport(std::make_unique<Scripted>(nic.sink(), "scripted1", 7)), std::invalid_argument);
  EXPECT_THROW(nic.connect({.local = 300, .destination = 1}, {}, {}, "scripted2"), std::invalid_argument);
  EXPECT_THROW(nic.connect({.local = 301, .destination = 1}, {}, {}, "none"), std::invalid_argument);
}

// Every host writes to every other over each transport, while links lose packets and flap.
TEST(NicTransports, ThreeSideBySideUnderLoadAndLossLoseNothing) {
  constexpr std::string_view kNames[] = {"mrc", "roce", "tcp"};
  ClosShape shape{.planes = 2, .leaves = 2, .spines = 2, .hosts_per_leaf = 2};
  shape.host_link.data_limit = shape.fabric_link.data_limit = 60'000;
  shape.fabric_link.trim = shape.host_link.trim = true;
  Network network(5);
  Clos clos(network, shape);
  testing::equip(network, shape.hosts(), shape.host_link.rate, {"mrc", "roce", "tcp"});
  network.half(clos.fabric_link(0, 0, 0), true).set_impairment({.loss = 0.01}, {});
  network.schedule(microseconds(100), LinkChange{.link = clos.host_link(1, 2), .up = false});
  network.schedule(microseconds(300), LinkChange{.link = clos.host_link(1, 2), .up = true});
  FlowTraffic flows(network, true);
  QpNumber qp = 0x100;
  for (const auto name : kNames) {
    for (unsigned a = 0; a < shape.hosts(); ++a) {
      for (unsigned b = 0; b < shape.hosts(); ++b) {
        if (a == b) continue;
        clos.connect(a, qp, b, qp + 1, qp, {}, name);
        flows.add({.source = a, .destination = b, .qp = qp, .bytes = 400'000, .message = 1 << 16});
        qp += 2;
      }
    }
  }
  flows.start();
  network.run_until(seconds(10));
  ASSERT_TRUE(flows.done());
  for (const FlowResult& r : flows.results()) EXPECT_EQ(r.status, Status::ok);
  EXPECT_EQ(flows.wrong(), 0u);
  network.run_until(network.now() + milliseconds(50));
  EXPECT_EQ(network.pool().outstanding(), network.held());
  for (unsigned h = 0; h < shape.hosts(); ++h) {
    Nic& nic = network.nic(h);
    EXPECT_EQ(nic.counters().transport_absent, 0u);
    // Nobody was handed another's frame.
    EXPECT_EQ(counter(*nic.transport("roce"), "not_roce_dropped"), 0u);
    EXPECT_EQ(counter(*nic.transport("tcp"), "not_tcp_dropped"), 0u);
    EXPECT_EQ(counter(*nic.transport("mrc"), "drop_not_tunnel"), 0u);
    EXPECT_EQ(counter(*nic.transport("mrc"), "drop_not_udp"), 0u);
    EXPECT_EQ(nic.meter().bytes() >= 9u * 400'000, true);
  }
}

// One 100 Gb/s port, two transports that could each fill it.
TEST(NicTransports, TwoThatFillThePortShareIt) {
  Network network(1);
  Clos clos(network, {.planes = 1});
  testing::equip(network, 2, gigabits(100), {"mrc", "roce"});
  FlowTraffic flows(network, false);
  clos.connect(0, 100, 1, 200, 0, {}, "mrc");
  clos.connect(0, 101, 1, 201, 1, {}, "roce");
  for (const QpNumber qp : {100u, 101u}) {
    flows.add({.source = 0, .destination = 1, .qp = qp, .bytes = 1'000'000'000, .message = 1 << 18, .depth = 8});
  }
  flows.start();
  network.run_until(milliseconds(1));
  const double mrc = static_cast<double>(flows.results()[0].completed);
  const double roce = static_cast<double>(flows.results()[1].completed);
  EXPECT_GT((mrc + roce) * 8 / 1e-3, 85e9);
  EXPECT_GT(std::min(mrc, roce) / (mrc + roce), 0.35) << mrc << " " << roce;
}

}  // namespace
}  // namespace loomnet
