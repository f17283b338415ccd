// Attaching XDP by bpf_link descriptor.
#include "live/xdp_link.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_link.h>
#include <net/if.h>

#include <cstdarg>
#include <cstdio>
#include <mutex>

namespace loomnet {
namespace {

constexpr std::size_t kKept = 2000;  // bytes: the end of a verifier's log says what was wrong
thread_local std::string log_text;

int keep(libbpf_print_level level, const char* format, va_list arguments) {
  if (level == LIBBPF_DEBUG) return 0;
  // A verifier's log comes as one text, of some MiB where the program is long.
  va_list again;
  va_copy(again, arguments);
  const int size = std::vsnprintf(nullptr, 0, format, again);
  va_end(again);
  if (size <= 0) return size;
  std::string text(static_cast<std::size_t>(size) + 1, '\0');
  std::vsnprintf(text.data(), text.size(), format, arguments);
  text.pop_back();
  log_text += text;
  if (log_text.size() > kKept) log_text.erase(0, log_text.size() - kKept);
  return size;
}

}  // namespace

BpfLog::BpfLog() {
  static std::once_flag once;
  std::call_once(once, [] { libbpf_set_print(keep); });
  log_text.clear();
}
BpfLog::~BpfLog() { log_text.clear(); }
std::string BpfLog::last() const { return log_text.empty() ? "no message of libbpf" : log_text; }

Fd attach_xdp(int program_fd, const std::string& interface) {
  const std::string tried = "attach XDP program to " + interface;
  const unsigned index = ::if_nametoindex(interface.c_str());
  if (index == 0) throw LiveError(tried, errno);
  LIBBPF_OPTS(bpf_link_create_opts, options, .flags = XDP_FLAGS_DRV_MODE);
  const int fd = bpf_link_create(program_fd, static_cast<int>(index), BPF_XDP, &options);
  if (fd < 0) {
    throw LiveError(tried, -fd,
                    "native XDP on a veth needs the peer's MTU at or under 3,506 and no other "
                    "program attached");
  }
  return Fd(fd);
}

int possible_cpus() { return libbpf_num_possible_cpus(); }

}  // namespace loomnet
