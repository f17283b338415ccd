// One contract, every control: random but lawful histories of a flow, by a seed, through each control
// that is registered. After each call the limits must keep the contract, and one seed gives one course.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <set>

#include "clock/random.hpp"
#include "transport/congestion/contract.hpp"

namespace loomnet {
namespace {

constexpr Signals kAll = ~Signals{0};
constexpr std::uint32_t kMss = 1'000;

FlowContext context(std::uint64_t seed) {
  return {.mss = kMss,
          .initial_window = 10 * kMss,
          .line_rate = 10'000'000'000,
          .base_rtt = microseconds(20),
          .network_rtt = microseconds(24),
          .trimming = true,
          .seed = seed,
          .stream = 1};
}

struct Names final : Observer {
  void value(std::string_view name, double value) override {
    names.emplace_back(name);
    data.push_back(name.data());
    EXPECT_FALSE(std::isnan(value)) << name;
  }
  std::vector<std::string> names;
  std::vector<const char*> data;
};

// A sender reduced to what the contract is about: it sends while window and pacing let it, and a path
// of one rate answers, marks, refuses and loses at random.
class Course {
 public:
  Course(const std::string& name, std::uint64_t seed)
      : flow_(context(seed)),
        make_(choose_congestion_control("cc", name, {}, kAll)),
        limits_(fresh_limits(flow_)),
        random_(seed, 7, 7) {
    control_ = make_(limits_, flow_);
    check("made");
  }
  CongestionControl& control() { return *control_; }
  const FlowLimits& limits() const { return limits_; }
  std::vector<std::uint64_t> trace;

  void play(int steps) {
    control_->on_established(microseconds(20), now_);
    check("on_established");
    for (int i = 0; i < steps && !HasFailure(); ++i) step();
  }
  // As a transport starts a flow anew.
  void start_anew() {
    limits_ = fresh_limits(flow_);
    control_ = make_(limits_, flow_);
    random_ = RandomStream(flow_.seed, 7, 7);
    now_ = begin_;
    total_ = 0;
    sent_.clear();
    trace.clear();
  }

 private:
  static bool HasFailure() { return ::testing::Test::HasFailure(); }
  void check(const char* call, bool tick_may_wait) {
    EXPECT_EQ(breach_of_contract(limits_, now_, tick_may_wait), "") << call << " at " << now_.count;
    trace.push_back(limits_.cwnd);
    trace.push_back(static_cast<std::uint64_t>(limits_.pacing_rate));
    trace.push_back(static_cast<std::uint64_t>(limits_.next_tick.count));
  }
  // A lazy control's tick waits for the next packet.
  void check(const char* call) { check(call, control_->traits.lazy); }
  std::uint64_t flight() const { return sent_.size() * kMss; }

  void step() {
    now_ += nanoseconds(static_cast<std::int64_t>(100 + random_.below(4'000)));
    if (tick_at(limits_, *control_) <= now_) {
      control_->on_tick(now_);
      check("on_tick");
    }
    for (int i = 0; i < 4 && (sent_.empty() || flight() + kMss <= limits_.cwnd); ++i) {
      sent_.push_back(now_);
      count_sent(limits_, *control_, kMss, now_);
      check("count_sent", false);
    }
    const auto chance = random_.below(1'000);
    if (chance < 4) return say(Congestion::timeout);
    if (chance < 12) return say(Congestion::loss);
    if (chance < 25) return say(Congestion::refused);
    if (chance < 40) return say(Congestion::notified);
    if (chance == 40) {
      control_->on_ports(1 + random_.below(4), 4, now_);
      return check("on_ports");
    }
    if (chance == 41) {
      control_->on_undo(now_);
      return check("on_undo");
    }
    if (chance == 42) {
      now_ += seconds(1);
      control_->on_restart(now_);
      return check("on_restart");
    }
    answer(chance % 5 == 0);
  }

  void say(Congestion kind) {
    CongestionEvent event;
    event.kind = kind;
    event.now = now_;
    event.bytes = kMss;
    event.flight = flight();
    event.sent = sent_.front();
    control_->on_congestion(event);
    check(std::string(to_string(kind)).c_str());
    if (!control_->traits.owns_window) limits_.cwnd = limits_.ssthresh;  // the transport's recovery
    control_->on_recovered(now_);
    check("on_recovered");
  }

  void answer(bool marked) {
    const std::size_t packets = 1 + random_.below(std::min<std::uint64_t>(sent_.size(), 3));
    AckSample s;
    s.now = now_;
    s.prior_in_flight = flight();
    s.cwnd_limited = true;
    for (std::size_t i = 0; i < packets; ++i) {
      s.rtt = now_ - sent_.front() + microseconds(20);
      sent_.pop_front();
    }
    s.acked = s.delivered = packets * kMss;
    s.marked = marked;
    s.ce_delivered = marked ? s.delivered : 0;
    s.rate_interval = s.rtt;
    s.rate_bytes = s.delivered;
    s.prior_delivered = total_;
    s.delivered_total = total_ += s.delivered;
    s.srtt = s.rtt;
    s.min_rtt = microseconds(20);
    s.in_flight = flight();
    s.packets_out = static_cast<std::uint32_t>(sent_.size());
    s.acked_end = total_;
    s.sent_end = total_ + flight();
    s.penalty = random_.below(50) == 0 ? static_cast<std::uint8_t>(random_.below(128)) : 0;
    s.restore = random_.below(50) == 0;
    if (random_.below(3) == 0) s.rtt = kNever;
    if (control_->traits.sees_acks) control_->on_ack(s);
    check("on_ack");
  }

  static constexpr Picoseconds begin_ = seconds(1);
  const FlowContext flow_;
  CongestionMake make_;
  FlowLimits limits_;
  std::unique_ptr<CongestionControl> control_;
  RandomStream random_;
  Picoseconds now_ = begin_;
  std::uint64_t total_ = 0;
  std::deque<Picoseconds> sent_;
};

class Contract : public ::testing::TestWithParam<std::string> {};

TEST_P(Contract, LimitsHoldThroughEveryHistory) {
  for (std::uint64_t seed = 1; seed <= 20 && !HasFailure(); ++seed) {
    Course course(GetParam(), seed);
    course.play(3'000);
  }
}

TEST_P(Contract, OneSeedGivesOneCourseAndAFlowStartsAnewAsTheFirst) {
  Course one(GetParam(), 5), two(GetParam(), 5);
  one.play(2'000);
  two.play(2'000);
  EXPECT_EQ(one.trace, two.trace);
  two.start_anew();
  two.play(2'000);
  EXPECT_TRUE(std::equal(two.trace.begin(), two.trace.end(), one.trace.begin() + 3, one.trace.end()))
      << "the first course has also the row of its making";
}

TEST_P(Contract, ObservedNamesNeverChange) {
  Course course(GetParam(), 2);
  Names before;
  course.control().observe(before);
  EXPECT_EQ(std::set<std::string>(before.names.begin(), before.names.end()).size(), before.names.size());
  for (int i = 0; i < 20; ++i) {
    course.play(100);
    Names now;
    course.control().observe(now);
    EXPECT_EQ(now.data, before.data) << "the same strings in the same order";
  }
}

TEST_P(Contract, EveryOptionIsDescribedAndItsDefaultIsAccepted) {
  for (const CongestionKind& kind : congestion_controls()) {
    if (kind.name != GetParam()) continue;
    for (const OptionInfo& option : kind.options) {
      EXPECT_FALSE(option.doc.empty()) << option.name;
      EXPECT_NO_THROW(kind.choose({{option.name, option.standard}})) << option.name;
    }
    EXPECT_THROW(kind.choose({{"no_such_option", 1.0}}), std::invalid_argument);
    EXPECT_EQ(Course(kind.name, 1).control().name(), kind.name);
  }
}

std::vector<std::string> every_control() {
  std::vector<std::string> names;
  for (const CongestionKind& kind : congestion_controls()) names.push_back(kind.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Controls, Contract, ::testing::ValuesIn(every_control()),
                         [](const auto& row) { return row.param; });

// --- the checker itself, and the register ----------------------------------------------------------

TEST(Breach, IsNamedByItsField) {
  const FlowLimits good = fresh_limits(context(1));
  const auto said = [&](auto&& change) {
    FlowLimits limits = good;
    change(limits);
    return breach_of_contract(limits, microseconds(5));
  };
  EXPECT_EQ(said([](FlowLimits&) {}), "");
  EXPECT_THAT(said([](FlowLimits& l) { l.cwnd = 0; }), ::testing::HasSubstr("window is 0"));
  EXPECT_THAT(said([](FlowLimits& l) { l.cwnd = 999; }), ::testing::HasSubstr("below one packet"));
  EXPECT_EQ(said([](FlowLimits& l) { l.cwnd = 999, l.pacing_rate = 1e6; }), "");
  EXPECT_THAT(said([](FlowLimits& l) { l.cwnd_most = 5'000; }), ::testing::HasSubstr("largest"));
  EXPECT_THAT(said([](FlowLimits& l) { l.pacing_rate = NAN; }), ::testing::HasSubstr("not a number"));
  EXPECT_THAT(said([](FlowLimits& l) { l.pacing_rate = INFINITY; }), ::testing::HasSubstr("infinite"));
  EXPECT_THAT(said([](FlowLimits& l) { l.pacing_rate = -1; }), ::testing::HasSubstr("negative"));
  EXPECT_THAT(said([](FlowLimits& l) { l.next_tick = microseconds(5); }), ::testing::HasSubstr("not after now"));
  EXPECT_THAT(said([](FlowLimits& l) { l.sent = l.next_sent = 9; }), ::testing::HasSubstr("sent"));
}

std::string refusal(const std::string& name, const OptionValues& options, Signals gives) {
  try {
    choose_congestion_control("cc", name, options, gives);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Register, RefusesUnknownNamesMissingSignalsAndWrongOptions) {
  constexpr Signals kTcp = signal::rtt | signal::delivery_rate | signal::marks | signal::recovery;
  EXPECT_EQ(refusal("vegas", {}, kTcp), "cc: no control vegas; there are reno, cubic, dctcp, bbr, held");
  EXPECT_EQ(refusal("nscc", {}, kTcp), "cc: nscc needs refusals, line_rate, which this transport does not give");
  EXPECT_EQ(refusal("dctcp", {{"dctcp_g", 1.5}}, kTcp), "TcpOptions.dctcp_g: above 0, up to 1");
  EXPECT_EQ(refusal("dctcp", {{"dctcp_g", std::string("x")}}, kTcp),
            "dctcp: dctcp_g has the wrong type, which is a number (above 0, up to 1)");
  EXPECT_EQ(refusal("bbr", {{"hystart", true}}, kTcp), "bbr: no option hystart");
  EXPECT_EQ(refusal("cubic", {{"hystart", false}}, kTcp), "accepted");
}

TEST(Register, TakesAControlOfItsOwn) {
  struct Still final : CongestionControl {
    explicit Still(FlowLimits& limits) : CongestionControl(limits, {.owns_window = true}) {}
    std::string_view name() const override { return "still"; }
    void on_ack(const AckSample&) override { limits_.cwnd = 7 * limits_.mss; }
    void on_congestion(const CongestionEvent&) override {}
  };
  CongestionKind kind;
  kind.name = "still";
  kind.choose = [](const OptionValues&) -> CongestionMake {
    return [](FlowLimits& limits, const FlowContext&) { return std::make_unique<Still>(limits); };
  };
  EXPECT_THROW(register_congestion_control({.name = "nameless"}), std::invalid_argument);
  register_congestion_control(kind);
  FlowLimits limits = fresh_limits(context(1));
  const auto make = choose_congestion_control("cc", "still", {}, 0);
  auto made = make(limits, context(1));
  made->on_ack({});
  EXPECT_EQ(limits.cwnd, 7u * kMss);
}

}  // namespace
}  // namespace loomnet
