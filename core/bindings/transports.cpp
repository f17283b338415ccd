// The register of transports for Python, and the state of their senders in arrays.
#include "bindings/transports.hpp"

#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <algorithm>

#include "transport/factory.hpp"

namespace py = pybind11;

namespace loomnet {
namespace {

// A number, a string, a truth value or None, as Python and numpy have them.
OptionValue option_value(const std::string& what, py::handle name, py::handle value) {
  if (value.is_none()) return std::monostate{};
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>();
  if (py::isinstance<py::float_>(value)) return value.cast<double>();
  try {
    if (py::isinstance<py::str>(value)) return value.cast<std::string>();
    if (PyIndex_Check(value.ptr())) {
      const py::int_ whole(py::reinterpret_borrow<py::object>(value));
      if (PyObject_RichCompareBool(whole.ptr(), py::int_(0).ptr(), Py_LT) == 1) {
        return whole.cast<std::int64_t>();
      }
      const auto positive = whole.cast<std::uint64_t>();
      if (positive > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        return positive;
      }
      return static_cast<std::int64_t>(positive);
    }
    if (PyNumber_Check(value.ptr())) {  // of numpy: bool_, float32
      const std::string type = py::str(py::type::of(value).attr("__name__"));
      if (type.starts_with("bool")) return value.attr("__bool__")().cast<bool>();
      return py::float_(py::reinterpret_borrow<py::object>(value)).cast<double>();
    }
  } catch (const py::cast_error&) {  // beyond 64 bits, or no text in UTF-8
  } catch (const py::error_already_set&) {
  }
  throw py::value_error(what + ": " + std::string(py::str(name)) + " has the wrong type");
}

// The sender of a queue pair on a host. `transport`: its name, or empty for the one that carries the queue
// pair; of a queue pair that is not connected the host's first, which refuses it.
const Transport& transport_of(Network& network, NodeId host, QpNumber qp, const std::string& transport) {
  Nic& nic = network.nic(host);
  const Transport* found = nic.transport(transport);
  if (transport.empty() && !(found = nic.clients().transport_of(qp))) found = nic.transport();
  if (!found) {
    throw std::invalid_argument("transport state: the host has no transport" +
                                (transport.empty() ? "" : " " + transport));
  }
  return *found;
}

using State = py::typing::Dict<py::str, py::float_>;
State transport_state(Network& network, NodeId host, QpNumber qp, std::size_t part, const std::string& transport) {
  struct Rows final : Observer {
    void value(std::string_view name, double value) override { out[py::str(name.data(), name.size())] = value; }
    State out;
  } rows;
  transport_of(network, host, qp, transport).state(qp, part, rows);
  return rows.out;
}

}  // namespace

OptionValues option_values(const std::string& what, const py::dict& options) {
  OptionValues out;
  for (const auto& [name, value] : options) {
    try {
      if (py::isinstance<py::str>(name)) {
        out.emplace_back(name.cast<std::string>(), option_value(what, name, value));
        continue;
      }
    } catch (const py::cast_error&) {  // no text in UTF-8
    }
    throw py::value_error(what + ": an option's name must be a string");
  }
  return out;
}

py::object option_object(const OptionValue& value) {
  return std::visit(
      [](const auto& v) -> py::object {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::monostate>) {
          return py::none();
        } else {
          return py::cast(v);
        }
      },
      value);
}

py::list option_rows(const std::vector<OptionInfo>& options) {
  py::list rows;
  for (const OptionInfo& o : options) {
    py::dict row;
    row["name"] = o.name;
    row["type"] = o.type;
    row["unit"] = o.unit;
    row["default"] = option_object(o.standard);
    row["range"] = o.range;
    row["choices"] = o.choices;
    row["doc"] = o.doc;
    rows.append(row);
  }
  return rows;
}

py::array_t<double> flow_probe_array(const FlowProbe& probe, const std::vector<double>& values) {
  py::array_t<double> out(
      {static_cast<py::ssize_t>(probe.rows().size()), static_cast<py::ssize_t>(probe.names().size())});
  std::copy(values.begin(), values.end(), out.mutable_data());
  return out;
}

namespace {

using Row = std::pair<NodeId, QpNumber>;

void add_senders(FlowProbe& probe, Network& network, const std::vector<Row>& rows) {
  std::vector<FlowProbe::Sender> senders;
  for (const auto& [host, qp] : rows) senders.push_back({&transport_of(network, host, qp, ""), qp});
  probe.add(senders);  // asks each for its names
  raise_plugin_fault();
}

}  // namespace

void bind_transports(py::module_& m, py::class_<Network>& network) {
  transports();  // fills the register of packets' labels too
  m.def(
      "transports",
      [] {
        py::dict all;
        for (const TransportKind& kind : transports().kinds()) {
          py::dict row;
          row["options"] = option_rows(kind.options);
          py::list controls;
          if (kind.has_congestion_control) {
            for (const CongestionKind& control : congestion_controls()) {
              if ((control.needs & ~kind.gives) == 0) controls.append(control.name);
            }
          }
          row["congestion_controls"] = controls;
          py::dict presets;
          for (const OptionPreset& preset : kind.presets) {
            py::dict values;
            for (const auto& [option, value] : preset.values) values[py::str(option)] = option_object(value);
            presets[py::str(preset.name)] = values;
          }
          row["presets"] = presets;
          all[py::str(kind.name)] = row;
        }
        return all;
      },
      "Every transport of the engine by name: its options (rows of name, type, unit, default, range, "
      "choices, doc), the congestion controls that it can run, and what its presets say of options.");

  network
      .def(
          "set_transport",
          [](Network& n, NodeId host, const std::string& name, const py::dict& options) {
            const TransportKind& kind = transports().kind(name);
            Nic& nic = n.nic(host);
            nic.set_transport(kind.make({nic.sink(), nic.ports(), n.seed()}, option_values(name, options)),
                              transports().number(name));
            raise_plugin_fault();
          },
          py::arg("host"), py::arg("name"), py::arg("options"))
      .def("transport_state", &transport_state, py::arg("host"), py::arg("qp"), py::arg("part") = 0,
           py::arg("transport") = "",
           "What the sender of a queue pair holds now, by name: bytes, picoseconds, bits per second.");

  m.def(
      "trim_dscps",
      [](const std::string& name) {
        const TransportKind& kind = transports().kind(name);
        return std::pair(kind.trim_dscp, kind.trim_dscp_last_hop);
      },
      py::arg("transport"),
      "Code points that switches write into packets of this transport that they trim: in the fabric, and at the last "
      "hop. (0, 0): they trim none.");

  py::class_<FlowProbe>(m, "FlowProbe",
                        "The state of many senders, taken at once. A row per part of each queue pair "
                        "(RoCE: one per plane), a column per name; where a sender has no value of that "
                        "name: NaN.")
      .def(py::init([](Network& network, const std::vector<Row>& rows) {
             auto probe = std::make_unique<FlowProbe>();
             add_senders(*probe, network, rows);
             return probe;
           }),
           py::arg("network"), py::arg("queue_pairs"), py::keep_alive<1, 2>())
      .def("add", &add_senders, py::arg("network"), py::arg("queue_pairs"), py::keep_alive<1, 2>(),
           "Senders whose rows follow those that are there; names may come behind the known ones.")
      .def_property_readonly("names", &FlowProbe::names)
      .def(
          "rows",
          [](const FlowProbe& probe, std::size_t since) {
            std::vector<std::pair<std::size_t, std::size_t>> out;
            for (std::size_t i = since; i < probe.rows().size(); ++i) {
              out.emplace_back(probe.rows()[i].sender, probe.rows()[i].part);
            }
            return out;
          },
          py::arg("since") = 0, "Of each row from number `since` on: number of the queue pair, and part.")
      .def(
          "take",
          [](const FlowProbe& probe) {
            std::vector<double> values(probe.rows().size() * probe.names().size());
            probe.take(values);
            raise_plugin_fault();
            return flow_probe_array(probe, values);
          },
          "An array of float64, rows by names.");
}

}  // namespace loomnet
