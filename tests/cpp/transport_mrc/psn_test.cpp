// 24-bit PSNs around their wrap, and bit windows around the end of a ring.
#include "transport/mrc/psn.hpp"

#include <gtest/gtest.h>

#include <array>

namespace loomnet::mrc {
namespace {

TEST(Psn, DistanceIsSignedAndModular) {
  EXPECT_EQ(Psn(5) - Psn(3), 2);
  EXPECT_EQ(Psn(3) - Psn(5), -2);
  EXPECT_EQ(Psn(0) - Psn(0xffffff), 1);
  EXPECT_EQ(Psn(0xffffff) - Psn(0), -1);
  EXPECT_EQ(Psn(0x7fffff) - Psn(0), 0x7fffff);
  EXPECT_EQ(Psn(0x800000) - Psn(0), -0x800000);
  EXPECT_EQ(Psn(0xfffffe) + 3, Psn(1));
}

TEST(Psn, UnwrapsToTheNearest) {
  constexpr PsnCount near = (3ull << 24) + 2;
  EXPECT_EQ(Psn(4).unwrap(near), (3ull << 24) + 4);
  EXPECT_EQ(Psn(0xfffffe).unwrap(near), (3ull << 24) - 2);
  for (const std::int64_t d : {-8'000'000, -1024, -1, 0, 1, 1024, 8'000'000}) {
    const PsnCount n = near + static_cast<PsnCount>(d);
    EXPECT_EQ(Psn::wrap(n).unwrap(near), n) << d;
  }
}

TEST(Ring, WindowCrossesWordsAndTheEnd) {
  std::array<std::uint64_t, 2> ring{};
  ring_set(ring, 127);
  ring_set(ring, 128);  // = bit 0
  ring_set(ring, 130);
  EXPECT_EQ(ring_window(ring, 127), 0b1011u);
  EXPECT_TRUE(ring_test(ring, 128 + 128));
  ring_clear(ring, 128);
  EXPECT_EQ(ring_window(ring, 127), 0b1001u);
}

}  // namespace
}  // namespace loomnet::mrc
