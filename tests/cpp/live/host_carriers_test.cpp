// Carriers of hosts' interfaces: what one change of circuits asks of the kernel, and what hosts' kernels say of it.
#include "live/host_carriers.hpp"

#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

#include "live/live_clock.hpp"
#include "live_fixture.hpp"

namespace loomnet {
namespace {

constexpr unsigned kLowerUp = 1u << 16;

// Link messages of a namespace's kernel.
class Listener {
 public:
  explicit Listener(const Netns& netns) {
    netns.run(
        [&] { socket_ = checked_fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE), "listen to links"); });
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    address.nl_groups = RTMGRP_LINK;
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const timeval patience{0, 300'000};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  // Whether the kernel says within 0.3 s that an interface has this carrier.
  bool hears(bool up) {
    alignas(nlmsghdr) char bytes[1 << 14];
    for (;;) {
      const ssize_t size = ::recv(socket_.get(), bytes, sizeof bytes, 0);
      if (size < 0) return false;
      auto left = static_cast<unsigned>(size);
      for (auto* h = reinterpret_cast<nlmsghdr*>(bytes); NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
        const auto* m = static_cast<const ifinfomsg*>(NLMSG_DATA(h));
        if (h->nlmsg_type == RTM_NEWLINK && bool(m->ifi_flags & kLowerUp) == up) return true;
      }
    }
  }

 private:
  Fd socket_;
};

class HostCarriersTest : public live_test::LiveTest {
 protected:
  struct Bed {
    Netns h0 = Netns::create("lnlv h0"), h1 = Netns::create("lnlv h1");
    LiveFabric fabric{{{.node = 0, .kind = PortKind::host, .netns = &h0, .interface = "lnlv-h0"},
                       {.node = 1, .kind = PortKind::host, .netns = &h1, .interface = "lnlv-h1"}},
                      {},
                      {.frames_per_umem = 512}};
    bool carrier(int host) { return Rtnetlink(host ? h1 : h0).link(host ? "lnlv-h1" : "lnlv-h0").carrier; }
  };
};

TEST_F(HostCarriersTest, WhatChangesTogetherIsOneBatch) {
  Bed bed;
  HostCarriers carriers(bed.fabric, false);
  const std::int64_t begin = wall_nanoseconds();
  carriers.set({0, 0, false}, begin);
  carriers.set({1, 0, false}, begin);
  carriers.flush();
  carriers.flush();  // nothing is left
  carriers.stop();
  EXPECT_FALSE(bed.carrier(0));
  EXPECT_FALSE(bed.carrier(1));
  EXPECT_EQ(carriers.taken_down().count, 1u);
  EXPECT_EQ(carriers.taken_up().count, 0u);
  EXPECT_GT(carriers.taken_down().max, Picoseconds{});
  EXPECT_LE(carriers.taken_down().max, nanoseconds(wall_nanoseconds() - begin));
  EXPECT_EQ(carriers.failure(), "");
}

TEST_F(HostCarriersTest, ACarrierThatGoesAndComesAtOnceIsInTwoBatches) {
  Bed bed;
  HostCarriers carriers(bed.fabric, false);
  carriers.set({0, 0, false}, wall_nanoseconds());
  carriers.set({1, 0, false}, wall_nanoseconds());
  carriers.set({0, 0, true}, wall_nanoseconds());
  carriers.flush();
  carriers.stop();
  EXPECT_TRUE(bed.carrier(0));
  EXPECT_FALSE(bed.carrier(1));
  EXPECT_EQ(carriers.taken_down().count, 1u);
  EXPECT_EQ(carriers.taken_up().count, 1u);
}

// In new namespaces the kernel numbers both ends of the first veth alike, and announces the carrier of such a
// device only once a second.
TEST_F(HostCarriersTest, EachHostsKernelAnnouncesItAtOnce) {
  Bed bed;
  for (const bool first : {true, false}) {
    Listener listener(first ? bed.h0 : bed.h1);
    for (const bool up : {false, true, false, true}) {
      bed.fabric.set_carrier(first ? 0 : 1, up);
      ASSERT_TRUE(listener.hears(up)) << "h" << !first << (up ? " up" : " down");
    }
  }
}

}  // namespace
}  // namespace loomnet
