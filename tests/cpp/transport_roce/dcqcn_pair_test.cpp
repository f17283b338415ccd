// DCQCN in a pair of NICs: the CNP's bytes, one CNP per gap, paced sending after it; its options.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "packet/ecn.hpp"
#include "transport_roce/roce_bed.hpp"

namespace loomnet {
namespace {

using testbed::RoceBed;

roce::RoceOptions with_dcqcn() {
  roce::RoceOptions o = testbed::quick();
  o.dcqcn = true;
  o.line_rate = 100'000'000'000;
  return o;
}

struct Seen {
  std::vector<std::vector<std::uint8_t>> cnps;
  std::vector<Picoseconds> cnp_times, data_times;
};

// Marks the host's data packets whose number, from 0, `which` names.
RoceBed::Filter mark(RoceBed& bed, Seen& seen, std::function<bool(int)> which) {
  return [&bed, &seen, which, n = 0](HostId from, PlanePort, Packet& p) mutable -> std::optional<Picoseconds> {
    const Bth bth = testbed::bth_of(p);
    if (bth.opcode == 0x81) {
      seen.cnps.emplace_back(p.header.begin(), p.header.begin() + p.header_length);
      seen.cnp_times.push_back(bed.now());
      EXPECT_EQ(p.queue, kControlClass);
    } else if (from == 0 && bth.opcode != 0x11) {
      EXPECT_TRUE(p.ect);
      seen.data_times.push_back(bed.now());
      if (which(n++)) mark_ce(p);
    }
    return Picoseconds{};
  };
}

TEST(DcqcnPair, OneMarkDrawsOneCnpAndPacesTheSender) {
  RoceBed bed({}, with_dcqcn());
  Seen seen;
  bed.filter = mark(bed, seen, [](int n) { return n == 20; });
  bed.write(0, 256 * 2'000);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(2))) << bed;
  EXPECT_TRUE(bed.same(0, 256 * 2'000));
  ASSERT_EQ(seen.cnps.size(), 1u);
  EXPECT_EQ(bed.nic(0).counter("cnps_received"), 1u);
  EXPECT_EQ(bed.nic(1).counter("cnps_sent"), 1u);
  EXPECT_EQ(bed.nic(0).counter("retransmitted"), 0u);
  // Behind it packets leave at half the line rate.
  const auto& t = seen.data_times;
  const auto before = t[15] - t[14];
  const auto first = std::upper_bound(t.begin(), t.end(), seen.cnp_times[0] + microseconds(5));
  ASSERT_LT(first + 2, t.end());
  EXPECT_NEAR(static_cast<double>((first[2] - first[1]).count), 2.0 * static_cast<double>(before.count),
              0.05 * static_cast<double>(before.count));
}

TEST(DcqcnPair, ACnpIsTheStandardsBytes) {
  RoceBed bed({}, with_dcqcn());
  Seen seen;
  bed.filter = mark(bed, seen, [](int n) { return n == 0; });
  bed.write(0, 1'000);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(2))) << bed;
  ASSERT_EQ(seen.cnps.size(), 1u);
  const auto& h = seen.cnps[0];
  // BTH: opcode 0x81, default partition, BECN, queue pair 100, PSN 0; 16 reserved bytes.
  const std::vector<std::uint8_t> expected{0x81, 0, 0xff, 0xff, 0x40, 0, 0, 100, 0, 0, 0, 0};
  ASSERT_EQ(h.size(), roce::kFrontBytes + 12 + 16);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), h.begin() + roce::kFrontBytes));
  EXPECT_TRUE(std::all_of(h.end() - 16, h.end(), [](std::uint8_t b) { return b == 0; }));
}

TEST(DcqcnPair, NotificationsKeepTheirGapHoweverManyMarks) {
  RoceBed bed({}, with_dcqcn());
  Seen seen;
  bed.filter = mark(bed, seen, [](int) { return true; });
  bed.write(0, 256 * 2'000);
  ASSERT_TRUE(bed.run_until_idle(seconds(1))) << bed;
  ASSERT_GE(seen.cnp_times.size(), 3u);
  for (std::size_t i = 1; i < seen.cnp_times.size(); ++i) {
    EXPECT_GE(seen.cnp_times[i] - seen.cnp_times[i - 1], microseconds(50));
  }
  EXPECT_EQ(bed.nic(1).counter("ce_received"), 2'000u);
  EXPECT_EQ(bed.leaked(), 0u);
}

TEST(DcqcnPair, WithoutItMarksAndCnpsChangeNothing) {
  RoceBed bed;
  bed.filter = [](HostId, PlanePort, Packet& p) -> std::optional<Picoseconds> {
    if (testbed::is_data(p)) mark_ce(p);
    return Picoseconds{};
  };
  bed.write(0, 10'000);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(1))) << bed;
  EXPECT_GT(bed.nic(1).counter("ce_received"), 0u);
  EXPECT_EQ(bed.nic(1).counter("cnps_sent"), 0u);
}

TEST(Dcqcn, OptionsOutOfRangeAreNamed) {
  struct Sink : TransportSink {
    PacketPtr allocate() override { return nullptr; }
    bool place(QpNumber, std::uint32_t, std::uint64_t, const Payload&) override { return false; }
    void complete(const Completion&) override {}
    void arrived(const Arrival&) override {}
    void event(const TransportEvent&) override {}
    void port_ready(PlanePort) override {}
  } sink;
  roce::RoceOptions o;
  o.dcqcn = true;
  EXPECT_THROW(roce::RoceTransport(sink, o), std::invalid_argument) << "no line rate";
  o.line_rate = 1'000'000;
  EXPECT_NO_THROW(roce::RoceTransport(sink, o)) << "a minimum above it: a host that slows nothing";
  o.congestion_options = {{"minimum_rate_bps", std::uint64_t{0}}};
  EXPECT_THROW(roce::RoceTransport(sink, o), std::invalid_argument);
  o.congestion_options = {{"dcqcn_g", 0.0}};
  EXPECT_THROW(roce::RoceTransport(sink, o), std::invalid_argument);
}

}  // namespace
}  // namespace loomnet
