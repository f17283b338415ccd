// Congestion controls for Python: the register of them, those of its own among them, and what their methods are given.
#include <map>
#include <memory>

#include <pybind11/stl.h>

#include "bindings/python_control.hpp"
#include "bindings/transports.hpp"
#include "transport/congestion.hpp"

namespace py = pybind11;

namespace loomnet {
namespace {

// Options as a dict of defaults says: the type of each is that of its default.
std::vector<OptionInfo> rows_of(const std::string& name, const py::dict& defaults) {
  std::vector<OptionInfo> rows;
  for (const auto& [option, value] : option_values(name, defaults)) {
    OptionInfo row;
    row.name = option;
    row.standard = value;
    row.type = std::holds_alternative<bool>(value)          ? "flag"
               : std::holds_alternative<std::string>(value) ? "text"
               : std::holds_alternative<double>(value)      ? "real"
                                                            : "whole";
    if (std::holds_alternative<std::monostate>(value)) {
      refuse_option(name, "option " + option + " has no default that tells its type");
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

OptionValue of_type(const std::string& control, const OptionInfo& row, const OptionValue& value) {
  bool fits = false;
  OptionValue out;
  if (row.type == "flag") {
    fits = std::holds_alternative<bool>(value);
    out = value;
  } else if (row.type == "text") {
    fits = std::holds_alternative<std::string>(value);
    out = value;
  } else if (row.type == "real") {
    double real = 0;
    fits = !std::holds_alternative<bool>(value) && assign(real, value);
    out = real;
  } else {
    std::int64_t whole = 0;
    fits = !std::holds_alternative<bool>(value) && assign(whole, value);
    out = whole;
  }
  if (!fits) refuse_option(control, row.name + " has the wrong type");
  return out;
}

void register_python_control(const std::string& name, py::object make, const std::vector<std::string>& needs,
                             const py::dict& options, bool accurate_ecn) {
  if (!PyCallable_Check(make.ptr())) {
    throw py::type_error("congestion control \"" + name + "\": the maker is not callable");
  }
  CongestionKind kind;
  kind.name = name;
  for (const std::string& signal : needs) kind.needs |= signal_named(signal);
  kind.options = rows_of(name, options);
  kind.virtual_only = true;
  // Never freed: the register outlives the interpreter.
  const auto* kept = new py::object(std::move(make));
  kind.choose = [name, kept, rows = kind.options, accurate_ecn](const OptionValues& given) -> CongestionMake {
    OptionValues values;
    for (const OptionInfo& row : rows) values.emplace_back(row.name, row.standard);
    for (const auto& [option, value] : given) {
      bool known = false;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (rows[i].name != option) continue;
        values[i].second = of_type(name, rows[i], value);
        known = true;
      }
      if (!known) refuse_option(name, "no option " + option);
    }
    return [name, kept, values, accurate_ecn](FlowLimits& limits, const FlowContext& flow) {
      return python_control(
          limits, flow, name, *kept, values,
          CongestionControl::Traits{.owns_window = true, .accurate_ecn = accurate_ecn, .counts_payload = true});
    };
  };
  register_congestion_control(std::move(kind));
}

py::dict controls() {
  py::dict all;
  for (const CongestionKind& kind : congestion_controls()) {
    py::dict row;
    row["needs"] = names_of(kind.needs);
    row["options"] = option_rows(kind.options);
    row["virtual_only"] = kind.virtual_only;
    row["in_kernel"] = kind.in_kernel != nullptr;
    all[py::str(kind.name)] = row;
  }
  return all;
}

// For a name that is none: the nearest ones, as a mistyped field is the likeliest mistake of a plug-in.
[[noreturn]] void no_such_field(const py::object& self, const std::string& name) {
  const py::object type = py::type::of(self);
  py::list fields;
  for (const py::handle each : type.attr("__dict__").attr("keys")()) {
    if (!std::string(py::str(each)).starts_with("_")) fields.append(each);
  }
  const py::object near = py::module_::import("loomnet.base.names").attr("did_you_mean")(name, fields);
  throw py::attribute_error(std::string(py::str(type.attr("__name__"))) + " has no field " + name +
                            std::string(py::str(near)));
}

}  // namespace

void bind_congestion(py::module_& m) {
  m.attr("PluginError") = py::reinterpret_steal<py::object>(PyErr_NewExceptionWithDoc(
      "loomnet._core.PluginError", "A plug-in broke its contract, or raised: the cause is chained.", PyExc_RuntimeError,
      nullptr));

  py::class_<FlowView>(m, "CongestionFlow", "A flow, as the maker of its congestion control sees it.")
      .def_property_readonly(
          "mss", [](const FlowView& v) { return v.flow.mss; }, "Bytes of a full packet's payload.")
      .def_property_readonly(
          "initial_window", [](const FlowView& v) { return v.flow.initial_window; },
          "Bytes that the transport lets go before the first acknowledgement.")
      .def_property_readonly(
          "line_rate_bps", [](const FlowView& v) { return v.flow.line_rate; },
          "Bits per second of all ports that the flow uses; 0 where the transport does not know.")
      .def_property_readonly(
          "base_rtt_ps", [](const FlowView& v) { return time_or_none(v.flow.base_rtt); },
          "Picoseconds that a full packet takes there and back on the idle path; None: not known.")
      .def_property_readonly(
          "network_rtt_ps", [](const FlowView& v) { return time_or_none(v.flow.network_rtt); },
          "Picoseconds of the longest such round trip in the fabric; None where it is not known.")
      .def_property_readonly(
          "trimming", [](const FlowView& v) { return v.flow.trimming; },
          "Whether switches trim what does not fit into a queue.")
      .def_property_readonly(
          "seed", [](const FlowView& v) { return v.flow.seed; }, "Of the run.")
      .def_property_readonly(
          "stream", [](const FlowView& v) { return v.flow.stream; },
          "Number of the flow: with `seed` it begins a random generator of its own.")
      .def_readonly("options", &FlowView::options, "Options of the class by name, as the run gave them.")
      .def("__getattr__", &no_such_field);

  py::class_<AckSample> ack(m, "AckSample", "What one acknowledgement told: bytes, picoseconds.");
  ack.def(py::init<>())
      .def_readonly("acked", &AckSample::acked, "Bytes newly acknowledged in order.")
      .def_readonly("delivered", &AckSample::delivered, "Bytes newly acknowledged, in order or not.")
      .def_readonly("lost", &AckSample::lost, "Bytes newly taken for lost.")
      .def_readonly("ce_delivered", &AckSample::ce_delivered,
                    "Bytes of `delivered` that this acknowledgement reports marked.")
      .def_readonly("marked", &AckSample::marked, "Whether the packet that caused this acknowledgement was marked.")
      .def_readonly("app_limited", &AckSample::app_limited,
                    "Whether the sender had nothing to send when the packet delivered last was sent.")
      .def_readonly("delivered_total", &AckSample::delivered_total,
                    "Bytes delivered since the sender began; never more than its messages have.")
      .def_readonly("prior_delivered", &AckSample::prior_delivered,
                    "Bytes: `delivered_total` when the packet delivered last was sent.")
      .def_readonly("lost_total", &AckSample::lost_total, "Bytes taken for lost since the flow began.")
      .def_readonly("retransmitted_total", &AckSample::retransmitted_total, "Bytes sent again since the flow began.")
      .def_readonly("prior_in_flight", &AckSample::prior_in_flight, "Bytes in flight before this acknowledgement.")
      .def_readonly("in_flight", &AckSample::in_flight, "Bytes in flight after it.")
      .def_readonly("packets_out", &AckSample::packets_out, "Packets that are not acknowledged in order.")
      .def_readonly("retransmissions_out", &AckSample::retransmissions_out, "Packets in flight that were sent again.")
      .def_readonly("sent_end", &AckSample::sent_end,
                    "Bytes: offset of the next new byte; a sender's first byte is at 0.")
      .def_readonly("acked_end", &AckSample::acked_end, "Bytes: offset of the oldest byte that is not acknowledged.")
      .def_readonly("cwnd_limited", &AckSample::cwnd_limited, "Whether the window kept the sender from sending.")
      .def_readonly("in_recovery", &AckSample::in_recovery,
                    "Whether the sender repairs losses, those of timeouts included.")
      .def_readonly("penalty", &AckSample::penalty,
                    "The receiver's back-pressure: 0 none, 64 halves the rate, 127 is the most.")
      .def_readonly("restore", &AckSample::restore,
                    "Whether back-pressure is over and the window of before holds again.")
      .def_property_readonly(
          "now_ps", [](const AckSample& s) { return s.now.count; },
          "Picoseconds of the engine's clock; less `r.time_zero_ps` it is the job's time.")
      .def_property_readonly(
          "rtt_ps", [](const AckSample& s) { return time_or_none(s.rtt); },
          "Picoseconds, round trip of the newest packet delivered; None: no sample.")
      .def_property_readonly(
          "shorter_ps", [](const AckSample& s) { return s.shorter.count; },
          "Picoseconds that a full packet would have taken longer than that packet.")
      .def_property_readonly(
          "delay_ps", [](const AckSample& s) { return time_or_none(s.delay); },
          "Picoseconds of that round trip in queues; None: the transport does not judge it.")
      .def_property_readonly(
          "srtt_ps", [](const AckSample& s) { return s.srtt.count; }, "Picoseconds, smoothed round trip.")
      .def_property_readonly(
          "min_rtt_ps", [](const AckSample& s) { return time_or_none(s.min_rtt); },
          "Picoseconds, least round trip so far; None before the first sample.")
      .def_property_readonly("rate_bps", &AckSample::rate,
                             "Bits per second delivered over the flight of the packet delivered last; 0: no sample.")
      .def("__getattr__", &no_such_field);

  py::class_<CongestionEvent>(m, "CongestionEvent", "A sign of congestion.")
      .def_property_readonly(
          "kind",
          [](const CongestionEvent& e) {
            static auto* kinds = new std::map<Congestion, py::object>;
            py::object& kind = (*kinds)[e.kind];
            if (!kind) {
              kind = py::module_::import("loomnet.plugins.congestions").attr("EventKind")(to_string(e.kind));
            }
            return py::str(kind);
          },
          "loss, ecn, timeout, refused (a switch or the receiver dropped the payload and said so: MRC) or notified "
          "(the receiver saw marks and sent a message of its own: RoCE).")
      .def_property_readonly(
          "now_ps", [](const CongestionEvent& e) { return e.now.count; },
          "Picoseconds of the engine's clock; less `r.time_zero_ps` it is the job's time.")
      .def_readonly("bytes", &CongestionEvent::bytes, "Bytes of the packet that was refused or timed out.")
      .def_readonly("flight", &CongestionEvent::flight, "Bytes in flight; TCP: not acknowledged in order.")
      .def_property_readonly(
          "sent_ps", [](const CongestionEvent& e) { return time_or_none(e.sent); },
          "Picosecond of the same clock at which that packet was sent; None where it is not known.")
      .def("__getattr__", &no_such_field);

  m.def("register_congestion_control", &register_python_control, py::arg("name"), py::arg("make"), py::kw_only(),
        py::arg("needs") = std::vector<std::string>(), py::arg("options") = py::dict(), py::arg("accurate_ecn") = false,
        "make(flow) gives the control of one flow: an object with window (bytes), and where it wants "
        "them pacing_rate (bits per second) and next_tick (ps), read after every call of on_ack(ack), "
        "on_congestion(event), on_tick(now_ps), on_established(rtt_ps, now_ps), on_restart(now_ps), "
        "on_recovered(now_ps), on_undo(now_ps), on_ports(live, total, now_ps).");
  m.def("plugin_under_way", &python_control_under_way, "Whether a congestion control's own code is being called.");
  m.def(
      "congestion_note",
      [](const std::string& control, const py::dict& options) {
        for (const CongestionKind& kind : congestion_controls()) {
          if (kind.name == control && kind.note) return kind.note(option_values(control, options));
        }
        return std::string();
      },
      py::arg("control"), py::arg("options"),
      "What a report says of a control with these options; empty where there is nothing to say.");
  m.def("congestion_controls", &controls,
        "Every congestion control by name: the signals that it needs, its options, virtual_only, in_kernel.");
}

}  // namespace loomnet
