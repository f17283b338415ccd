// Loads and feeds ebpf/endpoint.bpf.c.
#include "live/engine_endpoint.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <net/if.h>

#include "ebpf/endpoint_abi.h"
#include "endpoint.skel.h"

namespace loomnet {

EngineEndpoint::EngineEndpoint() {
  const BpfLog log;
  object_ = endpoint_bpf__open_and_load();
  if (!object_) throw LiveError("load the endpoint program", errno, log.last());
}

EngineEndpoint::~EngineEndpoint() { close(); }

void EngineEndpoint::close() {
  links_.clear();
  if (object_) endpoint_bpf__destroy(object_);
  object_ = nullptr;
}

std::uint32_t EngineEndpoint::add(const XskSocket& socket) {
  const std::string tried = "register AF_XDP socket of " + socket.interface();
  if (next_slot_ >= ENDPOINT_MAX_SOCKETS) throw LiveError(tried, ENOSPC);
  const std::uint32_t index = ::if_nametoindex(socket.interface().c_str());
  if (index == 0) throw LiveError(tried, errno);
  const std::uint32_t slot = next_slot_;
  const int fd = socket.fd();
  if (bpf_map_update_elem(bpf_map__fd(object_->maps.ep_sockets), &slot, &fd, BPF_ANY) < 0 ||
      bpf_map_update_elem(bpf_map__fd(object_->maps.ep_slots), &index, &slot, BPF_ANY) < 0) {
    throw LiveError(tried, errno);
  }
  links_.push_back(attach_xdp(bpf_program__fd(object_->progs.endpoint), socket.interface()));
  return next_slot_++;
}

void EngineEndpoint::add_pass(const std::string& interface) {
  links_.push_back(attach_xdp(bpf_program__fd(object_->progs.pass), interface));
}

void EngineEndpoint::counters(std::vector<SwitchCounter>& out) const {
  static constexpr std::string_view kNames[] = {
#define LOOMNET_NAME(symbol, name) name,
      ENDPOINT_COUNTERS(LOOMNET_NAME)
#undef LOOMNET_NAME
  };
  std::vector<std::uint64_t> per_cpu(static_cast<std::size_t>(possible_cpus()));
  for (std::uint32_t i = 0; i < ENDPOINT_COUNTER_COUNT; ++i) {
    if (bpf_map_lookup_elem(bpf_map__fd(object_->maps.ep_counters), &i, per_cpu.data()) < 0) {
      throw LiveError("read the endpoint program's counters", errno);
    }
    std::uint64_t sum = 0;
    for (const std::uint64_t v : per_cpu) sum += v;
    out.push_back({kNames[i], sum});
  }
}

}  // namespace loomnet
