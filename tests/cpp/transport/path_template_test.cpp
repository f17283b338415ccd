// How an entropy value's uplink number becomes uSIDs, with two tiers and with three.
#include <gtest/gtest.h>

#include "packet/usid.hpp"
#include "transport/transport.hpp"

namespace loomnet {
namespace {

Ipv6Address address(const PathTemplate& row, unsigned plane, unsigned uplink) {
  const auto usids = row.with(uplink);
  return usid_address(plane, {usids.data(), row.count});
}

TEST(PathTemplate, TwoTiersAddTheUplinkToTheSpine) {
  // Plane 3, T0 5 -> T1 0x11 -> T0 9, downlink 2 (RFC 9800).
  const PathTemplate row{{0x2005, 0x1000, 0x2009, 0x4002}, 4, 1};
  const std::array<std::uint16_t, 4> golden{usid_t0(5), usid_t1(0x11), usid_t0(9), usid_host(2)};
  EXPECT_EQ(address(row, 3, 0x11), usid_address(3, golden));
}

TEST(PathTemplate, OnePathIgnoresTheUplink) {
  const PathTemplate row{{0x2005, 0x4002}, 2, -1};
  EXPECT_EQ(address(row, 0, 0), address(row, 0, 7));
}

TEST(PathTemplate, ThreeTiersNameCoreAndBothAggregationSwitches) {
  // Pods of 4 aggregation switches with 8 cores each: pod 2 to pod 5.
  const PathTemplate row{{0x2009, 0x1008, 0x3000, 0x1014, 0x2016, 0x4001}, 6, 2, 0b1010, 8};
  for (unsigned agg = 0; agg < 4; ++agg) {
    for (unsigned core = 0; core < 8; ++core) {
      const std::array<std::uint16_t, 6> expected{usid_t0(9),        usid_t1(8 + agg), usid_t2(agg * 8 + core),
                                                  usid_t1(20 + agg), usid_t0(22),      usid_host(1)};
      EXPECT_EQ(address(row, 1, agg * 8 + core), usid_address(1, expected));
    }
  }
}

TEST(PathTemplate, ListedWaysTakeTheSlotsOfTheirRow) {
  const auto ways = std::make_shared<const ListedWays>(
      ListedWays{.length = 3, .rows = {{0x1000, 0x3000, 0x1002}, {0x1001, 0x2007, 0x1003}}});
  PathTemplate row{{0x2005, 0, 0, 0, 0x2009, 0x4002}, 6, 1};
  row.ways = ways;
  EXPECT_EQ(row.with(0), (std::array<std::uint16_t, 6>{0x2005, 0x1000, 0x3000, 0x1002, 0x2009, 0x4002}));
  EXPECT_EQ(row.with(1), (std::array<std::uint16_t, 6>{0x2005, 0x1001, 0x2007, 0x1003, 0x2009, 0x4002}));
  EXPECT_EQ(row.with(2), row.usids) << "a number from a packet that no way has";
}

TEST(EntropyValue, NamesElevenBitsOfUpPathAndKeepsTheSourcePortHigh) {
  for (unsigned uplink = 0; uplink < kMaxUplinks; ++uplink) {
    for (unsigned plane = 0; plane < kMaxPlanes; ++plane) {
      const EntropyValue ev(plane, uplink);
      ASSERT_EQ(ev.plane(), plane);
      ASSERT_EQ(ev.uplink(), uplink);
      ASSERT_EQ(ev.value >> 14, 3u);
    }
  }
  EXPECT_EQ(EntropyValue(3, 0x11).value, 0xc08bu);
}

}  // namespace
}  // namespace loomnet
