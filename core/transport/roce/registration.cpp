// RoCE in the register of transports: its options, its maker, the names of its packets.
#include "packet/ipv6.hpp"
#include "packet/step_stamp.hpp"
#include "packet/udp.hpp"
#include "transport/factory.hpp"
#include "transport/roce/presets.hpp"
#include "transport/roce/roce_transport.hpp"

namespace loomnet::roce {
namespace {

std::string_view name_of(RcOpcode opcode) {
  switch (opcode) {
    case RcOpcode::write_first:
      return "write_first";
    case RcOpcode::write_middle:
      return "write_middle";
    case RcOpcode::write_last:
      return "write_last";
    case RcOpcode::write_last_immediate:
      return "write_last_immediate";
    case RcOpcode::write_only:
      return "write_only";
    case RcOpcode::write_only_immediate:
      return "write_only_immediate";
    case RcOpcode::acknowledge:
      return "acknowledge";
    case RcOpcode::congestion_notification:
      break;
  }
  return "roce";
}

bool read_label(std::span<const std::uint8_t> bytes, PacketLabel& label) {
  if (bytes.size() < Bth::kSize) return false;
  ByteReader in(bytes);
  const Bth bth = Bth::parse(in);
  label.name = name_of(static_cast<RcOpcode>(bth.opcode));
  label.psn = bth.psn;
  return true;
}

// Behind a step header, where packets of other transports have theirs too.
bool read_stepped(std::span<const std::uint8_t> bytes, PacketLabel& label) {
  const int step = step_header_at(kUdpPortStep, bytes);
  if (step <= 0) return false;
  bytes = bytes.subspan(static_cast<std::size_t>(step));
  return !bytes.empty() && name_of(static_cast<RcOpcode>(bytes[0])) != "roce" && read_label(bytes, label);
}

}  // namespace

void register_transport(TransportFactory& factory) {
  TransportKind kind;
  kind.name = "roce";
  kind.options = RoceOptions::table().describe();
  kind.presets = presets();
  kind.gives = kSignals;
  kind.has_congestion_control = true;
  kind.labelers = {{kNextHeaderUdp, kUdpPortRoceV2, read_label}, {kNextHeaderUdp, kUdpPortStep, read_stepped}};
  kind.make = [](const TransportContext& context, const OptionValues& values) {
    RoceOptions options = RoceOptions::of(values);
    options.seed = context.seed;
    return std::make_unique<RoceTransport>(context.sink, options);
  };
  factory.add(std::move(kind));
}

}  // namespace loomnet::roce
