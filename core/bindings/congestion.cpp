// Congestion controls written in Python, on the virtual clock: the engine calls the object's methods
// under the GIL and reads its limits back. What breaks the contract ends the run by name.
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <set>

#include <pybind11/stl.h>

#include "bindings/transports.hpp"
#include "transport/congestion.hpp"
#include "transport/congestion/contract.hpp"

namespace py = pybind11;

namespace loomnet {
namespace {

// The first failure since the last look, and whether it has a Python exception to chain.
struct Fault {
  std::string what;
  py::object cause;  // None: none
};
std::optional<Fault>& pending_fault() {
  static auto* fault = new std::optional<Fault>;  // Python may be gone before static objects are
  return *fault;
}
std::atomic<int> alive{0};
// How many calls of a control's own code are under way, in the thread that runs the engine.
int calls_under_way = 0;
struct CallUnderWay {
  CallUnderWay() { ++calls_under_way; }
  ~CallUnderWay() { --calls_under_way; }
  CallUnderWay(const CallUnderWay&) = delete;
  CallUnderWay& operator=(const CallUnderWay&) = delete;
};

// Names that a control shows live for ever, as Observer asks.
std::string_view kept_name(const std::string& name) {
  static auto* names = new std::set<std::string>;
  return *names->insert(name).first;
}

py::object time_or_none(Picoseconds t) {
  return t == kNever || t.count < 0 ? py::none().cast<py::object>() : py::int_(t.count);
}

struct FlowView {  // what a Python control knows of its flow when it is made
  FlowContext flow;
  py::dict options;
};

class PythonControl final : public CongestionControl {
 public:
  PythonControl(FlowLimits& limits, const FlowContext& flow, std::string name,
                const py::object& make, const OptionValues& options, Traits traits)
      : CongestionControl(limits, traits), name_(std::move(name)) {
    ++alive;
    const py::gil_scoped_acquire gil;
    guarded("the maker", [&] {
      FlowView view{flow, py::dict()};
      for (const auto& [option, value] : options) {
        view.options[py::str(option)] = option_object(value);
      }
      object_ = make(std::move(view));
      for (const char* method : {"on_ack", "on_congestion"}) need(method);
      read({-1});  // a tick may be due as soon as the flow begins
    });
    guarded("observe", [&] { see_names(); });
  }
  ~PythonControl() override {
    --alive;
    const py::gil_scoped_acquire gil;
    object_ = py::object();
  }

  std::string_view name() const override { return name_; }
  void on_ack(const AckSample& sample) override {
    call("on_ack", sample.now, [&] { object_.attr("on_ack")(sample); });
  }
  void on_congestion(const CongestionEvent& event) override {
    call("on_congestion", event.now, [&] { object_.attr("on_congestion")(event); });
  }
  void on_tick(Picoseconds now) override {
    call("on_tick", now, [&] {
      need("on_tick");
      object_.attr("on_tick")(now.count);
    });
  }
  void on_established(Picoseconds rtt, Picoseconds now) override {
    maybe("on_established", now, rtt.count, now.count);
  }
  void on_recovered(Picoseconds now) override { maybe("on_recovered", now, now.count); }
  void on_undo(Picoseconds now) override { maybe("on_undo", now, now.count); }
  void on_restart(Picoseconds now) override { maybe("on_restart", now, now.count); }
  void on_ports(std::size_t live, std::size_t total, Picoseconds now) override {
    maybe("on_ports", now, live, total, now.count);
  }
  void observe(Observer& out) const override {
    if (names_.empty()) return;
    const py::gil_scoped_acquire gil;
    const_cast<PythonControl*>(this)->guarded("observe", [&] {
      const py::dict values = object_.attr("observe")();
      if (values.size() != names_.size()) {
        throw std::invalid_argument("other names than at the first call");
      }
      for (const std::string_view name : names_) {
        const py::str key(name.data(), name.size());
        if (!values.contains(key)) throw std::invalid_argument("other names than at the first call");
        out.value(name, observed(name, values[key]));
      }
    });
  }

 private:
  void need(const char* method) const {
    if (py::hasattr(object_, method) && PyCallable_Check(object_.attr(method).ptr())) return;
    throw std::invalid_argument(std::string("there is no method ") + method);
  }

  // `what`: what is called, for the error.
  template <typename Call>
  void guarded(const std::string& what, Call&& inner) {
    if (failed_) return;
    // An exception or Ctrl-C in one control ends the run, so no control is called after it.
    if (pending_fault()) return give_up();
    try {
      const CallUnderWay here;
      inner();
    } catch (py::error_already_set& error) {
      const std::string type = py::str(error.type().attr("__name__"));
      if (error.trace()) PyException_SetTraceback(error.value().ptr(), error.trace().ptr());
      fail(what + " raised " + type + ": " + std::string(py::str(error.value())), error.value());
    } catch (const py::cast_error&) {
      fail(what + " gave a value of a wrong type", py::none());
    } catch (const std::exception& error) {
      fail(what + ": " + error.what(), py::none());
    }
  }
  template <typename Call>
  void call(const char* method, Picoseconds now, Call&& inner) {
    if (failed_) return;
    const py::gil_scoped_acquire gil;
    guarded(method, [&] {
      inner();
      read(now);
    });
  }
  template <typename... Arguments>
  void maybe(const char* method, Picoseconds now, Arguments... arguments) {
    if (failed_) return;
    const py::gil_scoped_acquire gil;
    guarded(method, [&] {
      if (!py::hasattr(object_, method)) return;
      object_.attr(method)(arguments...);
      read(now);
    });
  }
  // The control stays as it was, and the run ends at the next look.
  void fail(const std::string& what, const py::object& cause) {
    give_up();
    if (!pending_fault()) {
      pending_fault() = Fault{"congestion control \"" + name_ + "\": " + what, cause};
    }
  }

  void give_up() {
    failed_ = true;
    limits_.cwnd = limits_.mss;
    limits_.pacing_rate = 0;
    limits_.next_tick = kNever;
  }

  // The object's limits, each with its name in the error.
  void read(Picoseconds now) {
    FlowLimits limits = limits_;
    limits.cwnd = whole("window", required("window"));
    limits.pacing_rate = 0;
    if (const py::object rate = optional("pacing_rate"); !rate.is_none()) {
      limits.pacing_rate = number("pacing_rate", rate);
      if (limits.pacing_rate == 0) {
        throw std::invalid_argument("the pacing rate is 0: nothing could ever leave; None stands for no pacing");
      }
    }
    limits.next_tick = kNever;
    if (const py::object tick = optional("next_tick"); !tick.is_none()) {
      if (!PyIndex_Check(tick.ptr())) {
        throw std::invalid_argument("next_tick=" + shown(tick) +
                                    " is not a whole number of picoseconds, or None");
      }
      limits.next_tick = {tick.cast<std::int64_t>()};
    }
    if (const std::string broken = breach_of_contract(limits, now); !broken.empty()) {
      throw std::invalid_argument(broken);
    }
    const bool paced_before = limits_.pacing_rate > 0;
    reactions_.cuts += now.count >= 0 && (limits.cwnd < limits_.cwnd ||
                                          (paced_before && limits.pacing_rate > 0 &&
                                           limits.pacing_rate < limits_.pacing_rate));
    limits_ = limits;
  }
  py::object required(const char* name) const {
    if (!py::hasattr(object_, name)) {
      throw std::invalid_argument(std::string("there is no attribute ") + name);
    }
    return object_.attr(name);
  }
  py::object optional(const char* name) const { return py::getattr(object_, name, py::none()); }
  static std::string shown(const py::object& value) {
    const std::string text = py::repr(value);
    return text.size() > 60 ? text.substr(0, 60) + "..." : text;
  }
  static double number(const char* name, const py::object& value) {
    if (py::isinstance<py::bool_>(value) || py::isinstance<py::str>(value) ||
        !PyNumber_Check(value.ptr())) {
      throw std::invalid_argument(std::string(name) + "=" + shown(value) + " is not a number");
    }
    return py::float_(value).cast<double>();
  }
  static std::uint64_t whole(const char* name, const py::object& value) {
    const double bytes = number(name, value);
    if (std::isnan(bytes)) {
      throw std::invalid_argument(std::string(name) + " is not a number");
    }
    if (bytes < 0) throw std::invalid_argument(std::string(name) + "=" + shown(value) + " is negative");
    if (bytes >= 9e18) {
      throw std::invalid_argument(std::string(name) + "=" + shown(value) +
                                  " is beyond what can be counted");
    }
    return static_cast<std::uint64_t>(bytes);
  }
  void see_names() {
    if (!py::hasattr(object_, "observe")) return;
    const py::object values = object_.attr("observe")();
    if (!py::isinstance<py::dict>(values)) {
      throw std::invalid_argument("observe() gave no dict of names and numbers");
    }
    for (const auto& [name, value] : values.cast<py::dict>()) {
      names_.push_back(kept_name(name.cast<std::string>()));
      (void)observed(names_.back(), py::reinterpret_borrow<py::object>(value));
    }
  }
  // NaN, of which a series has no row, for None alone: a NaN that was computed would vanish.
  static double observed(std::string_view name, const py::object& value) {
    if (value.is_none()) return std::numeric_limits<double>::quiet_NaN();
    const double found = number(std::string(name).c_str(), value);
    if (!std::isfinite(found)) {
      throw std::invalid_argument(std::string(name) + "=" + shown(value) +
                                  " is not finite; None stands for no value now");
    }
    return found;
  }

  std::string name_;
  py::object object_;
  bool failed_ = false;
  std::vector<std::string_view> names_;
};

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

void register_python_control(const std::string& name, py::object make,
                             const std::vector<std::string>& needs, const py::dict& options,
                             bool accurate_ecn) {
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
  kind.choose = [name, kept, rows = kind.options,
                 accurate_ecn](const OptionValues& given) -> CongestionMake {
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
      return std::make_unique<PythonControl>(
          limits, flow, name, *kept, values,
          CongestionControl::Traits{.owns_window = true, .accurate_ecn = accurate_ecn});
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
    all[py::str(kind.name)] = row;
  }
  return all;
}

}  // namespace

void raise_plugin_fault() {
  if (!pending_fault()) return;
  const Fault fault = *std::exchange(pending_fault(), std::nullopt);
  const py::object type = py::module_::import("loomnet._core").attr("PluginError");
  const py::object error = type(fault.what);
  if (!fault.cause.is_none()) error.attr("__cause__") = fault.cause;
  PyErr_SetObject(type.ptr(), error.ptr());
  throw py::error_already_set();
}

int python_controls_alive() { return alive; }

void bind_congestion(py::module_& m) {
  m.attr("PluginError") = py::reinterpret_steal<py::object>(PyErr_NewExceptionWithDoc(
      "loomnet._core.PluginError", "A plug-in broke its contract, or raised: the cause is chained.",
      PyExc_ValueError, nullptr));

  py::class_<FlowView>(m, "CongestionFlow", "A flow, as the maker of its congestion control sees it.")
      .def_property_readonly("mss", [](const FlowView& v) { return v.flow.mss; })
      .def_property_readonly("initial_window", [](const FlowView& v) { return v.flow.initial_window; })
      .def_property_readonly("line_rate_bps", [](const FlowView& v) { return v.flow.line_rate; })
      .def_property_readonly("base_rtt_ps", [](const FlowView& v) { return time_or_none(v.flow.base_rtt); })
      .def_property_readonly("network_rtt_ps",
                             [](const FlowView& v) { return time_or_none(v.flow.network_rtt); })
      .def_property_readonly("trimming", [](const FlowView& v) { return v.flow.trimming; })
      .def_property_readonly("seed", [](const FlowView& v) { return v.flow.seed; })
      .def_property_readonly("stream", [](const FlowView& v) { return v.flow.stream; })
      .def_readonly("options", &FlowView::options);

  py::class_<AckSample> ack(m, "AckSample", "What one acknowledgement told: bytes, picoseconds.");
  ack.def(py::init<>())
      .def_readonly("acked", &AckSample::acked)
      .def_readonly("delivered", &AckSample::delivered)
      .def_readonly("lost", &AckSample::lost)
      .def_readonly("ce_delivered", &AckSample::ce_delivered)
      .def_readonly("marked", &AckSample::marked)
      .def_readonly("app_limited", &AckSample::app_limited)
      .def_readonly("delivered_total", &AckSample::delivered_total)
      .def_readonly("prior_delivered", &AckSample::prior_delivered)
      .def_readonly("lost_total", &AckSample::lost_total)
      .def_readonly("retransmitted_total", &AckSample::retransmitted_total)
      .def_readonly("prior_in_flight", &AckSample::prior_in_flight)
      .def_readonly("in_flight", &AckSample::in_flight)
      .def_readonly("packets_out", &AckSample::packets_out)
      .def_readonly("retransmissions_out", &AckSample::retransmissions_out)
      .def_readonly("sent_end", &AckSample::sent_end)
      .def_readonly("acked_end", &AckSample::acked_end)
      .def_readonly("cwnd_limited", &AckSample::cwnd_limited)
      .def_readonly("in_recovery", &AckSample::in_recovery)
      .def_readonly("penalty", &AckSample::penalty)
      .def_readonly("restore", &AckSample::restore)
      .def_property_readonly("now_ps", [](const AckSample& s) { return s.now.count; })
      .def_property_readonly("rtt_ps", [](const AckSample& s) { return time_or_none(s.rtt); })
      .def_property_readonly("shorter_ps", [](const AckSample& s) { return s.shorter.count; })
      .def_property_readonly("delay_ps", [](const AckSample& s) { return time_or_none(s.delay); })
      .def_property_readonly("srtt_ps", [](const AckSample& s) { return s.srtt.count; })
      .def_property_readonly("min_rtt_ps", [](const AckSample& s) { return time_or_none(s.min_rtt); })
      .def_property_readonly("rate_bps", &AckSample::rate, "0: no sample of the delivery rate");

  py::class_<CongestionEvent>(m, "CongestionEvent", "A sign of congestion.")
      .def_property_readonly(
          "kind", [](const CongestionEvent& e) { return std::string(to_string(e.kind)); },
          "loss, ecn, timeout, refused or notified")
      .def_property_readonly("now_ps", [](const CongestionEvent& e) { return e.now.count; })
      .def_readonly("bytes", &CongestionEvent::bytes)
      .def_readonly("flight", &CongestionEvent::flight)
      .def_property_readonly("sent_ps", [](const CongestionEvent& e) { return time_or_none(e.sent); });

  m.def("register_congestion_control", &register_python_control, py::arg("name"), py::arg("make"),
        py::kw_only(), py::arg("needs") = std::vector<std::string>(), py::arg("options") = py::dict(),
        py::arg("accurate_ecn") = false,
        "make(flow) gives the control of one flow: an object with window (bytes), and where it wants "
        "them pacing_rate (bits per second) and next_tick (ps), read after every call of on_ack(ack), "
        "on_congestion(event), on_tick(now_ps), on_established(rtt_ps, now_ps), on_restart(now_ps), "
        "on_recovered(now_ps), on_undo(now_ps), on_ports(live, total, now_ps).");
  m.def("plugin_under_way", [] { return calls_under_way > 0; },
        "Whether a congestion control's own code is being called.");
  m.def("congestion_controls", &controls,
        "Every congestion control by name: the signals that it needs, its options, virtual_only.");
}

}  // namespace loomnet
