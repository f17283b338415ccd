// Random packets between two connected TCP hosts with work outstanding.
#include "transport/tcp/tcp_transport.hpp"
#include "transport_pair.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loomnet;
  fuzz::Input in{data, size};
  static constexpr const char* kControls[] = {"reno", "cubic", "dctcp", "bbr", "bbr3", "vegas", "copa", "vivace"};
  const std::uint8_t kind = in.byte();
  tcp::TcpOptions options;
  options.mtu = 1280;
  options.congestion_control = kControls[in.byte() & 7];
  options.ecn = kind & 4;
  options.receive_buffer = kind & 8 ? 4'000 : 4'000'000;
  options.rto_min = microseconds(100);
  options.rto_initial = microseconds(200);
  options.rto_max = milliseconds(1);
  options.delayed_ack = microseconds(kind >> 4);
  return fuzz::exchange<tcp::TcpTransport>(in, options);
}
