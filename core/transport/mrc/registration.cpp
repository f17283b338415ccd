// MRC in the register of transports: its options, its maker, the names of its packets.
#include "packet/ipv6.hpp"
#include "packet/mrc_headers.hpp"
#include "packet/step_stamp.hpp"
#include "transport/factory.hpp"
#include "transport/mrc/dscp.hpp"
#include "transport/mrc/mrc_transport.hpp"

namespace loomnet::mrc {
namespace {

std::string_view name_of(Op op) {
  switch (op) {
    case Op::write_first:
      return "write_first";
    case Op::write_middle:
      return "write_middle";
    case Op::write_last:
      return "write_last";
    case Op::write_last_immediate:
      return "write_last_immediate";
    case Op::write_only:
      return "write_only";
    case Op::write_only_immediate:
      return "write_only_immediate";
    case Op::transport_ack:
      return "transport_ack";
    case Op::endpoint_request:
      return "endpoint_request";
    case Op::endpoint_response:
      return "endpoint_response";
    case Op::sack:
      return "sack";
    case Op::nack:
      return "nack";
    case Op::reliability_probe:
      return "reliability_probe";
  }
  return "mrc";
}

bool has_name(std::uint8_t opcode) { return name_of(static_cast<Op>(opcode)) != "mrc"; }

bool read_label(std::span<const std::uint8_t> bytes, PacketLabel& label) {
  if (bytes.size() < Bth::kSize) return false;
  ByteReader in(bytes);
  const Bth bth = Bth::parse(in);
  label.name = name_of(static_cast<Op>(bth.opcode));
  label.psn = bth.psn;
  return true;
}

// Behind a step header, where packets of other transports have theirs too.
bool read_stepped(std::span<const std::uint8_t> bytes, PacketLabel& label) {
  const int step = step_header_at(kUdpPortStep, bytes);
  if (step <= 0) return false;
  bytes = bytes.subspan(static_cast<std::size_t>(step));
  return !bytes.empty() && has_name(bytes[0]) && read_label(bytes, label);
}

}  // namespace

void register_transport(TransportFactory& factory) {
  TransportKind kind;
  kind.name = "mrc";
  kind.options = MrcOptions::table().describe();
  kind.gives = kSignals;
  kind.has_congestion_control = true;
  kind.trim_dscp = dscp::kTrimmed;
  kind.trim_dscp_last_hop = dscp::kTrimmedLastHop;
  kind.labelers = {{kNextHeaderUdp, MrcOptions{}.udp_port, read_label}, {kNextHeaderUdp, kUdpPortStep, read_stepped}};
  kind.make = [](const TransportContext& context, const OptionValues& values) {
    MrcOptions options = MrcOptions::of(values);
    options.seed = context.seed;
    return std::make_unique<MrcTransport>(options, context.sink, context.ports);
  };
  factory.add(std::move(kind));
}

}  // namespace loomnet::mrc
