// Groups that ranks make by name: what each member is told and when, which number a group gets, and that a
// refused request leaves nothing behind.
#include "rank/rank_meetings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace loomnet::rank {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

MarkEntry request(std::uint64_t name, std::uint32_t size, std::uint32_t position, std::uint32_t number = 0) {
  return {.kind = static_cast<std::uint32_t>(MarkKind::meet), .status = size,
          .value = std::uint64_t{position} << 32 | number, .a = name, .b = 0};
}

// "to 2 (its request 7): rank 5 has come as 1; the group is 3"
std::vector<std::string> told(Meetings& meetings) {
  std::vector<std::string> lines;
  for (const auto& [to, notice] : meetings.settle()) {
    EXPECT_EQ(notice.kind, static_cast<std::uint32_t>(NoticeKind::came));
    std::string line = "to " + std::to_string(to) + "." + std::to_string(notice.peer) + ": rank " +
                       std::to_string(notice.reason & 0xffff) + " as " + std::to_string(notice.reason >> 16);
    if (notice.reserved != 0) line += "; group " + std::to_string(notice.reserved - 1);
    lines.push_back(line);
  }
  return lines;
}

TEST(Meetings, EveryMemberHearsOfEveryMemberAndOfTheNumberLast) {
  Meetings meetings(4, 16);
  ASSERT_TRUE(meetings.ask(3, request(9, 2, 1, 7)));
  ASSERT_TRUE(meetings.ask(1, request(9, 2, 0, 8)));
  EXPECT_THAT(told(meetings), ElementsAre("to 1.8: rank 1 as 0", "to 1.8: rank 3 as 1; group 0",
                                          "to 3.7: rank 1 as 0", "to 3.7: rank 3 as 1; group 0"));
  EXPECT_THAT(told(meetings), IsEmpty());
}

TEST(Meetings, AMemberThatComesLaterIsToldToTheOthersAlone) {
  Meetings meetings(4, 16);
  ASSERT_TRUE(meetings.ask(0, request(9, 3, 0)));
  EXPECT_TRUE(meetings.asked());
  EXPECT_THAT(told(meetings), ElementsAre("to 0.0: rank 0 as 0"));
  EXPECT_FALSE(meetings.asked());
  ASSERT_TRUE(meetings.ask(1, request(9, 3, 1)));
  EXPECT_THAT(told(meetings), ElementsAre("to 0.0: rank 1 as 1", "to 1.0: rank 0 as 0", "to 1.0: rank 1 as 1"));
  ASSERT_TRUE(meetings.ask(2, request(9, 3, 2)));
  EXPECT_THAT(told(meetings),
              ElementsAre("to 0.0: rank 2 as 2; group 0", "to 1.0: rank 2 as 2; group 0", "to 2.0: rank 0 as 0",
                          "to 2.0: rank 1 as 1", "to 2.0: rank 2 as 2; group 0"));
}

TEST(Meetings, NumbersDoNotDependOnTheOrderOfAsking) {
  for (const bool reversed : {false, true}) {
    Meetings meetings(2, 16);
    for (const std::uint64_t name : reversed ? std::vector<std::uint64_t>{6, 5} : std::vector<std::uint64_t>{5, 6}) {
      ASSERT_TRUE(meetings.ask(0, request(name, 1, 0, static_cast<std::uint32_t>(name))));
    }
    EXPECT_THAT(told(meetings), ElementsAre("to 0.5: rank 0 as 0; group 0", "to 0.6: rank 0 as 0; group 1"));
  }
}

TEST(Meetings, ANameCanBeUsedAgainOnceItsGroupIsMade) {
  Meetings meetings(2, 16);
  for (int number = 0; number < 3; ++number) {
    ASSERT_TRUE(meetings.ask(0, request(9, 1, 0)));
    EXPECT_THAT(told(meetings), ElementsAre("to 0.0: rank 0 as 0; group " + std::to_string(number)));
  }
}

TEST(Meetings, ARankThatAsksAgainHasGivenItsEarlierRequestUp) {
  Meetings meetings(2, 16);
  ASSERT_TRUE(meetings.ask(0, request(9, 2, 0, 1)));
  EXPECT_THAT(told(meetings), ElementsAre("to 0.1: rank 0 as 0"));
  ASSERT_TRUE(meetings.ask(0, request(9, 2, 1, 2)));
  EXPECT_THAT(told(meetings), ElementsAre("to 0.2: rank 0 as 1"));
  ASSERT_TRUE(meetings.ask(1, request(9, 2, 0, 5))) << "position 0 is free again";
  EXPECT_THAT(told(meetings), ElementsAre("to 0.2: rank 1 as 0; group 0", "to 1.5: rank 0 as 1",
                                          "to 1.5: rank 1 as 0; group 0"));
}

TEST(Meetings, RequestsThatMakeNoSenseAreRefused) {
  Meetings meetings(4, 16);
  EXPECT_FALSE(meetings.ask(0, request(9, 0, 0))) << "no member";
  EXPECT_FALSE(meetings.ask(0, request(9, 5, 0))) << "more members than ranks";
  EXPECT_FALSE(meetings.ask(0, request(9, 2, 2))) << "position outside the group";
  ASSERT_TRUE(meetings.ask(0, request(9, 2, 0)));
  EXPECT_FALSE(meetings.ask(1, request(9, 3, 1))) << "another size";
  EXPECT_FALSE(meetings.ask(1, request(9, 2, 0))) << "another member's position";
}

// One rank's refused request must not have the others refused.
TEST(Meetings, ARefusedRequestLeavesNothingBehind) {
  Meetings meetings(4, 16);
  EXPECT_FALSE(meetings.ask(3, request(9, 3, 3)));
  EXPECT_FALSE(meetings.asked());
  ASSERT_TRUE(meetings.ask(0, request(9, 2, 0))) << "the refused size counted";
  EXPECT_FALSE(meetings.ask(3, request(9, 2, 0)));
  ASSERT_TRUE(meetings.ask(1, request(9, 2, 1)));
  EXPECT_EQ(told(meetings).size(), 4u);
}

TEST(Meetings, OpenGroupsOfARankAreBounded) {
  Meetings meetings(2, 1 << 20);
  for (std::uint64_t name = 0; name < Meetings::kMostOpen; ++name) {
    ASSERT_TRUE(meetings.ask(0, request(name, 2, 0))) << name;
  }
  EXPECT_FALSE(meetings.ask(0, request(Meetings::kMostOpen, 2, 0)));
  EXPECT_TRUE(meetings.ask(0, request(5, 2, 0))) << "no further group";
  EXPECT_TRUE(meetings.ask(1, request(Meetings::kMostOpen, 2, 0))) << "the refused group is another rank's to make";
  ASSERT_TRUE(meetings.ask(1, request(7, 2, 1)));
  meetings.settle();
  EXPECT_TRUE(meetings.ask(0, request(Meetings::kMostOpen + 1, 2, 0))) << "group 7 is open no more";
}

// No group gets a number that no communicator may have.
TEST(Meetings, NumbersEnd) {
  Meetings meetings(2, 2);
  ASSERT_TRUE(meetings.ask(0, request(1, 1, 0)));
  ASSERT_TRUE(meetings.ask(0, request(2, 1, 0)));
  EXPECT_FALSE(meetings.ask(0, request(3, 1, 0))) << "both numbers are taken, though not yet told";
  EXPECT_TRUE(meetings.ask(1, request(4, 2, 0))) << "needs none yet";
  EXPECT_THAT(told(meetings), ElementsAre("to 0.0: rank 0 as 0; group 0", "to 0.0: rank 0 as 0; group 1",
                                          "to 1.0: rank 1 as 0"));
  EXPECT_FALSE(meetings.ask(0, request(4, 2, 1)));
}

}  // namespace
}  // namespace loomnet::rank
