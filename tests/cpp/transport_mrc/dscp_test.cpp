// MRC's traffic classes by DSCP: the class table of "MRC + SRv6 multi-plane fabrics" 3.4.
#include "transport/mrc/dscp.hpp"

#include <gtest/gtest.h>

namespace loomnet::mrc {
namespace {

TEST(Dscp, Classes) {
  EXPECT_EQ(class_of_dscp(dscp::kNoTrim), (TrafficClass{kDataClass, false}));
  EXPECT_EQ(class_of_dscp(dscp::kTrimmable), (TrafficClass{kDataClass, true}));
  EXPECT_EQ(class_of_dscp(dscp::kTrimmableRetransmission), (TrafficClass{kDataClass, true}));
  EXPECT_EQ(class_of_dscp(dscp::kTrimmed), (TrafficClass{kControlClass, false}));
  EXPECT_EQ(class_of_dscp(dscp::kTrimmedLastHop), (TrafficClass{kControlClass, false}));
  EXPECT_EQ(class_of_dscp(dscp::kControl), (TrafficClass{kControlClass, false}));
  EXPECT_EQ(class_of_dscp(33), (TrafficClass{kDataClass, false})) << "unknown: ordinary data";
}

}  // namespace
}  // namespace loomnet::mrc
