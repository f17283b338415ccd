// In-network aggregation in the register of transports: its options, its maker, the names of its packets.
#include "transport/ina/ina_transport.hpp"

#include <cstring>
#include <string>

#include "packet/ipv6.hpp"
#include "transport/factory.hpp"

namespace loomnet::ina {
namespace {

bool read_label(std::span<const std::uint8_t> bytes, PacketLabel& label) {
  static constexpr std::array<std::string_view, AGGREGATE_TYPES> kNames = {"data",   "resend", "evict",  "agg",
                                                                           "remind", "reply",  "result", "nak"};
  aggregate_header header;
  if (bytes.size() < sizeof header) return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.version_scheme >> 4 != AGGREGATE_VERSION || header.type >= AGGREGATE_TYPES) return false;
  label.name = header.flags & AGGREGATE_BOOT ? "boot" : kNames[header.type];
  label.psn = header.sequence;
  label.numbered = true;
  return true;
}

}  // namespace

void register_transport(TransportFactory& factory) {
  TransportKind kind;
  kind.name = "ina";
  kind.options = InaOptions::table().describe();
  kind.joins_pairs = false;
  kind.labelers = {{kNextHeaderUdp, AGGREGATE_UDP_PORT, read_label}};
  kind.make = [](const TransportContext& context, const OptionValues& values) {
    InaOptions options;
    const OptionValues others = InaOptions::table().read("ina", options, values);
    if (!others.empty()) {
      std::vector<std::string> known;
      for (const OptionInfo& option : InaOptions::table().describe()) known.push_back(option.name);
      refuse_unknown_option("ina", others.front().first, known);
    }
    return std::make_unique<InaTransport>(context.sink, options, context.ports, context.seed);
  };
  factory.add(std::move(kind));
}

}  // namespace loomnet::ina
