// The constants of software time (`net`) and of hardware (`sim`).
#include "transport/mrc/options.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace loomnet::mrc {

const OptionTable<MrcOptions>& MrcOptions::table() {
  static const OptionTable<MrcOptions> rows = [] {
    using O = MrcOptions;
    OptionTable<O> t("MrcOptions");
    t.add("mtu", &O::mtu, {.unit = "bytes", .doc = "payload of a packet", .least = 1, .most = 16'384})
        .add("ecn", &O::ecn, {.doc = "ECT(0) on data"})
        .add("trim_nack", &O::trim_nack, {.doc = "data is TRIMMABLE; False: NO_TRIM"})
        .add("base_rtt_ps", &O::base_rtt,
             {.unit = "ps",
              .doc = "of a whole packet and its SACK; 0: measured when a queue pair connects",
              .least = 0,
              .range = "must not be negative",
              .field = "base_rtt"})
        .add("evs_per_qp", &O::evs_per_qp, {.doc = "entropy values of a queue pair", .least = 1, .most = 2'048})
        .add("backup_share", &O::backup_share,
             {.doc = "backups per plane, as a share of the active values", .least = 0, .most = 8})
        .add("min_active_share", &O::min_active_share,
             {.doc = "share of the values that always stay in use", .least = 0, .most = 1})
        .add("losses_to_bad", &O::losses_to_bad, {.doc = "losses that condemn a value", .least = 1, .most = 3})
        .add("rto_ps", &O::rto,
             {.unit = "ps",
              .doc = "floor of the retransmission timeout",
              .least = 1,
              .range = "must be positive",
              .field = "rto"})
        .add("rto_max_ps", &O::rto_max, {.unit = "ps", .doc = "longest retransmission timeout"})
        .add("retries_linear", &O::retries_linear, {.doc = "timeouts before they double"})
        .add("retries_exponential", &O::retries_exponential,
             {.doc = "doubled timeouts survived; 25 and more: any number"})
        .add("peer_timeout_ps", &O::peer_timeout,
             {.unit = "ps", .doc = "without progress a queue pair fails; 0: never"})
        .add("probe_cap_ps", &O::probe_cap,
             {.unit = "ps",
              .doc = "longest time between probes of a bad value",
              .least = 1,
              .range = "must be positive",
              .field = "probe_cap"})
        .add("probe_timeout_ps", &O::probe_timeout,
             {.unit = "ps",
              .doc = "after which a probe counts as unanswered",
              .least = 1,
              .range = "must be positive",
              .field = "probe_timeout"})
        .add("mpr", &O::mpr, {.doc = "window in 128 PSNs; 0: two bandwidth-delay products"})
        .add("max_wimm", &O::max_wimm, {.doc = "writes with immediate in flight", .least = 1, .range = "at least 1"})
        .add("sack_bytes", &O::sack_bytes,
             {.unit = "bytes", .doc = "received between two SACKs", .least = 1, .range = "at least 1"})
        .choice("loss_infer", &O::loss_infer, {"sleek", "same_ev", "rto_only"}, {.doc = "how losses are inferred"})
        .choice("sack_base", &O::sack_base, {"covering", "max", "trigger"}, {.doc = "where a SACK's bitmap begins"})
        .add("cc", &O::congestion, {.doc = "congestion control, by its registered name"})
        .choice("nscc_delay", &O::nscc_delay, {"sample", "median"},
                {.doc = "queueing delay: of one sample, or the median of eight"})
        .choice("plane_turns", &O::plane_turns, {"paths", "equal"}, {.doc = "turns of planes that have lost paths"})
        .choice("ecn_reaction", &O::ecn_reaction, {"path", "window"},
                {.doc = "a marked path passes its next turn, or the congestion control alone is told"})
        .choice("identity", &O::identity, {"none", "hdr"},
                {.doc = "how switches learn of ring steps: not, or by a step header"})
        .add("software_time", &O::software_time, {.doc = "constants of software time (`net`), not of hardware (`sim`)"})
        .add("net_rtt_ps", &O::network_rtt,
             {.unit = "ps",
              .doc = "the fabric's longest round trip, which NSCC is scaled by",
              .least = 1,
              .range = "must be positive",
              .field = "network_rtt"})
        .add("port_rate_bps", &O::port_rate,
             {.unit = "bit/s", .doc = "of one plane", .least = 1, .range = "must be positive", .field = "port_rate"});
    return t;
  }();
  return rows;
}

MrcOptions MrcOptions::of(const OptionValues& values) {
  MrcOptions given;
  table().read("mrc", given, values);
  MrcOptions o =
      given.software_time ? net(given.network_rtt, given.port_rate) : sim(given.network_rtt, given.port_rate);
  table().read("mrc", o, values);
  o.congestion_options = options_of_control("mrc", table().describe(), o.congestion, values, kSignals);
  return o;
}

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
  const double bdp =
      static_cast<double>(port_rate.count) * static_cast<double>(ports) / 8e6 * network_rtt.microseconds();
  const double units = std::ceil(2 * bdp / (128.0 * mtu));
  return static_cast<std::uint8_t>(std::clamp(units, 8.0, 255.0));
}

void MrcOptions::check() const {
  table().check(*this);
  const auto need = [](bool ok, const char* field, const char* rule) {
    if (!ok) throw std::invalid_argument(std::string("MrcOptions.") + field + ": " + rule);
  };
  need(readmit_answers >= 1, "readmit_answers", "at least 1");
  need(readmit_answers_most >= readmit_answers_again && readmit_answers_most <= 255, "readmit_answers_most",
       "readmit_answers_again to 255");
  need(port_up_answers >= 1, "port_up_answers", "at least 1");
  need(rto_max >= rto || rto_max >= network_rtt, "rto_max", "must not be below rto");
  need(first_psn <= 0xffffff, "first_psn", "24 bits");
}

}  // namespace loomnet::mrc
