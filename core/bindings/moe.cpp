// Mixtures of experts that train without PyTorch, for Python.
#include <pybind11/functional.h>
#include <pybind11/numpy.h>

#include "bindings/bindings.hpp"
#include "bindings/region_options.hpp"
#include "bindings/spans.hpp"
#include "moe/moe_traffic.hpp"

namespace py = pybind11;

namespace loomnet {
namespace {

using moe::MoeTraffic;
using WayRow = std::tuple<NodeId, NodeId, QpNumber>;
using Counts6 = py::array_t<std::uint32_t, py::array::c_style | py::array::forcecast>;

std::vector<moe::Way> ways(const std::vector<WayRow>& rows) {
  std::vector<moe::Way> found;
  for (const auto& [source, destination, qp] : rows) found.push_back({source, destination, qp});
  return found;
}

moe::GateCounts gate_counts(const Counts6& counts) {
  if (counts.ndim() != 6 || counts.shape(4) != counts.shape(5)) {
    throw py::value_error("moe: gate counts have iterations, micro-batches, regions, layers, experts and experts");
  }
  const auto size = [&](int at) { return static_cast<std::uint32_t>(counts.shape(at)); };
  return {size(0), size(1), size(2), size(3), size(4), {counts.data(), counts.data() + counts.size()}};
}

py::tuple times(const moe::WorkTimes& t) {
  return py::make_tuple(t.waiting.count, t.exchanging.count, t.computing.count);
}

std::unique_ptr<MoeTraffic> make(Network& n, std::uint32_t job, const std::vector<std::uint32_t>& degrees,
                                 std::uint32_t gpus, std::uint32_t micro_batches, std::vector<std::uint32_t> layers,
                                 const Counts6& counts, const py::dict& work, const py::dict& exchange,
                                 std::uint64_t activations, std::uint64_t gradients, std::uint32_t iterations,
                                 std::int64_t start, std::optional<std::int64_t> stop, std::uint32_t message,
                                 unsigned depth) {
  moe::MoeConfig c;
  c.job = JobId{job};
  if (degrees.size() != 4) throw py::value_error("moe: degrees are experts, tensor, stages and replicas");
  c.shape = {degrees[0], degrees[1], degrees[2], degrees[3], gpus, micro_batches, std::move(layers)};
  c.gates = gate_counts(counts);
  c.work.attention = ps(work["attention_ps"].cast<std::int64_t>());
  c.work.experts = ps(work["experts_ps"].cast<std::int64_t>());
  c.work.per_rank = work["per_rank"].cast<std::uint64_t>();
  c.work.local = {work["local_bps"].cast<std::uint64_t>()};
  c.work.direct = work["direct"].cast<bool>();
  c.work.first_dispatch = first_dispatch_named(work["fp_dispatch"].cast<std::string>());
  c.work.repatch = repatch_named(work["repatch"].cast<std::string>());
  c.work.electrical_first = work["eps_first"].cast<bool>();
  c.work.duplex = duplex_named(work["demand"].cast<std::string>());
  c.exchange.alpha = exchange["alpha"].cast<std::uint32_t>();
  c.exchange.split = split_named(exchange["split"].cast<std::string>());
  c.exchange.electrical_first = c.work.electrical_first;
  c.exchange.even = exchange["even"].cast<bool>();
  c.exchange.rates.circuit = exchange["circuit_bps"].cast<double>();
  c.exchange.rates.electrical = exchange["electrical_bps"].cast<double>();
  c.activations = activations;
  c.gradients = gradients;
  c.iterations = iterations;
  c.start = ps(start);
  if (stop) c.stop = ps(*stop);
  c.message = message;
  c.depth = depth;
  return std::make_unique<MoeTraffic>(n, std::move(c));
}

moe::RegionDriver& driver(MoeTraffic& t, std::uint32_t region) {
  moe::RegionDriver* const found = t.region(region).driver();
  if (!found) throw py::value_error("moe: region " + std::to_string(region) + " has no circuits");
  return *found;
}

}  // namespace

void bind_moe(py::module_& m) {
  py::class_<MoeTraffic>(m, "MoeTraffic", "A mixture of experts in training: its regions, stages and replicas.")
      .def(py::init(&make), py::keep_alive<1, 2>(), py::arg("network"), py::kw_only(), py::arg("job"),
           py::arg("degrees"), py::arg("gpus"), py::arg("micro_batches"), py::arg("layers"), py::arg("counts"),
           py::arg("work"), py::arg("exchange"), py::arg("activations"), py::arg("gradients"), py::arg("iterations"),
           py::arg("start_ps"), py::arg("stop_ps"), py::arg("message"), py::arg("depth"),
           "degrees: of expert, tensor, pipeline and data parallelism. layers: of each stage. counts: tokens by "
           "iteration, micro-batch, region, layer, source and destination, each repeated in turn.")
      .def(
          "set_electrical",
          [](MoeTraffic& t, std::uint32_t region, std::uint32_t i, std::uint32_t j, const std::vector<WayRow>& rows) {
            t.region(region).exchange().set_electrical(i, j, ways(rows));
          },
          py::arg("region"), py::arg("from_server"), py::arg("to_server"), py::arg("ways"),
          "ways: (node, node, queue pair) between two servers of a region.")
      .def(
          "set_optical",
          [](MoeTraffic& t, std::uint32_t region, std::uint32_t i, std::uint32_t j, const std::vector<WayRow>& rows,
             const std::vector<PathRow>& fallback) {
            t.region(region).exchange().set_optical(i, j, ways(rows), plane_paths(fallback));
          },
          py::arg("region"), py::arg("from_server"), py::arg("to_server"), py::arg("ways"), py::arg("fallback"))
      .def(
          "set_circuits",
          [](MoeTraffic& t, std::uint32_t region, NodeId panel, const std::vector<std::pair<NodeId, PlanePort>>& nics,
             panel::Port first_port, std::uint32_t nics_of_server, const std::string& rule, const std::string& ties,
             std::uint64_t seed, bool all_dark, std::int64_t drain_limit, std::optional<AssignerFunction> assigner) {
            t.region(region).use_circuits(
                panel,
                region_options({t.config().shape.servers(), t.config().exchange.alpha, nics_of_server, rule, ties, seed,
                                all_dark, drain_limit, first_port},
                               std::move(assigner)),
                nic_ports(nics));
          },
          py::arg("region"), py::arg("panel"), py::arg("nics"), py::kw_only(), py::arg("first_port"),
          py::arg("nics_of_server"), py::arg("rule"), py::arg("ties"), py::arg("seed"), py::arg("all_dark"),
          py::arg("drain_limit_ps"), py::arg("assigner") = py::none(),
          "The region's circuits are patched at this panel. nics: (node, port) of each server's optical NICs, in "
          "the order of the panel's ports from first_port on.")
      .def(
          "set_spare",
          [](MoeTraffic& t, std::uint32_t region, std::uint32_t server, std::uint32_t gpu) {
            t.region(region).exchange().set_wired(server, gpu);
          },
          py::arg("region"), py::arg("server"), py::arg("gpu"),
          "A spare does the work of this GPU: what it exchanges with other servers goes by wires alone.")
      .def(
          "set_rotor",
          [](MoeTraffic& t, std::uint32_t region, NodeId panel, const std::vector<std::pair<NodeId, PlanePort>>& nics,
             panel::Port first_port, std::int64_t slot, std::uint64_t slot_bytes) {
            std::vector<moe::NicPort> ports;
            for (const auto& [host, port] : nics) ports.push_back({host, port});
            t.region(region).use_rotor(
                panel, {t.config().shape.servers(), t.config().exchange.alpha, first_port, ps(slot), slot_bytes},
                std::move(ports));
          },
          py::arg("region"), py::arg("panel"), py::arg("nics"), py::kw_only(), py::arg("first_port"),
          py::arg("slot_ps"), py::arg("slot_bytes"),
          "The region's circuits rotate while it exchanges. slot_bytes: that a circuit carries in a slot.")
      .def(
          "turns",
          [](MoeTraffic& t, std::uint32_t region) {
            const moe::Rotor* const rotor = t.region(region).rotor();
            if (!rotor) throw py::value_error("moe: circuits of region " + std::to_string(region) + " do not rotate");
            return py::make_tuple(rotor->turns(), rotor->stretched().count);
          },
          py::arg("region"), "Turns that were played, and the picoseconds by which they were longer than their slots.")
      .def(
          "set_stage_ways",
          [](MoeTraffic& t, std::uint32_t region, std::uint32_t server, bool backward,
             const std::vector<WayRow>& rows) { t.set_stage_ways(region, server, backward, ways(rows)); },
          py::arg("region"), py::arg("server"), py::arg("backward"), py::arg("ways"))
      .def(
          "set_ring_ways",
          [](MoeTraffic& t, std::uint32_t region, std::uint32_t server, const std::vector<WayRow>& rows) {
            t.set_ring_ways(region, server, ways(rows));
          },
          py::arg("region"), py::arg("server"), py::arg("ways"))
      .def("start", &MoeTraffic::start)
      .def_property_readonly("done", &MoeTraffic::done)
      .def_property_readonly(
          "ended_ps", [](const MoeTraffic& t) { return t.ended().count; }, "When it was done.")
      .def(
          "spans_of_iterations",
          [](const MoeTraffic& t, std::size_t since) { return spans_array(spans_from(t.iterations(), since)); },
          py::arg("since") = 0, kSpansDoc)
      .def(
          "iterations",
          [](const MoeTraffic& t) {
            Rows<py::int_, py::int_, py::int_, py::object, py::object, py::int_, py::int_> out;
            for (const auto& i : t.iterations()) {
              out.append(py::make_tuple(i.begin.count, i.end.count, i.exposed.count, times(i.mean), times(i.most),
                                        i.optical, i.electrical));
            }
            return out;
          },
          "[(begin_ps, end_ps, exposed_ps, mean, most, optical bytes, electrical bytes)]; exposed_ps: waits for circuits in "
          "the iteration's longest chain of work; mean and most over regions of the picoseconds waiting for circuits, "
          "exchanging and computing.")
      .def(
          "failures",
          [](const MoeTraffic& t) {
            Rows<py::int_, py::int_, py::int_, py::str> out;
            for (const auto& f : t.failures()) out.append(py::make_tuple(f.region, f.server, f.at.count, f.message));
            return out;
          },
          "[(region, server, at_ps, message)]")
      .def("driver", &driver, py::return_value_policy::reference_internal, py::arg("region"),
           "The region's controller. Raises ValueError where the region has no circuits.")
      .def(
          "keep_spans",
          [](MoeTraffic& t, std::uint32_t region, std::size_t most) { t.region(region).keep_spans(most); },
          py::arg("region"), py::arg("most"))
      .def(
          "spans",
          [](MoeTraffic& t, std::uint32_t region) {
            static constexpr const char* kNames[] = {"attention", "dispatch", "experts", "combine", "blocked"};
            Rows<py::str, py::bool_, py::int_, py::int_, py::int_, py::int_, py::int_> out;
            for (const auto& s : t.region(region).spans()) {
              out.append(py::make_tuple(kNames[static_cast<std::size_t>(s.kind)], s.backward, s.layer, s.micro_batch,
                                        s.iteration, s.begin.count, s.end.count));
            }
            return out;
          },
          py::arg("region"), "[(step, backward, layer, micro-batch, iteration, begin_ps, end_ps)] of what is kept.");
}

}  // namespace loomnet
