// The engine's network for Python: build it from a plan, change it by schedule, run it. Calls are
// coarse, and running releases the GIL.
#include <pybind11/numpy.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "bindings/bindings.hpp"
#include "bindings/transports.hpp"
#include "engine/pause_cycle.hpp"
#include "link/queue_disciplines.hpp"
#include "switch/loaded/guarded_call.hpp"
#include "transport/congestion.hpp"
#include "transport/factory.hpp"

namespace py = pybind11;

namespace loomnet {
namespace {

// Network::run_until with a look at Ctrl-C every 50 ms or so of wall time: how many events fit in
// between follows from how many did, since a busy machine or a large fabric makes them dear. Slow calls of a user's switch
// program end it early, after a second or so: the caller looks at the time, too.
bool run_until(Network& network, Picoseconds end, std::uint64_t most) {
  using Clock = std::chrono::steady_clock;
  static constexpr auto kLook = std::chrono::milliseconds(50);
  static constexpr std::uint64_t kLeast = 1 << 10, kMost = 1 << 20;
  EventQueue& events = network.events();
  bool slow = false;
  struct Told {
    EventQueue* events;
    bool* slow;
  } told{&events, &slow};
  const SlowCalls slow_calls(
      [](void* context) {
        const Told& found = *static_cast<Told*>(context);
        *found.slow = true;
        found.events->run_no_more();
      },
      &told);
  for (std::uint64_t slice = 1 << 14;;) {
    const std::uint64_t part = std::min(slice, most), before = events.processed();
    bool ended = false;
    {
      const py::gil_scoped_release release;
      const auto began = Clock::now();
      ended = network.run_until(end, part);
      const auto took = Clock::now() - began;
      slice = took > kLook ? slice / 2 : took < kLook / 4 ? slice * 2 : slice;
      slice = std::clamp(slice, kLeast, kMost);
    }
    raise_plugin_fault();
    if (ended) return true;
    most -= std::min(most, events.processed() - before);
    if (events.stopped() || most == 0 || slow) return false;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

PathTemplate path_template(const std::vector<std::uint16_t>& usids, int slot, std::uint8_t agg_slots,
                           std::uint16_t cores_per_agg, const std::shared_ptr<ListedWays>& ways) {
  PathTemplate row;
  if (usids.size() > row.usids.size()) throw std::invalid_argument("paths: more than six uSIDs");
  if (ways && (slot < 0 || static_cast<std::size_t>(slot) + ways->length > usids.size())) {
    throw std::invalid_argument("paths: listed ways reach past the uSIDs");
  }
  std::copy(usids.begin(), usids.end(), row.usids.begin());
  row.count = static_cast<std::uint8_t>(usids.size());
  row.uplink_slot = static_cast<std::int8_t>(slot);
  row.agg_slots = agg_slots;
  row.cores_per_agg = cores_per_agg;
  row.ways = ways;
  return row;
}

std::shared_ptr<ListedWays> listed_ways(const std::vector<std::vector<std::uint16_t>>& rows) {
  auto ways = std::make_shared<ListedWays>();
  if (rows.empty() || rows[0].empty() || rows[0].size() > ListedWays::kMost) {
    throw std::invalid_argument("ways: one row at least, of 1 to 4 uSIDs");
  }
  ways->length = static_cast<std::uint8_t>(rows[0].size());
  for (const auto& row : rows) {
    if (row.size() != ways->length) throw std::invalid_argument("ways: rows of different lengths");
    std::copy(row.begin(), row.end(), ways->rows.emplace_back().begin());
  }
  return ways;
}

// Group, members, member (none: the server), window, switches of each tree.
using GroupRow = std::tuple<std::uint16_t, std::uint32_t, std::optional<std::uint32_t>, std::uint32_t,
                            std::vector<std::vector<std::uint16_t>>>;
GroupMember group_member(const GroupRow& row) {
  const auto& [group, members, member, window, trees] = row;
  return {group, members, member.value_or(GroupMember::kServer), window, trees};
}

template <typename T>
using Numbers = py::array_t<T, py::array::c_style | py::array::forcecast>;

// A row at a time, in order; ValueError for a limit that is none and for a sender that obeys none.
void set_senders(Network& network, const Numbers<std::int64_t>& rows, const std::optional<Numbers<double>>& cwnd,
                 const std::optional<Numbers<double>>& pacing) {
  if (rows.size() && (rows.ndim() != 2 || rows.shape(1) != 3)) {
    throw py::value_error("set_limits: rows of three numbers");
  }
  const py::ssize_t count = rows.size() / 3;
  for (const auto* each : {&cwnd, &pacing}) {
    if (*each && (**each).size() != count) throw py::value_error("set_limits: a limit for each row");
  }
  for (py::ssize_t i = 0; i < count; ++i) {
    const std::int64_t* row = rows.data() + 3 * i;
    LimitsSet set;
    if (cwnd && std::isfinite(cwnd->data()[i])) {
      if (!(cwnd->data()[i] >= 0 && cwnd->data()[i] <= 9e15)) {
        throw py::value_error("set_limits: a window of 0 to 9e15 bytes");
      }
      set.cwnd = static_cast<std::uint64_t>(cwnd->data()[i]);
    }
    if (pacing && std::isfinite(pacing->data()[i])) {
      const double rate = pacing->data()[i];
      if (rate != 0 && !(rate >= kLeastPacing && rate < kPacingBound)) {
        throw py::value_error("set_limits: a rate of 1 bit/s to 9.2e18, or 0: not paced");
      }
      set.pacing_rate = pacing->data()[i];
    }
    network.nic(static_cast<NodeId>(row[0]))
        .set_limits(static_cast<QpNumber>(row[1]), static_cast<std::size_t>(row[2]), set, network.now());
  }
  raise_plugin_fault();
}

void connect_many(Network& network, const Numbers<std::int64_t>& rows, const Numbers<std::uint64_t>& streams,
                  const Numbers<std::int64_t>& kinds, const std::vector<LinkConfig>& configs) {
  const py::ssize_t count = streams.size();
  if (rows.ndim() != 2 || rows.shape(0) != count || rows.shape(1) != 4 || streams.ndim() != 1 || kinds.ndim() != 2 ||
      kinds.shape(0) != count || kinds.shape(1) != 2) {
    throw std::invalid_argument("connect_many: rows of four numbers, and a stream and two kinds for each");
  }
  std::vector<std::shared_ptr<const LinkConfig>> shared;
  for (const LinkConfig& each : configs) shared.push_back(std::make_shared<const LinkConfig>(each));
  const auto row = rows.unchecked<2>();
  const auto stream = streams.unchecked<1>();
  const auto kind = kinds.unchecked<2>();
  for (py::ssize_t i = 0; i < count; ++i) {
    network.connect({static_cast<NodeId>(row(i, 0)), static_cast<std::uint16_t>(row(i, 1))},
                    {static_cast<NodeId>(row(i, 2)), static_cast<std::uint16_t>(row(i, 3))},
                    shared.at(static_cast<std::size_t>(kind(i, 0))), shared.at(static_cast<std::size_t>(kind(i, 1))),
                    stream(i));
  }
}

}  // namespace

std::vector<PlanePaths> plane_paths(const std::vector<PathRow>& rows, const std::vector<Plane>& planes) {
  if (!planes.empty() && planes.size() != rows.size()) {
    throw py::value_error("paths: a plane for each row, or none");
  }
  std::vector<PlanePaths> out;
  for (const auto& [usids, slot, uplinks, aggs, cores, ways, capacity] : rows) {
    if (!(capacity > 0)) throw py::value_error("paths: capacity must be positive");
    for (const std::uint16_t uplink : uplinks) {
      if (ways && uplink >= ways->rows.size()) throw py::value_error("paths: no such listed way");
    }
    out.push_back({path_template(usids, slot, aggs, cores, ways), uplinks, capacity});
    if (!planes.empty()) out.back().plane = planes[out.size() - 1];
  }
  return out;
}

// (transport, ecn_low, ecn_high, ecn_share, trim_size, trim_dscp)
using CarrierRow = std::tuple<std::string, std::uint64_t, std::uint64_t, double, std::uint32_t, std::uint8_t>;

// By Packet::carrier: those of the rows, and of all others what the link has.
std::shared_ptr<const std::vector<CarrierMarks>> marks_of(const std::vector<CarrierRow>& rows, const LinkConfig& link) {
  const CarrierMarks others{link.ecn_low, link.ecn_high, link.ecn_share, link.trim_size, link.trim_dscp};
  auto found = std::make_shared<std::vector<CarrierMarks>>(transports().kinds().size() + 1, others);
  for (const auto& [name, low, high, share, size, dscp] : rows) {
    const CarrierMarks own{low, high, share, size ? size : link.trim_size, dscp};
    found->at(transports().number(name)) = own;
    if (transports().kind(name).of_kernels) found->front() = own;
  }
  return found;
}

void bind_network(py::module_& m) {
  py::class_<ListedWays, std::shared_ptr<ListedWays>>(
      m, "ListedWays", "uSIDs of ways between two leaves, a row for each; queue pairs share them.")
      .def(py::init(&listed_ways), py::arg("rows"));
  py::class_<LinkConfig>(m, "LinkConfig")
      .def(py::init([](std::uint64_t rate, std::int64_t delay, std::uint64_t data_limit, std::uint64_t control_limit,
                       std::uint64_t ecn_low, std::uint64_t ecn_high, std::uint32_t trim_size, std::uint8_t trim_dscp,
                       bool last_hop, std::uint64_t pfc_xoff, std::uint64_t pfc_xon, std::uint64_t pfc_headroom,
                       double ecn_share, double control_share, bool trim_coin, std::uint32_t largest_frame,
                       const std::vector<CarrierRow>& carriers, const std::string& queue,
                       const std::vector<std::pair<std::string, std::int64_t>>& queue_options) {
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
             c.trim_dscp = trim_dscp;
             c.ecn_share = ecn_share;
             c.control_share = control_share;
             c.trim_coin = trim_coin;
             c.pfc = {pfc_xoff, pfc_xon, pfc_headroom};
             c.largest_frame = largest_frame;
             if (!carriers.empty()) c.carriers = marks_of(carriers, c);
             c.queue = choose_queue(queue, queue_options);
             return c;
           }),
           py::kw_only(), py::arg("rate_bps"), py::arg("delay_ps"), py::arg("data_limit") = 0,
           py::arg("control_limit") = 0, py::arg("ecn_low") = 0, py::arg("ecn_high") = 0, py::arg("trim_size") = 0,
           py::arg("trim_dscp") = 0, py::arg("last_hop") = false, py::arg("pfc_xoff") = 0, py::arg("pfc_xon") = 0,
           py::arg("pfc_headroom") = 0, py::arg("ecn_share") = 1.0,
           py::arg("control_share") = LinkConfig().control_share, py::arg("trim_coin") = true,
           py::arg("largest_frame") = kMaxFrameBytes, py::arg("carriers") = std::vector<CarrierRow>{},
           py::arg("queue") = std::string(kDefaultDiscipline),
           py::arg("queue_options") = std::vector<std::pair<std::string, std::int64_t>>{});
  m.def(
      "queue_disciplines",
      [] {
        py::dict out;
        for (const QueueDiscipline& discipline : queue_disciplines()) {
          py::list options;
          for (const QueueOption& o : discipline.options) {
            options.append(py::make_tuple(o.name, to_string(o.unit), o.preset, o.least, o.most));
          }
          out[py::str(std::string(discipline.name))] = options;
        }
        return out;
      },
      "Queue disciplines by name, each with its options: name, unit (time in picoseconds, size in "
      "bytes, count or switch), preset, least and most.");

  py::class_<Network> network(m, "Network");
  network
      .def(py::init([](std::uint64_t seed, std::int64_t bin, std::size_t bins) {
             if (bins < 2 || bin < 1) throw std::invalid_argument("Network: meter_bin_ps 1 or more, meter_bins 2");
             return new Network(seed, ps(bin), bins);
           }),
           py::kw_only(), py::arg("seed"), py::arg("meter_bin_ps"), py::arg("meter_bins") = 1 << 20)
      .def("add_host", &Network::add_host, py::arg("ports"), py::arg("identity") = py::none())
      .def(
          "connect",
          [](Network& n, NodeId a, std::uint16_t pa, NodeId b, std::uint16_t pb, const LinkConfig& forward,
             const LinkConfig& backward,
             std::uint64_t stream) { return n.connect({a, pa}, {b, pb}, forward, backward, stream); },
          py::arg("a"), py::arg("a_port"), py::arg("b"), py::arg("b_port"), py::arg("forward"), py::arg("backward"),
          py::arg("stream") = 0)
      .def("connect_many", &connect_many, py::arg("rows"), py::arg("streams"), py::arg("kinds"), py::arg("configs"),
           "Links in order. rows: int64[n, 4] of node, port, node, port; streams: uint64[n], each link's random "
           "stream; kinds: int64[n, 2], which of `configs` each direction has.")
      .def(
          "connect_qp",
          [](Network& n, NodeId source, QpNumber local, NodeId destination, QpNumber remote, std::uint32_t flow,
             const std::vector<PathRow>& paths, const std::vector<PathRow>& reverse, std::uint32_t job,
             std::uint32_t client, const std::string& transport, const std::vector<Plane>& planes,
             const std::optional<GroupRow>& group, std::int64_t at) {
            QpConfig config{local,
                            remote,
                            n.nic(source).host(),
                            n.nic(destination).host(),
                            flow,
                            plane_paths(paths, planes),
                            plane_paths(reverse),
                            {}};
            if (group) config.group = group_member(*group);
            const QpOwner owner{JobId{job}, ClientId{client}};
            if (ps(at) > n.now()) {
              n.nic(source).connect_at(ps(at), std::move(config), owner, transport);
            } else {
              n.nic(source).connect(config, n.now(), owner, transport);
            }
            raise_plugin_fault();
          },
          py::arg("source"), py::arg("local"), py::arg("destination"), py::arg("remote"), py::arg("flow"),
          py::arg("paths"), py::arg("reverse"), py::kw_only(), py::arg("job") = 0, py::arg("client") = 0,
          py::arg("transport") = "", py::arg("planes") = std::vector<Plane>{}, py::arg("group") = py::none(),
          py::arg("at_ps") = 0,
          "One end of a queue pair of `job`. paths and reverse: per port (uSIDs, uplink slot, uplinks, mask "
          "of aggregation slots, cores per aggregation switch, ListedWays or None, capacity); planes: the plane of each port of "
          "the source, empty: plane k at port k. Results go to `client` of the source's NIC; 0: to the job's "
          "first client, until a client takes the queue pair. transport: by name, empty: the host's first; "
          "where source and destination are one host, its local link carries the queue pair, unless it is of a "
          "group: (group, members, member or None for its server, window, numbers of the switches of each tree). "
          "at_ps: when it is connected; a time that is over: now.")
      .def(
          "set_paths",
          [](Network& n, NodeId host, QpNumber qp, const std::vector<PathRow>& rows, const std::vector<Plane>& planes) {
            n.nic(host).set_paths(qp, plane_paths(rows, planes), n.now());
            raise_plugin_fault();
          },
          py::arg("host"), py::arg("qp"), py::arg("rows"), py::kw_only(), py::arg("planes") = std::vector<Plane>{},
          "The paths of one end of a queue pair are these from now on; rows and planes as in connect_qp.")
      .def("set_limits", &set_senders, py::arg("rows"), py::arg("cwnd") = py::none(), py::arg("pacing") = py::none(),
           "What senders may send by from now on. rows: int64[n, 3] of host, queue pair and part; cwnd: bytes, "
           "pacing: bits per second, float64[n], not finite: as it is.")
      .def(
          "set_trees",
          [](Network& n, NodeId host, QpNumber qp, std::vector<std::vector<std::uint16_t>> trees) {
            n.nic(host).set_trees(qp, std::move(trees), n.now());
          },
          py::arg("host"), py::arg("qp"), py::arg("trees"),
          "The trees of a queue pair's group are these from now on; as connect_qp's group has them.")
      .def(
          "set_local_link",
          [](Network& n, NodeId host, std::uint64_t rate, std::int64_t delay) {
            n.nic(host).set_local_link({{rate}, ps(delay)});
          },
          py::arg("host"), py::kw_only(), py::arg("rate_bps") = LocalLinkConfig().rate.count,
          py::arg("delay_ps") = LocalLinkConfig().delay.count,
          "What joins the ranks of one host. Without this call the first queue pair with both ends on the "
          "host makes it with these defaults.")
      .def(
          "set_kernel_job",
          [](Network& n, NodeId host, std::uint32_t job) { n.nic(host).clients().set_kernel_job(JobId{job}); },
          py::arg("host"), py::arg("job"),
          "Payload that the host's kernel receives counts for this job; without this call for the first "
          "that the host knows.")
      .def(
          "reserve_qps",
          [](Network& n, NodeId host, std::uint32_t count) { return n.nic(host).clients().reserve(count); },
          py::arg("host"), py::arg("count") = 1,
          "First of `count` numbers in a row that no queue pair of the host's NIC has.")
      .def(
          "schedule_link",
          [](Network& n, std::int64_t at, LinkId link, bool forward, bool backward, std::optional<bool> up,
             std::optional<std::uint64_t> rate, std::optional<double> queue_share, std::optional<std::int64_t> delay,
             std::optional<py::dict> impairment) {
            n.schedule(ps(at), link_change(link, forward, backward, up, rate, queue_share, delay, impairment));
          },
          py::arg("at_ps"), py::arg("link"), py::kw_only(), py::arg("forward") = true, py::arg("backward") = true,
          py::arg("up") = py::none(), py::arg("rate_bps") = py::none(), py::arg("queue_share") = py::none(),
          py::arg("delay_ps") = py::none(), py::arg("impairment") = py::none())
      .def(
          "run_until", [](Network& n, std::int64_t end, std::uint64_t most) { return run_until(n, ps(end), most); },
          py::arg("end_ps"), py::arg("most_events") = ~0ull)
      .def_property_readonly("now_ps", [](const Network& n) { return n.now().count; })
      .def(
          "watch_iterations", [](Network& n, bool watch) { n.watch_iterations(watch); }, py::arg("watch"),
          "Whether run_until returns after every iteration of a model's job, which it does unless told otherwise.")
      .def(
          "take_moved",
          [](Network& n) {
            std::vector<std::uint32_t> found;
            for (const JobId job : n.take_moved()) found.push_back(static_cast<std::uint32_t>(job));
            return found;
          },
          "Numbers of the jobs that ended, or of which an iteration ended that run_until returned for, since the "
          "last call; each once.")
      .def("use_lookahead", &Network::use_lookahead,
           "Serves each node's events of a window together: for jobs whose hosts hear of one another "
           "by packets alone.")
      .def_property_readonly("next_event_ps", [](Network& n) { return n.events().next().count; })
      .def_property_readonly("events", [](Network& n) { return n.events().processed(); })
      .def_property_readonly("packets", [](Network& n) { return n.pool().last_uid(); })
      .def_property_readonly("unconnected", &Network::unconnected)
      .def_property_readonly("pfc_deadlocks", &Network::pfc_deadlocks)
      .def(
          "pause_cycle", [](Network& n) { return pause_cycle(n); },
          "Half-links (2 * link, or one more for b->a) that wait for one another in a circle now.")
      .def_property_readonly("leaked", [](Network& n) { return n.pool().outstanding() - n.held(); })
      .def("clear", &Network::clear);
  bind_switches(m, network);
  bind_figures(network);
  bind_panels(m, network);
  bind_transports(m, network);
}

}  // namespace loomnet
