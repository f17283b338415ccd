// KernelControl for Python: congestion controls of ours in the kernel's TCP.
#include "live/kernel_control.hpp"

#include "bindings/bindings.hpp"
#include "bindings/transports.hpp"
#include "live/control_program.hpp"
#include "transport/congestion.hpp"

namespace py = pybind11;

namespace loomnet {
namespace {

std::unique_ptr<KernelAgent> agent_of(const std::string& control, const py::dict& options) {
  for (const CongestionKind& kind : congestion_controls()) {
    if (kind.name == control && kind.in_kernel) return kind.in_kernel(option_values(control, options));
  }
  throw py::value_error("no congestion control \"" + control + "\" for the kernel's TCP");
}

Counts pace_of(const KernelControl& control) {
  KernelControl::Pace pace;
  {
    py::gil_scoped_release released;
    pace = control.pace();
  }
  Counts out;
  out["wakes"] = pace.lateness.count;
  out["missed"] = pace.missed;
  out["p50_ps"] = pace.lateness.p50.count;
  out["p99_ps"] = pace.lateness.p99.count;
  out["max_ps"] = pace.lateness.max.count;
  out["worked_ns"] = pace.worked.count();
  out["lasted_ns"] = pace.lasted.count();
  return out;
}

}  // namespace

void bind_kernel_control(py::module_& m) {
  using Release = py::gil_scoped_release;
  PYBIND11_NUMPY_DTYPE(KernelDecision, at_ns, netns, local_port, remote_port, window, commanded, mode, fallbacks,
                       throughput_Bps, rtt_us, least_rtt_us, loss_Bps, queue_packets, action);
  m.def(
      "check_kernel_control", [](const std::string& control, const py::dict& options) { agent_of(control, options); },
      py::arg("control"), py::arg("options"),
      "Raises ValueError, one line, for a control that the kernel's TCP cannot have, or an option that it refuses.");
  m.def("try_kernel_control", &why_no_kernel_control, py::call_guard<Release>(), py::arg("control"), py::kw_only(),
        py::arg("decides") = false,
        "Loads a control's program into the kernel and takes it out again; `decides`: the form that decides without an "
        "agent. Returns why this kernel cannot have it, in one line; nothing where it can. Needs root.");
  m.def("cong_control_arguments", &cong_control_arguments, py::call_guard<Release>(),
        "How many arguments this kernel's cong_control has: 2, or 4 from Linux 6.10 on. RuntimeError without BTF.");
  py::class_<KernelControl>(
      m, "KernelControl",
      "A congestion control of ours in the kernel's TCP, for sockets of every network namespace, until close().")
      .def(py::init(
               [](const std::string& control, const std::string& name, const py::dict& options, std::uint32_t slots) {
                 std::unique_ptr<KernelAgent> agent = agent_of(control, options);
                 Release release;
                 return std::make_unique<KernelControl>(control, name, std::move(agent), slots);
               }),
           py::arg("control"), py::arg("name"), py::arg("options") = py::dict(), py::kw_only(), py::arg("slots") = 1024,
           "Registers `control` as `name`, 1 to 15 letters, digits, dots and underscores. `slots`: flows that it can "
           "decide for, a power of two; further ones are left to the kernel. Raises ValueError, RuntimeError.")
      .def("start", &KernelControl::start, "Starts the thread that decides.")
      .def("stop", &KernelControl::stop, py::call_guard<Release>(), "Ends it; the control stays registered.")
      .def_property_readonly("running", &KernelControl::running, "Whether the thread runs.")
      .def_property_readonly("name", &KernelControl::name, "For TCP_CONGESTION.")
      .def_property_readonly("decides", &KernelControl::decides,
                             "Whether the program decides by itself, and the thread only watches.")
      .def("pace", &pace_of,
           "Of the thread: wakes, missed, lateness p50_ps, p99_ps, max_ps, processor time worked_ns in lasted_ns.")
      .def_property_readonly(
          "scheduling", [](const KernelControl& c) { return c.pace().scheduling; }, "As the thread got it.")
      .def(
          "counts",
          [](const KernelControl& c) {
            std::vector<std::pair<std::string, std::uint64_t>> found;
            {
              Release release;
              found = c.counts();
            }
            Counts out;
            for (const auto& [name, value] : found) out[py::str(name)] = value;
            return out;
          },
          "flows, decisions, commands, fallbacks, … since it was made.")
      .def("record", &KernelControl::record, py::call_guard<Release>(), "Keeps decisions from now on.")
      .def(
          "take_decisions",
          [](KernelControl& c) -> py::array {
            std::vector<KernelDecision> rows;
            {
              Release release;
              rows = c.take_decisions();
            }
            py::array_t<KernelDecision> out(static_cast<py::ssize_t>(rows.size()));
            std::copy(rows.begin(), rows.end(), out.mutable_data());
            return out;
          },
          "Decisions since the last call, a numpy structured array: at_ns (CLOCK_MONOTONIC), netns, ports, window and "
          "commanded (packets), mode (0 start-up, 1 agent, 2 fallback), fallbacks, throughput_Bps, rtt_us, …")
      .def("measure", &KernelControl::measure, "Has the kernel time BPF programs until this object is gone.")
      .def_property_readonly("program_runs", &KernelControl::program_runs,
                             "(runs, nanoseconds) of the program at acknowledgements, while measured.")
      .def(
          "slots",
          [](py::object self) {
            const std::span<std::uint8_t> bytes = self.cast<KernelControl&>().slots();
            return py::array_t<std::uint8_t>(static_cast<py::ssize_t>(bytes.size()), bytes.data(), self);
          },
          "The memory that kernel and agent share, uint8[slots * 256], for tests and for looking.")
      .def(
          "policy",
          [](py::object self) {
            const std::span<std::uint8_t> bytes = self.cast<KernelControl&>().policy();
            return py::array_t<std::uint8_t>(static_cast<py::ssize_t>(bytes.size()), bytes.data(), self);
          },
          "What a program that decides by itself reads, uint8 (ebpf/astraea_policy_abi.h); empty for others.");
}

}  // namespace loomnet
