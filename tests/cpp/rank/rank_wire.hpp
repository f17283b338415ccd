// The NIC's side of one rank's shared memory, and the rank's side driven by hand through the raw rings.
#pragma once

#include <gtest/gtest.h>

#include <array>

#include "rank/rank_port.hpp"

namespace loomnet::testing {

inline rank::Geometry small() {
  return {.rank = 0,
          .world = 3,
          .channels = 2,
          .submissions = 8,
          .completions = 8,
          .arrivals = 8,
          .marks = 8,
          .notices = 8,
          .staging_bytes = 8192};
}

class RankWire : public ::testing::Test {
 protected:
  explicit RankWire(const rank::Geometry& g = small())
      : memory(rank::Memory::create(g)),
        seen(rank::Memory::attach(memory.fd())),
        wake(seen.engine_words().rank_wake),
        port(memory, wake),
        submissions(seen.ring_words(rank::kSubmissions), seen.ring_entries(rank::kSubmissions), g.submissions),
        marks(seen.ring_words(rank::kMarks), seen.ring_entries(rank::kMarks), g.marks),
        completions(seen.ring_words(rank::kCompletions), seen.ring_entries(rank::kCompletions), g.completions),
        arrivals(seen.ring_words(rank::kArrivals), seen.ring_entries(rank::kArrivals), g.arrivals),
        notices(seen.ring_words(rank::kNotices), seen.ring_entries(rank::kNotices), g.notices) {
    port.bind(1, 0, 10, 77);
    port.bind(1, 1, 11, 77);
    port.bind(2, 0, 20, 77);
  }

  static rank::Submission good(std::uint64_t id = 1) {
    return {.id = id,
            .local_offset = 128,
            .remote_offset = 256,
            .posted_ns = 5,
            .peer = 1,
            .length = 64,
            .immediate = 9,
            .opcode = 1};
  }
  void post(const rank::Submission& s) {
    ASSERT_TRUE(submissions.push(s));
    submissions.publish();
  }
  RankFault after(const rank::Submission& s) {
    post(s);
    EXPECT_EQ(port.poll(batch), 0u);
    return port.fault();
  }

  rank::Memory memory, seen;
  rank::WakeWord wake;
  RankPort port;
  rank::RingProducer<rank::Submission> submissions;
  rank::RingProducer<rank::MarkEntry> marks;
  rank::RingConsumer<rank::CompletionEntry> completions;
  rank::RingConsumer<rank::ArrivalEntry> arrivals;
  rank::RingConsumer<rank::NoticeEntry> notices;
  std::array<RankWork, 16> batch;
};

}  // namespace loomnet::testing
