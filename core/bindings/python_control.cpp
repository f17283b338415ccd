// Calls the object's methods under the GIL and reads its limits back. What breaks the contract ends the run by name.
#include "bindings/python_control.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include <pybind11/stl.h>

#include "transport/congestion/contract.hpp"

namespace py = pybind11;

namespace loomnet {
namespace {

// The first failure since the last look, and whether it has a Python exception to chain.
struct Fault {
  std::string what;
  py::object cause;  // None: none
  py::object asked;  // the plug-in's class, and the name of what was called, for the line of its code
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

// What each transport shows of a flow by itself, and core/transport/congestion/registry.cpp of any control.
constexpr std::array<std::string_view, 6> kEngines = {"cwnd",  "pacing_bps", "in_flight",
                                                      "acked", "srtt_ps",    "min_rtt_ps"};

// Names that a control shows live for ever, as Observer asks.
std::string_view kept_name(const std::string& name) {
  static auto* names = new std::set<std::string>;
  return *names->insert(name).first;
}

// As many packets at first, counted by their payload.
FlowContext in_payload(FlowContext flow) {
  const std::uint64_t charged = std::uint64_t{flow.mss} + flow.overhead;
  if (flow.overhead > 0) {
    flow.initial_window = std::max<std::uint64_t>(flow.initial_window / charged, 1) * flow.mss;
  }
  return flow;
}

class PythonControl final : public CongestionControl {
 public:
  PythonControl(FlowLimits& limits, const FlowContext& flow, std::string name, const py::object& make,
                const OptionValues& options, Traits traits)
      : CongestionControl(limits, traits), name_(std::move(name)) {
    ++alive;
    const py::gil_scoped_acquire gil;
    class_ = make;
    guarded("the maker", [&] {
      FlowView view{in_payload(flow), py::dict()};
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
    class_ = py::object();
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
  void on_established(Picoseconds rtt, Picoseconds now) override { maybe("on_established", now, rtt.count, now.count); }
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

  // `what`: name of the method, for the error.
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
      fail(what, " raised " + type + text_of(error.value()), error.value());
    } catch (const py::cast_error&) {
      fail(what, " gave a value of a wrong type", py::none());
    } catch (const std::exception& error) {
      fail(what, std::string(": ") + error.what(), py::none());
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
  void fail(const std::string& what, const std::string& how, const py::object& cause) {
    give_up();
    if (!pending_fault()) {
      pending_fault() =
          Fault{"congestion control \"" + name_ + "\": " + what + how, cause, py::make_tuple(class_, what)};
    }
  }
  // As the end of a sentence. An exception of a user's own class may fail to give its text: then nothing.
  static std::string text_of(const py::object& error) {
    try {
      return ": " + std::string(py::str(error));
    } catch (const py::error_already_set&) {
      return "";
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
        throw std::invalid_argument("next_tick=" + shown(tick) + " is not a whole number of picoseconds, or None");
      }
      int beyond = 0;
      const long long at = PyLong_AsLongLongAndOverflow(py::int_(tick).ptr(), &beyond);
      if (beyond != 0) {
        throw std::invalid_argument("next_tick=" + shown(tick) +
                                    " is beyond the times that there are; None says never");
      }
      limits.next_tick = {at};
    }
    if (const std::string broken = breach_of_contract(limits, now); !broken.empty()) {
      throw std::invalid_argument(broken);
    }
    const bool paced_before = limits_.pacing_rate > 0;
    reactions_.cuts += now.count >= 0 && (limits.cwnd < limits_.cwnd || (paced_before && limits.pacing_rate > 0 &&
                                                                         limits.pacing_rate < limits_.pacing_rate));
    limits_ = limits;
  }
  py::object required(const char* name) const {
    if (!py::hasattr(object_, name)) {
      throw std::invalid_argument(std::string("there is no attribute ") + name + likest(name));
    }
    return object_.attr(name);
  }
  // Of the object's own attributes, the one that may be a slip of the pen.
  std::string likest(const char* name) const {
    const py::object own = py::getattr(object_, "__dict__", py::dict());
    const auto like = py::module_::import("difflib").attr("get_close_matches")(name, py::list(own), 1);
    return py::len(like) == 0 ? "" : "; there is " + std::string(py::str(like[py::int_(0)]));
  }
  py::object optional(const char* name) const { return py::getattr(object_, name, py::none()); }
  static std::string shown(const py::object& value) {
    const std::string text = py::repr(value);
    return text.size() > 60 ? text.substr(0, 60) + "..." : text;
  }
  static double number(const char* name, const py::object& value) {
    if (py::isinstance<py::bool_>(value) || py::isinstance<py::str>(value) || !PyNumber_Check(value.ptr())) {
      throw std::invalid_argument(std::string(name) + "=" + shown(value) + " is not a number");
    }
    return py::float_(value).cast<double>();
  }
  static std::uint64_t whole(const char* name, const py::object& value) {
    const double bytes = number(name, value);
    if (std::isnan(bytes)) {
      throw std::invalid_argument(std::string(name) + "=" + shown(value) + " is not a number");
    }
    if (bytes < 0) throw std::invalid_argument(std::string(name) + "=" + shown(value) + " is negative");
    if (bytes >= 9e18) {
      throw std::invalid_argument(std::string(name) + "=" + shown(value) + " is beyond what can be counted");
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
      if (!py::isinstance<py::str>(name)) {
        throw std::invalid_argument(shown(py::reinterpret_borrow<py::object>(name)) + " is no name");
      }
      const auto text = name.cast<std::string>();
      if (std::find(kEngines.begin(), kEngines.end(), text) != kEngines.end()) {
        throw std::invalid_argument("\"" + text +
                                    "\" is a series of the engine's own, which this one would hide; "
                                    "choose another name");
      }
      names_.push_back(kept_name(text));
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
  py::object class_, object_;
  bool failed_ = false;
  std::vector<std::string_view> names_;
};

}  // namespace

std::unique_ptr<CongestionControl> python_control(FlowLimits& limits, const FlowContext& flow, const std::string& name,
                                                  const py::object& make, const OptionValues& options,
                                                  CongestionControl::Traits traits) {
  return std::make_unique<PythonControl>(limits, flow, name, make, options, traits);
}

bool python_control_under_way() { return calls_under_way > 0; }

py::object time_or_none(Picoseconds t) {
  return t == kNever || t.count < 0 ? py::none().cast<py::object>() : py::int_(t.count);
}

void raise_plugin_fault() {
  if (!pending_fault()) return;
  const Fault fault = *std::exchange(pending_fault(), std::nullopt);
  const py::object type = py::module_::import("loomnet._core").attr("PluginError");
  const py::object error = type(fault.what);
  if (!fault.cause.is_none()) error.attr("__cause__") = fault.cause;
  error.attr("asked") = fault.asked;
  PyErr_SetObject(type.ptr(), error.ptr());
  throw py::error_already_set();
}

int python_controls_alive() { return alive; }

}  // namespace loomnet
