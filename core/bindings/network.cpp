// The engine's network for Python: build it from a plan, change it by schedule, run it, read figures.
// Calls are coarse, and running releases the GIL.
#include "bindings/bindings.hpp"

#include <algorithm>
#include <chrono>

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "engine/collective_traffic.hpp"
#include "engine/flow_traffic.hpp"
#include "engine/graph_traffic.hpp"
#include "engine/network.hpp"
#include "engine/pause_cycle.hpp"
#include "switch/forward_program.hpp"
#include "transport/roce/roce_transport.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace py = pybind11;

namespace loomnet {
namespace {

Picoseconds ps(std::int64_t count) { return {count}; }

// Network::run_until with a look at Ctrl-C every 50 ms or so of wall time: how many events fit in
// between follows from how many did, since a busy machine or a large fabric makes them dear.
bool run_until(Network& network, Picoseconds end, std::uint64_t most) {
  using Clock = std::chrono::steady_clock;
  static constexpr auto kLook = std::chrono::milliseconds(50);
  static constexpr std::uint64_t kLeast = 1 << 10, kMost = 1 << 20;
  EventQueue& events = network.events();
  for (std::uint64_t slice = 1 << 14;;) {
    const std::uint64_t part = std::min(slice, most), before = events.processed();
    {
      const py::gil_scoped_release release;
      const auto began = Clock::now();
      if (network.run_until(end, part)) return true;
      const auto took = Clock::now() - began;
      slice = took > kLook ? slice / 2 : took < kLook / 4 ? slice * 2 : slice;
      slice = std::clamp(slice, kLeast, kMost);
    }
    most -= std::min(most, events.processed() - before);
    if (events.stopped() || most == 0) return false;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

// Each direction's figures as plain tuples of a table: columns are named in Python once.
py::dict link_counters(Network& network) {
  const std::size_t n = 2 * network.links();
  const auto column = [&](auto read) {
    py::array_t<std::uint64_t> values(n);
    auto* out = values.mutable_data();
    for (std::size_t i = 0; i < n; ++i) {
      out[i] = read(network.half(static_cast<LinkId>(i / 2), i % 2 == 0).counters());
    }
    return values;
  };
  py::dict out;
  out["packets"] = column([](const LinkCounters& c) { return c.packets; });
  out["bytes"] = column([](const LinkCounters& c) { return c.bytes; });
  out["trimmed"] = column([](const LinkCounters& c) { return c.trimmed; });
  out["marked"] = column([](const LinkCounters& c) { return c.marked; });
  out["max_queue"] = column([](const LinkCounters& c) { return c.max_queue; });
  out["pfc_pauses"] = column([](const LinkCounters& c) { return c.pauses; });
  out["pfc_pause_expiries"] = column([](const LinkCounters& c) { return c.pause_expiries; });
  out["pfc_paused_ps"] =
      column([](const LinkCounters& c) { return static_cast<std::uint64_t>(c.paused.count); });
  for (std::size_t r = 0; r < static_cast<std::size_t>(LinkDrop::count); ++r) {
    const std::string name = "drop_" + std::string(to_string(static_cast<LinkDrop>(r)));
    out[name.c_str()] = column([r](const LinkCounters& c) { return c.drops[r]; });
  }
  return out;
}

py::dict switch_counters(Network& network, NodeId node) {
  py::dict out;
  if (SwitchProgram* program = network.program(node)) {
    std::vector<SwitchCounter> counters;
    program->counters(counters);
    for (const auto& c : counters) out[py::str(c.name.data(), c.name.size())] = c.value;
  }
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

py::dict counters_dict(const RunCounters& c) {
  py::dict out;
  out["lost"] = c.lost;
  out["retransmitted"] = c.retransmitted;
  out["readmitted"] = c.readmitted;
  out["payload"] = c.payload;
  out["paths_good"] = c.paths_good;
  out["paths_total"] = c.paths_total;
  return out;
}

std::vector<std::uint32_t> queued_bytes(Network& network, const std::vector<std::uint32_t>& halves) {
  std::vector<std::uint32_t> out;
  for (const std::uint32_t half : halves) {
    if (half / 2 >= network.links()) throw std::invalid_argument("queued: no such link");
    out.push_back(network.half(half / 2, half % 2 == 0).queued_bytes(network.now()));
  }
  return out;
}

namespace {

py::dict nic_counters(Network& network, NodeId host) {
  Nic& nic = network.nic(host);
  py::dict out;
  const NicCounters& c = nic.counters();
  out["kernel_queue_full"] = c.kernel_queue_full;
  out["kernel_absent"] = c.kernel_absent;
  out["transport_absent"] = c.transport_absent;
  out["port_down"] = c.port_down;
  out["placement_refused"] = c.placement_refused;
  if (nic.transport()) {
    std::vector<TransportCounter> counters;
    nic.transport()->counters(counters);
    for (const auto& t : counters) out[py::str(t.name.data(), t.name.size())] = t.value;
  }
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

py::dict meter(Network& network, NodeId host) {
  WorkMeter& m = network.nic(host).meter();
  py::dict out;
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
  out["bins"] = py::array_t<std::uint64_t>(static_cast<py::ssize_t>(m.bins().size()), m.bins().data());
  out["bytes"] = m.bytes();
  return out;
}

// What `ss -ti` shows of a kernel's socket, of the model's sender: bytes, picoseconds, bits per second.
py::dict tcp_state(Network& network, NodeId host, QpNumber qp) {
  auto* transport = dynamic_cast<tcp::TcpTransport*>(network.nic(host).transport());
  if (!transport) throw std::invalid_argument("tcp_state: the host's transport is not tcp");
  tcp::Sender& sender = transport->sender(qp);
  py::dict out;
  out["acked"] = sender.acked();
  out["cwnd"] = sender.window().cwnd;
  out["srtt_ps"] = sender.rtt().srtt().count;
  out["min_rtt_ps"] = sender.rtt().known() ? sender.rtt().min().count : 0;
  out["pacing_bps"] = sender.window().pacing_rate;
  return out;
}

constexpr const char* kEventNames[] = {"ev_assumed_bad", "ev_good",       "ev_swapped", "port_excluded",
                                       "port_restored",  "rto",           "qp_error"};

py::list transport_events(Network& network, NodeId host) {
  py::list out;
  for (const TransportEvent& e : network.nic(host).events()) {
    out.append(py::make_tuple(e.at.count, kEventNames[static_cast<std::size_t>(e.kind)], e.qp, e.value));
  }
  return out;
}

PathTemplate path_template(const std::vector<std::uint16_t>& usids, int slot, std::uint8_t agg_slots,
                           std::uint16_t cores_per_agg) {
  PathTemplate row;
  if (usids.size() > row.usids.size()) throw std::invalid_argument("paths: more than six uSIDs");
  std::copy(usids.begin(), usids.end(), row.usids.begin());
  row.count = static_cast<std::uint8_t>(usids.size());
  row.uplink_slot = static_cast<std::int8_t>(slot);
  row.agg_slots = agg_slots;
  row.cores_per_agg = cores_per_agg;
  return row;
}

// uSIDs, uplink slot, uplinks, mask of the aggregation slots, cores per aggregation switch.
using PathRow = std::tuple<std::vector<std::uint16_t>, int, std::vector<std::uint16_t>, std::uint8_t, std::uint16_t>;
std::vector<PlanePaths> plane_paths(const std::vector<PathRow>& rows) {
  std::vector<PlanePaths> out;
  for (const auto& [usids, slot, uplinks, aggs, cores] : rows) {
    out.push_back({path_template(usids, slot, aggs, cores), uplinks});
  }
  return out;
}

}  // namespace

void bind_network(py::module_& m) {
  py::class_<LinkConfig>(m, "LinkConfig")
      .def(py::init([](std::uint64_t rate, std::int64_t delay, std::uint32_t data_limit,
                       std::uint32_t control_limit, std::uint32_t ecn_low, std::uint32_t ecn_high,
                       std::uint32_t trim_size, bool last_hop, std::uint32_t pfc_xoff,
                       std::uint32_t pfc_xon, std::uint32_t pfc_headroom, double ecn_share) {
             LinkConfig c;
             c.rate = {rate};
             c.delay = ps(delay);
             c.data_limit = data_limit;
             c.control_limit = control_limit;
             c.ecn_low = ecn_low;
             c.ecn_high = ecn_high;
             c.trim = trim_size > 0;
             if (trim_size > 0) c.trim_size = trim_size;
             c.last_hop = last_hop;
             c.ecn_share = ecn_share;
             c.pfc = {pfc_xoff, pfc_xon, pfc_headroom};
             return c;
           }),
           py::kw_only(), py::arg("rate_bps"), py::arg("delay_ps"), py::arg("data_limit") = 0,
           py::arg("control_limit") = 0, py::arg("ecn_low") = 0, py::arg("ecn_high") = 0,
           py::arg("trim_size") = 0, py::arg("last_hop") = false, py::arg("pfc_xoff") = 0,
           py::arg("pfc_xon") = 0, py::arg("pfc_headroom") = 0, py::arg("ecn_share") = 1.0);

  py::class_<TableBatch, std::shared_ptr<TableBatch>>(m, "TableBatch")
      .def(py::init([](std::uint32_t generation, std::uint32_t block, const std::vector<std::uint16_t>& own,
                       const std::vector<std::pair<std::uint16_t, SwitchPort>>& adjacencies,
                       const std::vector<std::pair<std::uint16_t, SwitchPort>>& fib,
                       const std::vector<std::pair<py::bytes, std::uint16_t>>& hosts,
                       const std::vector<std::vector<SwitchPort>>& groups) {
             auto t = std::make_shared<TableBatch>();
             t->generation = generation;
             for (const auto usid : own) t->own_un.push_back({block, usid});
             for (const auto& [usid, port] : adjacencies) t->own_ua.push_back({{block, usid}, port});
             for (const auto& [usid, port] : fib) t->fib.push_back({{block, usid}, port});
             for (const auto& [address, group] : hosts) {
               const std::string_view bytes = address;
               TableBatch::HostRoute route;
               if (bytes.size() != route.address.size()) {
                 throw std::invalid_argument("hosts: an address has 16 bytes");
               }
               std::copy(bytes.begin(), bytes.end(), route.address.begin());
               route.group = group;
               t->hosts.push_back(route);
             }
             t->groups = groups;
             return t;
           }),
           py::kw_only(), py::arg("generation"), py::arg("block"), py::arg("own"), py::arg("adjacencies"),
           py::arg("fib"), py::arg("hosts"), py::arg("groups"));

  py::class_<Network>(m, "Network")
      .def(py::init([](std::uint64_t seed, std::int64_t bin, std::size_t bins) {
             if (bins < 2 || bin < 1) throw std::invalid_argument("Network: meter_bin_ps 1 or more, meter_bins 2");
             return new Network(seed, ps(bin), bins);
           }),
           py::kw_only(), py::arg("seed"), py::arg("meter_bin_ps"), py::arg("meter_bins") = 1 << 20)
      .def("add_host", &Network::add_host, py::arg("ports"), py::arg("identity") = py::none())
      .def(
          "add_switch",
          [](Network& n, std::size_t ports, bool kernel, std::uint64_t hash_seed, std::uint64_t buffer_bytes,
             double alpha, bool pfc) {
            std::unique_ptr<SwitchProgram> program;
            if (!kernel) program = std::make_unique<ForwardProgram>(ports, ForwardSettings{.hash_seed = hash_seed});
            return n.add_switch(ports, std::move(program), {buffer_bytes, alpha, pfc});
          },
          py::arg("ports"), py::kw_only(), py::arg("kernel") = false, py::arg("hash_seed") = 0,
          py::arg("buffer_bytes") = 0, py::arg("buffer_alpha") = 1.0, py::arg("pfc") = false)
      .def("set_tables",
           [](Network& n, NodeId node, std::shared_ptr<TableBatch> tables) {
             SwitchProgram* program = n.program(node);
             if (!program) throw std::invalid_argument("set_tables: the node runs no program here");
             program->set_tables(std::move(tables));
           })
      .def(
          "connect",
          [](Network& n, NodeId a, std::uint16_t pa, NodeId b, std::uint16_t pb, const LinkConfig& forward,
             const LinkConfig& backward, std::uint64_t stream) {
            return n.connect({a, pa}, {b, pb}, forward, backward, stream);
          },
          py::arg("a"), py::arg("a_port"), py::arg("b"), py::arg("b_port"), py::arg("forward"),
          py::arg("backward"), py::arg("stream") = 0)
      .def(
          "connect_many",
          // Links of one kind: rows of (node, port, node, port) and each one's random stream.
          [](Network& n, const py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>& rows,
             const py::array_t<std::uint64_t, py::array::c_style | py::array::forcecast>& streams,
             const LinkConfig& forward, const LinkConfig& backward) {
            if (rows.ndim() != 2 || rows.shape(1) != 4 || streams.ndim() != 1 || streams.size() != rows.shape(0)) {
              throw std::invalid_argument("connect_many: rows of four numbers, and a stream for each");
            }
            const auto row = rows.unchecked<2>();
            const auto stream = streams.unchecked<1>();
            for (py::ssize_t i = 0; i < rows.shape(0); ++i) {
              n.connect({static_cast<NodeId>(row(i, 0)), static_cast<std::uint16_t>(row(i, 1))},
                        {static_cast<NodeId>(row(i, 2)), static_cast<std::uint16_t>(row(i, 3))}, forward, backward,
                        stream(i));
            }
          },
          py::arg("rows"), py::arg("streams"), py::arg("forward"), py::arg("backward"))
      .def(
          "set_roce",
          [](Network& n, NodeId host, const py::dict& options) {
            Nic& nic = n.nic(host);
            nic.set_transport(std::make_unique<RoceTransport>(nic.sink(), roce_options(options)));
          },
          py::arg("host"), py::arg("options"))
      .def(
          "set_tcp",
          [](Network& n, NodeId host, const py::dict& options) {
            Nic& nic = n.nic(host);
            nic.set_transport(
                std::make_unique<tcp::TcpTransport>(nic.sink(), tcp_options(options, n.seed())));
          },
          py::arg("host"), py::arg("options"))
      .def(
          "set_mrc",
          [](Network& n, NodeId host, bool software_time, std::int64_t net_rtt, std::uint64_t port_rate,
             const py::dict& options) {
            Nic& nic = n.nic(host);
            nic.set_transport(mrc_transport(nic, software_time, ps(net_rtt), {port_rate}, n.seed(), options));
          },
          py::arg("host"), py::kw_only(), py::arg("software_time"), py::arg("net_rtt_ps"),
          py::arg("port_rate_bps"), py::arg("options"))
      .def(
          "connect_qp",
          [](Network& n, NodeId source, QpNumber local, NodeId destination, QpNumber remote, std::uint32_t flow,
             const std::vector<PathRow>& paths, const std::vector<PathRow>& reverse) {
            n.nic(source).connect({local, remote, n.nic(source).host(), n.nic(destination).host(), flow,
                                   plane_paths(paths), plane_paths(reverse)},
                                  n.now());
          },
          py::arg("source"), py::arg("local"), py::arg("destination"), py::arg("remote"), py::arg("flow"),
          py::arg("paths"), py::arg("reverse"))
      .def(
          "schedule_link",
          [](Network& n, std::int64_t at, LinkId link, bool forward, bool backward, std::optional<bool> up,
             std::optional<std::uint64_t> rate, std::optional<std::int64_t> delay, std::optional<py::dict> impairment) {
            n.schedule(ps(at), link_change(link, forward, backward, up, rate, delay, impairment));
          },
          py::arg("at_ps"), py::arg("link"), py::kw_only(), py::arg("forward") = true, py::arg("backward") = true,
          py::arg("up") = py::none(), py::arg("rate_bps") = py::none(), py::arg("delay_ps") = py::none(),
          py::arg("impairment") = py::none())
      .def(
          "schedule_tables",
          [](Network& n, std::int64_t at, NodeId node, std::shared_ptr<TableBatch> tables) {
            n.schedule(ps(at), node, std::move(tables));
          },
          py::arg("at_ps"), py::arg("node"), py::arg("tables"))
      .def(
          "run_until",
          [](Network& n, std::int64_t end, std::uint64_t most) { return run_until(n, ps(end), most); },
          py::arg("end_ps"), py::arg("most_events") = ~0ull)
      .def_property_readonly("now_ps", [](const Network& n) { return n.now().count; })
      .def_property_readonly("next_event_ps", [](Network& n) { return n.events().next().count; })
      .def_property_readonly("events", [](Network& n) { return n.events().processed(); })
      .def_property_readonly("packets", [](Network& n) { return n.pool().last_uid(); })
      .def_property_readonly("unconnected", &Network::unconnected)
      .def_property_readonly("pfc_deadlocks", &Network::pfc_deadlocks)
      // Half-links (2 * link, or one more for b->a) that wait for one another in a circle now.
      .def("pause_cycle", [](Network& n) { return pause_cycle(n); })
      .def_property_readonly("leaked", [](Network& n) { return n.pool().outstanding() - n.held(); })
      .def("run_counters",
           [](Network& n, const std::vector<NodeId>& hosts) { return counters_dict(run_counters(n, hosts)); })
      .def("link_counters", &link_counters)
      .def("switch_counters", &switch_counters)
      .def("nic_counters", &nic_counters)
      .def("tcp_state", &tcp_state, py::arg("host"), py::arg("qp"))
      .def("queued", &queued_bytes, py::arg("halves"),
           "Bytes that wait in these sending ports (2 * link, + 1 for the way back) now.")
      .def("meter", &meter)
      .def("close_meter", [](Network& n, NodeId host) { n.nic(host).meter().close(n.now()); })
      .def("transport_events", &transport_events)
      .def("clear", &Network::clear);

  py::class_<FlowTraffic>(m, "FlowTraffic")
      .def(py::init<Network&, bool>(), py::arg("network"), py::arg("payload"), py::keep_alive<1, 2>())
      .def(
          "add",
          [](FlowTraffic& t, NodeId source, NodeId destination, QpNumber qp, std::uint64_t bytes, std::uint32_t message,
             std::uint32_t depth, std::int64_t start) {
            return t.add({source, destination, qp, bytes, message, depth, ps(start)});
          },
          py::kw_only(), py::arg("source"), py::arg("destination"), py::arg("qp"), py::arg("bytes"),
          py::arg("message"), py::arg("depth"), py::arg("start_ps"))
      .def("start", &FlowTraffic::start)
      .def_property_readonly("done", &FlowTraffic::done)
      .def_property_readonly("wrong", &FlowTraffic::wrong)
      .def("results", [](const FlowTraffic& t) {
        py::list out;
        for (const FlowResult& r : t.results()) {
          const py::object end = r.end == kNever ? py::none().cast<py::object>() : py::int_(r.end.count);
          out.append(py::make_tuple(r.start.count, end, r.completed, std::string(to_string(r.status))));
        }
        return out;
      });

  py::class_<GraphTraffic>(m, "GraphTraffic")
      .def(py::init<Network&>(), py::arg("network"), py::keep_alive<1, 2>())
      .def(
          "delay",
          [](GraphTraffic& g, std::int64_t duration, std::uint32_t lane) {
            return g.add({.duration = ps(duration), .lane = lane});
          },
          py::arg("duration_ps"), py::arg("lane") = 0)
      .def(
          "transfer",
          [](GraphTraffic& g, NodeId source, NodeId destination, QpNumber qp, std::uint64_t bytes) {
            return g.add({true, source, destination, qp, bytes});
          },
          py::arg("source"), py::arg("destination"), py::arg("qp"), py::arg("bytes"))
      .def("depend", &GraphTraffic::depend, py::arg("task"), py::arg("on"))
      .def("start", [](GraphTraffic& g, std::int64_t at) { g.start(ps(at)); }, py::arg("at_ps"))
      .def_property_readonly("done", &GraphTraffic::done)
      .def_property_readonly("failed",
                             [](const GraphTraffic& g) -> py::object {
                               if (g.failed() == Status::ok) return py::none();
                               return py::make_tuple(g.failed_task(), std::string(to_string(g.failed())));
                             })
      // Rows of (begin, end) in picoseconds; -1: not yet.
      .def("results", [](const GraphTraffic& g) {
        py::array_t<std::int64_t> out({static_cast<py::ssize_t>(g.results().size()), py::ssize_t{2}});
        auto view = out.mutable_unchecked<2>();
        for (std::size_t i = 0; i < g.results().size(); ++i) {
          const GraphResult& r = g.results()[i];
          view(static_cast<py::ssize_t>(i), 0) = r.begin == kNever ? -1 : r.begin.count;
          view(static_cast<py::ssize_t>(i), 1) = r.end == kNever ? -1 : r.end.count;
        }
        return out;
      });

  py::class_<CollectiveTraffic>(m, "CollectiveTraffic")
      .def(py::init([](Network& n, std::vector<NodeId> hosts, const std::string& collective, std::uint64_t bytes,
                       std::uint32_t repeat, std::int64_t start, std::int64_t compute,
                       const std::vector<std::int64_t>& gaps, bool payload, std::uint32_t slots,
                       std::uint32_t slot_payload, std::uint32_t shift, bool await_sends) {
             CollectiveTrafficConfig c;
             c.hosts = std::move(hosts);
             c.collective = collective_named(collective);
             c.bytes = bytes;
             c.repeat = repeat;
             c.start = ps(start);
             c.compute = ps(compute);
             for (const auto gap : gaps) c.gaps.push_back(ps(gap));
             c.payload = payload;
             c.slots = slots;
             c.slot_payload = slot_payload;
             c.shift = shift;
             c.await_sends = await_sends;
             return new CollectiveTraffic(n, c);
           }),
           py::keep_alive<1, 2>(), py::arg("network"), py::kw_only(), py::arg("hosts"), py::arg("collective"),
           py::arg("bytes"), py::arg("repeat"), py::arg("start_ps") = 0, py::arg("compute_ps") = 0,
           py::arg("gaps_ps") = std::vector<std::int64_t>{}, py::arg("payload") = false, py::arg("slots") = 8,
           py::arg("slot_payload") = 65536, py::arg("shift") = 0, py::arg("await_sends") = true)
      .def("set_queue_pair", &CollectiveTraffic::set_queue_pair)
      .def("start", &CollectiveTraffic::start)
      .def_property_readonly("done", &CollectiveTraffic::done)
      .def_property_readonly("wrong", &CollectiveTraffic::wrong)
      .def_property_readonly("errors", &CollectiveTraffic::errors)
      .def_property_readonly("first_error", &CollectiveTraffic::first_error)
      .def("iterations", [](const CollectiveTraffic& t, JobRank rank) {
        py::list out;
        for (const auto& i : t.iterations(rank)) out.append(py::make_tuple(i.begin.count, i.end.count));
        return out;
      });
}

}  // namespace loomnet
