// The step header of a packet, from the attributes of its bytes.
#include "packet/step_stamp.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>

namespace loomnet {
namespace {

using Bytes = std::array<std::uint8_t, kStepHeaderBytes>;

std::string hex(const Bytes& bytes) {
  std::string out;
  char two[3];
  for (const auto b : bytes) std::snprintf(two, sizeof two, "%02x", b), out += two;
  return out;
}

Bytes stamp(const Attributes& a, bool last, bool again) {
  Bytes bytes{};
  put_step_header(bytes.data(), a, last, again);
  return bytes;
}

TEST(StepStamp, TheExampleOfTheFormatHasTheseBytes) {
  // L, gen 5, job 7, ring 0, rank 0 of 8: 64/65536 of step 65534 are still to come.
  const Attributes a{.step_offset = 65536 - 64,
                     .step_bytes = 65536,
                     .ring_step = 65534,
                     .job = 7,
                     .communicator = 5 * kRingsPerJob,
                     .ring_rank = 0,
                     .ring_size = 8};
  EXPECT_EQ(hex(stamp(a, true, false)), "535912050007000000000008fffeffc0");
}

TEST(StepStamp, ProgressIsTheStepAndTheShareBeforeThePacket) {
  const auto at = [](std::uint64_t offset, std::uint64_t bytes, std::uint32_t step) {
    return step_progress({.step_offset = offset, .step_bytes = bytes, .ring_step = step});
  };
  EXPECT_EQ(at(0, 3, 0), 0u);
  EXPECT_EQ(at(1, 3, 0), 21845u);  // floor(65536 / 3)
  EXPECT_EQ(at(1 << 20, 2 << 20, 4), 4u << 16 | 0x8000);
  EXPECT_EQ(at(2 << 20, 2 << 20, 4), 4u << 16 | 0xffff) << "an empty packet at the end is still in the step";
  EXPECT_EQ(at(0, 8, 65536), 0u) << "steps wrap modulo 2^16";
  EXPECT_EQ(at(0, 8, 65537 + 65536), 1u << 16);
  EXPECT_EQ(at(1ull << 62, 1ull << 63, 1), 1u << 16 | 0x8000);
  EXPECT_EQ(at(~0ull, ~0ull, 1), 1u << 16 | 0xffff);
}

TEST(StepStamp, WhatIsInNoRingSaysSo) {
  step_header h{};
  const Bytes bytes = stamp({.job = 3, .communicator = 9}, true, true);
  ASSERT_EQ(step_header_load(bytes.data(), &h), 1);
  EXPECT_EQ(h.flags, STEP_FLAG_OTHER | STEP_FLAG_AGAIN);
  EXPECT_EQ(h.job, 3);
  EXPECT_EQ(h.ring, 9);
  EXPECT_EQ(h.nranks, 0);
  EXPECT_EQ(h.prog, 0u);
}

TEST(StepStamp, TheRequestWithTheLastBytesEndsItsStep) {
  const Attributes a{.step_offset = 100, .step_bytes = 164};
  EXPECT_TRUE(ends_step(a, 48, 48 + 64));
  EXPECT_FALSE(ends_step(a, 48, 48 + 63));
  EXPECT_FALSE(ends_step({}, 0, 0));
}

TEST(StepStamp, AHeaderIsFoundByPortAndMagic) {
  Bytes bytes = stamp({}, false, false);
  EXPECT_EQ(step_header_at(kUdpPortStep, bytes), 16);
  EXPECT_EQ(step_header_at(4791, bytes), 0);
  EXPECT_EQ(step_header_at(kUdpPortStep, std::span(bytes).first(15)), -1);
  bytes[2] ^= 0x20;  // another version
  EXPECT_EQ(step_header_at(kUdpPortStep, bytes), -1);
  bytes[2] ^= 0x20, bytes[0] ^= 1;
  EXPECT_EQ(step_header_at(kUdpPortStep, bytes), -1);
}

}  // namespace
}  // namespace loomnet
