// The third verdict of an egress hook: the mark of the port's own discipline is taken back, a mark that
// the packet came with stays. Under each discipline that marks by thresholds, and under CoDel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "link/half_link.hpp"
#include "link/queue_disciplines.hpp"

namespace loomnet {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr int kNotEct = 0, kEct1 = 1, kEct0 = 2, kCe = 3;

// The ECN bits that packets arrive with, in order.
struct Far : LinkReceiver {
  std::vector<int> seen;
  void receive(std::uint16_t, PacketPtr p, Picoseconds) override { seen.push_back(p->header[15] >> 4 & 3); }
};

struct Told {
  bool marked, own;
};
struct Answer : EgressHook {
  Answer(EgressVerdict verdict, std::vector<Told>& told) : verdict(verdict), told(told) {}
  EgressVerdict dequeue(std::span<std::uint8_t>, const Departure& d) override {
    told.push_back({d.marked, d.own_mark});
    return verdict;
  }
  EgressVerdict verdict;
  std::vector<Told>& told;
};

class UnmarkTest : public ::testing::TestWithParam<const char*> {
 protected:
  UnmarkTest() {
    LinkConfig config{.rate = gigabits(1), .ecn_low = 1, .ecn_high = 1};  // each packet that waits is marked
    using Options = std::vector<std::pair<std::string, std::int64_t>>;
    const std::string_view name = GetParam();
    if (name == "codel") {  // each once the first has waited for a microsecond
      config.queue = choose_queue(name, Options{{"target", 1}, {"interval", 1'000'000}});
    } else if (name != "priority") {
      config.queue = choose_queue(name, Options{});
    }
    link_ = std::make_unique<HalfLink>(events_, pool_, config, far_, 0, 1);
  }
  ~UnmarkTest() override { link_->clear(); }

  void offer(int ecn) {
    PacketPtr p = pool_.allocate();
    p->wire_length = 1000;
    p->header_length = 62;
    p->header.fill(0);
    p->header[12] = 0x86, p->header[13] = 0xdd, p->header[14] = 0x60, p->header[20] = 17;
    p->header[15] = static_cast<std::uint8_t>(ecn << 4 | 5);  // beside the flow label
    p->ect = ecn != kNotEct;
    link_->offer(std::move(p), events_.now());
  }
  // What arrives of 40 packets with these bits.
  std::vector<int> arrived(int ecn) {
    for (int i = 0; i < 40; ++i) offer(ecn);
    events_.run_until(events_.now() + milliseconds(10));
    return std::exchange(far_.seen, {});
  }
  void hook(EgressVerdict verdict) { link_->set_egress(std::make_unique<Answer>(verdict, told_)); }

  EventQueue events_;
  PacketPool pool_;
  Far far_;
  std::vector<Told> told_;
  std::unique_ptr<HalfLink> link_;
};

TEST_P(UnmarkTest, ThePortsOwnMarkIsTakenBackAndTheBitsAreThoseThatThePacketCameWith) {
  hook(EgressVerdict::unmark);
  EXPECT_THAT(arrived(kEct0), Each(kEct0));
  EXPECT_THAT(arrived(kEct1), Each(kEct1));
  std::size_t own = 0;
  for (const Told& each : told_) {
    EXPECT_EQ(each.marked, each.own);
    own += each.own;
  }
  EXPECT_GE(own, 20u);
  EXPECT_EQ(link_->counters().marked, 0u);
}

TEST_P(UnmarkTest, AMarkThatThePacketCameWithStays) {
  hook(EgressVerdict::unmark);
  EXPECT_THAT(arrived(kCe), Each(kCe));
  for (const Told& each : told_) {
    EXPECT_TRUE(each.marked);
    EXPECT_FALSE(each.own);
  }
}

TEST_P(UnmarkTest, AnotherVerdictLeavesThePortsMarks) {
  const auto count = [](const std::vector<int>& bits) { return std::ranges::count(bits, kCe); };
  const auto plain = count(arrived(kEct0));
  const std::uint64_t marked = link_->counters().marked;
  EXPECT_GE(plain, 10);
  EXPECT_EQ(marked, static_cast<std::uint64_t>(plain));
  hook(EgressVerdict::leave);
  EXPECT_GE(count(arrived(kEct0)), plain - 1);
  hook(EgressVerdict::mark);
  EXPECT_EQ(count(arrived(kEct0)), 40);
  EXPECT_EQ(count(arrived(kNotEct)), 0) << "what is not ECN-capable is not marked by anyone";
}

TEST_P(UnmarkTest, AHookThatComesLaterKnowsNothingOfEarlierMarks) {
  EXPECT_GE(std::ranges::count(arrived(kEct0), kCe), 10);
  hook(EgressVerdict::unmark);
  offer(kCe);  // it finds the port idle
  events_.run_until(events_.now() + milliseconds(1));
  EXPECT_THAT(far_.seen, ElementsAre(kCe));
}

INSTANTIATE_TEST_SUITE_P(Disciplines, UnmarkTest, ::testing::Values("priority", "fifo", "laggard_first", "codel"));

}  // namespace
}  // namespace loomnet
