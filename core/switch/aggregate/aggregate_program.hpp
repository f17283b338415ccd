// The aggregation program by name: ebpf/aggregate.h.
#pragma once

#include "switch/program_kind.hpp"

namespace loomnet {
ProgramKind aggregate_kind();
}
