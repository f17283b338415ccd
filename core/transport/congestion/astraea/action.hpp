// What an action does. Liao et al., EuroSys 2024: an action a in [-1, 1] multiplies the window by 1 + alpha * a,
// or divides it by 1 + alpha * |a|. Rounding is away from the window, so every action but 0 moves it by a packet
// at least. Other kinds of actions are those of Aurora and Orca, which Astraea is compared with.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace loomnet::astraea {

// What an action is: a factor of the window, a factor of the sending rate, that rate itself, or a factor of
// another control's window. The numbers are those of the policy file.
enum class ActionKind : std::uint8_t { window, rate, absolute, factor };
inline constexpr std::array<std::string_view, 4> kActionKinds = {"window", "rate", "absolute", "factor"};
inline constexpr std::string_view to_string(ActionKind kind) { return kActionKinds[static_cast<std::size_t>(kind)]; }

// The controls whose window a factor multiplies; the numbers are those of the policy file.
enum class InnerRule : std::uint8_t { cubic, reno, vegas };
inline constexpr std::array<std::string_view, 3> kInnerRules = {"cubic", "reno", "vegas"};
inline constexpr std::string_view to_string(InnerRule rule) { return kInnerRules[static_cast<std::size_t>(rule)]; }

inline constexpr double kAlpha = 0.025;
// Abbasloo et al., SIGCOMM 2020: an action a in [-1, 1] multiplies the inner rule's window by 2^(2a); so it is in
// the authors' released actor, which has 4^a.
inline constexpr double kFactorExponent = 2, kMostFactorExponent = 8;
inline constexpr std::uint32_t kLeastWindow = 4, kMostWindow = 20'000;  // packets, unless a policy says otherwise
inline constexpr std::uint32_t kWindowBound = 1u << 24;                 // no map goes above it
inline constexpr std::int32_t kFullAction = 32'767;                     // the integer for a = 1

// The window in packets after action `a`; not a number counts as 0, and beyond [-1, 1] as the end.
std::uint32_t map_action(std::uint32_t window, double a, double alpha = kAlpha);

// The same by whole numbers alone, as a kernel has them: `q` is 32767 times the action, `alpha` counts
// millionths. At a = 1 and -1 it is the map above; elsewhere a rounding apart at most.
std::uint32_t map_action_int(std::uint32_t window, std::int32_t q, std::uint32_t alpha_millionths = 25'000);

// The same of a sending rate, without rounding: Jay et al., "A Deep Reinforcement Learning Perspective on Internet
// Congestion Control", ICML 2019, equation 1, which has the same map with another alpha.
double map_rate(double rate, double a, double alpha = kAlpha);

// 2^(exponent * a), which is 1 to the bit at a = 0; and the action of which it is the factor, -1 to 1.
double map_factor(double a, double exponent = kFactorExponent);
double factor_action(double factor, double exponent = kFactorExponent);

// An action as a rate between two, even in their logarithms.
double rate_between(double least, double most, double a);

// A policy's output below 1/256 counts as 0. Every other action moves the window by a packet at least, so
// without it an idle flow would swing about its window, and the forms of a policy in floats and in whole
// numbers, which differ by less, could move it by a packet in opposite directions.
inline constexpr double kLeastAction = 1.0 / 256;
inline constexpr std::int32_t kLeastIntegerAction = 128;
inline double settled(double a) { return a > -kLeastAction && a < kLeastAction ? 0 : a; }
inline std::int32_t settled_int(std::int32_t q) { return q > -kLeastIntegerAction && q < kLeastIntegerAction ? 0 : q; }

inline std::int32_t integer_action(double a) {
  const double scaled = a * kFullAction;
  return static_cast<std::int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
}

}  // namespace loomnet::astraea
