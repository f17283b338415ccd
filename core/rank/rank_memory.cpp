#include "rank/rank_memory.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "rank/rank_ring.hpp"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace loomnet::rank {
namespace {

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::byte* map(int fd, std::size_t bytes) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) fail("map the memory of a rank");
  return static_cast<std::byte*>(base);
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

void WakeWord::raise() {
  if (word_.exchange(1, std::memory_order_seq_cst) != 0) return;
  // Not FUTEX_PRIVATE_FLAG: the sleeper is another process.
  ::syscall(SYS_futex, &word_, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

bool WakeWord::wait(int timeout_ms) {
  const timespec limit{timeout_ms / 1000, timeout_ms % 1000 * 1'000'000l};
  if (word_.load(std::memory_order_seq_cst) == 0) {
    ::syscall(SYS_futex, &word_, FUTEX_WAIT, 0, timeout_ms < 0 ? nullptr : &limit, nullptr, 0);
  }
  return word_.load(std::memory_order_seq_cst) != 0;
}

EventFd::EventFd() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!fd_) fail("eventfd");
  std::uint64_t count;
  const iovec into{&count, sizeof count};
  if (::preadv2(fd_.get(), &into, 1, -1, RWF_NOWAIT) >= 0 || errno != EAGAIN) {
    fail("eventfd: reading without waiting (Linux 5.8 and later)");
  }
}

void EventFd::raise() {
  const std::uint64_t one = 1;
  // EAGAIN means that it is raised already.
  [[maybe_unused]] const auto n = ::write(fd_.get(), &one, sizeof one);
}

void EventFd::clear() {
  std::uint64_t count;
  const iovec into{&count, sizeof count};
  // RWF_NOWAIT holds for this call: a rank may have cleared O_NONBLOCK, and may read the counter
  // between a poll and this line.
  [[maybe_unused]] const auto n = ::preadv2(fd_.get(), &into, 1, -1, RWF_NOWAIT);
}

bool EventFd::wait(int timeout_ms) {
  pollfd p{fd_.get(), POLLIN, 0};
  return ::poll(&p, 1, timeout_ms) > 0 && (p.revents & POLLIN) != 0;
}

void EventFd::wait_any(std::span<EventFd* const> any, int timeout_ms) {
  std::vector<pollfd> fds;
  fds.reserve(any.size());
  for (const EventFd* fd : any) fds.push_back({fd->get(), POLLIN, 0});
  if (::poll(fds.data(), fds.size(), timeout_ms) <= 0) return;
  for (std::size_t i = 0; i < any.size(); ++i) {
    if (fds[i].revents & POLLIN) any[i]->clear();
  }
}

Memory Memory::create(const Geometry& geometry) {
  Layout layout;
  std::string_view why;
  if (!make_layout(geometry, layout, why)) {
    throw std::invalid_argument("memory of a rank: bad " + std::string(why));
  }
  Descriptor fd(::memfd_create("loomnet-rank", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL));
  if (!fd && errno == EINVAL) {  // before Linux 6.3
    fd = Descriptor(::memfd_create("loomnet-rank", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  }
  if (!fd) fail("memfd_create");
  if (::ftruncate(fd.get(), static_cast<off_t>(layout.total)) != 0) {
    fail("size the memory of a rank");
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) fail("seal the memory of a rank");
  std::byte* base = map(fd.get(), layout.total);
  Memory memory(std::move(fd), base, geometry, layout);
  auto* header = memory.at<Header>(0);
  header->version = kAbiVersion;
  header->header_bytes = sizeof(Header);
  header->total_bytes = layout.total;
  header->geometry = geometry;
  header->magic = kMagic;
  return memory;
}

Memory Memory::attach(int inherited) {
  Descriptor fd(::fcntl(inherited, F_DUPFD_CLOEXEC, 3));
  if (!fd) fail("memory of a rank: the inherited descriptor");
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    throw std::runtime_error("memory of a rank: not a sealed memfd");
  }
  struct stat st{};
  if (::fstat(fd.get(), &st) != 0) fail("memory of a rank: fstat");
  const auto bytes = static_cast<std::uint64_t>(st.st_size);
  if (bytes < 4 * kPage) throw std::runtime_error("memory of a rank: too small");
  std::byte* base = map(fd.get(), bytes);
  const auto header = copy_once<Header>(base);
  std::string problem;
  Layout layout;
  std::string_view why;
  if (header.magic != kMagic) {
    problem = "magic differs";
  } else if (header.version != kAbiVersion) {
    problem = "ABI version " + std::to_string(header.version) + ", this build speaks " + std::to_string(kAbiVersion) +
              "; rebuild loomnet";
  } else if (header.header_bytes != sizeof(Header)) {
    problem = "header size differs";
  } else if (!make_layout(header.geometry, layout, why)) {
    problem = "bad " + std::string(why);
  } else if (layout.total != bytes || header.total_bytes != bytes) {
    problem = "size differs from its geometry";
  }
  if (!problem.empty()) {
    ::munmap(base, bytes);
    throw std::runtime_error("memory of a rank: " + problem);
  }
  return Memory(std::move(fd), base, header.geometry, layout);
}

Memory::Memory(Memory&& o) noexcept
    : fd_(std::move(o.fd_)), base_(std::exchange(o.base_, nullptr)), geometry_(o.geometry_), layout_(o.layout_) {}

Memory::~Memory() {
  if (base_) ::munmap(base_, layout_.total);
}

std::int64_t monotonic_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000ll + t.tv_nsec;
}

}  // namespace loomnet::rank
