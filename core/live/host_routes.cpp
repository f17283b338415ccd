// Sockets and interface numbers are kept, so that a change of circuits costs one request for each route.
#include "live/host_routes.hpp"

#include <net/if.h>

#include <algorithm>

namespace loomnet {

std::size_t HostRoutes::add_host(const Netns& netns, const std::vector<std::string>& ports, const std::string& source,
                                 const std::string& gateway, std::uint32_t mtu) {
  std::vector<int> indices;
  netns.run([&] {
    for (const std::string& name : ports) {
      const unsigned index = ::if_nametoindex(name.c_str());
      if (index == 0) throw LiveError("find interface " + name + " of " + netns.label(), errno);
      indices.push_back(static_cast<int>(index));
    }
  });
  hosts_.push_back(
      {Rtnetlink(netns), std::move(indices), IpAddress::parse(source), IpAddress::parse(gateway), mtu, {}});
  return hosts_.size() - 1;
}

void HostRoutes::set(std::size_t number, const std::string& destination, const std::vector<std::size_t>& ports) {
  Host& host = hosts_.at(number);
  const IpAddress address = IpAddress::parse(destination);
  const auto known = std::ranges::find(host.destinations, destination);
  if (ports.empty()) {
    if (known == host.destinations.end()) return;
    host.destinations.erase(known);
    host.rtnetlink.delete_route(address);
    return;
  }
  if (known == host.destinations.end()) host.destinations.push_back(destination);
  std::vector<int> indices;
  for (const std::size_t port : ports) indices.push_back(host.indices.at(port));
  host.rtnetlink.set_routes(address, indices, host.gateway, host.source, host.mtu);
}

void HostRoutes::commit() {
  for (Host& host : hosts_) {
    if (host.rtnetlink.pending() > 0) host.rtnetlink.commit();
  }
}

}  // namespace loomnet
