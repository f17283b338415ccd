// What a panel needs of its neighbours before it starts, and what LiveFabric::check_panels says where that is
// taken away.
#include <cstdlib>
#include <stdexcept>

#include "live/live_fabric.hpp"
#include "live/offloads.hpp"
#include "live_fixture.hpp"

namespace loomnet {
namespace {

class PanelChecks : public live_test::LiveTest {};

void ethtool(const Netns& netns, const std::string& words) {
  netns.run([&] { ASSERT_EQ(std::system(("ethtool -K " + words + " >/dev/null").c_str()), 0); });
}

std::string said(LiveFabric& fabric) {
  try {
    fabric.check_panels();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return {};
}

struct Bed {
  Netns panel = Netns::create("ocs0"), host = Netns::create("h0");
  LiveFabric fabric{{{.node = 1, .port = 0, .kind = PortKind::xdp_panel, .netns = &panel, .interface = "s0"},
                     {.node = 0, .port = 0, .kind = PortKind::host, .netns = &host, .interface = "p0"}},
                    {},
                    {},
                    {{.node = 1, .netns = &panel, .ports = 1}}};
};

TEST_F(PanelChecks, AFarEndWithoutProgramAndGroIsRefused) {
  Bed bed;
  EXPECT_EQ(said(bed.fabric), "");
  bed.fabric.endpoint().close();
  const std::string refused = said(bed.fabric);
  EXPECT_NE(refused.find("panel ocs0: the far end of its port 0 has neither an XDP program nor GRO"), refused.npos)
      << refused;
}

TEST_F(PanelChecks, OffloadsOfAHostAreRefused) {
  Bed bed;
  for (const std::string words : {"p0 tx on", "p0 tx on sg on tso on gso on"}) {
    ethtool(bed.host, words);
    const std::string refused = said(bed.fabric);
    EXPECT_NE(refused.find("host h0: tx-checksumming is on at p0"), refused.npos) << refused;
    disable_offloads(bed.host, {"p0"});
    EXPECT_EQ(said(bed.fabric), "");
  }
}

TEST_F(PanelChecks, GroAloneLetsAVethTakeXdpFrames) {
  const Netns a = Netns::create("lnlv a"), b = Netns::create("lnlv b");
  Rtnetlink rt(a);
  rt.create_veth({.a = {.name = "lnlv-a"}, .b = {.name = "lnlv-b", .netns = &b}});
  rt.commit();
  EXPECT_FALSE(takes_xdp_frames(b, "lnlv-b"));
  ethtool(b, "lnlv-b gro on");
  EXPECT_TRUE(takes_xdp_frames(b, "lnlv-b"));
}

}  // namespace
}  // namespace loomnet
