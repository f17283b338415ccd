// The ring in which kernel-placed switches report each packet that does not come back, by its uid.
#pragma once

#include <functional>
#include <memory>

#include "ebpf/metadata.h"
#include "live/system.hpp"

struct ring_buffer;

namespace loomnet {

class XdpReports {
 public:
  // `bytes`: a power of two and whole pages. A report takes 24. Throws LiveError.
  explicit XdpReports(std::uint32_t bytes = 1u << 20);
  ~XdpReports();
  XdpReports(const XdpReports&) = delete;
  XdpReports& operator=(const XdpReports&) = delete;

  int map() const { return map_.get(); }
  // Calls `each` for every report that waits, without a system call; returns their number. One thread.
  std::size_t take(const std::function<void(const ln_report&)>& each);

 private:
  static int on_record(void* reports, void* data, std::size_t size);
  Fd map_;
  ring_buffer* ring_ = nullptr;
  const std::function<void(const ln_report&)>* each_ = nullptr;
};

}  // namespace loomnet
