// When a region's circuits are worth patching: where the exchanges of a request save more than the part of the dark time
// that nothing hides. An account of what this has saved keeps the region from ever losing more than one dark time
// against circuits that it leaves alone.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "circuits/split.hpp"
#include "clock/time.hpp"

namespace loomnet::circuits {

// What a request asks circuits for.
struct Use {
  std::vector<std::uint64_t> bytes;  // that server i sends server j in one exchange, or j sends i: i * servers + j
  std::uint32_t exchanges = 2;  // that take its circuits until the next request; 0: an earlier one counted them
  Picoseconds hidden{};  // of the dark time, by work that goes on before the first of them
  Picoseconds next_hidden{};  // of a dark time that the next request begins, as far as that is known; else 0
};

struct Weighing {
  Split split = Split::all_or_nothing;
  ExchangeRates rates;
};

class Worthwhile {
 public:
  using Circuits = std::vector<std::uint32_t>;  // by servers i * servers + j
  // The dark time of a request that brings so many circuits.
  using Dark = std::function<Picoseconds(std::uint32_t circuits)>;

  Worthwhile(std::uint32_t servers, const Weighing& weighing) : servers_(servers), weighing_(weighing) {}

  // Chooses among the circuits that there are, those `wanted`, those of the start, and those of home, which is the start
  // at first. Where it has stayed at home, and the wanted ones would have saved more than a dark time there, they are
  // the new home if the account allows it. `free`: working ports of each server.
  Circuits choose(const Circuits& present, const Circuits& wanted, std::span<const std::uint32_t> free, const Use& use,
                  const Dark& dark);
  // Time that this rule has saved so far against staying with the circuits of the start; below 0: that it has lost.
  Picoseconds account() const { return account_; }
  const Circuits& home() const { return home_; }

 private:
  static constexpr std::size_t kMostPast = 256;  // requests that a new home is judged by
  struct Past {
    std::vector<std::uint64_t> bytes;
    std::uint32_t exchanges = 0;
    Picoseconds at_home;  // its exchanges by home's circuits
  };

  Picoseconds lasts(std::span<const std::uint64_t> bytes, std::uint32_t exchanges, const Circuits& circuits) const;
  bool fits(const Circuits& circuits, std::span<const std::uint32_t> free) const;
  Picoseconds dark_between(const Circuits& from, const Circuits& to, const Dark& dark) const;
  void begin(const Circuits& present);
  void settle(const Circuits& home);
  bool home_is_outdone(const Circuits& by, Picoseconds dark) const;

  std::uint32_t servers_;
  Weighing weighing_;
  Circuits start_, home_, last_;  // last_: as chosen
  Picoseconds account_{};
  std::deque<Past> past_;  // since there is this home
};

}  // namespace loomnet::circuits
