// What the files of the Python module share: each file binds one part, module.cpp calls them.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <optional>
#include <string>
#include <vector>

#include "collective/step_log.hpp"
#include "collective/types.hpp"
#include "engine/network.hpp"
#include "engine/rank_bridge.hpp"
#include "engine/run_counters.hpp"
#include "rank/rank_abi.hpp"
#include "switch/registry/registry.hpp"

namespace loomnet {

// Types as signatures, and so the stub _core/__init__.pyi, name them.
using Counts = pybind11::typing::Dict<pybind11::str, pybind11::int_>;
template <class... T>
using Rows = pybind11::typing::List<pybind11::typing::Tuple<T...>>;
using Marks = Rows<pybind11::int_, pybind11::int_, pybind11::int_, pybind11::int_, pybind11::int_, pybind11::int_>;

inline Picoseconds ps(std::int64_t count) { return {count}; }
inline std::optional<JobId> job_id(std::optional<std::uint32_t> number) {
  if (!number) return {};
  return JobId{*number};
}

// Paths of one port: uSIDs, uplink slot, uplinks, mask of aggregation slots, cores per aggregation switch,
// ways that are listed (or none), capacity.
using PathRow = std::tuple<std::vector<std::uint16_t>, int, std::vector<std::uint16_t>, std::uint8_t, std::uint16_t,
                           std::shared_ptr<ListedWays>, double>;
// `planes`: of each row; empty: that of its number.
std::vector<PlanePaths> plane_paths(const std::vector<PathRow>& rows, const std::vector<Plane>& planes = {});

void bind_astraea(pybind11::module_& m);
void bind_network(pybind11::module_& m);
void bind_switches(pybind11::module_& m, pybind11::class_<Network>& network);
void bind_figures(pybind11::class_<Network>& network);
void bind_panels(pybind11::module_& m, pybind11::class_<Network>& network);
void bind_panel_device(pybind11::module_& m);
void bind_learning(pybind11::module_& m);  // after traffic
void bind_traffic(pybind11::module_& m);
void bind_model_traffic(pybind11::module_& m);
void bind_fluid(pybind11::module_& m);
void bind_region_driver(pybind11::module_& m);
void bind_moe(pybind11::module_& m);
void bind_rank_region(pybind11::module_& m);
void bind_rank(pybind11::module_& m);         // inside a rank's process
void bind_rank_bridge(pybind11::module_& m);  // the engine's side of it
void bind_recorder(pybind11::module_& m);
void bind_live(pybind11::module_& m);            // only with the live part
void bind_kernel_control(pybind11::module_& m);  // likewise

ProgramOptions program_options(const pybind11::dict& options);
// {name of the rows: [{"row": number, field: value, …}]}, of rows that are not all zeros.
pybind11::dict snapshots_dict(const std::vector<StateSnapshot>& snapshots);
// What the egress hooks of a switch's ports hold and have counted up to now; nothing where there are none.
std::vector<StateSnapshot> egress_snapshot(Network& network, NodeId node);
void egress_counters(Network& network, NodeId node, std::vector<SwitchCounter>& out);
// Of each named field an array over all rows. Throws std::invalid_argument for a field that the state
// does not have, or whose value is no number.
pybind11::list state_columns(const StateView& state, const std::vector<std::string>& names);
rank::NoticeKind notice_named(const std::string& name);
rank::GoneReason reason_named(const std::string& name);
Marks mark_list(const std::vector<RankMark>& marks);
// int64[steps, 4]: rank, channel, ring step, time (ps).
pybind11::array_t<std::int64_t> step_rows(const StepLog& log);
std::vector<std::uint64_t> queued_bytes(Network& network, const std::vector<std::uint32_t>& halves);
std::vector<std::uint64_t> carried_bytes(Network& network, const std::vector<std::uint32_t>& halves);
Counts counters_dict(const RunCounters& counters);
Counts counts_of(const panel_counters& all);
Collective collective_named(const std::string& name);
LinkChange link_change(LinkId link, bool forward, bool backward, std::optional<bool> up,
                       std::optional<std::uint64_t> rate_bps, std::optional<double> queue_share,
                       std::optional<std::int64_t> delay_ps, const std::optional<pybind11::dict>& impairment);

}  // namespace loomnet
