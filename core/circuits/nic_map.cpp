#include "circuits/nic_map.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <tuple>

namespace loomnet::circuits {
namespace {

class Mapping {
 public:
  Mapping(const Assignment& wanted, const ServerNics& nics, std::span<const std::uint8_t> broken)
      : alpha_(static_cast<std::uint32_t>(nics.optical.size())), broken_(broken) {
    const auto all = nics.optical.size() + nics.electrical.size();
    for (const std::uint32_t nic : nics.optical) node_.push_back(nic >= all / 2);
    map.servers = static_cast<std::uint32_t>(wanted.servers);
    map.alpha = alpha_;
    map.peer.assign(wanted.servers * alpha_, kNoPeer);
  }

  // Keeps up to `count` circuits that join the two servers in `previous`, and returns how many it kept.
  std::uint32_t keep(const PortMap& previous, std::uint32_t i, std::uint32_t j, std::uint32_t count) {
    std::uint32_t kept = 0;
    for (std::uint32_t k = 0; k < alpha_ && kept < count; ++k) {
      const std::int32_t other = previous.peer[i * alpha_ + k];
      if (other == kNoPeer || static_cast<std::uint32_t>(other) / alpha_ != j) continue;
      if (broken(i * alpha_ + k) || broken(static_cast<std::uint32_t>(other))) continue;
      join(i * alpha_ + k, static_cast<std::uint32_t>(other));
      ++kept;
    }
    return kept;
  }
  void add(std::uint32_t i, std::uint32_t j) {
    const std::uint32_t a = choose(i, j), b = choose(j, i);
    join(a, b);
  }

  PortMap map;

 private:
  bool broken(std::uint32_t port) const { return !broken_.empty() && broken_[port]; }
  bool free(std::uint32_t port) const { return map.peer[port] == kNoPeer && !broken(port); }
  void join(std::uint32_t a, std::uint32_t b) {
    map.peer[a] = static_cast<std::int32_t>(b);
    map.peer[b] = static_cast<std::int32_t>(a);
  }
  // A free port of server i for one more circuit to server j.
  std::uint32_t choose(std::uint32_t i, std::uint32_t j) const {
    std::array<std::uint32_t, 2> spare{}, joined{};
    for (std::uint32_t k = 0; k < alpha_; ++k) {
      const std::int32_t other = map.peer[i * alpha_ + k];
      if (free(i * alpha_ + k)) ++spare[node_[k]];
      if (other != kNoPeer && static_cast<std::uint32_t>(other) / alpha_ == j) ++joined[node_[k]];
    }
    std::size_t node = joined[0] != joined[1] ? joined[0] > joined[1] : spare[1] > spare[0];
    if (spare[node] == 0) node = 1 - node;
    for (std::uint32_t k = 0; k < alpha_; ++k) {
      if (node_[k] == node && free(i * alpha_ + k)) return i * alpha_ + k;
    }
    throw std::invalid_argument("circuits: server " + std::to_string(i) + " has more circuits than ports of its " +
                                std::to_string(alpha_) + " optical NICs that work");
  }

  std::uint32_t alpha_;
  std::span<const std::uint8_t> broken_;  // by port; empty: none
  std::vector<std::uint8_t> node_;  // by optical NIC
};

}  // namespace

ServerNics server_nics(std::uint32_t nics, std::uint32_t alpha) {
  if (nics == 0 || nics % 2 != 0) {
    throw std::invalid_argument("circuits: a server has an even number of NICs, not " + std::to_string(nics));
  }
  if (alpha > nics) {
    throw std::invalid_argument("circuits: alpha " + std::to_string(alpha) + " is more than the " +
                                std::to_string(nics) + " NICs of a server");
  }
  ServerNics found;
  std::vector<bool> electrical(nics);
  for (std::uint32_t n = 0; n < nics - alpha; ++n) {
    const std::uint32_t below_top = n / 2;
    electrical[n % 2 == 0 ? nics - 1 - below_top : nics / 2 - 1 - below_top] = true;
  }
  for (std::uint32_t nic = 0; nic < nics; ++nic) {
    (electrical[nic] ? found.electrical : found.optical).push_back(nic);
  }
  return found;
}

PortMap map_ports(const Assignment& wanted, std::span<const std::uint64_t> demand, const ServerNics& nics,
                  const PortMap& previous, std::span<const std::uint8_t> broken) {
  Mapping mapping(wanted, nics, broken);
  if (!broken.empty() && broken.size() != mapping.map.peer.size()) {
    throw std::invalid_argument("circuits: broken ports are of another region");
  }
  if (!previous.peer.empty() && (previous.servers != mapping.map.servers || previous.alpha != mapping.map.alpha)) {
    throw std::invalid_argument("circuits: the previous ports are of another region");
  }
  if (demand.size() != wanted.circuits.size()) {
    throw std::invalid_argument("circuits: demand and circuits are of different regions");
  }
  const auto servers = static_cast<std::uint32_t>(wanted.servers);
  std::vector<std::uint32_t> missing = wanted.circuits;
  std::vector<std::tuple<std::uint32_t, std::uint64_t, std::uint32_t, std::uint32_t>> pairs;
  for (std::uint32_t i = 0; i < servers; ++i) {
    for (std::uint32_t j = i + 1; j < servers; ++j) {
      const std::uint32_t count = wanted.at(i, j);
      if (count == 0) continue;
      pairs.emplace_back(count, demand[i * servers + j], i, j);
      if (!previous.peer.empty()) missing[i * servers + j] -= mapping.keep(previous, i, j, count);
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) > std::tie(std::get<0>(b), std::get<1>(b));
  });
  for (const auto& [count, bytes, i, j] : pairs) {
    for (std::uint32_t n = missing[i * servers + j]; n > 0; --n) mapping.add(i, j);
  }
  return mapping.map;
}

}  // namespace loomnet::circuits
