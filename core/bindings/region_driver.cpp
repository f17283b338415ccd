// Binds RegionDriver: Python reads its events and circuits, and kills and restarts the controller.
#include "bindings/bindings.hpp"
#include "bindings/region_options.hpp"

namespace py = pybind11;

namespace loomnet {

using moe::RegionDriver;

void bind_region_driver(py::module_& m) {
  PYBIND11_NUMPY_DTYPE(RegionEventRow, at_ps, generation, iteration, layer, micro_batch, backward, guessed, event,
                       changed, dark_ps);
  py::class_<RegionDriver>(m, "RegionDriver", "The controller of a region's circuits at work.")
      .def("events", &region_events,
           "A numpy structured array: at_ps, generation, iteration, layer, micro_batch, backward, guessed, event, "
           "changed, dark_ps. event: 0 demand, 1 drain, 2 apply, 3 lit, 4 release, 5 fail, 6 outside.")
      .def_property_readonly("events_left_out", &RegionDriver::events_left_out, "Events beyond those that are kept.")
      .def_property_readonly("patches", &RegionDriver::patches, "Requests that have reached the panel.")
      .def_property_readonly("maps", &RegionDriver::maps, "Distinct circuit maps among them.")
      .def("keep_maps", &RegionDriver::keep_maps, py::arg("most"), "Keeps this many maps from now on, for kept_maps().")
      .def("kept_maps", &region_kept_maps,
           "[(at_ps, lit_ps, by port the port that it is joined to, -1: none)] of the first maps.")
      .def_property_readonly("refusal", &RegionDriver::refusal, "Of the last request that the panel did not take.")
      .def(
          "circuits", [](const RegionDriver& d) { return d.ports().peer; },
          "Of each port of the region the port that it is joined to, -1: none.")
      .def(
          "stop", [](RegionDriver& d, std::int64_t now) { d.stop(ps(now)); }, py::arg("now_ps"),
          "Ends the controller; what it held goes by the electrical fabric.")
      .def(
          "restart", [](RegionDriver& d, std::int64_t now) { d.restart(ps(now)); }, py::arg("now_ps"),
          "Starts a new controller, which reads the circuits off the panel and hears the last demand again.");
}

}  // namespace loomnet
