// Regions of real ranks whose circuits are patched, for Python.
#include <pybind11/functional.h>
#include <pybind11/numpy.h>

#include "bindings/bindings.hpp"
#include "bindings/region_options.hpp"
#include "circuits/messages.hpp"
#include "circuits/split.hpp"
#include "moe/rank_region.hpp"

namespace py = pybind11;

namespace loomnet {
namespace {

using moe::RankRegion;
using PairRow = std::tuple<std::uint32_t, std::uint32_t, NodeId, QpNumber, std::uint32_t, std::vector<PathRow>>;

py::bytes bytes_of(const std::vector<std::uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::uint8_t> span_of(std::string_view bytes) {
  return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
}

std::unique_ptr<RankRegion> make(Network& n, std::uint16_t region, std::vector<RankBridge*> ranks,
                                 std::vector<std::uint32_t> server_of, const std::string& repatch,
                                 const std::string& first_dispatch, const std::string& demand, const std::string& split,
                                 double circuit, double electrical, std::int64_t latency) {
  return std::make_unique<RankRegion>(n,
                                      moe::RankRegionOptions{region,
                                                             std::move(server_of),
                                                             repatch_named(repatch),
                                                             {split_named(split), {circuit, electrical}},
                                                             first_dispatch_named(first_dispatch),
                                                             duplex_named(demand),
                                                             ps(latency)},
                                      std::move(ranks));
}

}  // namespace

void bind_rank_region(py::module_& m) {
  py::class_<RankRegion>(m, "RankRegion", "A region whose servers run real ranks, and its circuits.")
      .def(py::init(&make), py::keep_alive<1, 2>(), py::keep_alive<1, 4>(), py::arg("network"), py::kw_only(),
           py::arg("region"), py::arg("ranks"), py::arg("server_of"), py::arg("repatch"), py::arg("fp_dispatch"),
           py::arg("demand"), py::arg("split"), py::arg("circuit_bps"), py::arg("electrical_bps"),
           py::arg("latency_ps"), "server_of: of each of the ranks.")
      .def(
          "set_circuits",
          [](RankRegion& r, NodeId panel, const std::vector<std::pair<NodeId, PlanePort>>& nics, panel::Port first_port,
             std::uint32_t servers, std::uint32_t alpha, std::uint32_t nics_of_server, const std::string& rule,
             const std::string& ties, std::uint64_t seed, bool all_dark, std::int64_t drain_limit,
             std::optional<AssignerFunction> assigner, const std::vector<PairRow>& pairs, std::int64_t crossing) {
            std::vector<moe::LightQueuePair> light;
            for (const auto& [from, to, host, qp, number, wires] : pairs) {
              light.push_back({from, to, host, qp, number, plane_paths(wires)});
            }
            r.use_circuits(
                panel,
                region_options({servers, alpha, nics_of_server, rule, ties, seed, all_dark, drain_limit, first_port},
                               std::move(assigner)),
                nic_ports(nics), std::move(light), ps(crossing));
          },
          py::arg("panel"), py::arg("nics"), py::kw_only(), py::arg("first_port"), py::arg("servers"), py::arg("alpha"),
          py::arg("nics_of_server"), py::arg("rule"), py::arg("ties"), py::arg("seed"), py::arg("all_dark"),
          py::arg("drain_limit_ps"), py::arg("assigner") = py::none(), py::arg("pairs"), py::arg("crossing_ps"),
          "nics: (node, port) of each server's optical NICs, in the order of the panel's ports from first_port on. "
          "pairs: (from server, to server, node, queue pair, its number, its paths by wires) of what goes by light. "
          "crossing_ps: the longest that a packet is on a circuit.")
      .def_property_readonly("driver", &RankRegion::driver, py::return_value_policy::reference_internal,
                             "Its controller; None without circuits.")
      .def(
          "rounds",
          [](const RankRegion& r) {
            Rows<py::int_, py::int_, py::int_, py::int_, py::int_, py::int_, py::list> out;
            for (const auto& each : r.rounds()) {
              out.append(py::make_tuple(each.key.iteration, each.key.layer, each.key.micro_batch, each.phase,
                                        each.asked.count, each.answered.count, each.tokens));
            }
            return out;
          },
          "[(iteration, layer, micro-batch, phase, asked_ps, answered_ps, tokens)]; tokens by source and destination "
          "rank, of forward dispatches.")
      .def_property_readonly("rounds_left_out", &RankRegion::rounds_left_out, "Rounds beyond those that are kept.");

  m.def(
      "demand_report",
      [](int phase, std::uint32_t iteration, std::uint16_t layer, std::uint16_t micro_batch, std::uint16_t region,
         std::uint16_t source, std::uint32_t token_bytes, std::vector<std::uint32_t> tokens) {
        return bytes_of(circuits::DemandReport{static_cast<std::uint8_t>(phase), layer, iteration, micro_batch, region,
                                               source, token_bytes, std::move(tokens)}
                            .serialize());
      },
      py::kw_only(), py::arg("phase"), py::arg("iteration"), py::arg("layer"), py::arg("micro_batch"),
      py::arg("region"), py::arg("source"), py::arg("token_bytes"), py::arg("tokens"),
      "A rank's row of its gate's counts, as RankSession.report() sends it.");
  m.def(
      "weighted_seconds",
      [](std::uint32_t servers, const std::vector<std::uint64_t>& bytes, const std::vector<std::uint32_t>& circuits,
         double circuit, double electrical) {
        const std::size_t pairs = std::size_t{servers} * servers;
        if (bytes.size() != pairs || circuits.size() != pairs) {
          throw py::value_error("weighted_seconds: bytes and circuits of servers x servers pairs");
        }
        return circuits::weighted_seconds(servers, bytes, circuits, {circuit, electrical});
      },
      py::arg("servers"), py::arg("bytes"), py::arg("circuits"), py::arg("circuit_bps"), py::arg("electrical_bps"),
      "Seconds of an exchange whose pairs use circuits and electrical ports so that all end together; by pairs "
      "i * servers + j.");
  m.def(
      "exchange_seconds",
      [](const std::string& split, std::uint32_t servers, const std::vector<std::uint64_t>& bytes,
         const std::vector<std::uint32_t>& circuits, double circuit, double electrical) {
        const std::size_t pairs = std::size_t{servers} * servers;
        if (bytes.size() != pairs || circuits.size() != pairs) {
          throw py::value_error("exchange_seconds: bytes and circuits of servers x servers pairs");
        }
        return circuits::exchange_seconds(split_named(split), servers, bytes, circuits, {circuit, electrical});
      },
      py::arg("split"), py::arg("servers"), py::arg("bytes"), py::arg("circuits"), py::arg("circuit_bps"),
      py::arg("electrical_bps"), "Seconds of an exchange with this split where no flow meets another by a hash.");
  m.def(
      "circuit_map",
      [](const py::bytes& bytes) {
        const auto found = circuits::CircuitMap::parse(span_of(bytes));
        if (!found) throw py::value_error("circuit_map: the controller's answer is malformed");
        Rows<py::int_, py::int_, py::int_, py::int_, py::bool_> circuits;
        for (const auto& c : found->circuits) circuits.append(py::make_tuple(c.i, c.j, c.nic_i, c.nic_j, c.unchanged));
        return py::make_tuple(found->generation, found->usable_ns, circuits);
      },
      py::arg("answer"),
      "(generation, usable_ns, [(server i, server j, optical NIC of i, of j, unchanged)]) of the answer to a report.");
}

}  // namespace loomnet
