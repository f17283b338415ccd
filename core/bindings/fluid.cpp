// The fluid fabric and the fluid model of a ring, for Python.
#include <tuple>

#include "fluid/fluid_fabric.hpp"
#include "fluid/ring_model.hpp"

#include "bindings/bindings.hpp"

namespace py = pybind11;

namespace loomnet {

void bind_fluid(py::module_& m) {
  using fluid::FluidFabric;
  py::class_<FluidFabric>(m, "FluidFabric",
                          "A network whose transfers are flows that share links max-min; made when all its links are "
                          "there. There are no packets.")
      .def(py::init<Network&>(), py::arg("network"), py::keep_alive<1, 2>())
      .def(
          "set_transport",
          [](FluidFabric& f, NodeId host, const std::string& name, std::uint32_t payload, std::uint32_t overhead,
             std::uint32_t ack, std::uint32_t first, std::uint32_t stream, bool one_port, std::uint32_t part,
             std::uint32_t align, std::uint32_t immediate) {
            f.add_transport(host, name, {payload, overhead, ack, first, stream, one_port, part, align, immediate});
          },
          py::arg("host"), py::arg("name"), py::kw_only(), py::arg("payload_bytes"), py::arg("overhead_bytes"),
          py::arg("ack_bytes"), py::arg("first_bytes") = 0, py::arg("stream_bytes") = 0, py::arg("one_port") = false,
          py::arg("part_bytes") = 1, py::arg("align_bytes") = 1, py::arg("immediate_bytes") = 0,
          "The host's queue pairs over the transport of that name are fluid. Bytes of a full packet's payload; on "
          "the wire beside it, and of an acknowledgement, framing included; more of a part's first packet; before "
          "a write, in the place of payload. one_port: a queue pair sends by one port of those with a path; else by all "
          "of them, each a part that is a multiple of part_bytes. A packet's payload is padded to a multiple of "
          "align_bytes. Each part of a write with an immediate value has immediate_bytes more, one without payload too.")
      .def_property_readonly(
          "solved", [](FluidFabric& f) { return f.links().work().solved; },
          "Parts of the network whose rates were computed.");

  m.def(
      "fluid_ring",
      [](std::uint32_t ranks, std::uint32_t uplinks, std::uint32_t leaves, bool rehash, double jitter,
         double burst_share, double burst_capacity, double burst_mean, std::uint32_t gap, std::uint32_t weight,
         bool switch_wide, std::uint64_t seed) {
        const fluid::RingResult result = fluid::RingModel({ranks, uplinks, leaves, rehash, jitter, burst_share,
                                                           burst_capacity, burst_mean, gap, weight, switch_wide, seed})
                                             .run();
        return std::tuple(result.steps, result.gap, result.throttled);
      },
      py::kw_only(), py::arg("ranks"), py::arg("uplinks"), py::arg("leaves"), py::arg("rehash"), py::arg("jitter"),
      py::arg("burst_share"), py::arg("burst_capacity"), py::arg("burst_mean"), py::arg("gap"), py::arg("weight"),
      py::arg("switch_wide"), py::arg("seed"), py::call_guard<py::gil_scoped_release>(),
      "One ring all-reduce as fluid over uplinks that its ranks share; times are in steps. (time to the "
      "end, mean of the steps between foremost and rearmost rank, share of the time of flows that "
      "they were called ahead). `gap` 0: none is called ahead. ValueError names a setting out of range.");
}

}  // namespace loomnet
