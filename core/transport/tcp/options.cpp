// TCP's options by name, and the check of what depends on more than one of them.
#include "transport/tcp/options.hpp"

namespace loomnet::tcp {
namespace {
constexpr std::uint32_t kMostBuffer = 0xffffu << 14;  // the largest window there is (RFC 7323 2.3)
}

const OptionTable<TcpOptions>& TcpOptions::table() {
  static const OptionTable<TcpOptions> rows = [] {
    using O = TcpOptions;
    OptionTable<O> t("TcpOptions");
    t.add("cc", &O::congestion_control, {.doc = "congestion control, by its registered name"})
        .add("mtu", &O::mtu,
             {.unit = "bytes",
              .doc = "of an IPv6 packet; the MSS is 72 less",
              .least = 1280,
              .most = 65'535,
              .range = "1280 (IPv6's minimum) to 65535 bytes"})
        .add("initial_window", &O::initial_window,
             {.unit = "segments", .doc = "RFC 6928", .least = 1, .most = 1000, .range = "1 to 1000 segments"})
        .add("send_buffer", &O::send_buffer,
             {.unit = "bytes",
              .doc = "unacknowledged at most: tcp_wmem's maximum",
              .least = 1,
              .most = kMostBuffer,
              .range = "2 MTU to 1073725440 bytes, the largest window of RFC 7323"})
        .add("receive_buffer", &O::receive_buffer,
             {.unit = "bytes",
              .doc = "window offered: tcp_rmem's maximum",
              .least = 1,
              .most = kMostBuffer,
              .range = "2 MTU to 1073725440 bytes, the largest window of RFC 7323"})
        .add("rto_min_ps", &O::rto_min,
             {.unit = "ps", .doc = "least of the variance's part of the retransmission timeout"})
        .add("rto_max_ps", &O::rto_max, {.unit = "ps", .doc = "longest retransmission timeout"})
        .add("rto_initial_ps", &O::rto_initial,
             {.unit = "ps", .doc = "timeout before a round trip is measured (RFC 6298 2.1)"})
        .add("retries", &O::retries,
             {.doc = "timeouts without progress survived: tcp_retries2", .least = 1, .most = 255})
        .add("delayed_ack_ps", &O::delayed_ack,
             {.unit = "ps",
              .doc = "TCP_DELACK_MIN",
              .least = 0,
              .most = 1e12,
              .range = "0 to 1 s",
              .field = "delayed_ack"})
        .add("quick_acks", &O::quick_acks,
             {.unit = "packets", .doc = "acknowledged at once at the start: TCP_MAX_QUICKACKS"})
        .add("handshake", &O::handshake, {.doc = "SYN, SYN-ACK, ACK at the start: each end measures the round trip"})
        .add("ecn", &O::ecn, {.doc = "RFC 3168 agreed upon; dctcp always has ECN"})
        .add("slow_start_after_idle", &O::slow_start_after_idle,
             {.doc = "RFC 5681 4.1: the window halves per RTO of silence"});
    return t;
  }();
  return rows;
}

TcpOptions TcpOptions::of(const OptionValues& values) {
  TcpOptions o;
  table().read("tcp", o, values);
  o.congestion_options = options_of_control("tcp", table().describe(), o.congestion_control, values, kSignals);
  return o;
}

void TcpOptions::check() const {
  table().check(*this);
  const auto refuse = [](const char* field, const char* what) {
    refuse_option(std::string("TcpOptions.") + field, what);
  };
  if (send_buffer < 2 * mtu) refuse("send_buffer", "2 MTU to 1073725440 bytes, the largest window of RFC 7323");
  if (receive_buffer < 2 * mtu) refuse("receive_buffer", "2 MTU to 1073725440 bytes, the largest window of RFC 7323");
  if (rto_min.count <= 0 || rto_max < rto_min) refuse("rto_min, rto_max", "0 < rto_min <= rto_max");
  if (rto_initial < rto_min || rto_initial > rto_max) refuse("rto_initial", "rto_min to rto_max");
}

}  // namespace loomnet::tcp
