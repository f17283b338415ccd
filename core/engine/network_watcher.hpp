// The network reports its changes to a watcher, which keeps routes or rates worked out from the network.
#pragma once

#include "engine/link_change.hpp"

namespace loomnet {

class NetworkWatcher {
 public:
  virtual ~NetworkWatcher() = default;
  virtual void link_changed(LinkId link) = 0;  // carrier, rate or delay
  virtual void circuits_changed(NodeId panel) = 0;
  virtual void tables_changed(NodeId node) = 0;  // of a switch
};

}  // namespace loomnet
