// Reads an object's programs, maps and instructions.
#include "live/loaded_object.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>

namespace loomnet {
namespace {

constexpr std::string_view kProgram = "ln_switch";
constexpr std::array<std::string_view, 9> kMaps = {"ln_counters", "ln_ingress",  "ln_egress",
                                                   "ln_tables",   "ln_reports",  "ln_last",
                                                   "ln_rows",     "ln_sequence", "ln_labels"};
// Those of ebpf/xdp_host.h, forward_kernel.h and platform.h.
constexpr std::array kHelpers = {BPF_FUNC_map_lookup_elem, BPF_FUNC_ktime_get_ns,    BPF_FUNC_redirect_map,
                                 BPF_FUNC_xdp_adjust_meta, BPF_FUNC_xdp_adjust_tail, BPF_FUNC_spin_lock,
                                 BPF_FUNC_spin_unlock,     BPF_FUNC_ringbuf_reserve, BPF_FUNC_ringbuf_submit};

template <typename Names>
bool among(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

[[noreturn]] void refuse(const std::string& name, const std::string& what) {
  throw std::invalid_argument("switch program \"" + name + "\", built for the kernel, " + what +
                              "; a switch program uses what <loomnet/switch_program.h> offers, and nothing else");
}

}  // namespace

void check_loaded_parts(bpf_object* object, const std::string& name) {
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, object) {
    if (bpf_program__name(program) != kProgram) {
      refuse(name, "has a program \"" + std::string(bpf_program__name(program)) + "\" beside ln_switch");
    }
  }
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, object) {
    const std::string_view called = bpf_map__name(map);
    const bool section = bpf_map__is_internal(map) && !called.ends_with(".kconfig");
    if (!section && !among(kMaps, called)) refuse(name, "has a map \"" + std::string(called) + "\"");
    if (bpf_map__pin_path(map)) refuse(name, "pins its map \"" + std::string(called) + "\"");
  }
}

void check_loaded_code(bpf_object* object, const std::string& name) {
  const bpf_program* program = bpf_object__find_program_by_name(object, kProgram.data());
  if (!program) refuse(name, "has no program ln_switch");
  const bpf_insn* code = bpf_program__insns(program);
  const std::size_t count = bpf_program__insn_cnt(program);
  for (std::size_t i = 0; i < count; ++i) {
    const bpf_insn& each = code[i];
    if (each.code == (BPF_JMP | BPF_CALL) && each.src_reg != BPF_PSEUDO_CALL) {
      const bool helper = each.src_reg == 0;
      if (!helper || std::find(kHelpers.begin(), kHelpers.end(), each.imm) == kHelpers.end()) {
        refuse(name, "calls the kernel's " + std::string(helper ? "helper " : "function ") + std::to_string(each.imm));
      }
    }
    if (each.code == (BPF_LD | BPF_IMM | BPF_DW)) {
      if (each.src_reg != 0 && each.src_reg != BPF_PSEUDO_MAP_FD && each.src_reg != BPF_PSEUDO_MAP_VALUE) {
        refuse(name, "uses an address of the kernel's");
      }
      ++i;  // it takes two
    }
  }
}

}  // namespace loomnet
