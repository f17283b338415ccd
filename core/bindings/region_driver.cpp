// A region's controller at work, for Python: what it did, its circuits, and its end and new start.
#include "bindings/bindings.hpp"
#include "moe/region_driver.hpp"

namespace py = pybind11;

namespace loomnet {
namespace {

using moe::RegionDriver;

std::string kind_name(circuits::RegionEvent::Kind kind) {
  using enum circuits::RegionEvent::Kind;
  switch (kind) {
    case demand: return "demand";
    case drain: return "drain";
    case apply: return "apply";
    case lit: return "lit";
    case release: return "release";
    default: return "fail";
  }
}

}  // namespace

void bind_region_driver(py::module_& m) {
  py::class_<RegionDriver>(m, "RegionDriver", "The controller of a region's circuits at work.")
      .def("events", [](const RegionDriver& d) {
        Rows<py::int_, py::int_, py::typing::Tuple<py::int_, py::int_, py::int_, py::bool_, py::bool_>, py::str,
             py::int_, py::int_> out;
        for (const auto& e : d.events()) {
          const auto& k = e.event.key;
          out.append(py::make_tuple(e.event.at.count, e.generation,
                                    py::make_tuple(k.iteration, k.layer, k.micro_batch, k.backward, k.guessed),
                                    kind_name(e.event.kind), e.event.changed, e.event.dark.count));
        }
        return out;
      }, "[(at_ps, generation, (iteration, layer, micro-batch, backward, guessed), event, changed, dark_ps)]")
      .def_property_readonly("events_left_out", &RegionDriver::events_left_out, "Events beyond those that are kept.")
      .def_property_readonly("patches", &RegionDriver::patches, "Requests that have reached the panel.")
      .def_property_readonly("maps", &RegionDriver::maps, "Distinct circuit maps among them.")
      .def("keep_maps", &RegionDriver::keep_maps, py::arg("most"),
           "Keeps this many maps from now on, for kept_maps().")
      .def("kept_maps", [](const RegionDriver& d) {
        Rows<py::int_, py::int_, py::typing::List<py::int_>> out;
        for (const auto& map : d.kept_maps()) out.append(py::make_tuple(map.at.count, map.lit.count, map.peer));
        return out;
      }, "[(at_ps, lit_ps, by port the port that it is joined to, -1: none)] of the first maps.")
      .def_property_readonly("refusal", &RegionDriver::refusal, "Of the last request that the panel did not take.")
      .def("circuits", [](const RegionDriver& d) { return d.ports().peer; },
           "Of each port of the region the port that it is joined to, -1: none.")
      .def("stop", [](RegionDriver& d, std::int64_t now) { d.stop(ps(now)); }, py::arg("now_ps"),
           "Ends the controller; what it held goes by the electrical fabric.")
      .def("restart", [](RegionDriver& d, std::int64_t now) { d.restart(ps(now)); }, py::arg("now_ps"),
           "Starts a new controller, which reads the circuits off the panel and hears the last demand again.");
}

}  // namespace loomnet
