// Optical circuit switches and the assignment of circuits, for Python.
#include <algorithm>
#include <exception>

#include "bindings/bindings.hpp"
#include "circuits/assignment.hpp"
#include "circuits/copilot.hpp"
#include "circuits/demand.hpp"
#include "circuits/nic_map.hpp"

namespace py = pybind11;

namespace loomnet {
namespace {

using Circuit = std::pair<std::uint32_t, std::uint32_t>;

panel::Carrier carrier_named(const std::string& name) {
  if (name == "both") return panel::Carrier::both;
  if (name == "rx") return panel::Carrier::rx;
  if (name == "none") return panel::Carrier::none;
  throw py::value_error("panel: carrier \"" + name + "\" is none of both, rx, none");
}

panel::Mode mode_named(const std::string& name) {
  if (name == "update") return panel::Mode::update;
  if (name == "safe") return panel::Mode::safe;
  if (name == "overwrite") return panel::Mode::overwrite;
  throw py::value_error("panel: mode \"" + name + "\" is none of update, safe, overwrite");
}

NodeId add_panel(Network& network, const std::vector<std::int32_t>& circuits, const std::string& profile,
                 const std::string& carrier, bool kernel, std::optional<std::int64_t> dark) {
  constexpr std::uint64_t kPurpose = 0xfa7e1;
  panel::Profile switching = panel::profile(profile);
  if (dark) switching.dark = {.low_ms = static_cast<double>(*dark) / 1e9};
  return network.add_panel(circuits,
                           {.profile = switching,
                            .carrier = carrier_named(carrier),
                            .seed = hash_key(network.seed(), network.nodes(), kPurpose)},
                           kernel);
}

struct PanelEventRow {
  std::int64_t at_ps;
  panel::Port port;
  std::uint8_t side;   // 0: where light comes in, 1: where it leaves, 2: the host's carrier
  std::uint8_t value;  // panel::Status, or whether there is carrier
};

std::pair<py::array, std::uint64_t> panel_events(const Network& network, NodeId node) {
  const PanelNode* panel = network.panel(node);
  if (!panel) throw py::value_error("panel_events: node " + std::to_string(node) + " is no panel");
  py::array_t<PanelEventRow> rows(static_cast<py::ssize_t>(panel->events().kept.size()));
  PanelEventRow* at = rows.mutable_data();
  for (const panel::DeviceEvent& event : panel->events().kept) {
    const bool carrier = event.kind == panel::DeviceEvent::Kind::carrier;
    *at++ = {event.at.count, event.port.port, static_cast<std::uint8_t>(carrier ? 2 : event.port.out), event.value};
  }
  return {std::move(rows), panel->events().left_out};
}

struct PanelPatchRow {
  std::int64_t at_ps;
  panel::Port port;
  std::int32_t peer;
};

py::array panel_patches(const Network& network, NodeId node) {
  const PanelNode* panel = network.panel(node);
  if (!panel) throw py::value_error("panel_patches: node " + std::to_string(node) + " is no panel");
  const std::vector<panel::Patch>& patches = panel->device().patches();
  py::array_t<PanelPatchRow> rows(static_cast<py::ssize_t>(patches.size()));
  PanelPatchRow* at = rows.mutable_data();
  for (const panel::Patch& one : patches) *at++ = {one.at.count, one.ingress, one.peer};
  return std::move(rows);
}

std::vector<std::string> panel_profiles() {
  std::vector<std::string> names;
  for (const panel::Profile& one : panel::profiles()) names.emplace_back(one.name);
  return names;
}

std::pair<std::vector<std::uint32_t>, std::vector<Circuit>> assign(const std::vector<std::uint64_t>& demand,
                                                                   const std::vector<std::uint32_t>& free,
                                                                   const std::string& rule, std::uint64_t seed,
                                                                   const std::string& ties) {
  circuits::Assignment found =
      circuits::assign(demand, free, circuits::rule_named(rule), seed, circuits::ties_named(ties));
  return {std::move(found.circuits), std::move(found.order)};
}

std::vector<std::int32_t> map_ports(const std::vector<std::uint32_t>& wanted, const std::vector<std::uint64_t>& demand,
                                    std::uint32_t nics, std::uint32_t alpha,
                                    const std::vector<std::int32_t>& previous) {
  circuits::Assignment assignment;
  while (assignment.servers * assignment.servers < wanted.size()) ++assignment.servers;
  assignment.circuits = wanted;
  const auto servers = static_cast<std::uint32_t>(assignment.servers);
  circuits::PortMap before;
  if (!previous.empty()) before = {servers, alpha, previous};
  return circuits::map_ports(assignment, demand, circuits::server_nics(nics, alpha), before).peer;
}

std::vector<std::uint64_t> pair_demand(std::size_t experts, std::vector<std::uint64_t> counts,
                                       std::size_t tensor_parallel, std::size_t gpus, const std::string& duplex) {
  if (duplex != "sum" && duplex != "max") {
    throw py::value_error("demand: \"" + duplex + "\" is neither sum nor max");
  }
  const circuits::Placement placement{tensor_parallel, gpus};
  const circuits::Tokens tokens = circuits::tokens_of(experts, std::move(counts));
  return circuits::pair_demand(circuits::server_tokens(tokens, placement), placement.servers(experts),
                               duplex == "sum" ? circuits::Duplex::sum : circuits::Duplex::max);
}

}  // namespace

void bind_panels(py::module_& m, py::class_<Network>& network) {
  PYBIND11_NUMPY_DTYPE(PanelEventRow, at_ps, port, side, value);
  PYBIND11_NUMPY_DTYPE(PanelPatchRow, at_ps, port, peer);
  bind_panel_device(m);
  network
      .def("add_panel", &add_panel, py::arg("circuits"), py::arg("profile") = "ideal", py::arg("carrier") = "both",
           py::arg("kernel") = false, py::arg("dark_ps") = py::none(),
           "An optical circuit switch. circuits: of each port the port that it is joined to long before the "
           "run, -1 for none; its egress links have rate 0. dark_ps: in place of the profile's.")
      .def("panel_events", &panel_events, py::arg("panel"),
           "What has happened to a panel's ports so far, a numpy structured array, and how many more events there "
           "were than are kept. at_ps; port; side: 0 of the port where light comes in, 1 where it leaves, 2 of the "
           "host's carrier; value: 0 blocked, 1 tuning, 2 tuned, 3 failed, or whether there is carrier.")
      .def("panel_patches", &panel_patches, py::arg("panel"),
           "Cross-connects of a panel over time, a numpy structured array, oldest first; those of before the run "
           "come first. at_ps; port: where light comes in; peer: where it leaves from then on, -1: nowhere.")
      .def(
          "change_panel",
          [](Network& n, NodeId node, const std::vector<std::pair<panel::Port, panel::Port>>& remove,
             const std::vector<std::pair<panel::Port, panel::Port>>& add, const std::string& mode) {
            const auto connects = [](const auto& pairs) {
              std::vector<panel::CrossConnect> found;
              for (const auto& [a, b] : pairs) found.push_back({a, b});
              return found;
            };
            std::uint64_t generation = 0;
            n.operate(node, [&](panel::PanelDevice& device, Picoseconds now) {
              generation = device.change(connects(remove), connects(add), mode_named(mode), now);
            });
            return generation;
          },
          py::arg("panel"), py::arg("remove"), py::arg("add"), py::arg("mode") = "update",
          "Removes and adds simplex cross-connects (ingress, egress) as one generation, whose number is "
          "returned; ports from 0. mode: update, safe or overwrite.")
      .def(
          "operate",
          [](Network& n, NodeId node, const py::function& request) {
            py::object result = py::none();
            std::exception_ptr fault;  // what was changed before it is shown all the same
            n.operate(node, [&](panel::PanelDevice& device, Picoseconds now) {
              try {
                result = request(py::cast(device, py::return_value_policy::reference), now.count);
              } catch (...) {
                fault = std::current_exception();
              }
            });
            if (fault) std::rethrow_exception(fault);
            return result;
          },
          py::arg("panel"), py::arg("request"),
          "Calls request(device, now_ps) with a panel's device, lets the packets and hosts see what it has "
          "changed, and returns its result. The device is the panel's own: it must not be kept.")
      .def(
          "cross_connects",
          [](const Network& n, NodeId node) {
            const PanelNode* panel = n.panel(node);
            if (!panel) throw py::value_error("cross_connects: node " + std::to_string(node) + " is no panel");
            std::vector<std::pair<panel::Port, panel::Port>> found;
            for (const auto& [a, b] : panel->device().cross_connects()) found.emplace_back(a, b);
            return found;
          },
          py::arg("panel"), "Simplex cross-connects (ingress, egress) of a panel, by ingress.")
      .def("set_circuits", &Network::set_circuits, py::arg("panel"), py::arg("circuits"),
           "The panel patches these circuits now; hosts see their carriers go and, with the light, come.");
  m.def("panel_profiles", &panel_profiles, "Names of the panels whose switching times are known.");
  m.def("assign_circuits", &assign, py::arg("demand"), py::arg("free"), py::arg("rule"), py::arg("seed") = 0,
        py::arg("ties") = "free",
        "Circuits of each pair of servers, row by row, and the pairs as they were granted. demand: row by row.");
  m.def("map_ports", &map_ports, py::arg("circuits"), py::arg("demand"), py::arg("nics"), py::arg("alpha"),
        py::arg("previous") = std::vector<std::int32_t>{},
        "Of each of the panel's ports, server by server, the port that it is joined to, -1: none.");
  m.def("pair_demand", &pair_demand, py::arg("experts"), py::arg("tokens"), py::arg("tensor_parallel"),
        py::arg("gpus_per_server"), py::arg("duplex") = "sum",
        "What pairs of servers exchange, row by row, in tokens' parts on one GPU.");
  using circuits::Copilot;
  py::class_<Copilot>(m, "Copilot", "Predicts a layer's expert loads from those of the layer before it.")
      .def(py::init([](std::size_t experts, std::size_t records, double fading, std::size_t most_steps,
                       double tolerance) { return Copilot(experts, {records, fading, most_steps, tolerance}); }),
           py::arg("experts"), py::kw_only(), py::arg("records") = 16, py::arg("fading") = 0.8,
           py::arg("most_steps") = 3000, py::arg("tolerance") = 1e-8)
      .def(
          "record",
          [](Copilot& c, const std::vector<double>& before, const std::vector<double>& loads) {
            c.record(before, loads);
          },
          py::arg("before"), py::arg("loads"))
      .def("fit", &Copilot::fit, "Returns the steps that were taken.")
      .def(
          "predict", [](const Copilot& c, const std::vector<double>& before) { return c.predict(before); },
          py::arg("before"), "Shares of the experts.")
      .def_property_readonly(
          "matrix", [](const Copilot& c) { return std::vector<double>(c.matrix().begin(), c.matrix().end()); },
          "By rows: to * experts + from.");
}

}  // namespace loomnet
