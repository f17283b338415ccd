// A congestion control whose methods are a Python object's.
#pragma once

#include <memory>
#include <string>

#include "bindings/transports.hpp"
#include "transport/congestion.hpp"

namespace loomnet {

struct FlowView {  // what a Python control knows of its flow when it is made
  FlowContext flow;
  pybind11::dict options;
};

std::unique_ptr<CongestionControl> python_control(FlowLimits& limits, const FlowContext& flow, const std::string& name,
                                                  const pybind11::object& make, const OptionValues& options,
                                                  CongestionControl::Traits traits);
// Whether a control's own code is being called, in the thread that runs the engine.
bool python_control_under_way();
// In picoseconds; None for kNever and for a time that is unknown.
pybind11::object time_or_none(Picoseconds t);

}  // namespace loomnet
