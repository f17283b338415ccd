// The two columns of "MRC + SRv6 multi-plane fabrics" 4.
#include "transport/mrc/options.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace loomnet::mrc {

MrcOptions MrcOptions::sim(Picoseconds net_rtt, BitsPerSecond rate) {
  MrcOptions o;
  o.network_rtt = net_rtt;
  o.port_rate = rate;
  return o;
}

MrcOptions MrcOptions::net(Picoseconds net_rtt, BitsPerSecond rate) {
  MrcOptions o = sim(net_rtt, rate);
  o.mtu = 2048;
  o.coarse_timestamps = true;
  o.probe_cap = milliseconds(200);
  o.probe_timeout = milliseconds(100);
  o.rto = nanoseconds(1'024) * (1 << 14);
  o.rto_max = milliseconds(200);
  o.peer_timeout = seconds(20);
  o.port_status_start = milliseconds(20);
  o.port_status_cap = milliseconds(20);
  o.reverse_probe_floor = milliseconds(10);
  return o;
}

std::uint8_t MrcOptions::window_for(std::size_t ports) const {
  const double bdp = static_cast<double>(port_rate.count) * static_cast<double>(ports) / 8e6 *
                     network_rtt.microseconds();
  const double units = std::ceil(2 * bdp / (128.0 * mtu));
  return static_cast<std::uint8_t>(std::clamp(units, 8.0, 255.0));
}

void MrcOptions::check() const {
  const auto need = [](bool ok, const char* field, const char* rule) {
    if (!ok) throw std::invalid_argument(std::string("MrcOptions.") + field + ": " + rule);
  };
  need(mtu >= 1 && mtu <= 16'384, "mtu", "1 to 16384 bytes");
  need(network_rtt.count > 0, "network_rtt", "must be positive");
  need(port_rate.count > 0, "port_rate", "must be positive");
  need(base_rtt.count >= 0, "base_rtt", "must not be negative");
  need(evs_per_qp >= 1 && evs_per_qp <= 2'048, "evs_per_qp", "1 to 2048");
  need(backup_share >= 0 && backup_share <= 8, "backup_share", "0 to 8");
  need(min_active_share >= 0 && min_active_share <= 1, "min_active_share", "0 to 1");
  need(losses_to_bad >= 1 && losses_to_bad <= 3, "losses_to_bad", "1 to 3");
  need(readmit_answers >= 1, "readmit_answers", "at least 1");
  need(readmit_answers_most >= readmit_answers_again && readmit_answers_most <= 255,
       "readmit_answers_most", "readmit_answers_again to 255");
  need(port_up_answers >= 1, "port_up_answers", "at least 1");
  need(rto.count > 0, "rto", "must be positive");
  need(rto_max >= rto || rto_max >= network_rtt, "rto_max", "must not be below rto");
  need(probe_timeout.count > 0, "probe_timeout", "must be positive");
  need(probe_cap.count > 0, "probe_cap", "must be positive");
  need(max_wimm >= 1, "max_wimm", "at least 1");
  need(min_window > 0 && min_window <= 1, "min_window", "above 0 and at most 1 packet");
  need(sack_bytes >= 1, "sack_bytes", "at least 1");
  need(first_psn <= 0xffffff, "first_psn", "24 bits");
}

}  // namespace loomnet::mrc
