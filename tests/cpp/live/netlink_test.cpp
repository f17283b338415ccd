// Namespaces and batched rtnetlink against the real kernel: what is asked for exists, what is
// deleted is gone, and an error names the object.
#include "live/netlink.hpp"
#include "live/offloads.hpp"

#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>

#include "live_fixture.hpp"

namespace loomnet {
namespace {

using live_test::mac;
class NetlinkTest : public live_test::LiveTest {};

bool has_link(const Netns& ns, const std::string& name) {
  const auto links = Rtnetlink(ns).links();
  return std::any_of(links.begin(), links.end(), [&](const LinkInfo& l) { return l.name == name; });
}

TEST_F(NetlinkTest, VethEndsAppearDirectlyInTheirNamespaces) {
  const Netns left = Netns::create("lnlv left"), right = Netns::create("lnlv right");
  Rtnetlink rt(left);
  rt.create_veth({.a = {.name = "lnlv-a", .mac = mac(1, 1)},
                  .b = {.name = "lnlv-b", .netns = &right, .mac = mac(1, 2)},
                  .mtu = 3400});
  rt.commit();
  const LinkInfo a = rt.link("lnlv-a"), b = Rtnetlink(right).link("lnlv-b");
  EXPECT_EQ(a.mac, mac(1, 1));
  EXPECT_EQ(b.mac, mac(1, 2));
  EXPECT_EQ(a.mtu, 3400u);
  EXPECT_EQ(b.mtu, 3400u);
  EXPECT_TRUE(a.up && a.carrier && b.up && b.carrier);
  EXPECT_FALSE(has_link(left, "lnlv-b"));
  EXPECT_EQ(::if_nametoindex("lnlv-a"), 0u) << "the test's own namespace saw the interface";
}

TEST_F(NetlinkTest, AnEndTakenDownTakesThePeersCarrier) {
  const Netns left = Netns::create("lnlv left"), right = Netns::create("lnlv right");
  Rtnetlink rt(left), far(right);
  rt.create_veth({.a = {.name = "lnlv-a"}, .b = {.name = "lnlv-b", .netns = &right}});
  rt.set_up("lnlv-a", false);
  rt.commit();
  EXPECT_FALSE(far.link("lnlv-b").carrier);
  EXPECT_TRUE(far.link("lnlv-b").up);
  rt.set_up("lnlv-a", true);
  rt.commit();
  EXPECT_TRUE(far.link("lnlv-b").carrier);
}

TEST_F(NetlinkTest, AGroupIsDeletedAtOnceAndPeersGoWithIt) {
  const Netns left = Netns::create("lnlv left"), right = Netns::create("lnlv right");
  Rtnetlink rt(left), far(right);
  for (int i = 0; i < 100; ++i) {  // more than one batch
    const std::string n = std::to_string(i);
    rt.create_veth({.a = {.name = "lnlv-a" + n, .group = 77}, .b = {.name = "lnlv-b" + n, .netns = &right}});
  }
  rt.create_veth({.a = {.name = "lnlv-keep"}, .b = {.name = "lnlv-peer", .netns = &right}});
  rt.commit();
  EXPECT_EQ(far.links().size(), 102u);  // with lo
  rt.delete_group(77);
  rt.commit();
  EXPECT_EQ(far.links().size(), 2u);
  EXPECT_TRUE(has_link(left, "lnlv-keep"));
  rt.delete_link("lnlv-keep");
  rt.commit();
  EXPECT_EQ(far.links().size(), 1u);
}

TEST_F(NetlinkTest, AFailureNamesTheObjectAndTheRestIsStillDone) {
  const Netns ns = Netns::create("lnlv one");
  Rtnetlink rt(ns);
  rt.create_veth({.a = {.name = "lnlv-a"}, .b = {.name = "lnlv-b"}});
  rt.create_veth({.a = {.name = "lnlv-a"}, .b = {.name = "lnlv-c"}});
  rt.create_veth({.a = {.name = "lnlv-d"}, .b = {.name = "lnlv-e"}});
  try {
    rt.commit();
    FAIL() << "a second lnlv-a was accepted";
  } catch (const LiveError& e) {
    EXPECT_EQ(e.error(), EEXIST);
    EXPECT_NE(std::string(e.what()).find("create veth lnlv-a (in lnlv one) -- lnlv-c"), std::string::npos) << e.what();
  }
  EXPECT_TRUE(has_link(ns, "lnlv-d"));
  EXPECT_EQ(rt.pending(), 0u);
}

TEST_F(NetlinkTest, AddressesRoutesAndNeighboursAreAccepted) {
  const Netns ns = Netns::create("lnlv v6", /*ipv6=*/true);
  Rtnetlink rt(ns);
  rt.create_veth({.a = {.name = "lnlv-a"}, .b = {.name = "lnlv-b"}});
  rt.commit();
  const int index = rt.link("lnlv-a").index;
  rt.add_address(index, IpAddress::parse("10.99.0.1/24"));
  rt.add_address(index, IpAddress::parse("fd00:99::1/64"));
  rt.add_neighbour(index, IpAddress::parse("fd00:99::2"), mac(2, 2));
  const IpAddress gateway = IpAddress::parse("fd00:99::2");
  rt.add_route(IpAddress::parse("fd00:aa::/48"), index, &gateway);
  rt.add_route(IpAddress::parse("fc00:1::/32"), index, nullptr);
  EXPECT_NO_THROW(rt.commit());
  rt.add_route(IpAddress::parse("fd00:bb::/48"), 9999, nullptr);
  EXPECT_THROW(rt.commit(), LiveError);
}

TEST_F(NetlinkTest, BadTextIsRefusedBeforeTheKernelSeesIt) {
  EXPECT_THROW(IpAddress::parse("10.0.0.1/33"), std::invalid_argument);
  EXPECT_THROW(IpAddress::parse("10.0.0.1/x"), std::invalid_argument);
  EXPECT_THROW(IpAddress::parse("fd00::/64x"), std::invalid_argument);
  EXPECT_THROW(IpAddress::parse("host"), std::invalid_argument);
  const Netns ns = Netns::create("lnlv one");
  EXPECT_THROW(Rtnetlink(ns).set_up("a-name-far-too-long", true), std::invalid_argument);
}

TEST_F(NetlinkTest, NamespacesLiveAsLongAsTheirDescriptors) {
  const std::size_t before = live_test::open_descriptors();
  std::uint64_t inode = 0;
  {
    const Netns a = Netns::create("lnlv a"), b = Netns::create("lnlv b");
    inode = a.inode();
    EXPECT_NE(a.inode(), b.inode());
    EXPECT_NE(a.inode(), Netns::current().inode());
    a.run([&] { EXPECT_EQ(Netns::current().inode(), inode); });
  }
  EXPECT_EQ(live_test::open_descriptors(), before);
}

TEST_F(NetlinkTest, OffloadsGoOffAndAnUnknownDeviceIsNamed) {
  const Netns ns = Netns::create("lnlv one");
  Rtnetlink rt(ns);
  rt.create_veth({.a = {.name = "lnlv-a"}, .b = {.name = "lnlv-b"}});
  rt.commit();
  EXPECT_NO_THROW(disable_offloads(ns, {"lnlv-a", "lnlv-b"}));
  try {
    disable_offloads(ns, {"lnlv-none"});
    FAIL();
  } catch (const LiveError& e) {
    EXPECT_NE(std::string(e.what()).find("lnlv-none in lnlv one"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace loomnet
