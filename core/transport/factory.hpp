// Every transport by its name: its options, its maker, and how its packets are named in traces.
//
// A transport is a folder X of core/transport/ with a file X_transport.cpp, which defines
//   namespace loomnet::X { void register_transport(TransportFactory& factory); }
// CMake finds the folders and writes the function transports() that calls each of them: a static
// object that registered itself would be left out by the linker, as nothing refers to it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/congestion.hpp"
#include "transport/options.hpp"
#include "transport/packet_label.hpp"
#include "transport/transport.hpp"

namespace loomnet {

// Where a transport is put.
struct TransportContext {
  TransportSink& sink;
  std::size_t ports = 1;
  std::uint64_t seed = 0;  // of the run
};

struct TransportKind {
  std::string name;
  std::vector<OptionInfo> options;  // its own; those of its congestion controls come on top
  std::vector<OptionPreset> presets;  // that its option "preset" names
  Signals gives = 0;                // to a congestion control
  bool has_congestion_control = false;
  bool of_kernels = false;  // packets of a host's kernel are marked on links as this one's
  bool joins_pairs = true;  // false: its queue pairs are of groups (QpConfig::group)
  // What switches write into packets of its that they trim, and the last hop of its own; 0: they trim none.
  std::uint8_t trim_dscp = 0, trim_dscp_last_hop = 0;
  std::vector<PacketLabeler> labelers;
  // Throws std::invalid_argument naming the option that is unknown, of a wrong type or out of range.
  std::function<std::unique_ptr<Transport>(const TransportContext&, const OptionValues&)> make;
};

class TransportFactory {
 public:
  // Also adds its labelers to packet_labelers(). Throws std::invalid_argument for a name that is empty
  // or taken.
  void add(TransportKind kind);
  // Throws std::invalid_argument listing the names there are.
  const TransportKind& kind(std::string_view name) const;
  const std::vector<TransportKind>& kinds() const { return kinds_; }
  // Its place among kinds(), from 1, as Packet::carrier has it. Throws as kind().
  std::uint8_t number(std::string_view name) const {
    return static_cast<std::uint8_t>(&kind(name) - kinds_.data() + 1);
  }

 private:
  std::vector<TransportKind> kinds_;
};

// All transports of this build, in alphabetical order of their folders; the library loomnet_transports
// has it. A program that reads packets' labels calls it first.
const TransportFactory& transports();

}  // namespace loomnet
