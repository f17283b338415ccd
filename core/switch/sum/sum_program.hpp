// The sum program by name: ebpf/sum.h, an example that absorbs packets and rewrites payloads.
#pragma once

#include "switch/program_kind.hpp"

namespace loomnet {
ProgramKind sum_kind();
}
