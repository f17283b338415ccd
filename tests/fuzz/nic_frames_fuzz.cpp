// Frames of any bytes to a NIC with three transports that have work outstanding, led to each of them:
// nothing is placed outside the region, no request completes twice, every packet goes back to the pool.
#include "engine/network.hpp"
#include "packet/step_stamp.hpp"
#include "packet/udp.hpp"
#include "transport/mrc/mrc_transport.hpp"
#include "transport/roce/roce_transport.hpp"
#include "transport/tcp/tcp_transport.hpp"
#include "transport_pair.hpp"

namespace loomnet::fuzz {
namespace {

struct Client final : NicClient {
  std::uint64_t completed = 0;
  void on_completion(const Completion&, Picoseconds) override { ++completed; }
  void on_arrival(const Arrival&, Picoseconds) override {}
};

constexpr std::size_t kGuard = 4096, kRegion = 1 << 14;

// The first bytes of a frame that look like those of a transport: 1 MRC, 2 RoCE, 3 TCP. `stepped`: behind a
// step header.
void lead(std::vector<std::uint8_t>& frame, int to, bool stepped) {
  constexpr std::size_t kIp = 14;
  if (frame.size() < kIp + 80 + 4 || to == 0) return;
  frame[12] = 0x86, frame[13] = 0xdd, frame[kIp] = 0x60;
  std::size_t at = kIp;
  if (to == 1) {
    frame[at + 6] = kNextHeaderIpv6;
    at += 40;
    frame[at] = 0x60;
  }
  frame[at + 6] = to == 3 ? 6 : kNextHeaderUdp;
  if (to == 3) return;
  const std::uint16_t port = stepped ? kUdpPortStep : to == 1 ? kUdpPortMrc : kUdpPortRoceV2;
  frame[at + 42] = static_cast<std::uint8_t>(port >> 8), frame[at + 43] = static_cast<std::uint8_t>(port);
  if (stepped && frame.size() >= at + 48 + kStepHeaderBytes) {
    frame[at + 48] = STEP_MAGIC >> 8, frame[at + 49] = STEP_MAGIC & 0xff;
    frame[at + 50] = static_cast<std::uint8_t>(STEP_VERSION << 4 | (frame[at + 50] & 0xf));
  }
}

// The first host's packets have step headers, the second's have none.
StepIdentity identity(NodeId host) { return host == 0 ? StepIdentity::hdr : StepIdentity::none; }
mrc::MrcOptions mrc_options(NodeId host) {
  auto o = mrc::MrcOptions::sim(microseconds(4), gigabits(100));
  o.identity = identity(host);
  return o;
}

int run(Input in) {
  Network network(1);
  std::vector<std::uint8_t> memory(kRegion + 2 * kGuard, 0xee);
  const std::vector<std::uint8_t> source(255 * 16, 0xa5);
  std::array<Client, 2> clients;
  std::uint64_t posted = 0;
  for (NodeId h = 0; h < 2; ++h) {
    Nic& nic = network.nic(network.add_host(1));
    nic.set_transport(std::make_unique<mrc::MrcTransport>(mrc_options(h), nic.sink(), nic.ports()));
    nic.set_transport(std::make_unique<roce::RoceTransport>(
        nic.sink(), roce::RoceOptions{.payload_mtu = 256, .timeout_exponent = 3, .identity = identity(h)}));
    nic.set_transport(std::make_unique<tcp::TcpTransport>(nic.sink(), tcp::TcpOptions{.mtu = 1280}));
    nic.clients().add(clients[h], JobId{}, "fuzz");
  }
  const LinkConfig link{.rate = gigabits(100), .delay = microseconds(1)};
  network.connect({0, 0}, {1, 0}, link, link);
  const std::uint32_t key = network.nic(1).register_region(memory.data() + kGuard, kBase, kRegion);
  const std::string_view names[] = {"mrc", "roce", "tcp"};
  for (QpNumber q = 0; q < 3; ++q) {
    QpConfig c;
    c.local = 10 + q, c.remote = 20 + q, c.source = 0, c.destination = 1, c.planes.resize(1);
    c.planes[0].uplinks = {0};
    network.nic(0).connect(c, {}, {}, names[q]);
    std::swap(c.local, c.remote), std::swap(c.source, c.destination);
    network.nic(1).connect(c, {}, {}, names[q]);
  }
  std::vector<std::uint8_t> frame;
  while (in.size > 0) {
    const std::uint8_t action = in.byte();
    switch (action & 3) {
      case 0:
        network.nic(0).post(10 + in.byte() % 3,
                            {.local = source.data(),
                             .remote_address = kBase + in.byte(),
                             .remote_key = key,
                             .length = in.byte() * 16u,
                             .opcode = Opcode::write_with_immediate},
                            network.now());
        ++posted;
        break;
      case 1:
        network.run_until(network.now() + nanoseconds(in.byte() * 100));
        break;
      default:
        frame.resize(in.byte() + (action & 0x80 ? 100 : 0));
        for (auto& byte : frame) byte = in.byte();
        lead(frame, action >> 2 & 3, action & 0x40);
        network.inject({static_cast<NodeId>(action >> 4 & 1), 0}, frame);
    }
  }
  network.run_until(network.now() + milliseconds(1));
  require(clients[0].completed <= posted && clients[1].completed == 0);
  for (std::size_t i = 0; i < kGuard; ++i) require(memory[i] == 0xee && memory[kGuard + kRegion + i] == 0xee);
  require(network.pool().outstanding() == network.held());
  network.clear();
  require(network.pool().outstanding() == 0);
  return 0;
}

}  // namespace
}  // namespace loomnet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return loomnet::fuzz::run({data, size});
}
