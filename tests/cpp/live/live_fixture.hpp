// What the live tests share: skipping with the missing capability as the reason, and counting what
// a test must not leave behind.
#pragma once

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>

#include "live/netlink.hpp"
#include "live/netns.hpp"

namespace loomnet::live_test {

inline bool has_capability(int capability) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (::syscall(SYS_capget, &header, data) < 0) return false;
  return data[capability / 32].effective & (1u << (capability % 32));
}

inline std::string missing_privilege() {
  if (!has_capability(CAP_NET_ADMIN)) return "needs CAP_NET_ADMIN (run as root)";
  if (!has_capability(CAP_SYS_ADMIN)) return "needs CAP_SYS_ADMIN (run as root)";
  if (!has_capability(CAP_NET_RAW)) return "needs CAP_NET_RAW (run as root)";
  if (!has_capability(CAP_BPF) && !has_capability(CAP_SYS_ADMIN)) return "needs CAP_BPF";
  return {};
}

class LiveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = missing_privilege(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

inline std::size_t open_descriptors() {
  std::size_t n = 0;
  for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator("/proc/self/fd")) ++n;
  return n;
}

inline std::size_t resident_kib() {
  std::size_t total = 0, resident = 0;
  if (std::FILE* f = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(f, "%zu %zu", &total, &resident) != 2) resident = 0;
    std::fclose(f);
  }
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) / 1024;
}

inline MacAddress mac(std::uint8_t a, std::uint8_t b) { return {0x06, 0x6c, 0x6e, 0, a, b}; }

}  // namespace loomnet::live_test
