// Groups that ranks make by name: what each member is told and when, which number a group gets, and that a
// refused request leaves nothing behind.
#include "rank/rank_meetings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace loomnet::rank {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Verdict = Meetings::Verdict;

MarkEntry request(std::uint64_t name, std::uint32_t size, std::uint32_t position, std::uint32_t number = 0) {
  return {.kind = static_cast<std::uint32_t>(MarkKind::meet),
          .status = size,
          .value = std::uint64_t{position} << 32 | number,
          .a = name,
          .b = 0};
}

// "to 2 (its request 7): rank 5 has come as 1; the group is 3"
std::vector<std::string> told(Meetings& meetings) {
  std::vector<std::string> lines;
  for (const auto& [to, notice] : meetings.settle()) {
    std::string line = "to " + std::to_string(to) + "." + std::to_string(notice.peer) + ": ";
    if (notice.kind == static_cast<std::uint32_t>(NoticeKind::same_place)) {
      line += "so does rank " + std::to_string(notice.reason) + (notice.reserved ? "; no more" : "");
      lines.push_back(line);
      continue;
    }
    EXPECT_EQ(notice.kind, static_cast<std::uint32_t>(NoticeKind::came));
    line += "rank " + std::to_string(notice.reason & 0xffff) + " as " + std::to_string(notice.reason >> 16);
    if (notice.reserved != 0) line += "; group " + std::to_string(notice.reserved - 1);
    lines.push_back(line);
  }
  return lines;
}

TEST(Meetings, EveryMemberHearsOfEveryMemberAndOfTheNumberLast) {
  Meetings meetings(4, 16);
  ASSERT_EQ(meetings.ask(3, request(9, 2, 1, 7)), Verdict::taken);
  ASSERT_EQ(meetings.ask(1, request(9, 2, 0, 8)), Verdict::taken);
  EXPECT_THAT(told(meetings), ElementsAre("to 1.8: rank 1 as 0", "to 1.8: rank 3 as 1; group 0", "to 3.7: rank 1 as 0",
                                          "to 3.7: rank 3 as 1; group 0"));
  EXPECT_THAT(told(meetings), IsEmpty());
}

TEST(Meetings, AMemberThatComesLaterIsToldToTheOthersAlone) {
  Meetings meetings(4, 16);
  ASSERT_EQ(meetings.ask(0, request(9, 3, 0)), Verdict::taken);
  EXPECT_TRUE(meetings.asked());
  EXPECT_THAT(told(meetings), ElementsAre("to 0.0: rank 0 as 0"));
  EXPECT_FALSE(meetings.asked());
  ASSERT_EQ(meetings.ask(1, request(9, 3, 1)), Verdict::taken);
  EXPECT_THAT(told(meetings), ElementsAre("to 0.0: rank 1 as 1", "to 1.0: rank 0 as 0", "to 1.0: rank 1 as 1"));
  ASSERT_EQ(meetings.ask(2, request(9, 3, 2)), Verdict::taken);
  EXPECT_THAT(told(meetings),
              ElementsAre("to 0.0: rank 2 as 2; group 0", "to 1.0: rank 2 as 2; group 0", "to 2.0: rank 0 as 0",
                          "to 2.0: rank 1 as 1", "to 2.0: rank 2 as 2; group 0"));
}

TEST(Meetings, NumbersDoNotDependOnTheOrderOfAsking) {
  for (const bool reversed : {false, true}) {
    Meetings meetings(2, 16);
    for (const std::uint64_t name : reversed ? std::vector<std::uint64_t>{6, 5} : std::vector<std::uint64_t>{5, 6}) {
      ASSERT_EQ(meetings.ask(0, request(name, 1, 0, static_cast<std::uint32_t>(name))), Verdict::taken);
    }
    EXPECT_THAT(told(meetings), ElementsAre("to 0.5: rank 0 as 0; group 0", "to 0.6: rank 0 as 0; group 1"));
  }
}

TEST(Meetings, ANameCanBeUsedAgainOnceItsGroupIsMade) {
  Meetings meetings(2, 16);
  for (int number = 0; number < 3; ++number) {
    ASSERT_EQ(meetings.ask(0, request(9, 1, 0)), Verdict::taken);
    EXPECT_THAT(told(meetings), ElementsAre("to 0.0: rank 0 as 0; group " + std::to_string(number)));
  }
}

TEST(Meetings, ARankThatAsksAgainHasGivenItsEarlierRequestUp) {
  Meetings meetings(2, 16);
  ASSERT_EQ(meetings.ask(0, request(9, 2, 0, 1)), Verdict::taken);
  EXPECT_THAT(told(meetings), ElementsAre("to 0.1: rank 0 as 0"));
  ASSERT_EQ(meetings.ask(0, request(9, 2, 1, 2)), Verdict::taken);
  EXPECT_THAT(told(meetings), ElementsAre("to 0.2: rank 0 as 1"));
  ASSERT_EQ(meetings.ask(1, request(9, 2, 0, 5)), Verdict::taken) << "position 0 is free again";
  EXPECT_THAT(told(meetings),
              ElementsAre("to 0.2: rank 1 as 0; group 0", "to 1.5: rank 0 as 1", "to 1.5: rank 1 as 0; group 0"));
}

TEST(Meetings, RequestsThatMakeNoSenseAreRefused) {
  Meetings meetings(4, 16);
  EXPECT_EQ(meetings.ask(0, request(9, 0, 0)), Verdict::senseless) << "no member";
  EXPECT_EQ(meetings.ask(0, request(9, 5, 0)), Verdict::senseless) << "more members than ranks";
  EXPECT_EQ(meetings.ask(0, request(9, 2, 2)), Verdict::senseless) << "position outside the group";
  ASSERT_EQ(meetings.ask(0, request(9, 2, 0)), Verdict::taken);
  EXPECT_EQ(meetings.ask(1, request(9, 3, 1)), Verdict::senseless) << "another size";
}

// All of them call themselves rank 0 of 4, as a script does that takes its rank from LOCAL_RANK.
TEST(Meetings, MembersThatClaimOnePlaceHearOfEachOtherWhateverTheOrder) {
  for (const auto& order : {std::vector<std::uint32_t>{0, 1, 2}, std::vector<std::uint32_t>{2, 1, 0}}) {
    Meetings meetings(4, 16);
    ASSERT_EQ(meetings.ask(3, request(9, 4, 3, 5)), Verdict::taken);
    for (const std::uint32_t rank : order) ASSERT_EQ(meetings.ask(rank, request(9, 4, 0, rank)), Verdict::taken);
    EXPECT_THAT(told(meetings),
                ElementsAre("to 0.0: so does rank 1", "to 0.0: so does rank 2; no more", "to 1.1: so does rank 0",
                            "to 1.1: so does rank 2; no more", "to 2.2: so does rank 0",
                            "to 2.2: so does rank 1; no more", "to 3.5: rank 3 as 3"));
    EXPECT_THAT(meetings.open(0), IsEmpty()) << "it is a member no more";
    EXPECT_EQ(meetings.open(3), "new_group of 4 ranks");
  }
}

TEST(Meetings, APlaceThatTwoHaveClaimedIsFreeAgain) {
  Meetings meetings(2, 1);
  ASSERT_EQ(meetings.ask(0, request(9, 2, 0)), Verdict::taken);
  ASSERT_EQ(meetings.ask(1, request(9, 2, 0)), Verdict::taken);
  EXPECT_EQ(told(meetings).size(), 2u);
  ASSERT_EQ(meetings.ask(0, request(9, 2, 0)), Verdict::taken);
  ASSERT_EQ(meetings.ask(1, request(9, 2, 1)), Verdict::taken) << "the only number is still to be given";
  EXPECT_EQ(told(meetings).size(), 4u);
}

TEST(Meetings, TheGroupThatARankWaitsForHasTheNameOfItsCall) {
  Meetings meetings(4, 16);
  MarkEntry whole = request(9, 3, 0, 1);
  whole.status |= kDefaultGroup;
  ASSERT_EQ(meetings.ask(0, whole), Verdict::taken);
  EXPECT_EQ(meetings.open(0), "init_process_group of 3 ranks");
  EXPECT_THAT(meetings.open(1), IsEmpty());
  ASSERT_EQ(meetings.ask(0, request(8, 2, 0, 2)), Verdict::taken);
  EXPECT_EQ(meetings.open(0), "new_group of 2 ranks") << "it has asked for this one last";
  ASSERT_EQ(meetings.ask(1, request(8, 2, 1, 0)), Verdict::taken);
  meetings.settle();
  EXPECT_THAT(meetings.open(1), IsEmpty()) << "its group is made";
}

// One rank's refused request must not have the others refused.
TEST(Meetings, ARefusedRequestLeavesNothingBehind) {
  Meetings meetings(4, 16);
  EXPECT_EQ(meetings.ask(3, request(9, 3, 3)), Verdict::senseless);
  EXPECT_FALSE(meetings.asked());
  ASSERT_EQ(meetings.ask(0, request(9, 2, 0)), Verdict::taken) << "the refused size counted";
  EXPECT_EQ(meetings.ask(3, request(9, 3, 0)), Verdict::senseless);
  ASSERT_EQ(meetings.ask(1, request(9, 2, 1)), Verdict::taken);
  EXPECT_EQ(told(meetings).size(), 4u);
}

TEST(Meetings, OpenGroupsOfARankAreBounded) {
  Meetings meetings(2, 1 << 20);
  for (std::uint64_t name = 0; name < Meetings::kMostOpen; ++name) {
    ASSERT_EQ(meetings.ask(0, request(name, 2, 0)), Verdict::taken) << name;
  }
  EXPECT_EQ(meetings.ask(0, request(Meetings::kMostOpen, 2, 0)), Verdict::too_many);
  EXPECT_EQ(meetings.ask(0, request(5, 2, 0)), Verdict::taken) << "no further group";
  EXPECT_EQ(meetings.ask(1, request(Meetings::kMostOpen, 2, 0)), Verdict::taken)
      << "the refused group is another rank's to make";
  ASSERT_EQ(meetings.ask(1, request(7, 2, 1)), Verdict::taken);
  meetings.settle();
  EXPECT_EQ(meetings.ask(0, request(Meetings::kMostOpen + 1, 2, 0)), Verdict::taken) << "group 7 is open no more";
}

// No group gets a number that no communicator may have.
TEST(Meetings, NumbersEnd) {
  Meetings meetings(2, 2);
  ASSERT_EQ(meetings.ask(0, request(1, 1, 0)), Verdict::taken);
  ASSERT_EQ(meetings.ask(0, request(2, 1, 0)), Verdict::taken);
  EXPECT_EQ(meetings.ask(0, request(3, 1, 0)), Verdict::too_many) << "both numbers are taken, though not yet told";
  EXPECT_EQ(meetings.ask(1, request(4, 2, 0)), Verdict::taken) << "needs none yet";
  EXPECT_THAT(told(meetings),
              ElementsAre("to 0.0: rank 0 as 0; group 0", "to 0.0: rank 0 as 0; group 1", "to 1.0: rank 1 as 0"));
  EXPECT_EQ(meetings.ask(0, request(4, 2, 1)), Verdict::too_many);
}

}  // namespace
}  // namespace loomnet::rank
