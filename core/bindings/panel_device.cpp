// The state of an optical circuit switch, for Python: what its control interfaces act on.
#include <cmath>

#include "bindings/bindings.hpp"
#include "panel/panel_device.hpp"

namespace py = pybind11;

namespace loomnet {
namespace {

using panel::PanelDevice;
using Pair = std::pair<panel::Port, panel::Port>;
using Pairs = std::vector<Pair>;

// A name's place in a list of them. Throws std::invalid_argument, which names those that there are.
template <std::size_t N>
std::size_t place(const char* const (&names)[N], const std::string& name, const char* what) {
  std::string known;
  for (std::size_t i = 0; i < N; ++i) {
    if (name == names[i]) return i;
    known += (i ? ", " : "") + std::string(names[i]);
  }
  throw py::value_error("panel: " + std::string(what) + " \"" + name + "\" is none of " + known);
}

constexpr const char* kStatus[] = {"blocked", "tuning", "tuned", "failed"};
constexpr const char* kOverride[] = {"powered_off", "normal", "force_blocked"};
constexpr const char* kMode[] = {"update", "safe", "overwrite"};
constexpr const char* kCarrier[] = {"both", "rx", "none"};

std::vector<panel::CrossConnect> pairs_of(const Pairs& pairs) {
  std::vector<panel::CrossConnect> found;
  for (const auto& [a, b] : pairs) found.push_back({a, b});
  return found;
}

PanelDevice made(std::size_t count, const std::string& profile, const std::string& carrier, std::uint64_t seed,
                 bool dark_by_port) {
  return PanelDevice(count, {.profile = panel::profile(profile),
                             .carrier = static_cast<panel::Carrier>(place(kCarrier, carrier, "carrier")),
                             .seed = seed,
                             .dark_by_port = dark_by_port});
}

using Event = std::tuple<std::string, std::int64_t, panel::Port, bool, std::string, std::uint64_t>;

std::vector<Event> events(PanelDevice& device) {
  std::vector<Event> found;
  for (const panel::DeviceEvent& one : device.take_events()) {
    const bool status = one.kind == panel::DeviceEvent::Kind::status;
    const char* value = status ? kStatus[one.value] : one.value ? "up" : "down";
    found.emplace_back(status ? "status" : "carrier", one.at.count, one.port.port, one.port.out, value, one.generation);
  }
  return found;
}

std::optional<double> power(const PanelDevice& device, panel::Port egress, std::int64_t now) {
  const double found = device.power_dbm(egress, ps(now));
  if (std::isinf(found)) return {};
  return found;
}

}  // namespace

void bind_panel_device(py::module_& m) {
  py::class_<PanelDevice>(m, "PanelDevice",
                          "The state of an optical circuit switch. Ports are numbered from 0; `out` is the "
                          "simplex port that light leaves by, B. Requests take the time, and are applied "
                          "whole or, where they raise ValueError, not at all.")
      .def(py::init(&made), py::arg("ports"), py::arg("profile") = "sim25", py::arg("carrier") = "both",
           py::arg("seed") = 1, py::arg("dark_by_port") = false)
      .def(
          "change",
          [](PanelDevice& d, const Pairs& remove, const Pairs& add, const std::string& mode, std::int64_t now,
             const std::vector<panel::Port>& all_dark) {
            return d.change(pairs_of(remove), pairs_of(add), static_cast<panel::Mode>(place(kMode, mode, "mode")),
                            ps(now), all_dark);
          },
          py::arg("remove"), py::arg("add"), py::arg("mode"), py::arg("now_ps"),
          py::arg("all_dark") = std::vector<panel::Port>{},
          "Removes and adds cross-connects (ingress, egress) as one generation, whose number is returned. "
          "mode: update, safe or overwrite.")
      .def(
          "set_override",
          [](PanelDevice& d, panel::Port port, bool out, const std::string& value, std::int64_t now) {
            d.set_override({port, out}, static_cast<panel::Override>(place(kOverride, value, "override")), ps(now));
          },
          py::arg("port"), py::arg("out"), py::arg("value"), py::arg("now_ps"),
          "value: normal, force_blocked or powered_off.")
      .def(
          "set_shutter",
          [](PanelDevice& d, panel::Port port, bool out, bool closed, std::int64_t now) {
            d.set_shutter({port, out}, closed, ps(now));
          },
          py::arg("port"), py::arg("out"), py::arg("closed"), py::arg("now_ps"))
      .def(
          "set_failed",
          [](PanelDevice& d, panel::Port port, bool out, bool failed, std::int64_t now) {
            d.set_failed({port, out}, failed, ps(now));
          },
          py::arg("port"), py::arg("out"), py::arg("failed"), py::arg("now_ps"))
      .def(
          "set_attenuation",
          [](PanelDevice& d, panel::Port egress, double db, std::int64_t now) {
            d.set_attenuation(egress, db, ps(now));
          },
          py::arg("egress"), py::arg("db"), py::arg("now_ps"))
      .def(
          "set_transmit_power",
          [](PanelDevice& d, panel::Port ingress, double dbm, std::int64_t now) {
            d.set_transmit_power(ingress, dbm, ps(now));
          },
          py::arg("ingress"), py::arg("dbm"), py::arg("now_ps"))
      .def(
          "next_time",
          [](const PanelDevice& d) -> std::optional<std::int64_t> {
            if (d.next_time() == kNever) return {};
            return d.next_time().count;
          },
          "When a status or a carrier changes next by itself.")
      .def(
          "advance", [](PanelDevice& d, std::int64_t now) { d.advance(ps(now)); }, py::arg("now_ps"))
      .def("take_events", &events, "Since the last call: (status or carrier, at_ps, port, out, value, generation).")
      .def_property_readonly("ports", &PanelDevice::ports)
      .def_property_readonly("generation", &PanelDevice::generation)
      .def(
          "cross_connects",
          [](const PanelDevice& d) {
            Pairs found;
            for (const auto& [a, b] : d.cross_connects()) found.emplace_back(a, b);
            return found;
          },
          "(ingress, egress), by ingress.")
      .def(
          "target",
          [](const PanelDevice& d, panel::Port port, bool out) -> std::optional<std::int32_t> {
            const std::int32_t found = d.target({port, out});
            if (found < 0) return {};
            return found;
          },
          py::arg("port"), py::arg("out"), "The port at the cross-connect's other end.")
      .def(
          "status",
          [](const PanelDevice& d, panel::Port port, bool out, std::int64_t now) {
            return kStatus[static_cast<std::size_t>(d.status({port, out}, ps(now)))];
          },
          py::arg("port"), py::arg("out"), py::arg("now_ps"), "blocked, tuning, tuned or failed.")
      .def(
          "override_of",
          [](const PanelDevice& d, panel::Port port, bool out) {
            return kOverride[static_cast<std::size_t>(d.override_of({port, out}))];
          },
          py::arg("port"), py::arg("out"))
      .def(
          "shutter_closed",
          [](const PanelDevice& d, panel::Port port, bool out) { return d.shutter_closed({port, out}); },
          py::arg("port"), py::arg("out"))
      .def(
          "carrier", [](const PanelDevice& d, panel::Port port, std::int64_t now) { return d.carrier(port, ps(now)); },
          py::arg("port"), py::arg("now_ps"), "Whether the port's host has carrier.")
      .def(
          "dark_until", [](const PanelDevice& d, panel::Port ingress) { return d.dark_until(ingress).count; },
          py::arg("ingress"))
      .def("power_dbm", &power, py::arg("egress"), py::arg("now_ps"),
           "Of the light that leaves by this port; None where there is none.")
      .def("attenuation", &PanelDevice::attenuation, py::arg("egress"), "In dB.")
      .def("transmit_power", &PanelDevice::transmit_power, py::arg("ingress"), "In dBm.")
      .def("insertion_loss", &PanelDevice::insertion_loss, py::arg("a"), py::arg("b"), "In hundredths of a dB.");
}

}  // namespace loomnet
