// RoCE's options by name, and the check of what no range alone can say.
#include "transport/roce/options.hpp"

#include <bit>

#include "packet/rdma.hpp"
#include "transport/roce/presets.hpp"

namespace loomnet::roce {

const OptionTable<RoceOptions>& RoceOptions::table() {
  static const OptionTable<RoceOptions> rows = [] {
    using O = RoceOptions;
    OptionTable<O> t("RoceOptions");
    t.add("payload_mtu", &O::payload_mtu,
          {.unit = "bytes",
           .doc = "an IBTA path MTU",
           .least = 256,
           .most = 4096,
           .range = "use 256, 512, 1024, 2048 or 4096"})
        .add("timeout_exponent", &O::timeout_exponent,
             {.doc = "local ACK timeout of 4.096 us * 2^exponent, 0: never (NCCL_IB_TIMEOUT)",
              .least = 0,
              .most = 31,
              .range = "5 bits, 0 to 31"})
        .add("retry_count", &O::retry_count,
             {.doc = "timeouts without progress survived (NCCL_IB_RETRY_CNT)",
              .least = 0,
              .most = 7,
              .range = "3 bits, 0 to 7"})
        .add("in_flight_limit", &O::in_flight_limit,
             {.unit = "bytes", .doc = "payload unacknowledged at most; 0: no limit but the PSNs"})
        .add("window_bdps", &O::window_bdps,
             {.unit = "bandwidth-delay products",
              .doc = "the same of the port, by line_rate_bps and net_rtt_ps; 0: no limit",
              .least = 0})
        .add("ack_interval", &O::ack_interval,
             {.unit = "packets",
              .doc = "between requests for an ACK inside a message",
              .least = 1,
              .range = "at least 1 packet"})
        .add("ack_priority", &O::ack_priority, {.doc = "acknowledgements travel in the control class, not behind data"})
        .add("ect", &O::ect, {.doc = "data is ECN-capable; a congestion control makes it so"})
        .add("initial_psn", &O::initial_psn,
             {.doc = "first packet sequence number of both ends", .least = 0, .most = kMask24, .range = "24 bits"})
        .add("dcqcn", &O::dcqcn, {.doc = "short for cc=\"dcqcn\""})
        .add("cc", &O::congestion_control, {.doc = "congestion control, by its registered name; empty: none"})
        .add("line_rate_bps", &O::line_rate,
             {.unit = "bit/s", .doc = "of a port, for the congestion control", .field = "line_rate"})
        .add("net_rtt_ps", &O::network_rtt,
             {.unit = "ps",
              .doc = "the fabric's longest round trip, for the congestion control; 0: unknown",
              .least = 0,
              .field = "network_rtt"})
        .add("cnp_gap_ps", &O::cnp_gap,
             {.unit = "ps",
              .doc = "between congestion notifications of a queue pair; 0: one per mark",
              .least = 0,
              .field = "cnp_gap"})
        .choice("identity", &O::identity, {"none", "hdr", "sport"},
                {.doc = "how switches learn of ring steps: a step header, or the source port's low 12 bits"})
        .choice("rehash", &O::rehash, {"fixed", "step"},
                {.doc = "a queue pair's UDP source port: one, or another one for each ring step"})
        .add("preset", &O::preset,
             {.doc = "a host of the simulations of Symphony by name: A, B, C, D or astra-sim; options given win"});
    return t;
  }();
  return rows;
}

RoceOptions RoceOptions::of(const OptionValues& values) {
  if (const OptionPreset* preset = preset_of(values)) {
    RoceOptions o = of(with_preset(*preset, values));
    o.preset = preset->name;
    return o;
  }
  RoceOptions o;
  table().read("roce", o, values);
  if (o.dcqcn && !o.congestion_control.empty() && o.congestion_control != "dcqcn") {
    refuse_option("roce", "dcqcn and cc name two congestion controls; give one of them");
  }
  o.congestion_options = options_of_control("roce", table().describe(), o.control(), values, kSignals);
  return o;
}

void RoceOptions::check() const {
  table().check(*this);
  if (!std::has_single_bit(payload_mtu)) {
    refuse_option("RoceOptions.payload_mtu", "use 256, 512, 1024, 2048 or 4096");
  }
  if (window_bdps > 0 && (line_rate == 0 || network_rtt.count == 0)) {
    refuse_option("RoceOptions.window_bdps", "needs line_rate_bps and net_rtt_ps");
  }
  if (data_dscp > 63 || ack_dscp > 63) refuse_option("RoceOptions.data_dscp, ack_dscp", "6 bits");
}

}  // namespace loomnet::roce
