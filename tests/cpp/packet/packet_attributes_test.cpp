// What a packet states of the request whose bytes it carries, and which bytes of a request are missing.
#include "packet/attributes.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "packet/missing.hpp"
#include "packet/packet.hpp"

namespace loomnet {
namespace {

using Runs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

Runs runs(const Missing& missing, std::uint32_t length) {
  Runs out;
  missing.each_run(length, [&](std::uint32_t begin, std::uint32_t end) { out.emplace_back(begin, end); });
  return out;
}

TEST(Attributes, APacketWithFramingToleratesNoLoss) {
  const Attributes request{.step_offset = 1000, .step_bytes = 9000, .ring_step = 3, .loss_tolerance = 0.1f};
  EXPECT_EQ(attributes_at(request, 48, 0).loss_tolerance, 0);
  EXPECT_EQ(attributes_at(request, 48, 47).loss_tolerance, 0);
  EXPECT_EQ(attributes_at(request, 48, 48).loss_tolerance, 0.1f);
  EXPECT_EQ(attributes_at(request, 0, 0).loss_tolerance, 0.1f);
}

TEST(Attributes, APacketHasItsOwnPlaceInTheRingStep) {
  Attributes request{.step_offset = 1000, .step_bytes = 9000};
  EXPECT_EQ(attributes_at(request, 48, 0).step_offset, 1000u);
  EXPECT_EQ(attributes_at(request, 48, 4096).step_offset, 1000u + 4096 - 48);
  request.step_bytes = request.step_offset = 0;  // in no ring step
  EXPECT_EQ(attributes_at(request, 48, 4096).step_offset, 0u);
}

TEST(Attributes, AFreshPacketHasNone) {
  PacketPool pool;
  pool.allocate()->attributes = {.tag = 1, .layer = 2, .priority = 3};
  EXPECT_EQ(pool.allocate()->attributes, Attributes{});
}

TEST(Missing, ExtentsAreThoseOfPackets) {
  Missing missing = Missing::of(10'000, 1024);
  EXPECT_EQ(missing.extent, 1024u);
  EXPECT_TRUE(missing.sound(10'000));
  EXPECT_FALSE(missing.any());
  missing.add(1024, 1024);
  missing.add(2048, 1024);
  missing.add(9216, 784);
  EXPECT_EQ(missing.bytes, 2832u);
  EXPECT_EQ(runs(missing, 10'000), (Runs{{1024, 3072}, {9216, 10'000}}));
  EXPECT_TRUE(missing.sound(10'000));
}

TEST(Missing, ExtentsGrowWithTheRequest) {
  constexpr std::uint32_t kLength = 1'000'000;
  Missing missing = Missing::of(kLength, 1000);
  EXPECT_EQ(missing.extent, 8000u);
  missing.add(9000, 1000);
  missing.add(999'000, 1000);
  EXPECT_EQ(missing.bytes, 2000u);
  EXPECT_EQ(runs(missing, kLength), (Runs{{8000, 16'000}, {992'000, kLength}}));
  EXPECT_TRUE(missing.sound(kLength));
  Missing longest = Missing::of(~0u, 4096);
  longest.add(~0u - 1, 1);
  EXPECT_TRUE(longest.sound(~0u));
}

TEST(Missing, WhatCannotBeIsNotSound) {
  const std::uint32_t length = 5000;
  const auto with = [](std::uint32_t bytes, std::uint32_t extent, std::uint64_t low, std::uint64_t high) {
    return Missing{bytes, extent, {low, high}};
  };
  EXPECT_TRUE(with(1000, 1000, 2, 0).sound(length));
  EXPECT_FALSE(with(1000, 0, 0, 0).sound(length));       // bytes without extents
  EXPECT_FALSE(with(0, 0, 1, 0).sound(length));          // extents without a length
  EXPECT_FALSE(with(0, 1000, 2, 0).sound(length));       // an extent without bytes
  EXPECT_FALSE(with(1001, 1000, 2, 0).sound(length));    // more bytes than the extent has
  EXPECT_FALSE(with(1, 1000, 6, 0).sound(length));       // fewer bytes than extents
  EXPECT_FALSE(with(1, 1000, 1 << 5, 0).sound(length));  // behind the end
  EXPECT_FALSE(with(1, 1000, 0, 1).sound(length));
  EXPECT_FALSE(with(1, 39, 1, 0).sound(length));         // more extents than there are bits
  EXPECT_FALSE(with(1, 1000, 1, 0).sound(0));
}

}  // namespace
}  // namespace loomnet
