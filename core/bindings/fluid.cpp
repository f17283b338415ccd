// The fluid fabric for Python.
#include "fluid/fluid_fabric.hpp"

#include "bindings/bindings.hpp"

namespace py = pybind11;

namespace loomnet {

void bind_fluid(py::module_& m) {
  using fluid::FluidFabric;
  py::class_<FluidFabric>(
      m, "FluidFabric",
      "A network whose transfers are flows that share links max-min; made when all its links are "
      "there. There are no packets.")
      .def(py::init<Network&>(), py::arg("network"), py::keep_alive<1, 2>())
      .def(
          "set_transport",
          [](FluidFabric& f, NodeId host, const std::string& name, std::uint32_t payload,
             std::uint32_t overhead) { f.add_transport(host, name, {payload, overhead}); },
          py::arg("host"), py::arg("name"), py::arg("payload_bytes"), py::arg("overhead_bytes"),
          "The host's queue pairs over the transport of that name are fluid. Bytes of a full "
          "packet's payload, and on the wire beside it, framing included.")
      .def_property_readonly("solved", [](FluidFabric& f) { return f.links().work().solved; },
                             "Parts of the network whose rates were computed.");
}

}  // namespace loomnet
