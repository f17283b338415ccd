// TCP in the register of transports: its options, its maker, the names of its packets.
#include "transport/factory.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace loomnet::tcp {
namespace {

constexpr std::uint8_t kNextHeaderTcp = 6;

bool read_label(std::span<const std::uint8_t> bytes, PacketLabel& label) {
  if (bytes.size() < 8) return false;
  label.name = "tcp";
  label.psn = std::uint32_t{bytes[4]} << 24 | std::uint32_t{bytes[5]} << 16 | std::uint32_t{bytes[6]} << 8 | bytes[7];
  return true;
}

}  // namespace

void register_transport(TransportFactory& factory) {
  TransportKind kind;
  kind.name = "tcp";
  kind.options = TcpOptions::table().describe();
  kind.of_kernels = true;
  kind.gives = kSignals;
  kind.has_congestion_control = true;
  kind.labelers = {{kNextHeaderTcp, 0, read_label}};
  kind.make = [](const TransportContext& context, const OptionValues& values) {
    TcpOptions options = TcpOptions::of(values);
    options.seed = context.seed;
    return std::make_unique<TcpTransport>(context.sink, options);
  };
  factory.add(std::move(kind));
}

}  // namespace loomnet::tcp
