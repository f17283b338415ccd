// A switch in its own namespace: its program attached to every port. The descriptors held here are
// all that keeps it attached, so a killed run detaches itself.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "live/netns.hpp"
#include "live/xdp_link.hpp"
#include "live/xdp_program.hpp"

namespace loomnet {

class XdpSwitch {
 public:
  // `ports`: interfaces in `netns`, index = port number. Without tables every packet is dropped and
  // counted (drop_no_tables). Throws LiveError naming the switch (the namespace's label) and port, and
  // std::invalid_argument for options that the program does not have.
  XdpSwitch(const Netns& netns, const std::vector<std::string>& ports, const ProgramKind& kind, std::uint64_t seed,
            const ProgramOptions& options, XdpReports& reports);

  const std::string& name() const { return name_; }
  std::size_t ports() const { return links_.size(); }
  XdpProgram& program() { return *program_; }
  const XdpProgram& program() const { return *program_; }

 private:
  std::string name_;
  std::unique_ptr<XdpProgram> program_;
  std::vector<Fd> links_;  // closed before the program goes
};

}  // namespace loomnet
