// Link crossings per second of the live engine (rate + delay links, conservation, lateness) against
// a bare AF_XDP forwarder on the same veths, sockets and XDP switches, both on one core, in turns.
//
//   A -- [S1] -- [S2] -- [S3] -- B: four links a packet, three passes through the kernel.
//   ratio: engine / bare, by the wall; goal 0.9. cpu_ratio: the same by CPU time per packet, which
//   other work on the machine disturbs less.
#include <benchmark/benchmark.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "ebpf/metadata.h"
#include "live/live_fabric.hpp"
#include "live/live_loop.hpp"
#include "switch/forward/forward_batch.hpp"

namespace loomnet {
namespace {

constexpr int kSwitches = 3, kLinks = kSwitches + 1;
constexpr std::size_t kHeader = 14 + 40 + 16;
constexpr int kWindow = 384;  // packets under way: enough that neither ever waits for one …
constexpr XskConfig kRings{.fill = 512, .rx = 512, .tx = 512, .completion = 512};  // … nor loses any
constexpr int kRounds = 5;
constexpr double kRoundSeconds = 1.0;

std::vector<std::uint8_t> header_bytes() {
  std::vector<std::uint8_t> h(kHeader, 0);
  h[0] = 0x06, h[12] = 0x86, h[13] = 0xdd;
  std::uint8_t* ip = &h[14];
  ip[0] = 0x60, ip[6] = 17, ip[7] = 64, ip[8] = 0xfd, ip[23] = 1, ip[24] = 0xfc;
  for (int i = 0; i < kSwitches; ++i) ip[28 + 2 * i] = 0xe8, ip[29 + 2 * i] = 0x01;
  ip[28 + 2 * kSwitches] = 0x40;
  return h;
}

// Host B's transport: every arrival sends host A's next packet.
class Closed final : public Transport {
 public:
  Closed(Network& network, NodeId a, std::vector<std::uint8_t> payload)
      : network_(network), a_(a), header_(header_bytes()), payload_(std::move(payload)) {}
  void send() {
    PacketPtr p = network_.pool().allocate();
    p->header_length = kHeader;
    std::memcpy(p->header.data(), header_.data(), kHeader);
    p->payload = {payload_.data(), static_cast<std::uint32_t>(payload_.size()), 0, PayloadKind::region};
    p->wire_length = static_cast<std::uint32_t>(kHeader + payload_.size());
    p->ideal = network_.now();
    network_.egress(a_, 0)->offer(std::move(p), network_.now());
  }
  std::string_view name() const override { return "closed"; }
  void connect(const QpConfig&, Picoseconds) override {}
  void on_post(QpNumber, const WorkRequest&, Picoseconds) override {}
  void on_packet(PlanePort, PacketPtr p, Picoseconds) override {
    ++arrived;
    p.reset();
    send();
  }
  void on_port(PlanePort, bool, Picoseconds) override {}
  void on_deadline(Picoseconds) override {}
  Pulled pull(PlanePort, QueueClass, Picoseconds) override { return Pulled::idle(); }
  Picoseconds next_deadline() const override { return kNever; }
  bool outstanding() const override { return false; }
  void counters(std::vector<TransportCounter>&) const override {}
  std::uint64_t arrived = 0;

 private:
  Network& network_;
  NodeId a_;
  std::vector<std::uint8_t> header_, payload_;
};

// CPU seconds of the calling thread, softirqs that ran in its system calls included.
double cpu_seconds() {
  timespec t;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

struct Rate {
  double per_second = 0, cpu_per_packet = 0;  // packets; CPU seconds
};

struct Bed {
  std::vector<Netns> netns;
  std::vector<std::uint8_t> payload;
  std::unique_ptr<LiveFabric> fabric;
  NodeId first_switch = 2;

  explicit Bed(std::size_t payload_bytes) : payload(payload_bytes, 0x5a) {
    ForwardBatch tables;
    tables.generation = 1;
    tables.own_ua.push_back({{usid_block(0), 0xe801}, 1});
    std::vector<LivePort> ports;
    std::vector<LiveSwitch> switches;
    netns.reserve(kSwitches);
    for (int s = 0; s < kSwitches; ++s) {
      netns.push_back(Netns::create("lnlv s" + std::to_string(s)));
      const auto node = static_cast<NodeId>(first_switch + s);
      for (std::uint16_t p = 0; p < 2; ++p) {
        ports.push_back({.node = node, .port = p, .netns = &netns.back(), .interface = "lnlv-p" + std::to_string(p)});
      }
      switches.push_back({.node = node, .netns = &netns.back(), .tables = tables.pack()});
    }
    fabric = std::make_unique<LiveFabric>(ports, switches, LiveFabricConfig{.xsk = kRings});
  }

  Rate engine() {
    Network network(1);
    const NodeId a = network.add_host(1), b = network.add_host(1);
    for (int s = 0; s < kSwitches; ++s) network.add_switch(2, nullptr);
    const LinkConfig link{.rate = gigabits(400), .delay = microseconds(5)};
    Endpoint from{a, 0};
    for (int s = 0; s < kSwitches; ++s) {
      network.connect(from, {first_switch + s, 0}, link, link);
      from = {first_switch + s, 1};
    }
    network.connect(from, {b, 0}, link, link);
    auto transport = std::make_unique<Closed>(network, a, payload);
    Closed& closed = *transport;
    network.nic(b).set_transport(std::move(transport));
    Rate rate;
    {
      LiveLoop loop(network, *fabric, {.realtime = false, .lateness_bound = seconds(10)});
      loop.start();
      loop.call([&] {
        for (int i = 0; i < kWindow; ++i) closed.send();
      });
      const auto t0 = std::chrono::steady_clock::now();
      const auto look = [&] { return std::pair(closed.arrived, cpu_seconds()); };
      const auto before = loop.call(look);
      std::this_thread::sleep_for(std::chrono::duration<double>(kRoundSeconds));
      const auto after = loop.call(look);
      const auto packets = static_cast<double>(after.first - before.first);
      rate = {packets / std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count(),
              (after.second - before.second) / packets};
      loop.stop();
      network.clear();
      const Fidelity f = loop.fidelity();
      lost = f.own_losses + f.unexplained;
      p99_us = f.stages[Stage::packet].percentile(0.99).microseconds();
    }
    return rate;
  }

  // A forwarder that knows only sockets.
  Rate bare() {
    const auto header = header_bytes();
    LiveFabric& f = *fabric;
    std::array<ReceivedFrame, 64> batch;
    std::uint64_t arrived = 0;
    const auto send = [&] {
      XskSocket& out = f.socket(0);
      std::uint32_t handle = 0;
      if (!out.umem().take(handle)) return;
      std::uint8_t* at = out.umem().base(handle) + kFrameHeadroom;
      std::memcpy(at, header.data(), kHeader);
      std::memcpy(at + kHeader, payload.data(), payload.size());
      const auto length = static_cast<std::uint32_t>(kHeader + payload.size());
      while (!out.transmit(handle, kFrameHeadroom, length)) out.flush();
    };
    for (int i = 0; i < kWindow; ++i) send();
    f.socket(0).flush();
    const auto t0 = std::chrono::steady_clock::now();
    const double cpu = cpu_seconds();
    double passed = 0;
    while (passed < kRoundSeconds) {
      for (int round = 0; round < 100; ++round) {
        for (std::size_t s = 0; s < kSwitches; ++s) {
          XskSocket& in = f.socket(2 * s + 1);
          const std::size_t n = in.receive(batch);
          for (std::size_t i = 0; i < n; ++i) {
            if (s + 1 == kSwitches) {
              in.umem().put(batch[i].handle);
              ++arrived;
              send();
            } else {
              XskSocket& out = f.socket(2 * (s + 1));
              const auto offset = static_cast<std::uint32_t>(batch[i].data - in.umem().base(batch[i].handle));
              while (!out.transmit(batch[i].handle, offset, batch[i].length)) out.flush();
            }
          }
        }
        for (std::size_t s = 0; s < kSwitches; ++s) f.socket(2 * s).flush();
      }
      passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count();
    }
    const auto packets = static_cast<double>(arrived);
    const Rate rate{packets / passed, (cpu_seconds() - cpu) / packets};
    for (int round = 0; round < 10'000; ++round) {  // empty the kernel for the engine's turn
      for (std::size_t s = 0; s < 2 * kSwitches; ++s) {
        const std::size_t n = f.socket(s).receive(batch);
        for (std::size_t i = 0; i < n; ++i) f.socket(s).umem().put(batch[i].handle);
        f.socket(s).flush();
      }
    }
    return rate;
  }

  std::uint64_t lost = 0;
  double p99_us = 0;
};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

void LinkCrossings(benchmark::State& state) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
  sched_setaffinity(0, sizeof one, &one);  // the loop's thread inherits it
  Bed bed(static_cast<std::size_t>(state.range(0)));
  std::vector<double> engine, bare, ratio, cpu_ratio;
  std::uint64_t lost = 0;
  for (auto _ : state) {
    bed.bare();  // warm up
    for (int r = 0; r < kRounds; ++r) {
      const Rate b = bed.bare(), e = bed.engine();
      bare.push_back(b.per_second);
      engine.push_back(e.per_second);
      ratio.push_back(e.per_second / b.per_second);
      cpu_ratio.push_back(b.cpu_per_packet / e.cpu_per_packet);
      lost += bed.lost;
    }
  }
  state.counters["engine_crossings_per_s"] = median(engine) * kLinks;
  state.counters["bare_crossings_per_s"] = median(bare) * kLinks;
  state.counters["ratio"] = median(ratio);
  state.counters["cpu_ratio"] = median(cpu_ratio);
  state.counters["lost"] = static_cast<double>(lost);
}
BENCHMARK(LinkCrossings)->Arg(64)->Arg(2048)->Iterations(1)->Unit(benchmark::kSecond);

}  // namespace
}  // namespace loomnet

BENCHMARK_MAIN();
