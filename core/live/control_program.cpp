// See control_program.hpp.
#include "live/control_program.hpp"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "control_objects.hpp"
#include "ebpf/control_abi.h"
#include "live/system.hpp"
#include "live/xdp_link.hpp"

namespace loomnet {
namespace {

// Of linux/bpf.h of 6.4, which older headers lack.
constexpr std::uint32_t kWithLink = 1u << 13;       // BPF_F_LINK
constexpr auto kStructOps = static_cast<bpf_attach_type>(44);  // BPF_STRUCT_OPS
constexpr std::string_view kPlaceholder = "ln_control_name";  // in the object, as long as a name may be
constexpr int kNew = 4, kOld = 2;  // arguments

bpf_map* map_of(bpf_object* object, const char* name) {
  bpf_map* map = bpf_object__find_map_by_name(object, name);
  if (!map) throw LiveError(std::string("find ") + name + " of a congestion control", ENOENT);
  return map;
}

// A struct_ops map's content cannot be set before libbpf 1.4, so the name is written into a copy of the object.
std::vector<std::uint8_t> named(std::span<const std::uint8_t> elf, const std::string& name) {
  std::vector<std::uint8_t> copy(elf.begin(), elf.end());
  const auto at = std::search(copy.begin(), copy.end(), kPlaceholder.begin(), kPlaceholder.end());
  if (at == copy.end() || std::search(at + 1, copy.end(), kPlaceholder.begin(), kPlaceholder.end()) != copy.end()) {
    throw std::logic_error("a congestion control's object must hold the text ln_control_name once");
  }
  std::fill_n(at, kPlaceholder.size(), std::uint8_t{0});
  std::copy(name.begin(), name.end(), at);
  return copy;
}

void check_name(const std::string& name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  };
  if (name.empty() || name.size() > kPlaceholder.size() || !std::all_of(name.begin(), name.end(), fits)) {
    throw std::invalid_argument("congestion control's name \"" + name +
                                "\": 1 to 15 letters, digits, dots and underscores");
  }
}

}  // namespace

int cong_control_arguments() {
  const std::unique_ptr<btf, decltype(&btf__free)> types(btf__load_vmlinux_btf(), btf__free);
  const std::string tried = "read tcp_congestion_ops in /sys/kernel/btf/vmlinux";
  if (!types) throw LiveError(tried, errno, "needs CONFIG_DEBUG_INFO_BTF");
  const int id = btf__find_by_name_kind(types.get(), "tcp_congestion_ops", BTF_KIND_STRUCT);
  if (id < 0) throw LiveError(tried, -id);
  const btf_type* ops = btf__type_by_id(types.get(), static_cast<std::uint32_t>(id));
  for (int i = 0; i < btf_vlen(ops); ++i) {
    const btf_member& member = btf_members(ops)[i];
    const char* called = btf__name_by_offset(types.get(), member.name_off);
    if (!called || std::string_view(called) != "cong_control") continue;
    const btf_type* pointer = btf__type_by_id(types.get(), member.type);
    const btf_type* function = btf_is_ptr(pointer) ? btf__type_by_id(types.get(), pointer->type) : nullptr;
    if (function && btf_is_func_proto(function)) return btf_vlen(function);
  }
  throw LiveError(tried, ENOENT, "it has no function cong_control");
}

bpf_object* load_control(const std::string& control, const std::string& name, std::uint32_t slots,
                         const ControlLoad& load) {
  check_name(name);
  if (slots == 0 || (slots & (slots - 1)) != 0) {
    throw std::invalid_argument("slots: " + std::to_string(slots) + " is no power of two");
  }
  const int arguments = cong_control_arguments();
  if (arguments != kNew && arguments != kOld) {
    throw LiveError("load the congestion control " + control, ENOTSUP,
                    "this kernel's cong_control has " + std::to_string(arguments) + " arguments, not 2 or 4");
  }
  const std::span<const std::uint8_t> elf = control_object(arguments == kNew ? control : control + "_rs");
  if (elf.empty()) throw std::invalid_argument("congestion control " + control + " has no program for the kernel");
  const std::vector<std::uint8_t> copy = named(elf, name);
  const BpfLog log;
  std::unique_ptr<bpf_object, decltype(&bpf_object__close)> object(
      bpf_object__open_mem(copy.data(), copy.size(), nullptr), bpf_object__close);
  if (!object) throw LiveError("open the congestion control " + control, errno, log.last());
  if (load.decides && !bpf_object__find_map_by_name(object.get(), "ln_policy")) {
    throw std::invalid_argument("congestion control " + control + " has no program that decides by itself");
  }
  if (bpf_program* trial = bpf_object__find_program_by_name(object.get(), "ln_trial")) {
    bpf_program__set_autoload(trial, load.trial);
  }
  bpf_map__set_max_entries(map_of(object.get(), "ln_slots"), slots);
  bpf_map__set_map_flags(map_of(object.get(), "ln_control"), kWithLink);
  const ln_control_config config{slots - 1, load.flags, load.decides, 0};
  if (const int error = bpf_map__set_initial_value(map_of(object.get(), ".rodata.config"), &config, sizeof config)) {
    throw LiveError("set the slots of the congestion control " + control, -error);
  }
  if (const int error = bpf_object__load(object.get())) {
    throw LiveError("load the congestion control " + control, -error,
                    "needs Linux 6.4, CONFIG_BPF_JIT and CAP_BPF; libbpf: " + log.last());
  }
  return object.release();
}

int register_control(bpf_object* object, const std::string& name) {
  const BpfLog log;
  const std::string tried = "register the congestion control " + name;
  bpf_map* map = map_of(object, "ln_control");
  bpf_link* attached = bpf_map__attach_struct_ops(map);
  if (!attached) throw LiveError(tried, errno, log.last());
  int fd = bpf_link__fd(attached);
  // libbpf before 1.2 only fills the map in; later ones make the link, too.
  const bool filled = fd == bpf_map__fd(map);
  fd = filled ? bpf_link_create(bpf_map__fd(map), 0, kStructOps, nullptr) : ::dup(fd);
  const int error = errno;
  if (filled) bpf_link__disconnect(attached);  // or it would empty the map
  bpf_link__destroy(attached);
  if (fd < 0) throw LiveError(tried, error, log.last());
  return fd;
}

}  // namespace loomnet
