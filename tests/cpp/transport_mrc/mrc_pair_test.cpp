// Two NICs, whole messages: what a queue pair promises, under each fault of "MRC + SRv6 multi-plane
// fabrics" 2.10.
#include "mrc_bed.hpp"

namespace loomnet::mrc {
namespace {

constexpr std::uint64_t kBase = 0x10000;
constexpr std::uint32_t kKey = 0xdeadbeef;

TEST(Pair, OneWriteArrivesWholeAndCompletesOnce) {
  Mrc m({.hosts = 2, .planes = 4}, quick_options());
  auto& region = m.bed.nic(1).add_region(kKey, kBase, 1 << 20);
  m.bed.connect(0, 100, 1, 200);
  const auto data = pattern(300'001, 1);
  m.bed.post_write(0, 100, data, kBase + 5, kKey, 77);
  ASSERT_TRUE(m.bed.run_until_idle(milliseconds(10))) << m.bed;
  ASSERT_EQ(m.bed.nic(0).completions.size(), 1u);
  EXPECT_EQ(m.bed.nic(0).completions[0].completion.status, Status::ok);
  ASSERT_EQ(m.bed.nic(1).arrivals.size(), 1u);
  EXPECT_EQ(m.bed.nic(1).arrivals[0].arrival.immediate, 77u);
  EXPECT_EQ(m.bed.nic(1).arrivals[0].arrival.length, data.size());
  EXPECT_EQ(m.bed.nic(1).arrivals[0].arrival.address, kBase + 5);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), region.bytes.begin() + 5));
  EXPECT_EQ(m.count(0, Count::data_retransmitted), 0u) << m.bed;
  EXPECT_EQ(m.count(0, Count::ev_condemned), 0u);
  m.bed.run_until(m.bed.now() + microseconds(100));
  EXPECT_EQ(m.bed.leaked(), 0u);
}

}  // namespace
}  // namespace loomnet::mrc
