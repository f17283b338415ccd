// What the files of the Python module share: each file binds one part, module.cpp calls them.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <string>

#include "collective/types.hpp"
#include "engine/network.hpp"
#include "transport/roce/options.hpp"

namespace loomnet {

void bind_network(pybind11::module_& m);

// Options by name; unknown names and wrong types are ValueError naming the option.
RoceOptions roce_options(const pybind11::dict& options);
Collective collective_named(const std::string& name);
LinkChange link_change(LinkId link, bool forward, bool backward, std::optional<bool> up,
                       std::optional<std::uint64_t> rate_bps, std::optional<std::int64_t> delay_ps,
                       const std::optional<pybind11::dict>& impairment);

}  // namespace loomnet
