// The mirror program by name: ebpf/mirror.h, an example that replies and replicates.
#pragma once

#include "switch/program_kind.hpp"

namespace loomnet {
ProgramKind mirror_kind();
}
