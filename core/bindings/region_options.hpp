// Options of a region's controller as Python names them.
#pragma once

#include <functional>

#include "bindings/bindings.hpp"
#include "moe/region_driver.hpp"
#include "moe/region_work.hpp"

namespace loomnet {

// Circuits by servers i * servers + j, from the demand of pairs of servers and the free ports of each.
using AssignerFunction =
    std::function<std::vector<std::uint32_t>(std::vector<std::uint64_t>, std::vector<std::uint32_t>)>;

struct RegionSettings {
  std::uint32_t servers, alpha, nics_of_server;
  const std::string& rule;
  const std::string& ties;
  std::uint64_t seed;
  bool all_dark;
  std::int64_t drain_limit_ps;
  panel::Port first_port;
};
// Throws py::value_error.
circuits::RegionOptions region_options(const RegionSettings& settings, std::optional<AssignerFunction> assigner);
std::vector<moe::NicPort> nic_ports(const std::vector<std::pair<NodeId, PlanePort>>& nics);

moe::FirstDispatch first_dispatch_named(const std::string& name);
moe::Repatch repatch_named(const std::string& name);
circuits::Split split_named(const std::string& name);
circuits::Duplex duplex_named(const std::string& name);

struct RegionEventRow {
  std::int64_t at_ps, generation;
  std::uint32_t iteration;
  std::uint16_t layer, micro_batch;
  bool backward, guessed;
  std::uint8_t event;  // circuits::RegionEvent::Kind
  std::uint32_t changed;
  std::int64_t dark_ps;
};
using KeptMaps = Rows<pybind11::int_, pybind11::int_, pybind11::typing::List<pybind11::int_>>;
KeptMaps region_kept_maps(const moe::RegionDriver& driver);
pybind11::array region_events(const moe::RegionDriver& driver);

}  // namespace loomnet
