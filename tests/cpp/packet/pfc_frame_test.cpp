// PFC frames: the bytes as IEEE 802.1Q and 802.3 lay them out, and what is no PFC frame.
#include "packet/pfc_frame.hpp"

#include <gtest/gtest.h>

#include <array>

namespace loomnet {
namespace {

std::array<std::uint8_t, 60> bytes_of(const PfcFrame& frame) {
  std::array<std::uint8_t, 60> bytes{};
  ByteWriter out(bytes);
  frame.serialize(out);
  EXPECT_TRUE(out.ok());
  EXPECT_EQ(out.position(), PfcFrame::kBytes);
  return bytes;
}

TEST(PfcFrame, LayoutIsTheStandards) {
  PfcFrame frame;
  frame.enabled = 0x0a;
  frame.quanta[1] = 0xffff;
  frame.quanta[3] = 0x1234;
  const auto b = bytes_of(frame);
  const std::array<std::uint8_t, 34> expected{0x01, 0x80, 0xc2, 0x00, 0x00, 0x01, 0x02, 0,    0,    0, 0, 0,    0x88,
                                              0x08, 0x01, 0x01, 0x00, 0x0a, 0,    0,    0xff, 0xff, 0, 0, 0x12, 0x34};
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), b.begin()));
  EXPECT_EQ(PfcFrame::parse(b), frame);
}

TEST(PfcFrame, RefusesOtherBytes) {
  auto b = bytes_of({});
  ASSERT_TRUE(PfcFrame::parse(b));
  EXPECT_FALSE(PfcFrame::parse(std::span(b).first(PfcFrame::kBytes - 1)));
  EXPECT_FALSE(PfcFrame::parse({}));
  b[15] = 0x02;  // opcode
  EXPECT_FALSE(PfcFrame::parse(b));
  b[15] = 0x01, b[13] = 0x00;  // EtherType
  EXPECT_FALSE(PfcFrame::parse(b));
}

TEST(PfcFrame, AQuantumIs512BitTimes) {
  EXPECT_EQ(PfcFrame::time_of(1, gigabits(1)), nanoseconds(512));
  EXPECT_EQ(PfcFrame::time_of(kMostQuanta, gigabits(400)).count, 65535ll * 512 * 1000 / 400);
}

}  // namespace
}  // namespace loomnet
