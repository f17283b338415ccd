// NICs of circuits: which are optical, that a port has one peer, and that what stays is not touched.
#include "circuits/nic_map.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <stdexcept>
#include <string>

namespace loomnet::circuits {
namespace {

using Demand = std::vector<std::uint64_t>;

// Circuits between two servers, in `map`, as (NIC here, NIC there).
std::set<std::pair<std::uint32_t, std::uint32_t>> between(const PortMap& map, std::uint32_t i, std::uint32_t j) {
  std::set<std::pair<std::uint32_t, std::uint32_t>> found;
  for (std::uint32_t k = 0; k < map.alpha; ++k) {
    const std::int32_t other = map.peer[i * map.alpha + k];
    if (other == kNoPeer || static_cast<std::uint32_t>(other) / map.alpha != j) continue;
    found.emplace(k, static_cast<std::uint32_t>(other) % map.alpha);
  }
  return found;
}

void check(const PortMap& map, const Assignment& wanted) {
  for (std::uint32_t port = 0; port < map.peer.size(); ++port) {
    const std::int32_t other = map.peer[port];
    if (other == kNoPeer) continue;
    ASSERT_EQ(map.peer[static_cast<std::size_t>(other)], static_cast<std::int32_t>(port));
  }
  for (std::uint32_t i = 0; i < map.servers; ++i) {
    for (std::uint32_t j = 0; j < map.servers; ++j) {
      ASSERT_EQ(between(map, i, j).size(), wanted.at(i, j)) << i << "-" << j;
    }
  }
}

TEST(NicMap, ElectricalNicsComeFromTheTopOfEachNumaNode) {
  EXPECT_EQ(server_nics(8, 6).electrical, (std::vector<std::uint32_t>{3, 7}));
  EXPECT_EQ(server_nics(8, 6).optical, (std::vector<std::uint32_t>{0, 1, 2, 4, 5, 6}));
  EXPECT_EQ(server_nics(8, 7).electrical, (std::vector<std::uint32_t>{7}));
  EXPECT_EQ(server_nics(8, 4).electrical, (std::vector<std::uint32_t>{2, 3, 6, 7}));
  EXPECT_EQ(server_nics(4, 3).electrical, (std::vector<std::uint32_t>{3}));
  EXPECT_EQ(server_nics(8, 0).electrical.size(), 8u);
  EXPECT_EQ(server_nics(8, 8).optical.size(), 8u);
  EXPECT_THROW(server_nics(8, 9), std::invalid_argument);
  EXPECT_THROW(server_nics(7, 3), std::invalid_argument);
  EXPECT_THROW(server_nics(0, 0), std::invalid_argument);
}

TEST(NicMap, ParallelCircuitsAreOnDifferentNumaNodes) {
  const Demand demand = {0, 9, 9, 0};
  for (std::uint32_t alpha = 2; alpha <= 6; alpha += 2) {
    const Assignment wanted = assign(demand, std::vector<std::uint32_t>(2, 2), Rule::skip);
    const PortMap map = map_ports(wanted, demand, server_nics(8, alpha), {});
    check(map, wanted);
    const ServerNics nics = server_nics(8, alpha);
    std::set<bool> here, there;
    for (const auto& [k, l] : between(map, 0, 1)) {
      here.insert(nics.optical[k] >= 4);
      there.insert(nics.optical[l] >= 4);
    }
    EXPECT_EQ(here.size(), 2u) << "alpha " << alpha;
    EXPECT_EQ(there.size(), 2u) << "alpha " << alpha;
  }
}

TEST(NicMap, RandomRegionsKeepWhatStays) {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 draw(seed);
    const auto servers = static_cast<std::uint32_t>(2 + draw() % 15);
    const auto alpha = static_cast<std::uint32_t>(1 + draw() % 8);
    const ServerNics nics = server_nics(8, alpha);
    PortMap map;
    Assignment before{servers, std::vector<std::uint32_t>(servers * servers), {}};
    for (int step = 0; step < 6; ++step) {
      Demand demand(servers * servers);
      for (std::uint32_t i = 0; i < servers; ++i) {
        for (std::uint32_t j = 0; j < i; ++j) demand[i * servers + j] = demand[j * servers + i] = draw() % 100;
      }
      std::vector<std::uint32_t> free(servers, alpha);
      if (draw() % 3 == 0) free[draw() % servers] = 0;
      const Assignment wanted = assign(demand, free, step % 2 ? Rule::share : Rule::skip);
      const PortMap next = map_ports(wanted, demand, nics, map);
      check(next, wanted);
      for (std::uint32_t i = 0; !map.peer.empty() && i < servers; ++i) {
        for (std::uint32_t j = 0; j < servers; ++j) {
          const auto old = between(map, i, j), now = between(next, i, j);
          std::uint32_t kept = 0;
          for (const auto& circuit : old) kept += now.contains(circuit);
          ASSERT_EQ(kept, std::min(before.at(i, j), wanted.at(i, j))) << i << "-" << j;
        }
      }
      EXPECT_EQ(map_ports(wanted, demand, nics, next).peer, next.peer) << "nothing changed";
      map = next;
      before = wanted;
    }
  }
}

TEST(NicMap, RefusesWhatDoesNotFit) {
  const Demand demand = {0, 9, 9, 0};
  const Assignment wanted = assign(demand, std::vector<std::uint32_t>(2, 6), Rule::skip);
  EXPECT_THROW(map_ports(wanted, demand, server_nics(8, 5), {}), std::invalid_argument);
  EXPECT_THROW(map_ports(wanted, Demand{0}, server_nics(8, 6), {}), std::invalid_argument);
  EXPECT_THROW(map_ports(wanted, demand, server_nics(8, 6), {3, 6, std::vector<std::int32_t>(18, -1)}),
               std::invalid_argument);
}

}  // namespace
}  // namespace loomnet::circuits
