// The register itself; see factory.hpp.
#include "transport/factory.hpp"

#include <algorithm>

namespace loomnet {

std::vector<PacketLabeler>& packet_labelers() {
  static std::vector<PacketLabeler> labelers;
  return labelers;
}

void TransportFactory::add(TransportKind kind) {
  if (kind.name.empty() || !kind.make) {
    throw std::invalid_argument("transport: a name and a maker are needed");
  }
  if (std::any_of(kinds_.begin(), kinds_.end(), [&](const TransportKind& k) { return k.name == kind.name; })) {
    throw std::invalid_argument("transport: " + kind.name + " is registered already");
  }
  auto& labelers = packet_labelers();
  labelers.insert(labelers.end(), kind.labelers.begin(), kind.labelers.end());
  kinds_.push_back(std::move(kind));
}

const TransportKind& TransportFactory::kind(std::string_view name) const {
  std::vector<std::string> names;
  for (const TransportKind& each : kinds_) {
    if (each.name == name) return each;
    names.push_back(each.name);
  }
  throw std::invalid_argument("transport: \"" + std::string(name) + "\" has no model in the engine; there are " +
                              listed(names));
}

}  // namespace loomnet
