// The memory behind AF_XDP sockets.
#include "live/umem.hpp"

#include <sys/mman.h>

#include <stdexcept>

#include "live/system.hpp"

namespace loomnet {

Umem::Umem(std::uint8_t id, std::uint32_t frames, std::uint32_t fill_size, std::uint32_t comp_size)
    : id_(id), frames_(frames), bytes_(std::size_t{frames} * kFrameBytes) {
  if (frames == 0 || frames > kMaxUmemFrames) {
    throw std::invalid_argument("a UMEM has 1 to " + std::to_string(kMaxUmemFrames) + " frames, not " +
                                std::to_string(frames));
  }
  const std::string tried = "create UMEM of " + std::to_string(frames) + " frames";
  void* area = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (area == MAP_FAILED) throw LiveError(tried, errno);
  area_ = static_cast<std::uint8_t*>(area);
  // Huge pages make pinning quick. Pinned pages would be copied whole into every forked child.
  ::madvise(area, bytes_, MADV_HUGEPAGE);
  ::madvise(area, bytes_, MADV_DONTFORK);
  ::madvise(area, bytes_, MADV_DONTDUMP);
  xsk_umem_config config{};
  config.fill_size = fill_size;
  config.comp_size = comp_size;
  config.frame_size = kFrameBytes;
  config.frame_headroom = 0;
  const int error = xsk_umem__create(&umem_, area_, bytes_, &first_fill_, &first_comp_, &config);
  if (error) {
    ::munmap(area_, bytes_);
    throw LiveError(tried + " (AF_XDP needs CAP_NET_RAW, and CAP_IPC_LOCK or memlock)", -error);
  }
  free_.reserve(frames);
  for (std::uint32_t i = frames; i-- > 0;) free_.push_back(std::uint32_t{id_} << 24 | i);
}

Umem::~Umem() {
  if (umem_) xsk_umem__delete(umem_);
  if (area_) ::munmap(area_, bytes_);
}

void FrameArena::add(Umem& umem) {
  if (umem.id() != umems_.size()) {
    throw std::invalid_argument("UMEM groups are added in the order of their ids");
  }
  umems_.push_back(&umem);
}

}  // namespace loomnet
