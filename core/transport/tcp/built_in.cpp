// The built-in congestion controls by name, and the check of the options they share.
#include <stdexcept>

#include "transport/tcp/algorithms.hpp"
#include "transport/tcp/bbr.hpp"

namespace loomnet::tcp {

std::vector<CongestionFactory> built_in_controls() {
  return {
      {"reno",
       [](Window& w, const TcpOptions&, std::uint64_t) { return std::make_unique<Reno>(w); }},
      {"cubic", [](Window& w, const TcpOptions& o,
                   std::uint64_t) { return std::make_unique<Cubic>(w, o.hystart); }},
      {"dctcp", [](Window& w, const TcpOptions& o,
                   std::uint64_t) { return std::make_unique<Dctcp>(w, o.dctcp_g); }},
      {"bbr", [](Window& w, const TcpOptions& o,
                 std::uint64_t s) { return std::make_unique<Bbr>(w, o, s); }},
  };
}

void TcpOptions::check() const {
  const auto refuse = [](const char* what) { throw std::invalid_argument(what); };
  if (mtu < 1280 || mtu > 65'535) refuse("TcpOptions.mtu: 1280 (IPv6's minimum) to 65535 bytes");
  if (initial_window == 0 || initial_window > 1000)
    refuse("TcpOptions.initial_window: 1 to 1000 segments");
  constexpr std::uint32_t kMost = 0xffffu << 14;  // the largest window there is (RFC 7323 2.3)
  if (send_buffer < 2 * mtu || send_buffer > kMost)
    refuse("TcpOptions.send_buffer: 2 MTU to 2^30 bytes");
  if (receive_buffer < 2 * mtu || receive_buffer > kMost) {
    refuse("TcpOptions.receive_buffer: 2 MTU to 2^30 bytes");
  }
  if (rto_min.count <= 0 || rto_max < rto_min)
    refuse("TcpOptions.rto_min, rto_max: 0 < rto_min <= rto_max");
  if (rto_initial < rto_min || rto_initial > rto_max)
    refuse("TcpOptions.rto_initial: rto_min to rto_max");
  if (retries == 0 || retries > 255) refuse("TcpOptions.retries: 1 to 255");
  if (delayed_ack.count < 0 || delayed_ack > seconds(1)) refuse("TcpOptions.delayed_ack: 0 to 1 s");
  if (!(dctcp_g > 0 && dctcp_g <= 1)) refuse("TcpOptions.dctcp_g: above 0, up to 1");
}

}  // namespace loomnet::tcp
