// MRC's traffic classes by DSCP: the class table of OCP MRC 1.0.
#include "transport/mrc/dscp.hpp"

#include <gtest/gtest.h>

#include "transport/mrc/wire.hpp"

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

// Other systems use the same codes for classes of their own, 8 and 16 among them: a code says that a
// packet is trimmed in packets to MRC's UDP port alone.
TEST(Dscp, ACodeOfAnotherTransportIsNoTrimming) {
  PacketPool pool;
  PlanePaths path;
  path.row = {{0x2000, 0x4000}, 2, -1};
  path.uplinks = {0};
  const MrcOptions options;
  for (const std::uint8_t code : {dscp::kTrimmableRetransmission, dscp::kTrimmed, dscp::kTrimmedLastHop}) {
    for (const bool mrc : {true, false}) {
      PacketPtr packet = pool.allocate();
      ByteWriter writer = begin(*packet, options,
                                {.source = 1, .destination = 2, .paths = &path, .ev = EntropyValue(0, 1), .dscp = code},
                                {.opcode = static_cast<std::uint8_t>(Op::write_last), .destination_qp = 5});
      writer.u64(0);  // METH and TSETH
      writer.u64(0);  // RETH
      writer.u64(0);
      finish(*packet, writer, {});
      if (!mrc) packet->header[kEnvelopeBytes - 5] ^= 1;  // the UDP destination port
      Inbound in;
      const auto drop = parse(*packet, options, in);
      EXPECT_EQ(drop == Count::drop_udp_port, !mrc) << int{code};
      EXPECT_EQ(in.trimmed, mrc && code != dscp::kTrimmableRetransmission) << int{code};
      std::vector<std::uint8_t> frame(packet->header.begin(), packet->header.begin() + packet->header_length);
      frame.resize(frame.size() + 4);  // iCRC
      EXPECT_EQ(header_length(frame).has_value(), mrc);
    }
  }
}

}  // namespace
}  // namespace loomnet::mrc
