// Options that come from Python by name, checked against the fields that exist.
#include "bindings/bindings.hpp"
#include "transport/mrc/mrc_transport.hpp"

namespace py = pybind11;

namespace loomnet {
namespace {

// Reads every entry of a dict into the field of that name.
class Fields {
 public:
  Fields(const char* what, const py::dict& values) : what_(what), values_(values) {}
  template <typename T>
  Fields& field(const char* name, T& target) {
    known_ += (known_.empty() ? "" : ", ") + std::string(name);
    if (values_.contains(name)) {
      ++used_;
      try {
        target = values_[name].template cast<T>();
      } catch (const py::cast_error&) {
        throw py::value_error(std::string(what_) + ": " + name + " has the wrong type");
      }
    }
    return *this;
  }
  // An enumeration by the names of its values, in order.
  template <typename E>
  Fields& choice(const char* name, E& target, std::initializer_list<std::string_view> names) {
    std::string chosen;
    field(name, chosen);
    if (!values_.contains(name)) return *this;
    std::size_t i = 0;
    std::string all;
    for (const std::string_view n : names) {
      if (n == chosen) {
        target = static_cast<E>(i);
        return *this;
      }
      all += (i++ ? ", " : "") + std::string(n);
    }
    throw py::value_error(std::string(what_) + ": " + name + " must be one of " + all);
  }
  Fields& time(const char* name, Picoseconds& target) { return field(name, target.count); }
  void done() const {
    if (used_ == values_.size()) return;
    for (const auto& item : values_) {
      const auto name = item.first.cast<std::string>();
      if ((", " + known_ + ",").find(", " + name + ",") == std::string::npos) {
        throw py::value_error(std::string(what_) + ": no option " + name + "; there are " + known_);
      }
    }
  }

 private:
  const char* what_;
  const py::dict& values_;
  std::string known_;
  std::size_t used_ = 0;
};

}  // namespace

std::unique_ptr<Transport> mrc_transport(Nic& nic, bool software_time, Picoseconds net_rtt,
                                         BitsPerSecond rate, std::uint64_t seed,
                                         const py::dict& options) {
  using mrc::MrcOptions;
  MrcOptions o = software_time ? MrcOptions::net(net_rtt, rate) : MrcOptions::sim(net_rtt, rate);
  o.seed = seed;
  Fields("mrc", options)
      .field("mtu", o.mtu)
      .field("ecn", o.ecn)
      .field("trim_nack", o.trim_nack)
      .time("base_rtt_ps", o.base_rtt)
      .field("evs_per_qp", o.evs_per_qp)
      .field("backup_share", o.backup_share)
      .field("min_active_share", o.min_active_share)
      .field("losses_to_bad", o.losses_to_bad)
      .time("rto_ps", o.rto)
      .time("rto_max_ps", o.rto_max)
      .field("retries_linear", o.retries_linear)
      .field("retries_exponential", o.retries_exponential)
      .time("peer_timeout_ps", o.peer_timeout)
      .time("probe_cap_ps", o.probe_cap)
      .time("probe_timeout_ps", o.probe_timeout)
      .field("mpr", o.mpr)
      .field("max_wimm", o.max_wimm)
      .field("sack_bytes", o.sack_bytes)
      .field("fixed_window", o.fixed_window)
      .field("nscc_port_scale", o.nscc_port_scale)
      .field("min_window", o.min_window)
      .field("nscc_quick_adapt", o.nscc_quick_adapt)
      .choice("loss_infer", o.loss_infer, {"sleek", "same_ev", "rto_only"})
      .choice("sack_base", o.sack_base, {"covering", "max", "trigger"})
      .choice("congestion", o.congestion, {"nscc", "fixed_window"})
      .choice("nscc_delay", o.nscc_delay, {"sample", "median"})
      .choice("plane_turns", o.plane_turns, {"paths", "equal"})
      .done();
  return std::make_unique<mrc::MrcTransport>(o, nic.sink(), nic.ports());
}

roce::RoceOptions roce_options(const py::dict& options) {
  roce::RoceOptions o;
  Fields("roce", options)
      .field("payload_mtu", o.payload_mtu)
      .field("timeout_exponent", o.timeout_exponent)
      .field("retry_count", o.retry_count)
      .field("in_flight_limit", o.in_flight_limit)
      .field("ack_interval", o.ack_interval)
      .field("ect", o.ect)
      .field("initial_psn", o.initial_psn)
      .field("dcqcn", o.dcqcn.on)
      .field("line_rate_bps", o.dcqcn.line_rate)
      .field("minimum_rate_bps", o.dcqcn.minimum_rate)
      .field("additive_rate_bps", o.dcqcn.additive_rate)
      .field("hyper_rate_bps", o.dcqcn.hyper_rate)
      .field("dcqcn_g", o.dcqcn.g)
      .time("alpha_timer_ps", o.dcqcn.alpha_timer)
      .time("rate_timer_ps", o.dcqcn.rate_timer)
      .time("cnp_gap_ps", o.dcqcn.cnp_gap)
      .field("byte_counter", o.dcqcn.byte_counter)
      .field("fast_recovery", o.dcqcn.fast_recovery)
      .done();
  return o;
}

tcp::TcpOptions tcp_options(const py::dict& options, std::uint64_t seed) {
  tcp::TcpOptions o;
  o.seed = seed;
  Fields("tcp", options)
      .field("cc", o.congestion_control)
      .field("mtu", o.mtu)
      .field("initial_window", o.initial_window)
      .field("send_buffer", o.send_buffer)
      .field("receive_buffer", o.receive_buffer)
      .time("rto_min_ps", o.rto_min)
      .time("rto_max_ps", o.rto_max)
      .time("rto_initial_ps", o.rto_initial)
      .field("retries", o.retries)
      .time("delayed_ack_ps", o.delayed_ack)
      .field("quick_acks", o.quick_acks)
      .field("handshake", o.handshake)
      .field("ecn", o.ecn)
      .field("hystart", o.hystart)
      .field("slow_start_after_idle", o.slow_start_after_idle)
      .field("dctcp_g", o.dctcp_g)
      .done();
  return o;
}

Collective collective_named(const std::string& name) {
  for (std::size_t i = 0; i < kCollectives; ++i) {
    const auto c = static_cast<Collective>(i);
    if (to_string(c) == name) return c;
  }
  throw py::value_error("collective: no such collective " + name);
}

rank::NoticeKind notice_named(const std::string& name) {
  if (name == "peer_gone") return rank::NoticeKind::peer_gone;
  if (name == "run_ended") return rank::NoticeKind::run_ended;
  throw py::value_error("notice: no such notice " + name);
}

rank::GoneReason reason_named(const std::string& name) {
  for (std::uint32_t i = 1; i <= static_cast<std::uint32_t>(rank::GoneReason::stopped); ++i) {
    if (to_string(static_cast<rank::GoneReason>(i)) == name)
      return static_cast<rank::GoneReason>(i);
  }
  throw py::value_error("notice: no such reason " + name);
}

LinkChange link_change(LinkId link, bool forward, bool backward, std::optional<bool> up,
                       std::optional<std::uint64_t> rate_bps, std::optional<double> queue_share,
                       std::optional<std::int64_t> delay_ps,
                       const std::optional<py::dict>& impairment) {
  LinkChange change;
  change.link = link;
  change.forward = forward;
  change.backward = backward;
  change.up = up;
  if (rate_bps) change.rate = BitsPerSecond{*rate_bps};
  if (queue_share && !(*queue_share > 0 && *queue_share <= 1)) {
    throw py::value_error("change: queue_share must be above 0 and at most 1");
  }
  change.queue_share = queue_share;
  if (delay_ps) change.delay = Picoseconds{*delay_ps};
  if (impairment) {
    Impairment i;
    Fields("impairment", *impairment)
        .field("loss", i.loss)
        .field("burst", i.burst)
        .field("duplicate", i.duplicate)
        .field("corrupt", i.corrupt)
        .field("reorder", i.reorder)
        .time("jitter_ps", i.jitter)
        .done();
    change.impairment = i;
  }
  return change;
}

}  // namespace loomnet
