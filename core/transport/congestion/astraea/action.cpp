// What actions do; see action.hpp.
#include "transport/congestion/astraea/action.hpp"

#include <algorithm>
#include <cmath>

#include "transport/congestion/astraea/arithmetic.hpp"

namespace loomnet::astraea {

std::uint32_t map_action(std::uint32_t window, double a, double alpha) {
  if (std::isnan(a)) return window;
  a = std::clamp(a, -1.0, 1.0);
  const double w = std::min(window, kWindowBound);
  const double to = a >= 0 ? std::ceil(w * (1 + alpha * a)) : std::floor(w / (1 - alpha * a));
  return static_cast<std::uint32_t>(std::min<double>(to, kWindowBound));
}

std::uint32_t map_action_int(std::uint32_t window, std::int32_t q, std::uint32_t alpha_millionths) {
  q = std::clamp(q, -kFullAction, kFullAction);
  // Below 2^24 * 2^35: no product overflows.
  const std::uint64_t w = std::min(window, kWindowBound), one = 1'000'000ull * kFullAction;
  const std::uint64_t step =
      std::uint64_t{std::min(alpha_millionths, 1'000'000u)} * static_cast<std::uint64_t>(q < 0 ? -q : q);
  const std::uint64_t to = q >= 0 ? w + (step * w + one - 1) / one : one * w / (one + step);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(to, kWindowBound));
}

double map_rate(double rate, double a, double alpha) {
  if (std::isnan(a)) return rate;
  a = std::clamp(a, -1.0, 1.0);
  return a >= 0 ? rate * (1 + alpha * a) : rate / (1 - alpha * a);
}

double map_factor(double a, double exponent) {
  if (std::isnan(a)) return 1;
  return exp2(exponent * std::clamp(a, -1.0, 1.0));
}

double factor_action(double factor, double exponent) { return std::clamp(log2(factor) / exponent, -1.0, 1.0); }

double rate_between(double least, double most, double a) {
  return least * exp2((std::clamp(a, -1.0, 1.0) + 1) / 2 * log2(most / least));
}

}  // namespace loomnet::astraea
