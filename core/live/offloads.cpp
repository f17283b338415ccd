// Reads and sets offloads by the ioctl that ethtool uses.
#include "live/offloads.hpp"

#include <bpf/libbpf.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstring>
#include <utility>

namespace loomnet {
namespace {

ifreq request_of(const std::string& device, ethtool_value& value) {
  ifreq request{};
  if (device.size() >= sizeof request.ifr_name) throw LiveError("find interface " + device, ENODEV);
  std::memcpy(request.ifr_name, device.c_str(), device.size() + 1);
  request.ifr_data = reinterpret_cast<char*>(&value);
  return request;
}

Fd ethtool_socket(const Netns& netns) {
  return checked_fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "open a socket for ethtool in " + netns.label());
}

bool is_on(const Netns& netns, int socket, const std::string& device, std::uint32_t command) {
  ethtool_value value{command, 0};
  ifreq request = request_of(device, value);
  if (::ioctl(socket, SIOCETHTOOL, &request) < 0) {
    if (errno == EOPNOTSUPP) return false;
    throw LiveError("look at the offloads of " + device + " in " + netns.label(), errno);
  }
  return value.data != 0;
}

}  // namespace

void disable_offloads(const Netns& netns, const std::vector<std::string>& devices) {
  netns.run([&] {
    const Fd fd = ethtool_socket(netns);
    for (const std::string& device : devices) {
      for (const std::uint32_t command : {ETHTOOL_STXCSUM, ETHTOOL_SSG, ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO}) {
        ethtool_value value{command, 0};
        ifreq request = request_of(device, value);
        if (::ioctl(fd.get(), SIOCETHTOOL, &request) < 0 && errno != EOPNOTSUPP) {
          throw LiveError("switch off offloads of " + device + " in " + netns.label(), errno);
        }
      }
    }
  });
}

std::string offload_in_use(const Netns& netns, const std::string& device) {
  std::string found;
  netns.run([&] {
    const Fd fd = ethtool_socket(netns);
    for (const auto& [command, name] : {std::pair<std::uint32_t, const char*>{ETHTOOL_GTXCSUM, "tx-checksumming"},
                                        {ETHTOOL_GTSO, "tcp-segmentation-offload"},
                                        {ETHTOOL_GGSO, "generic-segmentation-offload"}}) {
      if (found.empty() && is_on(netns, fd.get(), device, command)) found = name;
    }
  });
  return found;
}

bool takes_xdp_frames(const Netns& netns, const std::string& device) {
  bool takes = false;
  netns.run([&] {
    LIBBPF_OPTS(bpf_xdp_query_opts, options);
    const unsigned index = ::if_nametoindex(device.c_str());
    if (index == 0) throw LiveError("find interface " + device, errno);
    if (const int error = bpf_xdp_query(static_cast<int>(index), 0, &options)) {
      throw LiveError("look for an XDP program at " + device, -error);
    }
    takes = options.drv_prog_id != 0 || is_on(netns, ethtool_socket(netns).get(), device, ETHTOOL_GGRO);
  });
  return takes;
}

}  // namespace loomnet
