// Attaching a program to a switch's ports.
#include "live/xdp_switch.hpp"

#include <net/if.h>

namespace loomnet {
namespace {

// libbpf's log becomes part of the error of whatever `make` does.
template <typename Make>
auto with_log(const std::string& name, Make make) {
  const BpfLog log;
  try {
    return make();
  } catch (const LiveError& e) {
    throw LiveError("switch " + name + ": " + e.tried(), e.error(), log.last());
  }
}

}  // namespace

XdpSwitch::XdpSwitch(const Netns& netns, const std::vector<std::string>& ports, const ProgramKind& kind,
                     std::uint64_t seed, const ProgramOptions& options, XdpReports& reports)
    : name_(netns.label()), program_(with_log(name_, [&] {
        return std::make_unique<XdpProgram>(kind, checked_settings(kind, ports.size(), seed, options), reports);
      })) {
  netns.run([&] {
    for (std::size_t port = 0; port < ports.size(); ++port) {
      const unsigned index = ::if_nametoindex(ports[port].c_str());
      if (index == 0) throw LiveError("switch " + name_ + ": find port " + ports[port], errno);
      program_->set_port(static_cast<SwitchPort>(port), static_cast<int>(index));
      links_.push_back(attach_xdp(program_->program(), ports[port]));
    }
  });
}

}  // namespace loomnet
