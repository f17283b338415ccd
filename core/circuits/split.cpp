#include "circuits/split.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace loomnet::circuits {
namespace {

// Rounded up by this part, so that circuits leave no byte over to the wires where they need none.
constexpr double kRounding = 4 * std::numeric_limits<double>::epsilon();

// One server's bytes out or in, by peer.
struct Line {
  std::span<const std::uint64_t> bytes;
  std::span<const std::uint32_t> circuits;
  std::size_t first, step;
  std::uint32_t peers;

  double bits(std::uint32_t peer) const { return 8.0 * static_cast<double>(bytes[first + peer * step]); }
  std::uint32_t with(std::uint32_t peer) const { return circuits[first + peer * step]; }
};

// The least time from `seconds` on at which this server's electrical ports have sent the rest of its demand. That
// rest falls over time in straight lines that get less steep, so Newton's steps never go too far, and each step that
// is not the last one ends the part of one more peer.
double line_seconds(const Line& line, const ExchangeRates& rates, double seconds) {
  for (std::uint32_t step = 0; step <= line.peers; ++step) {
    double rest = -rates.electrical * seconds, slope = rates.electrical;
    for (std::uint32_t peer = 0; peer < line.peers; ++peer) {
      const double by_light = line.with(peer) * rates.circuit, left = line.bits(peer) - by_light * seconds;
      if (left <= 0) continue;
      rest += left;
      slope += by_light;
    }
    if (rest <= 0) break;
    if (slope <= 0) return HUGE_VAL;
    const double next = seconds + rest / slope;
    if (next <= seconds) break;  // below the precision of a double
    seconds = next;
  }
  return seconds;
}

template <class Found>
void each_line(std::uint32_t servers, std::span<const std::uint64_t> bytes, std::span<const std::uint32_t> circuits,
               Found&& found) {
  for (std::uint32_t server = 0; server < servers; ++server) {
    found(Line{bytes, circuits, std::size_t{server} * servers, 1, servers});
    found(Line{bytes, circuits, server, servers, servers});
  }
}

double all_or_nothing_seconds(std::uint32_t servers, std::span<const std::uint64_t> bytes,
                              std::span<const std::uint32_t> circuits, const ExchangeRates& rates) {
  double bits = 0, seconds = 0;  // of the busiest server by wires; of the slowest pair by circuits
  each_line(servers, bytes, circuits, [&](const Line& line) {
    double rest = 0;
    for (std::uint32_t peer = 0; peer < line.peers; ++peer) {
      if (line.with(peer) == 0) {
        rest += line.bits(peer);
      } else {
        seconds = std::max(seconds, line.bits(peer) / (line.with(peer) * rates.circuit));
      }
    }
    bits = std::max(bits, rest);
  });
  return bits > 0 ? std::max(seconds, bits / rates.electrical) : seconds;
}

}  // namespace

double weighted_seconds(std::uint32_t servers, std::span<const std::uint64_t> bytes,
                        std::span<const std::uint32_t> circuits, const ExchangeRates& rates) {
  double seconds = 0;
  each_line(servers, bytes, circuits, [&](const Line& line) {
    if (std::isfinite(seconds)) seconds = line_seconds(line, rates, seconds);
  });
  return seconds * (1 + kRounding);
}

double exchange_seconds(Split split, std::uint32_t servers, std::span<const std::uint64_t> bytes,
                        std::span<const std::uint32_t> circuits, const ExchangeRates& rates) {
  const auto of_split = split == Split::weighted ? weighted_seconds : all_or_nothing_seconds;
  return of_split(servers, bytes, circuits, rates);
}

}  // namespace loomnet::circuits
