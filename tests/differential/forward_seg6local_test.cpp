// Linux's own seg6local (NEXT-C-SID) as an independent reference for the forward program: the
// golden uSID vectors and a fuzz of uSIDs, hop limits, classes and lengths (OCP MRC 1.0), the same frames through kernel, engine and XDP.
#include <gtest/gtest.h>

#include <map>

#include "clock/random.hpp"
#include "differential/program_pair.hpp"
#include "differential/veth_bench.hpp"

namespace loomnet::test {
namespace {

using namespace std::chrono_literals;

// SIDs on a device that never goes down, static neighbours, FIB routes by link-local gateways.
constexpr const char* kNode = R"(link add sr0 type veth peer name sr1
link set sr0 up
link set sr1 up
addr add 2001:db8:33::1/64 dev p3 nodad
neigh add 2001:db8:33::2 lladdr 02:bb:00:00:00:03 dev p3 nud permanent
neigh add fe80::1:2 lladdr 02:bb:00:00:00:01 dev p1 nud permanent
neigh add fe80::2:2 lladdr 02:bb:00:00:00:02 dev p2 nud permanent
neigh add fe80::4:2 lladdr 02:bb:00:00:00:03 dev p3 nud permanent
route add fc00:3:1011::/48 via fe80::1:2 dev p1
route add fc00:3:1012::/48 via fe80::2:2 dev p2
route add fc00:3:4002::/48 via fe80::4:2 dev p3
)";
constexpr const char* kSids =
    "route add fc00:3:2005::/48 encap seg6local action End count"
    " flavors next-csid lblen 32 nflen 16 dev sr0\n"
    "route add fc00:3:e803::/48 encap seg6local action End.X nh6 2001:db8:33::2 count"
    " flavors next-csid lblen 32 nflen 16 dev sr0\n";

class ForwardSeg6localTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = missing_for_bpf(); !missing.empty()) GTEST_SKIP() << missing;
    bench_ = std::make_unique<VethBench>(kVectorPorts, /*ipv6=*/true);
    for (const char* which : {"all", "default"}) {
      bench_->switch_ns.sysctl(std::string("net/ipv6/conf/") + which + "/forwarding", "1");
      bench_->switch_ns.sysctl(std::string("net/ipv6/conf/") + which + "/accept_dad", "0");
    }
    ip_batch(bench_->switch_ns, kNode);
    try {
      ip_batch(bench_->switch_ns, kSids);
    } catch (const std::exception& error) {
      bench_.reset();
      GTEST_SKIP() << "no seg6local with next-csid here (Linux 6.6, CONFIG_IPV6_SEG6_LWTUNNEL): " << error.what();
    }
    pair_ = std::make_unique<ForwardPair>(kVectorPorts, ForwardSettings{});
    pair_->set_tables(vector_tables());
    for (SwitchPort port = 0; port < kVectorPorts; ++port) pair_->xdp.set_port(port, 1);
    wait_until_forwarding();
  }

  // The frame's number is its source address, which nobody edits; MACs are Linux's to rewrite.
  static constexpr std::uint64_t kMark = 0xfd00'6e66'0000'0000ull;
  static void number(FrameSpec& spec, std::uint64_t n) {
    ln_store_be64(spec.source.data(), kMark);
    ln_store_be64(spec.source.data() + 8, n);
  }
  static std::uint64_t number_of(const std::vector<std::uint8_t>& frame) {
    if (frame.size() < 54 || ln_load_be16(frame.data() + 12) != kEtherTypeIpv6) return 0;
    return ln_load_be64(frame.data() + 22) == kMark ? ln_load_be64(frame.data() + 30) : 0;
  }
  static std::vector<std::uint8_t> addressed(const FrameSpec& spec, std::size_t in) {
    std::vector<std::uint8_t> bytes = frame(spec);
    const MacAddress mac = VethBench::port_mac(in);
    std::copy(mac.begin(), mac.end(), bytes.begin());
    return bytes;
  }
  // The comparison covers the IP packet alone; bytes after its payload are not part of it.
  static std::vector<std::uint8_t> packet(const std::vector<std::uint8_t>& frame) {
    const std::size_t length = 40u + ln_load_be16(frame.data() + 18);
    return {frame.begin() + 14, frame.begin() + static_cast<std::ptrdiff_t>(std::min(frame.size(), 14 + length))};
  }

  void wait_until_forwarding() {
    FrameSpec probe = vector_spec(kGoldenVectors[9]);
    for (int i = 0; i < 100; ++i) {
      number(probe, next_++);
      bench_->peers[0].send(addressed(probe, 0));
      bool arrived = false;
      bench_->collect(
          20ms, [&](std::size_t, const std::vector<std::uint8_t>& bytes) { return arrived = number_of(bytes) != 0; });
      if (arrived) {
        bench_->collect(20ms, [](std::size_t, const std::vector<std::uint8_t>&) { return false; });
        return;
      }
    }
    FAIL() << "the reference node never forwarded";
  }

  struct Seen {
    std::size_t port;
    std::vector<std::uint8_t> packet;
  };
  // Sends frames into the kernel's node and says what came out, by number. A last frame through
  // each port, in order behind the others, says that nothing more will come.
  std::map<std::uint64_t, Seen> through_kernel(
      const std::vector<std::pair<std::size_t, std::vector<std::uint8_t>>>& frames) {
    for (const auto& [in, bytes] : frames) bench_->peers[in].send(bytes);
    std::map<std::uint64_t, Seen> seen;
    std::map<std::uint64_t, bool> last;
    for (const char* destination : {"fc00:3:1011::1", "fc00:3:1012::1", "fc00:3:4002::1"}) {
      for (std::size_t in = 0; in < kVectorPorts; ++in) {
        FrameSpec spec;
        spec.destination = address(destination);
        number(spec, next_);
        last[next_++] = false;
        bench_->peers[in].send(addressed(spec, in));
      }
    }
    std::size_t waiting = last.size();
    bench_->collect(2s, [&](std::size_t port, const std::vector<std::uint8_t>& bytes) {
      const std::uint64_t n = number_of(bytes);
      if (n == 0) return false;  // ICMP and neighbour discovery of the kernel
      if (const auto at = last.find(n); at != last.end()) return --waiting == 0;
      if (!seen.emplace(n, Seen{port, packet(bytes)}).second) ADD_FAILURE() << n << " came twice";
      return false;
    });
    EXPECT_EQ(waiting, 0u) << "the kernel lost frames that it had to forward";
    return seen;
  }

  // One frame's outcome in all three worlds.
  void compare(const std::vector<std::uint8_t>& bytes, std::size_t in, std::uint64_t n,
               const std::map<std::uint64_t, Seen>& kernel) {
    // TEST_RUN's ingress is whichever port lo was given last; forward decides alike on all of them.
    const auto difference = pair_->difference(bytes, kVectorPorts - 1);
    ASSERT_FALSE(difference) << *difference;
    std::vector<std::uint8_t> edited = bytes;
    const Verdict verdict =
        pair_->native.ingress(std::span(edited).first(std::min(edited.size(), kMaxHeaderBytes)),
                              static_cast<std::uint32_t>(edited.size()), {{}, static_cast<SwitchPort>(in)});
    const auto at = kernel.find(n);
    if (verdict.action == Verdict::Action::drop) {
      ASSERT_TRUE(at == kernel.end()) << words(verdict) << ", but the kernel sent it out of port " << at->second.port
                                      << ": " << hex(bytes);
      return;
    }
    ASSERT_FALSE(at == kernel.end()) << words(verdict) << ", but the kernel dropped " << hex(bytes);
    ASSERT_EQ(at->second.port, verdict.value) << hex(bytes);
    ASSERT_EQ(at->second.packet, packet(edited)) << hex(bytes);
  }

  std::unique_ptr<VethBench> bench_;
  std::unique_ptr<ForwardPair> pair_;
  std::uint64_t next_ = 1;
};

TEST_F(ForwardSeg6localTest, GoldenVectors) {
  std::vector<std::pair<std::size_t, std::vector<std::uint8_t>>> frames;
  const std::uint64_t first = next_;
  for (const GoldenVector& v : kGoldenVectors) {
    FrameSpec spec = vector_spec(v);
    number(spec, next_++);
    frames.emplace_back(v.in, addressed(spec, static_cast<std::size_t>(v.in)));
  }
  const auto kernel = through_kernel(frames);
  for (std::size_t i = 0; i < std::size(kGoldenVectors); ++i) {
    const GoldenVector& v = kGoldenVectors[i];
    SCOPED_TRACE("V" + std::to_string(v.number));
    compare(frames[i].second, frames[i].first, first + i, kernel);
    // The golden vectors also say what Linux does.
    const auto at = kernel.find(first + i);
    if (v.out < 0) {
      EXPECT_TRUE(at == kernel.end());
      continue;
    }
    ASSERT_FALSE(at == kernel.end());
    EXPECT_EQ(at->second.port, static_cast<std::size_t>(v.out));
    EXPECT_EQ(at->second.packet.size() + 14, 110u);
    ByteReader reader(at->second.packet);
    const Ipv6Header out = Ipv6Header::parse(reader);
    EXPECT_EQ(out.destination, address(v.destination_out));
    EXPECT_EQ(out.hop_limit, v.hop_limit_out);
    EXPECT_EQ(out.traffic_class, v.traffic_class);
    EXPECT_EQ(out.flow_label, 0xabcdeu);
  }
}

TEST_F(ForwardSeg6localTest, Fuzz) {
  constexpr std::uint64_t kSeed = 96;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  RandomStream random(kSeed, 0, 0x5e6);
  constexpr std::uint16_t kUsids[] = {0x2005, 0x2005, 0x2005, 0xe803, 0x1011, 0x1012, 0x4002, 0x9999, 0};
  constexpr std::uint8_t kHops[] = {0, 1, 2, 64, 255};
  constexpr std::uint8_t kNext[] = {41, 17, 6, 58, 59};
  int packets = 0, dropped = 0;
  for (int round = 0; round < 50; ++round) {
    std::vector<std::pair<std::size_t, std::vector<std::uint8_t>>> frames;
    const std::uint64_t first = next_;
    for (int i = 0; i < 200; ++i) {
      FrameSpec spec;
      spec.destination = address(random.below(12) ? "fc00:3::" : "fc00:2::");
      const unsigned usids = 1 + random.below(6);
      for (unsigned k = 0; k < usids; ++k) {
        ln_store_be16(spec.destination.data() + 4 + 2 * k, kUsids[random.below(std::size(kUsids))]);
      }
      spec.hop_limit = random.below(2) ? 64 : kHops[random.below(std::size(kHops))];
      spec.traffic_class = static_cast<std::uint8_t>(random());
      spec.flow_label = static_cast<std::uint32_t>(random()) & 0xfffff;
      spec.next_header = kNext[random.below(std::size(kNext))];
      spec.payload.resize(random.below(random.below(8) ? 200 : 2200));
      for (std::uint8_t& byte : spec.payload) byte = static_cast<std::uint8_t>(random());
      if (random.below(10) == 0) spec.trailing = 1 + random.below(50);
      if (random.below(20) == 0) spec.claimed_beyond = 1 + static_cast<int>(random.below(2000));
      number(spec, next_++);
      const std::size_t in = random.below(kVectorPorts);
      frames.emplace_back(in, addressed(spec, in));
    }
    const auto kernel = through_kernel(frames);
    for (std::size_t i = 0; i < frames.size(); ++i) {
      compare(frames[i].second, frames[i].first, first + i, kernel);
      if (HasFatalFailure()) return;
      dropped += !kernel.contains(first + i);
      ++packets;
    }
  }
  std::printf("  %d frames through kernel, engine and XDP, %d dropped by all\n", packets, dropped);
  EXPECT_GE(packets - dropped, 2'000);
  EXPECT_GE(dropped, 2'000);
}

}  // namespace
}  // namespace loomnet::test
