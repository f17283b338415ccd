// What Python reads of a network: counters of links, switches, NICs and transports, meters, events.
// Tables of numbers are arrays, one call for many rows.
#include <pybind11/numpy.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "bindings/bindings.hpp"

namespace py = pybind11;

namespace loomnet {
namespace {

using Columns = py::typing::Dict<py::str, py::array_t<std::uint64_t>>;
Columns link_counters(Network& network) {
  const auto half = [&](std::size_t i) -> HalfLink& { return network.half(static_cast<LinkId>(i / 2), i % 2 == 0); };
  std::vector<std::uint64_t> used;
  std::set<std::string_view> reasons;  // of all disciplines that ports have
  std::set<const std::string_view*> disciplines;
  for (std::size_t i = 0; i < 2 * network.links(); ++i) {
    const LinkCounters& counters = half(i).counters();
    if (counters.used()) used.push_back(i);
    if (disciplines.insert(counters.queue_drop_names.data()).second) {
      counters.each_drop([&](std::string_view name, std::uint64_t) { reasons.insert(name); });
    }
  }
  const std::size_t n = used.size();
  const auto column = [&](auto read) {
    py::array_t<std::uint64_t> values(n);
    auto* out = values.mutable_data();
    for (std::size_t i = 0; i < n; ++i) out[i] = read(half(used[i]).counters());
    return values;
  };
  Columns out;
  out["half"] = py::array_t<std::uint64_t>(n, used.data());
  out["packets"] = column([](const LinkCounters& c) { return c.packets; });
  out["bytes"] = column([](const LinkCounters& c) { return c.bytes; });
  out["trimmed"] = column([](const LinkCounters& c) { return c.trimmed; });
  out["marked"] = column([](const LinkCounters& c) { return c.marked; });
  out["duplicated"] = column([](const LinkCounters& c) { return c.duplicated; });
  out["max_queue"] = column([](const LinkCounters& c) { return c.max_queue; });
  out["pfc_pauses"] = column([](const LinkCounters& c) { return c.pauses; });
  out["pfc_pause_expiries"] = column([](const LinkCounters& c) { return c.pause_expiries; });
  out["pfc_paused_ps"] = column([](const LinkCounters& c) { return static_cast<std::uint64_t>(c.paused.count); });
  for (const std::string_view reason : reasons) {
    const std::string name = "drop_" + std::string(reason);
    out[name.c_str()] = column([&](const LinkCounters& c) { return c.drops(reason); });
  }
  return out;
}

Counts switch_counters(Network& network, NodeId node) {
  Counts out;
  std::vector<SwitchCounter> counters;
  if (SwitchProgram* program = network.program(node)) program->counters(counters);
  egress_counters(network, node, counters);
  for (const auto& c : counters) out[py::str(c.name.data(), c.name.size())] = c.value;
  if (const PauseControl* pauses = network.pauses(node)) {
    PauseCounters sum;
    for (std::uint16_t port = 0; port < network.ports(node); ++port) {
      const PauseCounters& c = pauses->counters(port);
      sum.pauses += c.pauses;
      sum.frames += c.frames;
      sum.max_bytes = std::max(sum.max_bytes, c.max_bytes);
    }
    out["pfc_pauses"] = sum.pauses;
    out["pfc_frames"] = sum.frames;
    out["pfc_max_ingress_bytes"] = sum.max_bytes;
  }
  return out;
}

}  // namespace

Counts counts_of(const panel_counters& all) {
  constexpr const char* kNames[PANEL_VERDICTS] = {"forwarded", "drop_unmapped", "drop_blocked", "drop_dark",
                                                  "drop_light"};
  Counts out;
  for (int i = 0; i < PANEL_VERDICTS; ++i) out[kNames[i]] = all.packets[i];
  out["forwarded_bytes"] = all.bytes;
  return out;
}

namespace {

Counts panel_counters_of(Network& network, NodeId node) {
  const PanelNode* panel = network.panel(node);
  if (!panel) throw std::invalid_argument("panel_counters: node " + std::to_string(node) + " is no panel");
  panel_counters sum{};
  for (std::uint16_t port = 0; port < network.ports(node); ++port) {
    const panel_counters& one = panel->counters(port);
    for (int i = 0; i < PANEL_VERDICTS; ++i) sum.packets[i] += one.packets[i];
    sum.bytes += one.bytes;
  }
  return counts_of(sum);
}

// Those that are not zero: names are made for these alone.
Counts nic_counters(Network& network, NodeId host) {
  Nic& nic = network.nic(host);
  Counts out;
  const NicCounters& c = nic.counters();
  const auto own = [&](const char* name, std::uint64_t value) {
    if (value) out[name] = value;
  };
  own("kernel_queue_full", c.kernel_queue_full);
  own("kernel_absent", c.kernel_absent);
  own("events_unlogged", c.events_unlogged);
  own("transport_absent", c.transport_absent);
  own("port_down", c.port_down);
  own("placement_refused", c.placement_refused);
  own("foreign_key_refused", c.foreign_key_refused);
  const auto add = [&](const Transport& transport, const std::string& owner) {
    std::vector<TransportCounter> counters;
    transport.counters(counters);
    for (const auto& t : counters) {
      if (t.value) out[py::str(owner + std::string(t.name))] = t.value;
    }
  };
  const bool several = nic.transports().size() > 1;
  for (const auto& transport : nic.transports()) {
    add(*transport, several ? std::string(transport->name()) + "." : std::string());
  }
  if (nic.local_link()) add(*nic.local_link(), "");
  return out;
}

py::array_t<std::int64_t> intervals(const std::vector<WorkMeter::Interval>& rows) {
  py::array_t<std::int64_t> out({static_cast<py::ssize_t>(rows.size()), py::ssize_t{2}});
  auto view = out.mutable_unchecked<2>();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    view(static_cast<py::ssize_t>(i), 0) = rows[i].begin.count;
    view(static_cast<py::ssize_t>(i), 1) = rows[i].end.count;
  }
  return out;
}

using Meter = py::typing::Dict<py::str, py::object>;
Meter meter(Network& network, NodeId host, std::uint32_t job) {
  const NicClients& clients = network.nic(host).clients();
  const NicJob* known = clients.find_job(JobId{job});  // a look makes no job
  const WorkMeter none(clients.meter_bin());
  const WorkMeter& m = known ? known->meter : none;
  Meter out;
  out["busy"] = intervals(m.busy());
  out["silences"] = intervals(m.silences());
  py::array_t<std::int64_t> work({static_cast<py::ssize_t>(m.work().size()), py::ssize_t{3}});
  auto view = work.mutable_unchecked<2>();
  for (std::size_t i = 0; i < m.work().size(); ++i) {
    const auto& w = m.work()[i];
    view(static_cast<py::ssize_t>(i), 0) = w.begin.count;
    view(static_cast<py::ssize_t>(i), 1) = w.end.count;
    view(static_cast<py::ssize_t>(i), 2) = static_cast<std::int64_t>(w.bytes);
  }
  out["work"] = work;
  out["bin_ps"] = m.bin().count;
  const std::vector<std::uint64_t> bins = m.bins();
  out["bins"] = py::array_t<std::uint64_t>(static_cast<py::ssize_t>(bins.size()), bins.data());
  out["bytes"] = m.bytes();
  return out;
}

using Events = Rows<py::int_, py::str, py::int_, py::int_>;
Events transport_events(Network& network, NodeId host) {
  Events out;
  for (const TransportEvent& e : network.nic(host).events()) {
    out.append(py::make_tuple(e.at.count, std::string(to_string(e.kind)), e.qp, e.value));
  }
  return out;
}

using Timeouts = Rows<py::int_, py::int_, py::int_>;
Timeouts transport_timeouts(Network& network, NodeId host) {
  Timeouts out;
  for (const TransportEvent& e : network.nic(host).events()) {
    if (e.kind == EventKind::rto) out.append(py::make_tuple(e.at.count, e.qp, e.waited.count));
  }
  return out;
}

}  // namespace

Counts counters_dict(const RunCounters& c) {
  Counts out;
  out["lost"] = c.lost;
  out["retransmitted"] = c.retransmitted;
  out["readmitted"] = c.readmitted;
  out["timeouts"] = c.timeouts;
  out["payload"] = c.payload;
  out["working"] = c.working;
  out["finished"] = c.finished;
  out["quiet_since_ps"] = c.quiet_since.count;
  out["paths_good"] = c.paths_good;
  out["paths_total"] = c.paths_total;
  return out;
}

namespace {

template <class Read>
std::vector<std::uint64_t> of_halves(Network& network, const std::vector<std::uint32_t>& halves, Read read) {
  std::vector<std::uint64_t> out;
  out.reserve(halves.size());
  for (const std::uint32_t half : halves) {
    if (half / 2 >= network.links()) throw std::invalid_argument("no such link");
    out.push_back(read(network.half(half / 2, half % 2 == 0)));
  }
  return out;
}

}  // namespace

std::vector<std::uint64_t> queued_bytes(Network& network, const std::vector<std::uint32_t>& halves) {
  return of_halves(network, halves, [&](HalfLink& half) { return half.queued_bytes(network.now()); });
}

std::vector<std::uint64_t> carried_bytes(Network& network, const std::vector<std::uint32_t>& halves) {
  return of_halves(network, halves, [&](HalfLink& half) { return half.carried_bytes(network.now()); });
}

void bind_figures(py::class_<Network>& network) {
  network
      .def(
          "run_counters",
          [](Network& n, const std::vector<NodeId>& hosts, std::optional<std::uint32_t> job) {
            return counters_dict(run_counters(n, hosts, job_id(job)));
          },
          py::arg("hosts"), py::arg("job") = py::none(),
          "Sums over these hosts' NICs. With `job`, payload, working and finished are that job's alone.")
      .def("link_counters", &link_counters,
           "The directions of links that have counted something, by column: `half` (2 * link and, for the way back, "
           "2 * link + 1), and each counter.")
      .def("switch_counters", &switch_counters, py::arg("node"))
      .def("panel_counters", &panel_counters_of, py::arg("node"))
      .def("nic_counters", &nic_counters, py::arg("host"))
      .def("queued", &queued_bytes, py::arg("halves"),
           "Bytes that wait in these sending ports (2 * link, + 1 for the way back) now.")
      .def("carried", &carried_bytes, py::arg("halves"),
           "Bytes that these directions of links (2 * link, + 1 for the way back) have carried so far.")
      .def(
          "meter", &meter, py::arg("host"), py::arg("job") = 0,
          "What the host saw of the job. work: int64[n, 3] of begin, end (ps) and bytes; busy and silences: int64[n, 2] of begin "
          "and end (ps); bins: uint64[n], bytes per bin_ps; bytes: their sum.")
      .def(
          "close_meter",
          [](Network& n, NodeId host, std::uint32_t job) { n.nic(host).meter(JobId{job}).close(n.now()); },
          py::arg("host"), py::arg("job") = 0)
      .def(
          "clients",
          [](Network& n, NodeId host) {
            Rows<py::int_, py::int_, py::str> out;
            const auto& entries = n.nic(host).clients().entries();
            for (std::size_t i = 0; i < entries.size(); ++i) {
              if (!entries[i].client) continue;
              out.append(py::make_tuple(i + 1, static_cast<std::uint32_t>(entries[i].job->id), entries[i].role));
            }
            return out;
          },
          py::arg("host"), "[(client, job, role)] of the host's NIC: role is rank, collective, flows or graph.")
      .def("transport_events", &transport_events, py::arg("host"),
           "[(at_ps, name, queue pair, value)] in order of time.")
      .def("transport_timeouts", &transport_timeouts, py::arg("host"),
           "[(at_ps, queue pair, waited_ps)] of the retransmission timeouts that ran out, in order of time; "
           "waited_ps: for how long the sender had waited for an acknowledgement.");
}

}  // namespace loomnet
