// What an object that a user compiled may hold, before root loads it into the kernel and before it sees a packet.
#pragma once

#include <string>

struct bpf_object;

namespace loomnet {

// Before the object is loaded: one program, ln_switch, and no maps but those of ebpf/xdp_host.h and the program's own
// constants and variables, none of them pinned: a pinned map may be another program's. Throws std::invalid_argument.
void check_loaded_parts(bpf_object* object, const std::string& name);
// When it is loaded: its code calls no helper of the kernel but those that a switch program's headers call, and
// reads no variable of the kernel. Throws std::invalid_argument.
void check_loaded_code(bpf_object* object, const std::string& name);

}  // namespace loomnet
