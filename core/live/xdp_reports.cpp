// libbpf's ring buffer around one BPF map that all switches of a run share.
#include "live/xdp_reports.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <cstring>

namespace loomnet {

XdpReports::XdpReports(std::uint32_t bytes)
    : map_(checked_fd(bpf_map_create(BPF_MAP_TYPE_RINGBUF, "ln_reports", 0, 0, bytes, nullptr),
                      "create the ring in which XDP switches report packets")) {
  ring_ = ring_buffer__new(map_.get(), on_record, this, nullptr);
  if (!ring_) throw LiveError("map the ring in which XDP switches report packets", errno);
}

XdpReports::~XdpReports() { ring_buffer__free(ring_); }

std::size_t XdpReports::take(const std::function<void(const ln_report&)>& each) {
  each_ = &each;
  const int taken = ring_buffer__consume(ring_);
  each_ = nullptr;
  return taken > 0 ? static_cast<std::size_t>(taken) : 0;
}

int XdpReports::on_record(void* reports, void* data, std::size_t size) {
  ln_report report{};
  if (size < sizeof report) return 0;
  std::memcpy(&report, data, sizeof report);
  (*static_cast<XdpReports*>(reports)->each_)(report);
  return 0;
}

}  // namespace loomnet
