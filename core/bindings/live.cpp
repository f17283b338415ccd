// LiveRun for Python. Each call that touches the network goes through LiveRun::call().
#include <fcntl.h>

#include "bindings/bindings.hpp"
#include "bindings/spans.hpp"
#include "bindings/transports.hpp"
#include "engine/network_recorder.hpp"
#include "engine/run_counters.hpp"
#include "live/budget_probe.hpp"
#include "live/host_routes.hpp"
#include "live/live_run.hpp"
#include "live/xdp_link.hpp"
#include "live/xdp_program.hpp"
#include "traffic/collective_traffic.hpp"
#include "traffic/flow_traffic.hpp"
#include "traffic/graph_traffic.hpp"
#include "traffic/model_traffic.hpp"

namespace py = pybind11;

namespace loomnet {
namespace {

Counts lateness(const LatenessSummary& s) {
  Counts out;
  out["count"] = s.count;
  out["p50_ps"] = s.p50.count;
  out["p99_ps"] = s.p99.count;
  out["p999_ps"] = s.p999.count;
  out["max_ps"] = s.max.count;
  return out;
}

// By name of the stage; those in which nothing was counted are left out.
py::typing::Dict<py::str, Counts> stages(const StageLateness& all) {
  py::typing::Dict<py::str, Counts> out;
  for (std::size_t i = 0; i < kStages; ++i) {
    const auto stage = static_cast<Stage>(i);
    if (all[stage].count()) out[py::str(std::string(to_string(stage)))] = lateness(all[stage].summary());
  }
  return out;
}

using PortTuple = std::tuple<NodeId, std::uint16_t, std::string, int, std::string, std::string>;
// Node, namespace, name and, of a panel by tc, its fibres: host, its port, namespace, interface, MAC.
using FibreTuple = std::tuple<NodeId, std::uint16_t, int, std::string, std::string>;
using PanelTuple = std::tuple<NodeId, int, std::string, std::optional<std::vector<FibreTuple>>>;
using SwitchTuple =
    std::tuple<NodeId, int, std::string, std::uint64_t, std::shared_ptr<TableBatch>, std::string, py::dict>;

MacAddress mac_of(const std::string& text) {
  MacAddress mac{};
  for (std::size_t i = 0; i < mac.size() && text.size() == 17; ++i) {
    mac[i] = static_cast<std::uint8_t>(std::stoi(text.substr(3 * i, 2), nullptr, 16));
  }
  return mac;
}

LiveRun::Port port_of(const PortTuple& row) {
  const auto& [node, port, kind, netns, interface, mac] = row;
  LiveRun::Port p{node,
                  port,
                  kind == "host"    ? PortKind::host
                  : kind == "xdp"   ? PortKind::xdp_switch
                  : kind == "panel" ? PortKind::xdp_panel
                                    : PortKind::other_switch,
                  netns,
                  interface,
                  {}};
  p.mac = mac_of(mac);
  return p;
}

LiveRun::Panel panel_of(const PanelTuple& row) {
  const auto& [node, netns, name, fibres] = row;
  LiveRun::Panel panel{node, netns, name, fibres ? PanelHook::tc : PanelHook::xdp, {}};
  if (!fibres) return panel;
  for (const auto& [host, port, there, interface, mac] : *fibres) {
    panel.fibres.push_back({host, port, there, interface, mac_of(mac)});
  }
  return panel;
}

LiveRun::Switch switch_of(const SwitchTuple& row) {
  const auto& [node, netns, name, seed, tables, program, options] = row;
  return {node, netns, name, program, seed, program_options(options), tables};
}

py::typing::Dict<py::str, py::object> fidelity(LiveRun& run) {
  const Fidelity f = run.fidelity();
  py::typing::Dict<py::str, py::object> out;
  Counts counters;
  out["verdict"] = std::string(to_string(f.verdict));
  out["reason"] = f.reason;
  out["stages"] = stages(f.stages);
  py::list waits;
  for (const SchedWatch::Wait& w : f.waits) {
    waits.append(
        py::make_tuple(std::string(w.waiter), std::string(w.holder), w.name, w.count, w.total_ns, w.longest_ns));
  }
  out["waits"] = waits;
  out["waits_missing"] = f.waits_missing;
  out["carriers_down"] = lateness(f.carriers_down);
  out["carriers_up"] = lateness(f.carriers_up);
  out["longest_pass_ps"] = f.longest_pass.count;
  out["passes"] = f.passes;
  out["given"] = f.given;
  out["returned"] = f.returned;
  out["absorbed"] = f.absorbed;
  out["passed"] = f.passed;
  out["switch_drops"] = f.switch_drops;
  out["own_losses"] = f.own_losses;
  out["unexplained"] = f.unexplained;
  out["scheduling"] = f.scheduling;
  for (const NamedCount& c : f.counters) counters[py::str(c.name)] = c.value;
  out["counters"] = counters;
  return out;
}

const std::vector<CollectiveTraffic::Iteration>& iterations_of(const CollectiveTraffic& t) { return t.iterations(); }
const std::vector<ModelTraffic::Iteration>& iterations_of(const ModelTraffic& t) { return t.iterations(0); }
const std::vector<FlowTraffic::Round>& iterations_of(const FlowTraffic& t) { return t.rounds(); }

// Iterations from `since` on, and whether the job is done.
template <class Traffic>
std::tuple<Spans, bool> traffic_state(LiveRun& run, const Traffic& traffic, std::size_t since) {
  std::vector<SpanRow> rows;
  bool done = false;
  {
    const py::gil_scoped_release release;
    run.call([&] {
      rows = spans_from(iterations_of(traffic), since);
      done = traffic.done();
    });
  }
  return {spans_array(rows), done};
}

}  // namespace

void bind_live(py::module_& m) {
  using Release = py::gil_scoped_release;
  m.def(
      "try_switch_program",
      [](const std::string& name) -> std::string {
        const ProgramKind& kind = program_kind(name);
        const ProgramSettings settings = checked_settings(kind, 1, 0, {});
        Release release;
        const BpfLog log;
        try {
          XdpReports reports;
          XdpProgram(kind, settings, reports);
          return "";
        } catch (const LiveError&) {
          return log.last();
        }
      },
      py::arg("name"),
      "Loads a switch program into the kernel and takes it out again. Returns the end of libbpf's log, nothing where "
      "the kernel took the program. ValueError for an object that holds what a switch program may not.");
  m.def(
      "probe_budget",
      [](std::int64_t bound) {
        std::vector<BudgetStep> steps;
        {
          Release release;
          steps = probe_budget(ps(bound));
        }
        Rows<double, double, py::int_, py::int_> out;
        for (const BudgetStep& s : steps) out.append(py::make_tuple(s.offered, s.carried, s.p50.count, s.p99.count));
        return out;
      },
      py::arg("bound_ps"),
      "[(frames/s offered, frames/s carried, p50 and p99 lateness in ps)] of steps ever faster, on XDP switches of its "
      "own, until the p99 is above the bound four times running. Needs root; takes up to 3 s.");
  py::class_<LiveRun>(m, "LiveRun", "A network on the live clock, with its kernel ports and XDP switches.")
      .def(py::init([](Network& n, const std::vector<PortTuple>& ports, const std::vector<SwitchTuple>& switches,
                       double dilation, std::int64_t bound, const std::vector<PanelTuple>& panels) {
             std::vector<LiveRun::Port> live_ports;
             for (const PortTuple& row : ports) live_ports.push_back(port_of(row));
             std::vector<LiveRun::Switch> live_switches;
             for (const SwitchTuple& row : switches) live_switches.push_back(switch_of(row));
             if (python_controls_alive() > 0) {
               throw std::invalid_argument(
                   "live: a congestion control written in Python runs on the virtual clock only");
             }
             std::vector<LiveRun::Panel> live_panels;
             for (const PanelTuple& row : panels) live_panels.push_back(panel_of(row));
             Release release;
             return new LiveRun(n, live_ports, live_switches, dilation, ps(bound), live_panels);
           }),
           py::keep_alive<1, 2>(), py::arg("network"), py::kw_only(), py::arg("ports"), py::arg("switches"),
           py::arg("dilation") = 1.0, py::arg("lateness_bound_ps") = 1'000'000'000,
           py::arg("panels") = std::vector<PanelTuple>{},
           "ports: (node, port, 'host' | 'xdp' | 'panel', netns fd, interface, MAC or ''); "
           "switches: (node, netns fd, name, seed, tables, program, options); panels: (node, netns fd, name, "
           "fibres), None by XDP, by tc of each port (host node, its port, netns fd, interface, MAC).")
      .def(
          "check_panels", [](LiveRun& r) { r.fabric().check_panels(); }, py::call_guard<Release>(),
          "Raises RuntimeError, one line, where what a panel by XDP redirects would be lost.")
      .def("add_rank", &LiveRun::add_rank, py::arg("bridge"), py::arg("job") = 0, py::keep_alive<1, 2>())
      .def("start", &LiveRun::start)
      .def_property_readonly(
          "thread_id", [](LiveRun& r) { return r.loop().thread_id(); }, "Of the loop; 0 before it runs.")
      .def(
          "pause",
          [](LiveRun& r) {
            // The interpreter's lock stays with this thread, or the loop would stand while other threads compute:
            // 80 ms beside five of them. A loop that does not stand by then may wait for the lock itself.
            if (r.pause(std::chrono::milliseconds(20))) return;
            Release release;
            r.pause();
          },
          "Holds the loop until resume(): for the moments in which Python touches the network.")
      .def("resume", &LiveRun::resume)
      .def("stop", &LiveRun::stop, py::call_guard<Release>())
      .def("close", &LiveRun::close, py::call_guard<Release>())
      .def("name_rank", &LiveRun::name_rank, py::arg("process"), "A process of a rank, for what held up the loop.")
      .def(
          "take_window",
          [](LiveRun& r) {
            StageLateness window;
            {
              Release release;
              window = r.loop().take_window();
            }
            return stages(window);
          },
          "Lateness since the last call, by stage: {stage: {count, p50_ps, p99_ps, p999_ps, max_ps}}.")
      .def(
          "pace",
          [](LiveRun& r, std::int64_t bound_ps) {
            LiveLoop::Pace pace;
            {
              Release release;
              pace = r.loop().pace({bound_ps});
            }
            return py::make_tuple(pace.frames, pace.packets.count, pace.late, pace.packets.p99.count);
          },
          py::arg("bound_ps"),
          "(frames taken from the kernel, packets that came out of it, how many of them were later than the bound, "
          "their p99 lateness in ps) so far.")
      .def_property_readonly("now_ps", [](const LiveRun& r) { return r.now().count; })
      .def(
          "change_link",
          [](LiveRun& r, LinkId link, bool forward, bool backward, std::optional<bool> up,
             std::optional<std::uint64_t> rate, std::optional<double> queue_share, std::optional<std::int64_t> delay,
             std::optional<py::dict> impairment) {
            const LinkChange change = link_change(link, forward, backward, up, rate, queue_share, delay, impairment);
            Release release;
            r.call([&] { r.network().apply(change); });
          },
          py::arg("link"), py::kw_only(), py::arg("forward") = true, py::arg("backward") = true,
          py::arg("up") = py::none(), py::arg("rate_bps") = py::none(), py::arg("queue_share") = py::none(),
          py::arg("delay_ps") = py::none(), py::arg("impairment") = py::none(), "Changes a link now.")
      .def(
          "set_tables",
          [](LiveRun& r, NodeId node, std::shared_ptr<TableBatch> tables) {
            r.fabric().set_tables(node, *tables);
            if (r.network().hooks(node)) r.call([&] { r.network().set_tables(node, tables); });
          },
          py::call_guard<Release>(), py::arg("node"), py::arg("tables"))
      .def(
          "reset_switch",
          [](LiveRun& r, NodeId node) {
            r.fabric().reset(node);
            if (r.network().hooks(node)) r.call([&] { r.network().reset_switch(node); });
          },
          py::arg("node"), py::call_guard<Release>(),
          "Network.reset_switch, of a switch in the kernel. Takes some milliseconds.")
      .def(
          "switch_snapshot",
          [](LiveRun& r, NodeId node) {
            std::vector<StateSnapshot> all;
            {
              Release release;
              all.push_back(r.fabric().snapshot(node));
              for (StateSnapshot& each : r.call([&] { return egress_snapshot(r.network(), node); })) {
                all.push_back(std::move(each));
              }
            }
            return snapshots_dict(all);
          },
          py::arg("node"), "Network.switch_snapshot, of a switch in the kernel.")
      .def(
          "switch_columns",
          [](LiveRun& r, NodeId node, const std::vector<std::string>& names) {
            StateSnapshot snapshot;
            {
              Release release;
              snapshot = r.fabric().snapshot(node);
            }
            return state_columns({&snapshot.layout, snapshot.bytes}, names);
          },
          py::arg("node"), py::arg("names"),
          "Network.switch_columns, of a switch in the kernel: each row as it was at one moment.")
      .def(
          "set_carrier",
          [](LiveRun& r, NodeId node, std::uint16_t port, bool up) {
            r.fabric().set_carrier(r.port_index(node, port), up);
          },
          py::arg("node"), py::arg("port"), py::arg("up"), py::call_guard<Release>(),
          "Carrier of a kernel port's interface.")
      .def(
          "look",
          [](LiveRun& r, const std::vector<RankBridge*>& bridges) {
            std::vector<LiveRun::RankSeen> seen;
            {
              Release release;
              seen = r.look(bridges);
            }
            Rows<Marks, py::int_, py::int_, py::int_, py::str, py::str> out;
            for (const LiveRun::RankSeen& s : seen) {
              out.append(py::make_tuple(mark_list(s.marks), s.finished, s.failed, s.unfinished, s.under_way,
                                        s.fault == RankFault::none ? "" : std::string(to_string(s.fault))));
            }
            return out;
          },
          py::arg("bridges"),
          "[(marks since the last look, finished works, failed works, works under way, the name of "
          "the first of them, fault or '')] of these ranks.")
      .def(
          "tell",
          [](LiveRun& r, RankBridge& bridge, const std::string& kind, std::uint32_t peer, const std::string& reason,
             std::uint32_t status) {
            const auto k = notice_named(kind);
            const auto why = reason_named(reason);
            Release release;
            r.call([&] { bridge.tell(k, peer, why, r.network().now(), status); });
          },
          py::arg("bridge"), py::arg("kind"), py::arg("peer"), py::arg("reason"), py::arg("status") = 0)
      .def(
          "stop_at",
          [](LiveRun& r, RankBridge& bridge, std::uint32_t step) {
            r.call([&] { bridge.stop_at(step, r.network().now()); });
          },
          py::call_guard<Release>(), py::arg("bridge"), py::arg("step"))
      .def("traffic_state", &traffic_state<CollectiveTraffic>, py::arg("traffic"), py::arg("since"),
           "((begin_ps, end_ps) of the job's iterations, of a collective rank 0's, from number `since` on as a numpy "
           "structured array, whether it is done).")
      .def("traffic_state", &traffic_state<ModelTraffic>, py::arg("traffic"), py::arg("since"))
      .def("traffic_state", &traffic_state<FlowTraffic>, py::arg("traffic"), py::arg("since"))
      .def(
          "graph_done", [](LiveRun& r, GraphTraffic& t) { return r.call([&] { return t.done(); }); },
          py::call_guard<Release>(), py::arg("traffic"))
      .def(
          "run_counters",
          [](LiveRun& r, const std::vector<NodeId>& hosts, std::optional<std::uint32_t> job) {
            RunCounters c;
            {
              Release release;
              c = r.call([&] { return run_counters(r.network(), hosts, job_id(job)); });
            }
            return counters_dict(c);
          },
          py::arg("hosts"), py::arg("job") = py::none(), "Network.run_counters, on the loop's thread.")
      .def(
          "queued",
          [](LiveRun& r, const std::vector<std::uint32_t>& halves) {
            return r.call([&] { return queued_bytes(r.network(), halves); });
          },
          py::call_guard<Release>(), py::arg("halves"), "Network.queued, on the loop's thread.")
      .def(
          "carried",
          [](LiveRun& r, const std::vector<std::uint32_t>& halves) {
            return r.call([&] { return carried_bytes(r.network(), halves); });
          },
          py::call_guard<Release>(), py::arg("halves"), "Network.carried, on the loop's thread.")
      .def(
          "take",
          [](LiveRun& r, const FlowProbe& probe) {
            std::vector<double> values(probe.rows().size() * probe.names().size());
            {
              Release release;
              r.call([&] { probe.take(values); });
            }
            return flow_probe_array(probe, values);
          },
          py::arg("probe"), "FlowProbe.take, on the loop's thread.")
      .def(
          "capture",
          [](LiveRun& r, NetworkRecorder& recorder, std::uint32_t half, const std::string& interface,
             const std::string& description) {
            return r.call([&] { return recorder.capture(half, interface, description); });
          },
          py::call_guard<Release>(), py::arg("recorder"), py::arg("half"), py::arg("interface"), py::arg("description"),
          "Begins to capture a port; the number to take its bytes by.")
      .def(
          "take_capture",
          [](LiveRun& r, NetworkRecorder& recorder, std::size_t capture, bool last) {
            std::string bytes;
            {
              Release release;
              // A tap gets packets with their ideal times, which lie back by the lateness.
              bytes = r.call([&] { return last ? recorder.finish(capture) : recorder.take(capture, r.slack()); });
            }
            return py::bytes(bytes);
          },
          py::arg("recorder"), py::arg("capture"), py::arg("last") = false)
      .def(
          "inject",
          [](LiveRun& r, NodeId node, std::uint16_t port, const py::bytes& frame) {
            const std::string bytes = frame;
            Release release;
            r.call([&] {
              r.network().inject({node, port}, {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
            });
          },
          py::arg("node"), py::arg("port"), py::arg("frame"), "Puts raw bytes into a port, as a faulty device would.")
      .def(
          "program_fault", [](LiveRun& r) { return r.loop().program_fault(); },
          "What a switch program of a C file has done wrong, as ProgramFault says it; nothing: none has.")
      .def(
          "switch_counters",
          [](LiveRun& r, NodeId node) {
            Counts out;
            if (XdpSwitch* s = r.fabric().switch_of(node)) {
              std::vector<SwitchCounter> counters;
              {
                Release release;
                s->program().counters(counters);
                r.call([&] { egress_counters(r.network(), node, counters); });
              }
              for (const auto& c : counters) out[py::str(c.name.data(), c.name.size())] = c.value;
            }
            return out;
          },
          py::arg("node"))
      .def(
          "panel_counters",
          [](LiveRun& r, NodeId node) {
            const KernelPanel* panel = r.fabric().panel_of(node);
            if (!panel) throw py::value_error("panel_counters: the node is no panel in the kernel");
            return counts_of(panel->totals());
          },
          py::arg("node"), "Network.panel_counters, of a panel in the kernel.")
      .def("fidelity", &fidelity,
           "verdict, reason, lateness, counters and the loop's own counts (core/live/fidelity.hpp).");
  py::class_<HostRoutes>(m, "HostRoutes", "Routes of live hosts' kernels to those that circuits join them to.")
      .def(py::init<>())
      .def(
          "add",
          [](HostRoutes& r, int netns, const std::string& name, const std::vector<std::string>& ports,
             const std::string& source, const std::string& gateway, std::uint32_t mtu) {
            const int copy = ::fcntl(netns, F_DUPFD_CLOEXEC, 3);
            if (copy < 0) throw LiveError("copy the descriptor of network namespace " + name, errno);
            return r.add_host(Netns::from_fd(Fd(copy), name), ports, source, gateway, mtu);
          },
          py::arg("netns"), py::arg("name"), py::arg("ports"), py::arg("source"), py::arg("gateway"), py::arg("mtu"),
          "Returns the host's number here; mtu 0: the interfaces'.")
      .def("set", &HostRoutes::set, py::arg("number"), py::arg("destination"), py::arg("by"),
           "To an address by these ports of the host of that number; none: its own route goes.")
      .def("commit", &HostRoutes::commit, py::call_guard<Release>());
}

}  // namespace loomnet
