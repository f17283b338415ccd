// Options that come from Python by name, checked against the fields that exist.
#include "bindings/bindings.hpp"
#include "transport/mrc/mrc_transport.hpp"

namespace py = pybind11;

namespace loomnet {
namespace {

// Reads every entry of a dict into the field of that name.
class Fields {
 public:
  Fields(const char* what, const py::dict& values) : what_(what), values_(values) {}
  template <typename T>
  Fields& field(const char* name, T& target) {
    known_ += (known_.empty() ? "" : ", ") + std::string(name);
    if (values_.contains(name)) {
      ++used_;
      try {
        target = values_[name].template cast<T>();
      } catch (const py::cast_error&) {
        throw py::value_error(std::string(what_) + ": " + name + " has the wrong type");
      }
    }
    return *this;
  }
  // An enumeration by the names of its values, in order.
  template <typename E>
  Fields& choice(const char* name, E& target, std::initializer_list<std::string_view> names) {
    std::string chosen;
    field(name, chosen);
    if (!values_.contains(name)) return *this;
    std::size_t i = 0;
    std::string all;
    for (const std::string_view n : names) {
      if (n == chosen) {
        target = static_cast<E>(i);
        return *this;
      }
      all += (i++ ? ", " : "") + std::string(n);
    }
    throw py::value_error(std::string(what_) + ": " + name + " must be one of " + all);
  }
  Fields& time(const char* name, Picoseconds& target) { return field(name, target.count); }
  void done() const {
    if (used_ == values_.size()) return;
    for (const auto& item : values_) {
      const auto name = item.first.cast<std::string>();
      if ((", " + known_ + ",").find(", " + name + ",") == std::string::npos) {
        throw py::value_error(std::string(what_) + ": no option " + name + "; there are " + known_);
      }
    }
  }

 private:
  const char* what_;
  const py::dict& values_;
  std::string known_;
  std::size_t used_ = 0;
};

// A number, a string, a truth value or None, as Python and numpy have them.
OptionValue option_value(const char* what, py::handle name, py::handle value) {
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
  throw py::value_error(std::string(what) + ": " + std::string(py::str(name)) +
                        " has the wrong type");
}

}  // namespace

OptionValues option_values(const char* what, const py::dict& options) {
  OptionValues out;
  for (const auto& [name, value] : options) {
    try {
      if (py::isinstance<py::str>(name)) {
        out.emplace_back(name.cast<std::string>(), option_value(what, name, value));
        continue;
      }
    } catch (const py::cast_error&) {  // no text in UTF-8
    }
    throw py::value_error(std::string(what) + ": an option's name must be a string");
  }
  return out;
}

std::unique_ptr<Transport> mrc_transport(Nic& nic, bool software_time, Picoseconds net_rtt,
                                         BitsPerSecond rate, std::uint64_t seed,
                                         const py::dict& options) {
  using mrc::MrcOptions;
  MrcOptions o = software_time ? MrcOptions::net(net_rtt, rate) : MrcOptions::sim(net_rtt, rate);
  o.seed = seed;
  o.read(option_values("mrc", options));
  return std::make_unique<mrc::MrcTransport>(o, nic.sink(), nic.ports());
}

roce::RoceOptions roce_options(const py::dict& options) {
  return roce::RoceOptions::of(option_values("roce", options));
}

tcp::TcpOptions tcp_options(const py::dict& options, std::uint64_t seed) {
  tcp::TcpOptions o = tcp::TcpOptions::of(option_values("tcp", options));
  o.seed = seed;
  return o;
}

Collective collective_named(const std::string& name) {
  for (std::size_t i = 0; i < kCollectives; ++i) {
    const auto c = static_cast<Collective>(i);
    if (to_string(c) == name) return c;
  }
  throw py::value_error("collective: no such collective " + name);
}

rank::NoticeKind notice_named(const std::string& name) {
  if (name == "peer_gone") return rank::NoticeKind::peer_gone;
  if (name == "run_ended") return rank::NoticeKind::run_ended;
  throw py::value_error("notice: no such notice " + name);
}

rank::GoneReason reason_named(const std::string& name) {
  for (std::uint32_t i = 1; i <= static_cast<std::uint32_t>(rank::GoneReason::stopped); ++i) {
    if (to_string(static_cast<rank::GoneReason>(i)) == name)
      return static_cast<rank::GoneReason>(i);
  }
  throw py::value_error("notice: no such reason " + name);
}

LinkChange link_change(LinkId link, bool forward, bool backward, std::optional<bool> up,
                       std::optional<std::uint64_t> rate_bps, std::optional<double> queue_share,
                       std::optional<std::int64_t> delay_ps,
                       const std::optional<py::dict>& impairment) {
  LinkChange change;
  change.link = link;
  change.forward = forward;
  change.backward = backward;
  change.up = up;
  if (rate_bps) change.rate = BitsPerSecond{*rate_bps};
  if (queue_share && !(*queue_share > 0 && *queue_share <= 1)) {
    throw py::value_error("change: queue_share must be above 0 and at most 1");
  }
  change.queue_share = queue_share;
  if (delay_ps) change.delay = Picoseconds{*delay_ps};
  if (impairment) {
    Impairment i;
    Fields("impairment", *impairment)
        .field("loss", i.loss)
        .field("burst", i.burst)
        .field("duplicate", i.duplicate)
        .field("corrupt", i.corrupt)
        .field("reorder", i.reorder)
        .time("jitter_ps", i.jitter)
        .done();
    change.impairment = i;
  }
  return change;
}

}  // namespace loomnet
