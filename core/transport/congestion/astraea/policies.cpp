// The register of policies; see policies.hpp.
#include "transport/congestion/astraea/policies.hpp"

#include <cstdio>
#include <map>
#include <stdexcept>

#include "clock/random.hpp"

namespace loomnet::astraea {
namespace {

// Like the register of controls it is used by one thread at a time: options are read before a run begins.
std::map<std::string, std::shared_ptr<const Policy>>& all() {
  static std::map<std::string, std::shared_ptr<const Policy>> rows;
  return rows;
}

std::string name_of(std::span<const std::uint8_t> file) {
  std::uint64_t hash = file.size();
  for (const std::uint8_t byte : file) hash = mix64(hash * 257 + byte);
  char text[32];
  std::snprintf(text, sizeof text, "astp-%016llx", static_cast<unsigned long long>(hash));
  return text;
}

}  // namespace

std::string add_policy(std::span<const std::uint8_t> file) {
  auto policy = std::make_shared<const Policy>(Policy::parse(file));
  std::string name = name_of(file);
  const auto [row, fresh] = all().emplace(name, policy);
  if (!fresh && row->second->serialize() != policy->serialize()) {
    throw std::invalid_argument("policy: another one has the name " + name + " in this process; train it anew");
  }
  return name;
}

void forget_policy(const std::string& name) { all().erase(name); }

NamedPolicy policy_named(const std::string& name) {
  if (name == "hold") return {Rule::hold, nullptr};
  if (name == "teacher") return {Rule::teacher, nullptr};
  if (name == "outside") return {Rule::outside, nullptr};
  const auto found = all().find(name);
  if (found == all().end()) {
    throw std::invalid_argument("no policy \"" + name +
                                "\"; give \"teacher\", \"hold\", \"outside\", or what "
                                "_core.astraea_policy() returned in this process for the bytes of a file");
  }
  return {Rule::trained, found->second};
}

}  // namespace loomnet::astraea
