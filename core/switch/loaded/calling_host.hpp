// The host that a loaded object's ln_route() finds behind the one that it was given.
#pragma once

#include "ebpf/forward_abi.h"
#include "ebpf/platform.h"

namespace loomnet {

// Begins as struct ln_loaded_host_ of ebpf/switch_program.h.
struct CallingHost {
  ln_host host;
  ln_verdict (*route)(ln_host*, ln_packet*);
  const forward_config* forward;  // behind what the object knows
};

}  // namespace loomnet
