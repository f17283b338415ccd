// A struct_ops congestion control's object: opened in the form that this kernel has, and loaded.
#pragma once

#include <cstdint>
#include <string>

struct bpf_object;

namespace loomnet {

// The arguments of tcp_congestion_ops::cong_control, by the running kernel's BTF: two, or four from 6.10 on.
// Throws LiveError where the kernel has no such BTF.
int cong_control_arguments();

struct ControlLoad {
  std::uint32_t flags = 0;  // of a new flow's slot
  bool decides = false;     // the program decides by itself
  bool trial = false;       // with ln_trial, for BPF_PROG_TEST_RUN
};

// Loads the object of `control` with the name `name` and so many slots. The caller closes it. Throws LiveError,
// std::invalid_argument for a control without a program, or one that cannot decide by itself and shall.
bpf_object* load_control(const std::string& control, const std::string& name, std::uint32_t slots,
                         const ControlLoad& load = {});

// Registers it, by a descriptor whose closing takes it away. Throws LiveError.
int register_control(bpf_object* object, const std::string& name);

}  // namespace loomnet
