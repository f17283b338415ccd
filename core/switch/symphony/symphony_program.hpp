// The symphony program by name: ebpf/symphony.h, an egress hook that marks the leaders of rings.
#pragma once

#include "switch/program_kind.hpp"

namespace loomnet {
ProgramKind symphony_kind();
}
