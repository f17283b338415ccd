#include "circuits/worthwhile.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace loomnet::circuits {
namespace {

// Longer exchanges and dark times count as this long, so that sums of all that is kept stay below 2^63.
constexpr Picoseconds kLongest = seconds(1000);
constexpr Picoseconds kDarkest = seconds(1'000'000);

}  // namespace

Picoseconds Worthwhile::lasts(std::span<const std::uint64_t> bytes, std::uint32_t exchanges,
                              const Circuits& circuits) const {
  const double each = exchange_seconds(weighing_.split, servers_, bytes, circuits, weighing_.rates);
  const double most = kLongest.seconds();
  return Picoseconds{std::llround(std::min(each, most) * 1e12)} * exchanges;
}

bool Worthwhile::fits(const Circuits& circuits, std::span<const std::uint32_t> free) const {
  for (std::uint32_t i = 0; i < servers_; ++i) {
    std::uint32_t used = 0;
    for (std::uint32_t j = 0; j < servers_; ++j) used += circuits[std::size_t{i} * servers_ + j];
    if (used > free[i]) return false;
  }
  return true;
}

Picoseconds Worthwhile::dark_between(const Circuits& from, const Circuits& to, const Dark& dark) const {
  std::uint32_t added = 0;  // each circuit twice
  for (std::size_t pair = 0; pair < to.size(); ++pair) added += to[pair] > from[pair] ? to[pair] - from[pair] : 0;
  return from == to ? Picoseconds{} : std::min(dark(added / 2), kDarkest);
}

void Worthwhile::begin(const Circuits& present) {
  start_ = present;
  account_ = {};
  settle(present);
}

void Worthwhile::settle(const Circuits& home) {
  home_ = home;
  past_.clear();
}

// Whether other circuits would have saved more than the dark time over all requests since there is this home.
bool Worthwhile::home_is_outdone(const Circuits& by, Picoseconds dark) const {
  Picoseconds saved{};
  for (const Past& past : past_) saved += past.at_home - lasts(past.bytes, past.exchanges, by);
  return saved > dark;
}

Worthwhile::Circuits Worthwhile::choose(const Circuits& present, const Circuits& wanted,
                                        std::span<const std::uint32_t> free, const Use& use, const Dark& dark) {
  // Others have changed the circuits, or ports have failed that those of the start need: it starts anew.
  if (present != last_ || !fits(start_, free)) begin(present);
  if (!fits(home_, free)) settle(start_);
  struct Option {
    const Circuits* circuits;
    Picoseconds cost;
  };
  const auto option = [&](const Circuits& circuits) {
    const Picoseconds waits = std::max(Picoseconds{}, dark_between(present, circuits, dark) - use.hidden);
    return Option{&circuits, waits + lasts(use.bytes, use.exchanges, circuits)};
  };
  const Option new_home = option(wanted);
  std::array<Option, 4> options{option(present), new_home, option(home_), option(start_)};
  std::ranges::stable_sort(options, {}, &Option::cost);  // of equal ones the circuits that there are come first
  const Picoseconds at_start = lasts(use.bytes, use.exchanges, start_);
  const auto left = [&](const Option& one) { return account_ + at_start - one.cost; };
  // The account must be able to pay for the way back at the next request and still owe no more than one dark time. The
  // part of it that will be hidden costs nothing.
  const auto may = [&](const Option& one) {
    if (*one.circuits == start_) return true;
    const Picoseconds back = dark_between(*one.circuits, start_, dark);
    const Picoseconds most = std::max(back, dark_between(start_, *one.circuits, dark));
    return left(one) - std::max(Picoseconds{}, back - use.next_hidden) >= -most;
  };
  Option chosen = *std::ranges::find_if(options, may);  // the start itself is one

  past_.push_back({use.bytes, use.exchanges, lasts(use.bytes, use.exchanges, home_)});
  if (past_.size() > kMostPast) past_.pop_front();
  const bool stays_home = *chosen.circuits == home_ && present == home_ && wanted != home_;
  if (stays_home && may(new_home) && home_is_outdone(wanted, dark_between(home_, wanted, dark))) {
    chosen = new_home;
    settle(wanted);
  }
  account_ = std::min(left(chosen), kDarkest);
  last_ = *chosen.circuits;
  if (last_ == start_ && home_ != start_) settle(start_);
  return last_;
}

}  // namespace loomnet::circuits
