// A struct_ops congestion control's object: opened in the form that this kernel has, and loaded.
#pragma once

#include <cstdint>
#include <string>

struct bpf_object;

namespace loomnet {

// The arguments of tcp_congestion_ops::cong_control, by the running kernel's BTF: two, or four from 6.10 on.
// Throws LiveError where the kernel has no such BTF.
int cong_control_arguments();

// Loads the object of `control` with the name `name` and so many slots, whose flags are `flags` for a new flow. The
// caller closes it. Throws LiveError, std::invalid_argument for a control without a program.
bpf_object* load_control(const std::string& control, const std::string& name, std::uint32_t slots,
                         std::uint32_t flags = 0);

// Registers it, by a descriptor whose closing takes it away. Throws LiveError.
int register_control(bpf_object* object, const std::string& name);

}  // namespace loomnet
