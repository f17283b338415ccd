// The objects of congestion controls for the kernel's TCP, as they are built in; and, as root, one that is
// registered under a name and taken away again.
#include <bpf/libbpf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>

#include "control_objects.hpp"
#include "ebpf/astraea_abi.h"
#include "live/control_program.hpp"
#include "live/kernel_control.hpp"
#include "live/xdp_link.hpp"
#include "transport/congestion/astraea/astraea.hpp"

namespace loomnet {
namespace {

using Object = std::unique_ptr<bpf_object, decltype(&bpf_object__close)>;

class ControlObject : public ::testing::TestWithParam<const char*> {};

TEST_P(ControlObject, HasWhatTheLoaderLooksFor) {
  const auto elf = control_object(GetParam());
  ASSERT_FALSE(elf.empty());
  const std::string_view text(reinterpret_cast<const char*>(elf.data()), elf.size());
  const std::size_t at = text.find("ln_control_name");
  ASSERT_NE(at, std::string_view::npos);
  EXPECT_EQ(text.find("ln_control_name", at + 1), std::string_view::npos) << "the placeholder is there once";
  const BpfLog log;
  const Object object(bpf_object__open_mem(elf.data(), elf.size(), nullptr), bpf_object__close);
  ASSERT_TRUE(object) << log.last();
  const bpf_map* slots = bpf_object__find_map_by_name(object.get(), "ln_slots");
  ASSERT_TRUE(slots);
  EXPECT_EQ(bpf_map__value_size(slots), sizeof(astraea_slot));
  for (const char* map : {"ln_control", ".rodata.config", ".data.counts"}) {
    EXPECT_TRUE(bpf_object__find_map_by_name(object.get(), map)) << map;
  }
  for (const char* program : {"ln_init", "ln_cong_control", "ln_ssthresh", "ln_undo_cwnd", "ln_release"}) {
    EXPECT_TRUE(bpf_object__find_program_by_name(object.get(), program)) << program;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, ControlObject, ::testing::Values("astraea", "astraea_rs"));

TEST(ControlProgram, RefusesWhatHasNoProgramAndBadNames) {
  EXPECT_TRUE(control_object("cubic").empty());
  EXPECT_THROW(load_control("astraea", "", 4), std::invalid_argument);
  EXPECT_THROW(load_control("astraea", "sixteen_letters_", 4), std::invalid_argument);
  EXPECT_THROW(load_control("astraea", "with space", 4), std::invalid_argument);
  EXPECT_THROW(load_control("astraea", "lnt", 0), std::invalid_argument);
  EXPECT_THROW(load_control("astraea", "lnt", 12), std::invalid_argument);
}

bool known(const std::string& name) {
  std::ifstream file("/proc/sys/net/ipv4/tcp_available_congestion_control");
  const std::istream_iterator<std::string> first(file), last;
  return std::find(first, last, name) != last;
}

TEST(ControlProgram, IsThereUnderItsNameUntilItGoes) {
  if (const std::string why = why_no_kernel_control("astraea"); !why.empty()) GTEST_SKIP() << why;
  const std::string name = "lnt" + std::to_string(::getpid() % 1'000'000) + "_c";
  {
    KernelControl control("astraea", name, astraea::astraea_kind().in_kernel({}), 8);
    EXPECT_TRUE(known(name));
    EXPECT_EQ(control.slots().size(), 8 * sizeof(astraea_slot));
    EXPECT_THROW(KernelControl("astraea", name, astraea::astraea_kind().in_kernel({}), 8), LiveError)
        << "there is one of this name";
    control.start();
    control.stop();
    control.start();
    EXPECT_TRUE(control.running());
    EXPECT_EQ(control.slotless(), 0u);
  }
  EXPECT_FALSE(known(name));
}

}  // namespace
}  // namespace loomnet
