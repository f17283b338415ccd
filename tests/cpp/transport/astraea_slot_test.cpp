// What the kernel's program of Astraea computes at an acknowledgement, by golden values, and the reading of
// a slot while it is written.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "ebpf/astraea.h"
#include "transport/congestion/astraea/slot.hpp"

namespace loomnet::astraea {
namespace {

// --- commands ------------------------------------------------------------------------------------

TEST(AstraeaSlot, ACommandIsAStampAndAWindow) {
  EXPECT_EQ(astraea_command(0x12345678, 100), 0x1234567800000064ull);
  EXPECT_EQ(astraea_command_window(0x1234567800000064ull), 100u);
  EXPECT_EQ(astraea_command(0xffffffff, 20'000), 0xffffffff00004e20ull);
}

TEST(AstraeaSlot, AgesAreSigned) {
  EXPECT_EQ(astraea_age_ms(astraea_command(1'000, 9), 1'150), 150);
  EXPECT_EQ(astraea_age_ms(astraea_command(1'000, 9), 999), -1) << "the agent's clock is ahead";
  EXPECT_EQ(astraea_age_ms(astraea_command(0xffffffff, 9), 4), 5) << "over the end of 32 bits";
  EXPECT_EQ(astraea_age_ms(astraea_command(2, 9), 0xffffffff), -3);
}

TEST(AstraeaSlot, AFlowIsAttendedUntilTheTimeout) {
  const std::uint64_t command = astraea_command(5'000, 40);
  EXPECT_TRUE(astraea_attended(command, 5'000, 0));
  EXPECT_TRUE(astraea_attended(command, 4'999, 0)) << "a stamp that is a millisecond ahead is fresh";
  EXPECT_TRUE(astraea_attended(command, 5'150, 0)) << "0 stands for 150 ms";
  EXPECT_FALSE(astraea_attended(command, 5'151, 0));
  EXPECT_TRUE(astraea_attended(command, 5'500, 500));
  EXPECT_FALSE(astraea_attended(command, 5'501, 500));
  EXPECT_FALSE(astraea_attended(0, 0, 0)) << "no agent has been here";
  EXPECT_TRUE(astraea_attended(astraea_command(0xffffff9c, 40), 49, 0)) << "149 ms, over the end of 32 bits";
  EXPECT_FALSE(astraea_attended(astraea_command(0xffffff9c, 40), 51, 0));
  EXPECT_FALSE(astraea_attended(astraea_command(9'000, 40), 5'000, 0)) << "no clock is 4 s ahead";
}

TEST(AstraeaSlot, AWindowIsBoundedAndGrowsBackAfterATimeout) {
  EXPECT_EQ(astraea_window(1, 1'000, 0, 10, 0), 4u);
  EXPECT_EQ(astraea_window(250, 1'000, 0, 10, 0), 250u);
  EXPECT_EQ(astraea_window(2'000, 1'000, 0, 10, 0), 1'000u);
  EXPECT_EQ(astraea_window(250, 1'000, 1, 10, 3), 13u);
  EXPECT_EQ(astraea_window(250, 1'000, 1, 249, 3), 250u);
}

TEST(AstraeaSlot, PacingIsAWindowPerRoundTrip) {
  EXPECT_EQ(astraea_pacing(100, 90, 1'448, 240'000, 0), 4'826'666u);  // 100 x 1448 B in 30 ms
  EXPECT_EQ(astraea_pacing(90, 100, 1'448, 240'000, 0), 4'826'666u) << "what is out counts";
  EXPECT_EQ(astraea_pacing(100, 90, 1'448, 240'000, 1), 6'033'333u) << "a quarter more in the start-up";
  EXPECT_EQ(astraea_pacing(100, 90, 1'448, 0, 0), 0u) << "no round trip is known";
  EXPECT_EQ(astraea_with_headers(4'826'666, 1'448, 52), 4'999'999u);
  EXPECT_EQ(astraea_without_headers(5'000'000, 1'448, 52), 4'826'666u);
}

// --- reading -------------------------------------------------------------------------------------

astraea_slot live_slot() {
  astraea_slot s{};
  s.state = ASTRAEA_LIVE;
  s.gen = 3;
  s.cwnd = 10;
  return s;
}

TEST(AstraeaSlot, IsReadWhileNobodyWrites) {
  astraea_slot s = live_slot();
  s.wseq = 8;
  s.bytes_acked = 1ull << 40;
  s.command = 77;
  const auto read = read_slot(s);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->gen, 3u);
  EXPECT_EQ(read->bytes_acked, 1ull << 40);
  s.wseq = 9;
  EXPECT_FALSE(read_slot(s)) << "the kernel is writing";
  s.wseq = 10;
  s.state = ASTRAEA_RELEASED;
  EXPECT_FALSE(read_slot(s));
}

// A writer as the kernel's program is: a reading has all of one acknowledgement or nothing.
TEST(AstraeaSlot, NoReadingMixesTwoAcknowledgements) {
  astraea_slot s = live_slot();
  std::atomic<bool> over{false};
  std::thread writer([&] {
    for (std::uint32_t n = 1; !over; ++n) {
      __atomic_exchange_n(&s.wseq, 2 * n - 1, __ATOMIC_SEQ_CST);
      for (ln_u32* field : {&s.acks, &s.delivered, &s.lost, &s.epoch_most_out}) {
        __atomic_store_n(field, n, __ATOMIC_RELAXED);
      }
      __atomic_store_n(&s.bytes_acked, std::uint64_t{n}, __ATOMIC_RELAXED);
      __atomic_exchange_n(&s.wseq, 2 * n, __ATOMIC_SEQ_CST);
    }
  });
  int whole = 0;
  for (int i = 0; i < 20'000'000 && whole < 10'000; ++i) {
    const auto read = read_slot(s);
    if (!read) continue;
    ++whole;
    ASSERT_EQ(read->acks, read->delivered);
    ASSERT_EQ(read->acks, read->epoch_most_out);
    ASSERT_EQ(read->acks, read->bytes_acked);
    ASSERT_EQ(read->wseq, 2 * read->acks);
  }
  over = true;
  writer.join();
  EXPECT_EQ(whole, 10'000);
}

TEST(AstraeaSlot, CountersThatNoFlowHasAreRefused) {
  const astraea_slot before = live_slot();
  astraea_slot now = before;
  now.acks = now.rtt_cnt = now.rate_cnt = 4;
  now.rtt_sum_us = 120'000;
  now.rate_sum_Bps = 40'000'000;
  EXPECT_TRUE(plausible(before, now));
  astraea_slot other = now;
  other.rtt_cnt = 5;  // more samples than acknowledgements
  EXPECT_FALSE(plausible(before, other));
  other = now;
  other.rtt_sum_us = ~0ull;
  EXPECT_FALSE(plausible(before, other));
  other = now;
  other.rate_sum_Bps = 1ull << 50;
  EXPECT_FALSE(plausible(before, other));
  EXPECT_FALSE(plausible(now, before)) << "counters only grow";
  other = now;
  other.cwnd = 0xffffffff;
  EXPECT_FALSE(plausible(before, other));
  other = now;
  other.mode = 3;
  EXPECT_FALSE(plausible(before, other));
  astraea_slot late = now, wrapped = now;
  late.acks = 0xfffffffe;
  wrapped.acks = 2;
  late.rtt_cnt = wrapped.rtt_cnt = late.rate_cnt = wrapped.rate_cnt = 4;
  EXPECT_TRUE(plausible(late, wrapped)) << "those of 32 bits wrap";
}

TEST(AstraeaSlot, IsWrittenAsTheProgramReadsIt) {
  astraea_slot s = live_slot();
  write_command(s, 5'000'999'999, 250);
  EXPECT_EQ(s.command, astraea_command(5'000, 250));
  write_command(s, 0, 0);
  EXPECT_NE(s.command, 0u) << "it would read as no agent";
  EXPECT_TRUE(astraea_attended(s.command, 0, 0));
  write_settings(s, ASTRAEA_NO_SLOW_START, 500);
  write_epoch(s, 7);
  EXPECT_EQ(s.flags, ASTRAEA_NO_SLOW_START);
  EXPECT_EQ(s.timeout_ms, 500u);
  EXPECT_EQ(s.agent_epoch, 7u);
  free_slot(s);
  EXPECT_EQ(s.state, ASTRAEA_LIVE) << "a new flow has taken it";
  s.state = ASTRAEA_RELEASED;
  free_slot(s);
  EXPECT_EQ(s.state, ASTRAEA_FREE);
}

}  // namespace
}  // namespace loomnet::astraea
