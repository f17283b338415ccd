// The bounds of a policy's fields, for policies from files and for those made in memory. Each throws
// std::invalid_argument with one line that names the field, the error and the fix.
#pragma once

#include <string>

#include "transport/congestion/astraea/policy.hpp"

namespace loomnet::astraea {

inline constexpr std::uint16_t kMostIntervalMs = 1'000;
inline constexpr double kMostAlpha = 0.5;

[[noreturn]] void refuse_policy(const std::string& why);
void check_spec(const PolicySpec& spec);
void check_layer_count(std::size_t count);
// `width`: what the layer before gives, or the input.
void check_layer_sizes(std::size_t layer, std::size_t count, std::size_t width, std::size_t in, std::size_t out);
void check_weights(std::size_t number, const Layer& layer);

}  // namespace loomnet::astraea
