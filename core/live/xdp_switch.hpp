// A switch in its own namespace: the forward program attached to every port. The descriptors held
// here are all that keeps it attached, so a killed run detaches itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "live/netns.hpp"
#include "live/xdp_forward.hpp"
#include "live/xdp_link.hpp"

namespace loomnet {

class XdpSwitch {
 public:
  // `ports`: interfaces in `netns`, index = port number. Without tables every packet is dropped and
  // counted (drop_no_tables). Throws LiveError naming the switch (the namespace's label) and port.
  XdpSwitch(const Netns& netns, const std::vector<std::string>& ports,
            const ForwardSettings& settings);

  const std::string& name() const { return name_; }
  std::size_t ports() const { return ports_; }
  // Takes an RCU grace period: never on the live loop's thread; several switches from several
  // threads.
  void set_tables(const TableBatch& batch) { forward_.set_tables(batch); }
  std::uint32_t generation() const { return forward_.generation(); }

  // Summed over ports and CPUs, under the program's own names.
  void counters(std::vector<SwitchCounter>& out) const { forward_.counters(out); }
  // Sum of all drop_* counters: packets that came in and do not come back.
  std::uint64_t drops() const;
  XdpForward& forward() { return forward_; }

 private:
  std::string name_;
  std::size_t ports_;
  XdpForward forward_;
  std::vector<Fd> links_;  // closed before the program goes
};

}  // namespace loomnet
