// The ring's steps, its uplinks' bursts and which of its flows are ahead; rates are FluidNetwork's.
#include "fluid/ring_model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace loomnet::fluid {
namespace {

constexpr BitsPerSecond kRate{100'000'000'000};
constexpr std::uint64_t kStepBytes = 12'500'000;
constexpr double kStep = 1e9;  // picoseconds: kStepBytes at kRate
constexpr std::uint32_t kMost = 4096;
constexpr double kMostSteps = 1000;  // of a pause's or a burst's mean
// What a random stream is for.
constexpr std::uint64_t kPath = 1, kPause = 2, kBurst = 3;
// Events: a rank's pause is over, or an uplink's burst begins or ends.
constexpr std::uint64_t kToggle = 1ull << 32;

double exponential(RandomStream& random, double mean) { return -mean * std::log1p(-random.uniform()); }

Picoseconds after(double steps) { return Picoseconds{std::llround(steps * kStep)}; }

void check(const RingSettings& s) {
  const auto need = [](bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
  };
  need(s.ranks >= 2 && s.ranks <= kMost, "ring: ranks must be from 2 to 4096");
  need(s.uplinks >= 1 && s.uplinks <= kMost, "ring: uplinks must be from 1 to 4096");
  need(s.leaves >= 1 && s.uplinks % s.leaves == 0, "ring: leaves must divide uplinks");
  need(s.jitter >= 0 && s.jitter <= kMostSteps, "ring: jitter must be from 0 to 1000 steps");
  need(s.burst_share >= 0 && s.burst_share < 1, "ring: burst_share must be at least 0 and below 1");
  need(s.burst_capacity >= 0.001 && s.burst_capacity <= 1, "ring: burst_capacity must be from 0.001 to 1");
  need(s.burst_mean >= 0.001 && s.burst_mean <= kMostSteps, "ring: burst_mean must be from 0.001 to 1000 steps");
  need(s.weight >= 1 && s.weight <= 1u << 20, "ring: weight must be from 1 to 1048576");
}

}  // namespace

RingModel::RingModel(const RingSettings& settings)
    : settings_(settings), steps_(2 * (settings.ranks - 1)), links_(events_), id_(events_.add(*this)) {
  check(settings);
  ranks_.resize(settings.ranks);
  uplinks_.resize(settings.uplinks);
  for (std::uint32_t link = 0; link < settings.ranks + settings.uplinks; ++link) links_.add_link(kRate);
}

RingResult RingModel::run() {
  for (std::uint32_t i = 0; i < settings_.uplinks && settings_.burst_share > 0; ++i) {
    uplinks_[i].random = RandomStream(settings_.seed, i, kBurst);
    toggle(i, uplinks_[i].random.uniform() < settings_.burst_share);
  }
  for (std::uint32_t i = 0; i < settings_.ranks; ++i) look(i);
  while (ended_ < settings_.ranks) events_.step();
  const double end = static_cast<double>(events_.now().count);
  return {end / kStep, gaps_ / end, ahead_ / busy_};
}

// The rank's next step begins, after its pause, once its own last step and its predecessor's are through.
void RingModel::look(std::uint32_t number) {
  Rank& rank = ranks_[number];
  if (!rank.waiting || rank.sent == steps_) return;
  const std::uint32_t before = (number == 0 ? settings_.ranks : number) - 1;
  if (rank.sent > 0 && ranks_[before].sent < rank.sent) return;
  rank.waiting = false;
  if (settings_.jitter == 0) return send(number);
  RandomStream random(settings_.seed, std::uint64_t{number} << 32 | rank.sent, kPause);
  events_.schedule(events_.now() + after(exponential(random, settings_.jitter)), id_, number);
}

void RingModel::send(std::uint32_t number) {
  Rank& rank = ranks_[number];
  const std::uint32_t draw = settings_.rehash ? rank.sent : 0;
  const std::uint32_t of_leaf = settings_.uplinks / settings_.leaves;
  RandomStream random(settings_.seed, std::uint64_t{number} << 32 | draw, kPath);
  rank.uplink = number % settings_.leaves * of_leaf + random.below(of_leaf);
  const LinkIndex route[] = {number, settings_.ranks + rank.uplink};
  rank.flow = links_.start(route, kStepBytes, settings_.weight, *this, number);
  rank.ahead = false;
  rank.since = events_.now();
  uplinks_[rank.uplink].senders.push_back(number);
  compare(rank.uplink);
}

void RingModel::finished(FlowId, std::uint64_t number, Picoseconds now) {
  Rank& rank = ranks_[number];
  const auto [rear, fore] =
      std::minmax_element(ranks_.begin(), ranks_.end(), [](const Rank& a, const Rank& b) { return a.sent < b.sent; });
  gaps_ += static_cast<double>(fore->sent - rear->sent) * static_cast<double>((now - since_).count);
  since_ = now;
  account(rank, now);
  rank.waiting = true;
  std::vector<std::uint32_t>& senders = uplinks_[rank.uplink].senders;
  senders.erase(std::find(senders.begin(), senders.end(), number));
  compare(rank.uplink);
  if (++rank.sent == steps_) ++ended_;
  look(static_cast<std::uint32_t>(number));
  look(static_cast<std::uint32_t>((number + 1) % settings_.ranks));
}

void RingModel::on_event(std::uint64_t what, Picoseconds) {
  if (what < kToggle) return send(static_cast<std::uint32_t>(what));
  const auto uplink = static_cast<std::uint32_t>(what - kToggle);
  toggle(uplink, !uplinks_[uplink].burst);
}

void RingModel::toggle(std::uint32_t number, bool burst) {
  Uplink& uplink = uplinks_[number];
  uplink.burst = burst;
  const double capacity = static_cast<double>(kRate.count) * (burst ? settings_.burst_capacity : 1);
  links_.set_rate(settings_.ranks + number, {static_cast<std::uint64_t>(std::llround(capacity))});
  const double share = settings_.burst_share;
  const double mean = burst ? settings_.burst_mean : settings_.burst_mean * (1 - share) / share;
  events_.schedule(events_.now() + after(exponential(uplink.random, mean)), id_, kToggle + number);
}

// Compares the flows of this uplink anew, after one began or ended; all flows where the scope is the switch.
void RingModel::compare(std::uint32_t number) {
  if (settings_.gap == 0) return;
  if (!settings_.switch_wide) return compare(number, least(uplinks_[number]));
  std::uint32_t rearmost = std::numeric_limits<std::uint32_t>::max();
  for (const Uplink& each : uplinks_) rearmost = std::min(rearmost, least(each));
  for (std::uint32_t each = 0; each < settings_.uplinks; ++each) compare(each, rearmost);
}

void RingModel::compare(std::uint32_t number, std::uint32_t rearmost) {
  for (const std::uint32_t sender : uplinks_[number].senders) {
    Rank& rank = ranks_[sender];
    call_ahead(rank, rank.sent - rearmost >= settings_.gap);
  }
}

void RingModel::call_ahead(Rank& rank, bool ahead) {
  if (rank.ahead == ahead) return;
  account(rank, events_.now());
  rank.ahead = ahead;
  links_.set_weight(rank.flow, ahead ? 1 : settings_.weight);
}

void RingModel::account(Rank& rank, Picoseconds now) {
  const auto spent = static_cast<double>((now - rank.since).count);
  busy_ += spent;
  if (rank.ahead) ahead_ += spent;
  rank.since = now;
}

std::uint32_t RingModel::least(const Uplink& uplink) const {
  std::uint32_t found = std::numeric_limits<std::uint32_t>::max();
  for (const std::uint32_t sender : uplink.senders) found = std::min(found, ranks_[sender].sent);
  return found;
}

}  // namespace loomnet::fluid
