// The register of policies; see policies.hpp.
#include "transport/congestion/astraea/policies.hpp"

#include <cstdio>
#include <map>
#include <mutex>
#include <stdexcept>

#include "clock/random.hpp"

namespace loomnet::astraea {
namespace {

struct Register {
  std::mutex lock;
  std::map<std::string, std::shared_ptr<const Policy>> rows;
};

Register& all() {
  static Register rows;
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
  const std::scoped_lock held(all().lock);
  const auto [row, fresh] = all().rows.emplace(name, policy);
  if (!fresh && row->second->serialize() != policy->serialize()) {
    throw std::invalid_argument("policy: another one has the name " + name + " in this process; train it anew");
  }
  return name;
}

NamedPolicy policy_named(const std::string& name) {
  if (name == "hold") return {Rule::hold, nullptr};
  if (name == "teacher") return {Rule::teacher, nullptr};
  const std::scoped_lock held(all().lock);
  const auto found = all().rows.find(name);
  if (found == all().rows.end()) {
    throw std::invalid_argument("no policy \"" + name +
                                "\"; give \"teacher\", \"hold\", or what "
                                "_core.astraea_policy() returned in this process for the bytes of a file");
  }
  return {Rule::trained, found->second};
}

}  // namespace loomnet::astraea
