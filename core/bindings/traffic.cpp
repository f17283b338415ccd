// The engine's own traffic for Python: flows, graphs of transfers, collectives over queue pairs.
#include "bindings/spans.hpp"
#include "bindings/sum_shape.hpp"
#include "traffic/collective_traffic.hpp"
#include "traffic/flow_traffic.hpp"
#include "traffic/graph_traffic.hpp"

namespace py = pybind11;

namespace loomnet {
namespace {

struct FlowRow {
  std::uint32_t flow;
  std::int64_t start_ps, end_ps, arrived_ps;  // -1: not yet
  std::uint64_t bytes;
  bool ok;
};

std::int64_t time_or_none(Picoseconds at) { return at == kNever ? -1 : at.count; }

FlowRow row_of(const FlowResult& r) {
  return {r.flow, r.start.count, time_or_none(r.end), time_or_none(r.arrived), r.completed, r.status == Status::ok};
}

}  // namespace

py::array_t<std::int64_t> step_rows(const StepLog& log) {
  const auto& rows = log.rows();
  py::array_t<std::int64_t> out({static_cast<py::ssize_t>(rows.size()), py::ssize_t{4}});
  auto view = out.mutable_unchecked<2>();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<py::ssize_t>(i);
    view(row, 0) = rows[i].rank;
    view(row, 1) = rows[i].channel;
    view(row, 2) = rows[i].step;
    view(row, 3) = rows[i].at.count;
  }
  return out;
}

void bind_traffic(py::module_& m) {
  PYBIND11_NUMPY_DTYPE(SpanRow, begin_ps, end_ps);
  PYBIND11_NUMPY_DTYPE(FlowRow, flow, start_ps, end_ps, arrived_ps, bytes, ok);
  py::class_<FlowTraffic>(m, "FlowTraffic")
      .def(
          py::init([](Network& n, bool payload, std::uint32_t job) { return new FlowTraffic(n, payload, JobId{job}); }),
          py::arg("network"), py::arg("payload"), py::arg("job") = 0, py::keep_alive<1, 2>())
      .def(
          "add",
          [](FlowTraffic& t, NodeId source, NodeId destination, QpNumber qp, std::uint64_t bytes, std::uint32_t message,
             std::uint32_t depth, std::int64_t start, std::uint32_t steps, std::uint16_t rank, std::uint16_t ranks,
             const std::optional<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint16_t, std::uint16_t>>&
                 claim,
             std::optional<std::int64_t> until) {
            FlowConfig flow{source,    destination, qp,   bytes, message, depth,
                            ps(start), steps,       rank, ranks, {},      until ? ps(*until) : kNever};
            if (claim) flow.claim = std::make_from_tuple<RingClaim>(*claim);
            return t.add(flow);
          },
          py::kw_only(), py::arg("source"), py::arg("destination"), py::arg("qp"), py::arg("bytes"), py::arg("message"),
          py::arg("depth"), py::arg("start_ps"), py::arg("steps") = 0, py::arg("rank") = 0, py::arg("ranks") = 0,
          py::arg("claim") = py::none(), py::arg("until_ps") = py::none(),
          "claim: (job, communicator, first step, rank, ranks) that its packets say in place of the truth. until_ps: "
          "from then on nothing is posted, and the flow ends with what is under way.")
      .def(
          "repeat",
          [](FlowTraffic& t, std::uint32_t rounds, std::int64_t gap, std::int64_t apart,
             std::optional<std::int64_t> stop,
             bool whole) { t.repeat({rounds, ps(gap), ps(apart), stop ? ps(*stop) : kNever, whole}); },
          py::kw_only(), py::arg("rounds"), py::arg("gap_ps") = 0, py::arg("apart_ps") = 0,
          py::arg("stop_ps") = py::none(), py::arg("whole") = true,
          "Before start(): the flows are sent so many times, a round gap_ps after the end of the one before, in a "
          "later round each by less than apart_ps later. No flow begins at stop_ps or later. whole: the first round "
          "has all of its flows; else it is the last, and no iteration.")
      .def("start", &FlowTraffic::start)
      .def_property_readonly("done", &FlowTraffic::done)
      .def_property_readonly(
          "ended_ps", [](const FlowTraffic& t) { return t.ended().count; }, "When the last flow ended so far.")
      .def(
          "iterations",
          [](const FlowTraffic& t, std::size_t since) { return spans_array(spans_from(t.rounds(), since)); },
          py::arg("since") = 0, kSpansDoc)
      .def_property_readonly("wrong", &FlowTraffic::wrong)
      .def(
          "steps", [](const FlowTraffic& t) { return step_rows(t.steps()); },
          "int64[steps, 4] of flows in ring steps: rank, 0, step and when its sender knew it had arrived (ps).")
      .def_property_readonly("steps_unlogged", [](const FlowTraffic& t) { return t.steps().unlogged(); })
      .def(
          "results",
          [](const FlowTraffic& t, std::size_t since) {
            const auto& all = t.results();
            since = std::min(since, all.size());
            py::array_t<FlowRow> out(static_cast<py::ssize_t>(all.size() - since));
            std::transform(all.begin() + static_cast<std::ptrdiff_t>(since), all.end(), out.mutable_data(), row_of);
            return py::array(out);
          },
          py::arg("since") = 0,
          "Flows that were launched, from number `since` on, as a numpy structured array: flow (number of its add()), "
          "start_ps, end_ps, arrived_ps (-1: not yet), bytes that were completed, ok (no failure so far).")
      .def(
          "under_way",
          [](const FlowTraffic& t) {
            const std::vector<std::size_t> found = t.under_way();
            return py::array_t<std::size_t>(static_cast<py::ssize_t>(found.size()), found.data());
          },
          "Numbers in results() of the flows under way now, rising.")
      .def("acked_before", &FlowTraffic::acked_before, py::arg("number"), py::arg("part"),
           "Bytes that were acknowledged to a part of a flow's queue pair when the flow of this number began, which is "
           "under way.")
      .def(
          "ended_flows",
          [](const FlowTraffic& t, std::size_t since) {
            const auto& all = t.ended_flows();
            since = std::min(since, all.size());
            return py::array_t<std::uint32_t>(static_cast<py::ssize_t>(all.size() - since), all.data() + since);
          },
          py::arg("since") = 0, "Numbers in results() of the flows that have ended, from the one of this place on.")
      .def(
          "failures",
          [](const FlowTraffic& t) {
            Rows<py::int_, py::int_, py::str> out;
            for (std::size_t i = 0; i < t.results().size(); ++i) {
              const FlowResult& r = t.results()[i];
              if (r.status != Status::ok) out.append(py::make_tuple(i, r.end.count, std::string(to_string(r.status))));
            }
            return out;
          },
          "[(number in results(), at_ps, status)] of the flows that failed.");

  py::class_<GraphTraffic>(m, "GraphTraffic")
      .def(py::init(
               [](Network& n, unsigned depth, std::uint32_t job) { return new GraphTraffic(n, depth, JobId{job}); }),
           py::arg("network"), py::arg("depth"), py::arg("job") = 0, py::keep_alive<1, 2>())
      .def(
          "delay",
          [](GraphTraffic& g, std::int64_t duration, std::uint32_t lane, bool any, std::optional<NodeId> host) {
            return g.add({.duration = ps(duration), .lane = lane, .host = host, .any = any});
          },
          py::arg("duration_ps"), py::arg("lane") = 0, py::arg("any") = false, py::arg("host") = py::none())
      .def(
          "transfer",
          [](GraphTraffic& g, NodeId source, NodeId destination, QpNumber qp, std::uint64_t bytes) {
            return g.add({true, source, destination, qp, bytes});
          },
          py::arg("source"), py::arg("destination"), py::arg("qp"), py::arg("bytes"))
      .def("depend", &GraphTraffic::depend, py::arg("task"), py::arg("on"), py::arg("acked") = false)
      .def(
          "start",
          [](GraphTraffic& g, std::int64_t at, std::optional<std::int64_t> stop) {
            g.start(ps(at), stop ? ps(*stop) : kNever);
          },
          py::arg("at_ps"), py::arg("stop_ps") = py::none())
      .def_property_readonly("done", &GraphTraffic::done)
      .def_property_readonly(
          "ended_ps", [](const GraphTraffic& g) { return g.ended().count; },
          "When the last task ended so far, or the first failed.")
      .def_property_readonly(
          "failed",
          [](const GraphTraffic& g) {
            std::optional<std::tuple<std::uint32_t, std::int64_t, std::string>> found;
            if (g.failed() != Status::ok) found.emplace(g.failed_task(), g.failed_at().count, to_string(g.failed()));
            return found;
          },
          "(task, at_ps, status) of the first that failed.")
      .def(
          "results",
          [](const GraphTraffic& g) {
            py::array_t<std::int64_t> out({static_cast<py::ssize_t>(g.results().size()), py::ssize_t{3}});
            auto view = out.mutable_unchecked<2>();
            for (std::size_t i = 0; i < g.results().size(); ++i) {
              const GraphResult& r = g.results()[i];
              view(static_cast<py::ssize_t>(i), 0) = r.begin == kNever ? -1 : r.begin.count;
              view(static_cast<py::ssize_t>(i), 1) = r.end == kNever ? -1 : r.end.count;
              view(static_cast<py::ssize_t>(i), 2) = r.acked == kNever ? -1 : r.acked.count;
            }
            return out;
          },
          "int64[tasks, 3]: begin, end and acknowledgement in picoseconds; -1: not yet.");

  py::class_<CollectiveTraffic>(m, "CollectiveTraffic")
      .def(py::init([](Network& n, std::vector<NodeId> hosts, const std::string& collective, std::uint64_t bytes,
                       std::uint32_t repeat, std::int64_t start, std::int64_t compute,
                       const std::vector<std::int64_t>& gaps, bool payload, std::uint32_t slots,
                       std::uint32_t slot_payload, std::uint32_t shift, bool await_sends, std::uint32_t job,
                       std::optional<std::int64_t> stop, const std::optional<SumNumbers>& sums, std::uint32_t channels,
                       std::uint32_t first_step, bool whole_steps, std::int64_t step_compute,
                       std::uint32_t renew_every) {
             CollectiveTrafficConfig c;
             c.job = JobId{job};
             c.hosts = std::move(hosts);
             c.collective = collective_named(collective);
             c.bytes = bytes;
             c.repeat = repeat;
             c.start = ps(start);
             if (stop) c.stop = ps(*stop);
             c.compute = ps(compute);
             for (const auto gap : gaps) c.gaps.push_back(ps(gap));
             c.payload = payload;
             c.slots = slots;
             c.slot_payload = slot_payload;
             c.shift = shift;
             c.await_sends = await_sends;
             c.sums = sum_shape(sums);
             c.channels = channels;
             c.first_step = first_step;
             c.whole_steps = whole_steps;
             c.step_compute = ps(step_compute);
             c.renew_every = renew_every;
             return new CollectiveTraffic(n, c);
           }),
           py::keep_alive<1, 2>(), py::arg("network"), py::kw_only(), py::arg("hosts"), py::arg("collective"),
           py::arg("bytes"), py::arg("repeat"), py::arg("start_ps") = 0, py::arg("compute_ps") = 0,
           py::arg("gaps_ps") = std::vector<std::int64_t>{}, py::arg("payload") = false, py::arg("slots") = 8,
           py::arg("slot_payload") = 65536, py::arg("shift") = 0, py::arg("await_sends") = true, py::arg("job") = 0,
           py::arg("stop_ps") = py::none(), py::arg("sums") = py::none(), py::arg("channels") = 1,
           py::arg("first_step") = 0, py::arg("whole_steps") = false, py::arg("step_compute_ps") = 0,
           py::arg("renew_every") = 0, kSumsDoc)
      .def("set_sum_pair", &CollectiveTraffic::set_sum_pair, py::arg("rank"), py::arg("qp"))
      .def("set_queue_pair", &CollectiveTraffic::set_queue_pair, py::arg("rank"), py::arg("peer"), py::arg("qp"),
           py::arg("channel") = 0)
      .def("take_by_step", &CollectiveTraffic::take_by_step, py::arg("rank"), py::arg("peer"), py::arg("pairs"),
           py::arg("channel") = 0,
           "Ring steps from rank to peer take these queue pairs, (number at rank, number at peer), in turn.")
      .def(
          "steps", [](const CollectiveTraffic& t) { return step_rows(t.steps()); },
          "int64[steps, 4]: rank, channel, ring step and when the rank had received it (ps), in the order of time.")
      .def_property_readonly("steps_unlogged", [](const CollectiveTraffic& t) { return t.steps().unlogged(); })
      .def("start", &CollectiveTraffic::start)
      .def_property_readonly("done", &CollectiveTraffic::done)
      .def_property_readonly(
          "ended_ps", [](const CollectiveTraffic& t) { return t.ended().count; },
          "When the last rank was through so far.")
      .def_property_readonly("wrong", &CollectiveTraffic::wrong)
      .def(
          "failures",
          [](const CollectiveTraffic& t) {
            Rows<py::int_, py::int_, py::str> out;
            for (const auto& f : t.failures()) out.append(py::make_tuple(f.rank, f.at.count, f.message));
            return out;
          },
          "[(rank, at_ps, message)] of the ranks whose operation failed, in the order of time.")
      .def(
          "iterations",
          [](const CollectiveTraffic& t, std::size_t since) { return spans_array(spans_from(t.iterations(), since)); },
          py::arg("since") = 0, kSpansDoc);
}

}  // namespace loomnet
