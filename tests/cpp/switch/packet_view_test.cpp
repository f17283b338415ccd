// What a program sees of a packet and what becomes of its edits: in place, copied on write, lengths
// only, another split into header and payload, cut, relabelled, against the contract.
#include "switch/packet_view.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace loomnet {
namespace {

constexpr ProgramNeeds kNeeds{.view = true, .header_bytes = 62, .payload_bytes = 64};

class PacketViewTest : public ::testing::Test {
 protected:
  PacketViewTest() : memory_(1000) { std::iota(memory_.begin(), memory_.end(), std::uint8_t{1}); }
  // Header bytes count 0, 1, 2 …; the payload is the sender's memory, or lengths only.
  PacketPtr packet(std::size_t header, std::uint32_t payload, bool bytes = true, std::uint32_t behind = 0) {
    PacketPtr p = pool_.allocate();
    p->header_length = static_cast<std::uint8_t>(header);
    std::iota(p->header.begin(), p->header.begin() + static_cast<std::ptrdiff_t>(header), std::uint8_t{0});
    p->wire_length = static_cast<std::uint32_t>(header) + payload + behind;
    p->payload.length = payload;
    p->flow = 3, p->message = 9;
    if (bytes) {
      p->payload.data = memory_.data();
      p->payload.kind = PayloadKind::region;
    }
    return p;
  }
  void expect_untouched() const {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      ASSERT_EQ(memory_[i], static_cast<std::uint8_t>(i + 1)) << "the sender's byte " << i;
    }
  }
  PacketPool pool_;
  ViewScratch scratch_;
  std::vector<std::uint8_t> memory_;
};

TEST_F(PacketViewTest, PayloadIsReadWhereItLiesAndCopiedBeforeTheFirstWrite) {
  PacketPtr p = packet(62, 500);
  PacketView view(*p, pool_, kNeeds, scratch_);
  EXPECT_EQ(view.frame, p->header.data());
  EXPECT_EQ(view.payload, memory_.data());  // no copy
  EXPECT_EQ(view.payload_end - view.payload, 64);
  EXPECT_EQ(view.length, 562u);
  ln_edit(&view);
  ASSERT_NE(view.payload, memory_.data());
  EXPECT_EQ(view.payload[63], 64);
  view.payload[63] = 0xff;
  ln_edit(&view);  // again: the same copy
  EXPECT_EQ(view.payload[63], 0xff);
  EXPECT_FALSE(view.apply());
  EXPECT_EQ(p->payload.kind, PayloadKind::buffer);
  EXPECT_EQ(p->payload.length, 500u);
  EXPECT_EQ(p->payload.data[63], 0xff);
  EXPECT_EQ(p->payload.data[499], memory_[499]);
  expect_untouched();
}

TEST_F(PacketViewTest, APacketOfLengthsOnlyShowsZerosAndForgetsWhatIsWritten) {
  PacketPtr p = packet(62, 500, false);
  for (int round = 0; round < 2; ++round) {
    PacketView view(*p, pool_, kNeeds, scratch_);
    ASSERT_EQ(view.payload_end - view.payload, 64);
    EXPECT_EQ(std::accumulate(view.payload, view.payload_end, 0), 0);
    ln_edit(&view);
    view.payload[0] = 7;
    view.frame[14] = 0x60;
    EXPECT_FALSE(view.apply());
  }
  EXPECT_EQ(p->payload.data, nullptr);
  EXPECT_EQ(p->payload.kind, PayloadKind::none);
  EXPECT_EQ(p->header[14], 0x60);
}

TEST_F(PacketViewTest, AnotherSplitIsShownAsTheProgramsAndTakenBackAsThePackets) {
  for (const std::size_t header : {20u, 61u, 63u, 100u, 126u, 150u, 192u}) {
    SCOPED_TRACE(header);
    PacketPtr p = packet(header, 400);
    std::vector<std::uint8_t> frame(p->header.begin(), p->header.begin() + static_cast<std::ptrdiff_t>(header));
    frame.insert(frame.end(), memory_.begin(), memory_.begin() + 400);
    PacketView view(*p, pool_, kNeeds, scratch_);
    ASSERT_EQ(view.end - view.frame, 62);
    ASSERT_EQ(view.payload_end - view.payload, 64);
    EXPECT_TRUE(std::equal(view.frame, view.end, frame.begin()));
    EXPECT_TRUE(std::equal(view.payload, view.payload_end, frame.begin() + 62));
    view.frame[15] = 0xaa, frame[15] = 0xaa;
    view.frame[60] = 0xbb, frame[60] = 0xbb;
    ln_edit(&view);
    view.payload[0] = 0xcc, frame[62] = 0xcc;
    view.payload[63] = 0xdd, frame[125] = 0xdd;
    EXPECT_FALSE(view.apply());
    EXPECT_EQ(p->header_length, header);
    ASSERT_EQ(p->payload.length, 400u);
    EXPECT_TRUE(std::equal(p->header.begin(), p->header.begin() + static_cast<std::ptrdiff_t>(header), frame.begin()));
    EXPECT_TRUE(
        std::equal(p->payload.data, p->payload.data + 400, frame.begin() + static_cast<std::ptrdiff_t>(header)));
    expect_untouched();
  }
}

TEST_F(PacketViewTest, PaddingBehindThePayloadIsZeros) {
  PacketPtr p = packet(62, 10, true, 4);  // an invariant CRC that no model computes
  PacketView view(*p, pool_, kNeeds, scratch_);
  EXPECT_EQ(view.length, 76u);
  ASSERT_EQ(view.payload_end - view.payload, 14);
  EXPECT_EQ(view.payload[9], 10);
  EXPECT_EQ(view.payload[13], 0);
}

TEST_F(PacketViewTest, AFrameShorterThanTheHeadersHasNoPayload) {
  PacketPtr p = packet(40, 0);
  PacketView view(*p, pool_, kNeeds, scratch_);
  EXPECT_EQ(view.end - view.frame, 40);
  EXPECT_EQ(view.payload, view.payload_end);
  EXPECT_FALSE(view.apply());
}

TEST_F(PacketViewTest, LabelsAndLengthComeBack) {
  PacketPtr p = packet(62, 500);
  PacketView view(*p, pool_, kNeeds, scratch_);
  EXPECT_EQ(view.flow, 3u);
  EXPECT_EQ(view.message, 9u);
  ln_relabel(&view, 5, 0);
  view.length = 100;
  EXPECT_FALSE(view.apply());
  EXPECT_EQ(p->flow, 5u);
  EXPECT_EQ(p->message, 0u);
  EXPECT_EQ(p->wire_length, 100u);
  EXPECT_EQ(p->payload.length, 38u);
  PacketPtr small = packet(62, 500);
  PacketView shorter(*small, pool_, kNeeds, scratch_);
  shorter.length = 20;  // no Ethernet frame is that short
  EXPECT_FALSE(shorter.apply());
  EXPECT_EQ(small->wire_length, LN_MIN_FRAME);
  EXPECT_EQ(small->header_length, LN_MIN_FRAME);
  EXPECT_EQ(small->payload.length, 0u);
}

TEST_F(PacketViewTest, WhatBreaksTheContractIsRefused) {
  PacketPtr p = packet(62, 500);
  PacketView mac(*p, pool_, kNeeds, scratch_);
  mac.frame[11] ^= 1;
  EXPECT_EQ(mac.apply(), LN_HOST_DROP_SOURCE_MAC);
  p = packet(62, 500);
  PacketView longer(*p, pool_, kNeeds, scratch_);
  longer.length += 1;
  EXPECT_EQ(longer.apply(), LN_HOST_DROP_BAD_VERDICT);
}

TEST_F(PacketViewTest, BuffersAreCopiedWithThePacketAndUsedAgain) {
  PacketPtr p = packet(62, 500);
  const std::uint8_t* first = nullptr;
  {
    PacketView view(*p, pool_, kNeeds, scratch_);
    ln_edit(&view);
    view.payload[0] = 0x77;
    EXPECT_FALSE(view.apply());
    PacketPtr copy = pool_.duplicate(*p);
    EXPECT_EQ(copy->payload.kind, PayloadKind::buffer);
    EXPECT_NE(copy->payload.data, p->payload.data);
    EXPECT_EQ(copy->payload.data[0], 0x77);
    EXPECT_NE(copy->uid, p->uid);
    first = p->payload.data;
  }
  p.reset();
  p = packet(62, 500);
  PacketView view(*p, pool_, kNeeds, scratch_);
  ln_edit(&view);
  EXPECT_EQ(view.payload, first);  // the buffer given back last
}

}  // namespace
}  // namespace loomnet
