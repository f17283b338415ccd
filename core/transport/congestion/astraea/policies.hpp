// The policies that flows of this process can follow, by name: three that are always there, and those whose
// files were handed in. A run names a policy, it never names a file: so the engine, which may run as root,
// opens no path for a user.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "transport/congestion/astraea/policy.hpp"

namespace loomnet::astraea {

enum class Rule : std::uint8_t {
  hold,     // always 0: what a policy is compared with
  teacher,  // teacher.hpp
  outside,  // somebody else decides, through Pupil
  trained,
};

struct NamedPolicy {
  Rule rule = Rule::teacher;
  std::shared_ptr<const Policy> trained;
};

// Takes in a policy file and returns its name, which follows from the bytes alone. Throws
// std::invalid_argument as Policy::parse() does.
std::string add_policy(std::span<const std::uint8_t> file);
// Flows that follow the policy keep it. Nothing happens where there is none of that name.
void forget_policy(const std::string& name);
// Throws std::invalid_argument where there is none of that name.
NamedPolicy policy_named(const std::string& name);

}  // namespace loomnet::astraea
