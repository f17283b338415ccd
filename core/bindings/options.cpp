// Options that come from Python by name, checked against the fields that exist.
#include "bindings/bindings.hpp"

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

}  // namespace

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
  for (std::uint32_t i = 1; i <= static_cast<std::uint32_t>(rank::GoneReason::failed); ++i) {
    if (to_string(static_cast<rank::GoneReason>(i)) == name) return static_cast<rank::GoneReason>(i);
  }
  throw py::value_error("notice: no such reason " + name);
}

LinkChange link_change(LinkId link, bool forward, bool backward, std::optional<bool> up,
                       std::optional<std::uint64_t> rate_bps, std::optional<double> queue_share,
                       std::optional<std::int64_t> delay_ps, const std::optional<py::dict>& impairment) {
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
        .time("wander_ps", i.wander)
        .time("slot_ps", i.slot)
        .done();
    change.impairment = i;
  }
  return change;
}

}  // namespace loomnet
