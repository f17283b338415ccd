// Batched rtnetlink: many requests per send, each acknowledged and checked. Building 320 veth
// pairs one `ip` at a time takes a minute; in batches a quarter of a second.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "live/netns.hpp"
#include "packet/ethernet.hpp"

namespace loomnet {

struct VethEnd {
  std::string name;             // at most 15 bytes
  const Netns* netns = nullptr;  // null: the namespace of the Rtnetlink
  MacAddress mac{};             // all zero: the kernel's choice
  bool up = true;
  std::uint32_t group = 0;      // 0: none; see Rtnetlink::delete_group
  int index = 0;                // 0: the kernel's choice; only of VethPair::a
};

struct VethPair {
  VethEnd a, b;
  std::uint32_t mtu = 1500;  // native XDP without frags: the peer's MTU at most 3,506
};

struct LinkInfo {
  int index = 0;
  std::string name;
  MacAddress mac{};
  std::uint32_t mtu = 0;
  bool up = false;       // administratively
  bool carrier = false;
  std::uint64_t rx_packets = 0, tx_packets = 0, rx_dropped = 0, tx_dropped = 0;
};

struct IpAddress {
  int family = 0;  // AF_INET or AF_INET6
  std::array<std::uint8_t, 16> bytes{};
  std::uint8_t prefix = 0;
  // "10.0.0.1/24", "fd00::1/128"; without a length a host address. Throws std::invalid_argument.
  static IpAddress parse(const std::string& text);
};

class Rtnetlink {
 public:
  // Speaks to one namespace; requests wait until commit().
  explicit Rtnetlink(const Netns& netns);

  // The namespaces named must outlive commit().
  void create_veth(const VethPair& pair);
  void delete_link(const std::string& name);
  // All links of a group at once: one grace period instead of one for each.
  void delete_group(std::uint32_t group);
  // Taking an end down takes the carrier from its peer.
  void set_up(const std::string& name, bool up);
  void add_address(int index, const IpAddress& address);
  // `gateway` may be null (directly attached); `destination` prefix 0 is the default route.
  void add_route(const IpAddress& destination, int index, const IpAddress* gateway);
  // To `destination` by the gateway over all these links, by hash of flows, in place of the routes
  // before. `mtu` 0: the links'.
  void set_routes(const IpAddress& destination, const std::vector<int>& indices, const IpAddress& gateway,
                  const IpAddress& source, std::uint32_t mtu);
  void delete_route(const IpAddress& destination);  // of any number of links
  void add_neighbour(int index, const IpAddress& address, const MacAddress& mac);  // permanent

  // Sends what waits and checks every acknowledgement. Throws LiveError naming the first request
  // that failed (and how many did); those after it have been carried out all the same.
  void commit();
  std::size_t pending() const { return requests_.size(); }

  std::vector<LinkInfo> links();
  LinkInfo link(const std::string& name);

 private:
  struct Request {
    std::vector<std::uint8_t> bytes;
    std::string tried;
  };
  void add(Request request);
  void exchange();
  Fd socket_;
  std::string label_;
  std::vector<Request> requests_;
  std::vector<std::uint8_t> reply_;  // kept: clearing it anew costs as much as a request
  std::map<const Netns*, std::vector<std::string>> peers_up_;  // second step of create_veth
  std::uint32_t sequence_ = 0;
};

}  // namespace loomnet
