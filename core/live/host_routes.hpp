// Routes of live hosts' kernels to hosts that a panel's circuits join them to: by which ports, from now on.
#pragma once

#include <string>
#include <vector>

#include "live/netlink.hpp"

namespace loomnet {

class HostRoutes {
 public:
  // `ports`: of a host, the interfaces of its NIC's ports; `source`: its address; `mtu`: of its packets,
  // 0: the interfaces'. Returns the host's number here. Throws LiveError.
  std::size_t add_host(const Netns& netns, const std::vector<std::string>& ports, const std::string& source,
                       const std::string& gateway, std::uint32_t mtu);
  // To `destination` by these ports of the host, by hash of flows; without ports the route goes.
  void set(std::size_t host, const std::string& destination, const std::vector<std::size_t>& ports);
  // Carries out what has been set. Throws LiveError.
  void commit();

 private:
  struct Host {
    Rtnetlink rtnetlink;
    std::vector<int> indices;
    IpAddress source, gateway;
    std::uint32_t mtu;
    std::vector<std::string> destinations;  // that have a route
  };
  std::vector<Host> hosts_;
};

}  // namespace loomnet
