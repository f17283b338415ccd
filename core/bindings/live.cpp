// A live run for Python: kernel ports and switches, the loop, and orders to it. Everything that
// touches the network while the loop runs goes through the loop's own thread.
#include <fcntl.h>

#include <future>

#include "bindings/bindings.hpp"
#include "bindings/recorder.hpp"
#include "collective/executor.hpp"
#include "engine/rank_bridge.hpp"
#include "engine/run_counters.hpp"
#include "live/live_fabric.hpp"
#include "live/live_loop.hpp"
#include "traffic/collective_traffic.hpp"
#include "traffic/flow_traffic.hpp"
#include "traffic/graph_traffic.hpp"

namespace py = pybind11;

namespace loomnet {
namespace {

class RankPoller final : public LivePoller {
 public:
  explicit RankPoller(double dilation) : dilation_(dilation) {}
  void add(RankBridge& bridge) {
    bridges_.push_back(&bridge);
    bridge.use_meetings(&meetings_);
  }
  bool poll(Picoseconds now) override {
    if (bridges_.empty()) return false;
    const std::int64_t wall = wall_nanoseconds();
    bool worked = false;
    for (RankBridge* bridge : bridges_) {
      worked |= bridge->poll(now, wall, dilation_);
      bridge->flush(now);
    }
    for (const auto& [rank, notice] : meetings_.settle()) {
      for (RankBridge* bridge : bridges_) {
        if (bridge->port().rank() == rank) bridge->tell(notice, now);
      }
    }
    return worked;
  }

 private:
  double dilation_;
  rank::Meetings meetings_{rank::kMaxWorld, kMaxCommunicatorId + 1};
  std::vector<RankBridge*> bridges_;
};

Netns netns_of(int fd, const std::string& label) {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) throw LiveError("copy the descriptor of network namespace " + label, errno);
  return Netns::from_fd(Fd(copy), label);
}

py::dict lateness(const LatenessSummary& s) {
  py::dict out;
  out["count"] = s.count;
  out["p50_ps"] = s.p50.count;
  out["p99_ps"] = s.p99.count;
  out["p999_ps"] = s.p999.count;
  out["max_ps"] = s.max.count;
  return out;
}

// Owns what a live run has in the kernel, and the loop.
class LiveRun {
 public:
  using PortTuple = std::tuple<NodeId, std::uint16_t, std::string, int, std::string, std::string>;
  using SwitchTuple =
      std::tuple<NodeId, int, std::string, std::uint64_t, std::shared_ptr<TableBatch>>;

  LiveRun(Network& network, const std::vector<PortTuple>& ports,
          const std::vector<SwitchTuple>& switches, double dilation, std::int64_t lateness_bound)
      : network_(network), poller_(dilation), dilation_(dilation) {
    std::vector<LivePort> live_ports;
    std::vector<LiveSwitch> live_switches;
    // Stable addresses: ports point at them.
    namespaces_.reserve(ports.size() + switches.size());
    for (const auto& [node, fd, label, hash_seed, tables] : switches) {
      namespaces_.push_back(netns_of(fd, label));
      live_switches.push_back({node, &namespaces_.back(), {.hash_seed = hash_seed}, tables});
    }
    for (const auto& [node, port, kind, fd, interface, mac] : ports) {
      LivePort p;
      p.node = node;
      p.port = port;
      p.kind = kind == "host"  ? PortKind::host
               : kind == "xdp" ? PortKind::xdp_switch
                               : PortKind::other_switch;
      namespaces_.push_back(netns_of(fd, interface));
      p.netns = &namespaces_.back();
      for (const LiveSwitch& s : live_switches) {
        if (s.node == node) p.netns = s.netns;
      }
      p.interface = interface;
      for (std::size_t i = 0; i < 6 && mac.size() == 17; ++i) {
        p.mac[i] = static_cast<std::uint8_t>(std::stoi(mac.substr(3 * i, 2), nullptr, 16));
      }
      live_ports.push_back(p);
    }
    fabric_ = std::make_unique<LiveFabric>(std::move(live_ports), live_switches);
    loop_ = std::make_unique<LiveLoop>(
        network_, *fabric_,
        LiveLoopConfig{.dilation = dilation, .lateness_bound = {lateness_bound}});
    network_.set_gate(loop_.get());
    loop_->add_poller(poller_);
  }
  ~LiveRun() { close(); }

  void add_rank(RankBridge& bridge) { poller_.add(bridge); }
  void start() { loop_->start(); }
  void stop() {
    resume();  // who was interrupted while he held the loop
    if (loop_) loop_->stop();
  }
  void close() {
    if (!loop_) return;
    stop();
    fidelity_ = loop_->fidelity();
    network_.set_gate(nullptr);
    network_.clear();  // frames go back to the arena before it goes
    loop_.reset();
    fabric_->close();
    fabric_.reset();
    namespaces_.clear();  // a descriptor would keep a dead node's interfaces alive
  }
  // Holds the loop between two passes until resume(): the network may be touched by this thread.
  void pause() {
    if (!loop_ || !loop_->running()) return;
    resumed_ = std::promise<void>();
    std::promise<void> paused;
    std::future<void> stands = paused.get_future();
    if (!loop_->post([this, &paused] {
          std::future<void> go = resumed_.get_future();
          paused.set_value();
          go.wait();
        })) {
      return;
    }
    stands.wait();
    paused_ = true;
  }
  void resume() {
    if (std::exchange(paused_, false)) resumed_.set_value();
  }
  template <typename Work>
  auto call(Work work) -> decltype(work()) {
    if (loop_ && loop_->running()) return loop_->call(std::move(work));
    return work();
  }
  std::int64_t now() const {
    return loop_ && loop_->running() ? loop_->clock().now().count : network_.now().count;
  }
  // Of a capture that shall be in order of time: lateness is far below 200 ms of wall time.
  Picoseconds slack() const { return milliseconds(200).scaled(1 / dilation_); }
  Network& network() { return network_; }
  LiveLoop& loop() { return *loop_; }
  LiveFabric& fabric() { return *fabric_; }
  std::size_t port_index(NodeId node, std::uint16_t port) const {
    const auto& ports = fabric_->ports();
    for (std::size_t i = 0; i < ports.size(); ++i) {
      if (ports[i].node == node && ports[i].port == port) return i;
    }
    throw std::invalid_argument("live: no such kernel port");
  }
  Fidelity fidelity() { return loop_ ? loop_->fidelity() : fidelity_; }

 private:
  Network& network_;
  RankPoller poller_;
  double dilation_;
  std::vector<Netns> namespaces_;
  std::unique_ptr<LiveFabric> fabric_;
  std::unique_ptr<LiveLoop> loop_;
  Fidelity fidelity_;
  std::promise<void> resumed_;
  bool paused_ = false;
};

py::dict fidelity(LiveRun& run) {
  const Fidelity f = run.fidelity();
  py::dict out, counters;
  out["verdict"] = std::string(to_string(f.verdict));
  out["reason"] = f.reason;
  out["lateness"] = lateness(f.lateness);
  out["event_lateness"] = lateness(f.event_lateness);
  out["longest_pass_ps"] = f.longest_pass.count;
  out["passes"] = f.passes;
  out["given"] = f.given;
  out["returned"] = f.returned;
  out["switch_drops"] = f.switch_drops;
  out["own_losses"] = f.own_losses;
  out["unexplained"] = f.unexplained;
  out["scheduling"] = f.scheduling;
  for (const NamedCount& c : f.counters) counters[py::str(c.name)] = c.value;
  out["counters"] = counters;
  return out;
}

}  // namespace

void bind_live(py::module_& m) {
  using Release = py::gil_scoped_release;
  py::class_<LiveRun>(m, "LiveRun",
                      "A network on the live clock, with its kernel ports and XDP switches.")
      .def(py::init([](Network& n, const std::vector<LiveRun::PortTuple>& ports,
                       const std::vector<LiveRun::SwitchTuple>& switches, double dilation,
                       std::int64_t bound) {
             Release release;
             return new LiveRun(n, ports, switches, dilation, bound);
           }),
           py::keep_alive<1, 2>(), py::arg("network"), py::kw_only(), py::arg("ports"),
           py::arg("switches"), py::arg("dilation") = 1.0,
           py::arg("lateness_bound_ps") = 1'000'000'000,
           "ports: (node, port, 'host' | 'xdp', netns fd, interface, MAC or ''); "
           "switches: (node, netns fd, name, hash seed, tables).")
      .def("add_rank", &LiveRun::add_rank, py::keep_alive<1, 2>())
      .def("start", &LiveRun::start)
      .def("pause", &LiveRun::pause, py::call_guard<Release>(),
           "Holds the loop until resume(): for the moments in which Python touches the network.")
      .def("resume", &LiveRun::resume)
      .def("stop", &LiveRun::stop, py::call_guard<Release>())
      .def("close", &LiveRun::close, py::call_guard<Release>())
      .def_property_readonly("now_ps", &LiveRun::now)
      .def(
          "change_link",
          [](LiveRun& r, LinkId link, bool forward, bool backward, std::optional<bool> up,
             std::optional<std::uint64_t> rate, std::optional<double> queue_share,
             std::optional<std::int64_t> delay, std::optional<py::dict> impairment) {
            const LinkChange change =
                link_change(link, forward, backward, up, rate, queue_share, delay, impairment);
            Release release;
            r.call([&] { r.network().apply(change); });
          },
          py::arg("link"), py::kw_only(), py::arg("forward") = true, py::arg("backward") = true,
          py::arg("up") = py::none(), py::arg("rate_bps") = py::none(),
          py::arg("queue_share") = py::none(), py::arg("delay_ps") = py::none(), py::arg("impairment") = py::none(),
          "Changes a link now.")
      .def(
          "set_tables",
          [](LiveRun& r, NodeId node, std::shared_ptr<TableBatch> tables) {
            r.fabric().set_tables(node, *tables);
          },
          py::call_guard<Release>())
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
            struct Seen {
              std::vector<RankMark> marks;
              std::uint64_t finished, failed, unfinished;
              std::string under_way;
              RankFault fault;
            };
            std::vector<Seen> seen;
            {
              Release release;
              // One visit to the loop's thread for all ranks: each costs it a wake-up call.
              seen = r.call([&] {
                std::vector<Seen> all;
                for (RankBridge* b : bridges) {
                  all.push_back(
                      {b->take_marks(), b->finished_works(), b->failed_works(),
                       b->unfinished_works(), b->under_way(), b->fault()});
                }
                return all;
              });
            }
            py::list out;
            for (const Seen& s : seen) {
              out.append(py::make_tuple(
                  mark_list(s.marks), s.finished, s.failed, s.unfinished,
                  s.under_way,
                  s.fault == RankFault::none ? "" : std::string(to_string(s.fault))));
            }
            return out;
          },
          "[(marks since the last look, finished works, failed works, works under way, the name of "
          "the first of them, fault or '')] of these ranks.")
      .def("tell",
           [](LiveRun& r, RankBridge& bridge, const std::string& kind, std::uint32_t peer,
              const std::string& reason) {
             const auto k = notice_named(kind);
             const auto why = reason_named(reason);
             Release release;
             r.call([&] { bridge.tell(k, peer, why, r.network().now()); });
           })
      .def(
          "stop_at",
          [](LiveRun& r, RankBridge& bridge, std::uint32_t step) {
            r.call([&] { bridge.stop_at(step, r.network().now()); });
          },
          py::call_guard<Release>())
      .def(
          "collective_state",
          [](LiveRun& r, CollectiveTraffic& t) {
            return r.call([&] {
              std::vector<std::pair<std::int64_t, std::int64_t>> done;
              for (const auto& i : t.iterations(0)) done.emplace_back(i.begin.count, i.end.count);
              return std::make_tuple(done, t.done());
            });
          },
          py::call_guard<Release>(), "(rank 0's iterations, done) of a collective job.")
      .def(
          "flows_done", [](LiveRun& r, FlowTraffic& t) { return r.call([&] { return t.done(); }); },
          py::call_guard<Release>())
      .def(
          "flows_done",
          [](LiveRun& r, GraphTraffic& t) { return r.call([&] { return t.done(); }); },
          py::call_guard<Release>())
      .def("run_counters",
           [](LiveRun& r, const std::vector<NodeId>& hosts) {
             RunCounters c;
             {
               Release release;
               c = r.call([&] { return run_counters(r.network(), hosts); });
             }
             return counters_dict(c);
           })
      .def(
          "queued",
          [](LiveRun& r, const std::vector<std::uint32_t>& halves) {
            return r.call([&] { return queued_bytes(r.network(), halves); });
          },
          py::call_guard<Release>(), py::arg("halves"), "Network.queued, on the loop's thread.")
      .def(
          "capture",
          [](LiveRun& r, NetworkRecorder& recorder, std::uint32_t half,
             const std::string& interface, const std::string& description) {
            return r.call([&] { return recorder.capture(half, interface, description); });
          },
          py::call_guard<Release>(), py::arg("recorder"), py::arg("half"), py::arg("interface"),
          py::arg("description"), "Begins to capture a port; the number to take its bytes by.")
      .def(
          "take_capture",
          [](LiveRun& r, NetworkRecorder& recorder, std::size_t capture, bool last) {
            std::string bytes;
            {
              Release release;
              // Links are told of packets by their ideal times, which lie back by the lateness.
              bytes = r.call([&] {
                return last ? recorder.finish(capture) : recorder.take(capture, r.slack());
              });
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
              r.network().inject({node, port}, {reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                                bytes.size()});
            });
          },
          "Puts raw bytes into a port, as a faulty device would.")
      .def("lateness_window", [](LiveRun& r) { return lateness(r.loop().take_window()); })
      .def("switch_counters",
           [](LiveRun& r, NodeId node) {
             py::dict out;
             if (XdpSwitch* s = r.fabric().switch_of(node)) {
               std::vector<SwitchCounter> counters;
               s->counters(counters);
               for (const auto& c : counters) out[py::str(c.name.data(), c.name.size())] = c.value;
             }
             return out;
           })
      .def("fidelity", &fidelity);
}

}  // namespace loomnet
