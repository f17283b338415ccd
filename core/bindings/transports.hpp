// Transports and congestion controls for Python: options by name, and controls written in Python.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "engine/network.hpp"
#include "trace/flow_probe.hpp"
#include "transport/options.hpp"

namespace loomnet {

// Throws ValueError for a name that is no string and a value of a type that no option has. `what`: whose
// options these are.
OptionValues option_values(const std::string& what, const pybind11::dict& options);
pybind11::object option_object(const OptionValue& value);
pybind11::list option_rows(const std::vector<OptionInfo>& options);

// `values`: as FlowProbe::take wrote them.
pybind11::array_t<double> flow_probe_array(const FlowProbe& probe, const std::vector<double>& values);
void bind_transports(pybind11::module_& m, pybind11::class_<Network>& network);
void bind_congestion(pybind11::module_& m);

// Raises _core.PluginError where a congestion control written in Python has failed since the last call.
void raise_plugin_fault();
// Flows whose congestion control is written in Python: no live run may have one.
int python_controls_alive();

}  // namespace loomnet
