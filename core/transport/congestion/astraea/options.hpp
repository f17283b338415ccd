// Astraea's options; their rows are in options.cpp.
#pragma once

#include <string>

#include "transport/congestion/astraea/agent.hpp"
#include "transport/options.hpp"

namespace loomnet::astraea {

enum class Startup : std::uint8_t { slow_start, none };
enum class Arithmetic : std::uint8_t { float32, int16 };
// Who decides for flows of the kernel's TCP: an agent in the engine, or the program in the kernel.
enum class Seat : std::uint8_t { thread, kernel };

struct AstraeaOptions {
  std::uint32_t interval_us = 30'000;
  std::uint32_t features = 1;  // of kFeatureSets: ours11
  std::uint32_t frames = 5;
  Spacing spacing = Spacing::every;
  Lifetime extremes = Lifetime::windowed_drain;
  Startup startup = Startup::slow_start;
  double alpha = kAlpha;
  std::uint32_t wake_us = 5'000;
  double interval_rtts = 0;
  std::uint32_t interval_least_us = 10'000, interval_most_us = 100'000;
  std::uint32_t action_delay_us = 0;
  ActionKind action = ActionKind::window;
  double rate_least_bps = 1e5, rate_most_bps = 1e9;  // of `absolute`
  InnerRule inner = InnerRule::cubic;                // of `factor`
  double factor_exponent = kFactorExponent;          // of `factor`
  Arithmetic arithmetic = Arithmetic::float32;
  Seat agent = Seat::thread;
  std::string policy = "teacher";

  static const OptionTable<AstraeaOptions>& table();
  Picoseconds wake() const { return microseconds(wake_us); }
  Picoseconds action_delay() const { return microseconds(action_delay_us); }
};

}  // namespace loomnet::astraea
