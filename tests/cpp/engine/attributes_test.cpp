// Attributes of a collective's operations in every packet that carries its bytes, over each transport.
#include <map>

#include "engine/nic_bed.hpp"
#include "engine/quiet_tap.hpp"
#include "traffic/collective_traffic.hpp"

namespace loomnet {
namespace {

using testing::Clos;

constexpr JobId kJob{5};
constexpr std::uint32_t kFraming = StagingLayout::kHeaderBytes;
constexpr Attributes kStated{.tag = 77, .loss_tolerance = 0.5f, .layer = 3, .priority = 9};

// Notes the packets that hosts send.
class Packets final : public testing::QuietTap {
 public:
  struct Seen {
    Attributes attributes;
    std::uint32_t payload = 0;
  };
  explicit Packets(unsigned hosts) : hosts_(hosts) {}
  std::map<std::uint32_t, std::vector<Seen>> of_host;  // those in a ring step
  std::uint64_t others = 0;

  void sent(std::uint32_t half, const Packet& p, Picoseconds, Picoseconds) override {
    if (half % 2 != 0 || half / 2 >= hosts_) return;  // the Clos makes the hosts' links first
    if (p.attributes.step_bytes > 0) {
      of_host[half / 2].push_back({p.attributes, p.payload.length});
    } else {
      ++others;
    }
  }

 private:
  unsigned hosts_;
};

class AttributesOver : public ::testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(Transports, AttributesOver, ::testing::Values("mrc", "roce", "tcp"));

TEST_P(AttributesOver, EveryPacketOfARingStatesItsStepAndItsPlaceThere) {
  constexpr unsigned kHosts = 4;
  constexpr std::uint32_t kRepeats = 2, kSteps = 2 * (kHosts - 1);
  constexpr std::uint64_t kBytes = 400'000;
  Packets packets(kHosts);
  Network network(1);
  Clos clos(network, {.planes = 1, .hosts_per_leaf = 2});
  testing::equip(network, kHosts, gigabits(100), {GetParam()});
  network.set_tap(&packets, true);
  CollectiveTraffic ring(network, {.job = kJob,
                                   .hosts = {0, 1, 2, 3},
                                   .bytes = kBytes,
                                   .repeat = kRepeats,
                                   .attributes = kStated,
                                   .payload = true});
  for (unsigned h = 0; h < kHosts; ++h) {
    const unsigned next = (h + 1) % kHosts;
    const QpNumber a = network.nic(h).clients().reserve(1), b = network.nic(next).clients().reserve(1);
    clos.connect(h, a, next, b, 0, kJob);
    ring.set_queue_pair(h, next, a);
    ring.set_queue_pair(next, h, b);
  }
  ring.start();
  while (!ring.done()) network.run_until(network.now() + milliseconds(100));
  EXPECT_EQ(ring.errors() + ring.wrong(), 0u) << ring.first_error();
  ASSERT_EQ(packets.of_host.size(), kHosts);
  EXPECT_GT(packets.others, 0u);  // acknowledgements and credits
  for (const auto& [host, seen] : packets.of_host) {
    std::map<std::uint32_t, std::map<std::uint64_t, std::uint64_t>> steps;  // bytes by offset
    bool framed = false;
    for (const auto& [a, payload] : seen) {
      const bool framing = a.loss_tolerance == 0;
      framed |= framing;
      EXPECT_TRUE(framing || a.loss_tolerance == kStated.loss_tolerance);
      EXPECT_EQ(a.job, 5u);
      EXPECT_EQ(a.communicator, 0u);
      EXPECT_EQ(a.sequence, a.ring_step / kSteps);
      EXPECT_EQ(a.tag, kStated.tag);
      EXPECT_EQ(a.layer, kStated.layer);
      EXPECT_EQ(a.priority, kStated.priority);
      EXPECT_EQ(a.step_bytes, kBytes / kHosts);
      steps[a.ring_step][a.step_offset] = payload - (framing ? kFraming : 0);
    }
    EXPECT_TRUE(framed);
    EXPECT_EQ(steps.size(), kRepeats * kSteps);
    // The packets of a step lie side by side from its first byte to its last.
    for (const auto& [step, parts] : steps) {
      std::uint64_t at = 0;
      for (const auto& [offset, bytes] : parts) {
        EXPECT_EQ(offset, at) << "host " << host << " step " << step;
        at += bytes;
      }
      EXPECT_EQ(at, kBytes / kHosts);
    }
  }
}

}  // namespace
}  // namespace loomnet
