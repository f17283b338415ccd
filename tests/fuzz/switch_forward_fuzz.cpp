// Any bytes through the forward program: no access outside them (sanitizers), exactly one counter
// for each verdict, nothing edited but hop limit and destination, and a drop leaves every byte
// alone.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "ebpf/metadata.h"
#include "switch/forward/forward_program.hpp"

namespace {

using namespace loomnet;

#define REQUIRE(condition)                              \
  do {                                                  \
    if (!(condition)) {                                 \
      std::fprintf(stderr, "not so: %s\n", #condition); \
      std::abort();                                     \
    }                                                   \
  } while (0)

constexpr SwitchPort kPorts = 8;

std::shared_ptr<const TableBatch> tables() {
  ForwardBatch batch;
  batch.generation = 1;
  batch.own_un = {{usid_block(3), 0x2005}, {usid_block(0), 0}};
  batch.own_ua = {{{usid_block(3), 0xe803}, 3}};
  batch.fib = {{{usid_block(3), 0x1011}, 1}, {{usid_block(3), 0x4002}, 2}};
  batch.groups = {{4, 5, 6}, {}};
  batch.hosts = {{Ipv6Address{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}, 0},
                 {Ipv6Address{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3}, 1}};
  return batch.pack();
}

// A good frame to start from: without one the fuzzer seldom gets past the EtherType.
std::vector<std::uint8_t> good_frame(bool plain) {
  std::vector<std::uint8_t> frame(14 + 40 + 24, 0);
  frame[6] = 0x02;
  frame[12] = 0x86;
  frame[13] = 0xdd;
  frame[14] = 0x60;
  frame[19] = 24;
  frame[20] = plain ? 17 : 41;
  frame[21] = 64;
  frame[22] = 0xfd;
  frame[37] = 9;
  constexpr std::uint8_t kUsid[] = {0xfc, 0, 0, 3, 0x20, 5, 0x20, 5, 0x10, 0x11, 0x40, 2};
  constexpr std::uint8_t kHost[] = {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
  if (plain) {
    std::copy(std::begin(kHost), std::end(kHost), frame.begin() + 38);
  } else {
    std::copy(std::begin(kUsid), std::end(kUsid), frame.begin() + 38);
  }
  return frame;
}

// Packets that met their outcome: one counter each.
std::uint64_t outcomes_of(const ForwardProgram& program) {
  std::vector<SwitchCounter> counters;
  program.counters(counters);
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < counters.size(); ++i) {
    if (i == FORWARD_RECEIVED || i == FORWARD_SHIFT_UN) continue;
    total += counters[i].value;
  }
  return total;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::uint32_t options = data[0] & 3u;
  const auto ingress = static_cast<SwitchPort>(data[1] % (kPorts + 1));
  static std::unique_ptr<ForwardProgram> programs[4];
  auto& program = programs[options];
  if (!program) {
    program = std::make_unique<ForwardProgram>(kPorts, ForwardSettings{7, options});
    program->set_tables(tables());
  }
  // An allocation of exactly this size, so that a sanitizer sees the first byte behind it. The
  // input is the frame itself, or what differs from a good one.
  std::vector<std::uint8_t> before(data + 2, data + size);
  if (data[0] & 4) {
    std::vector<std::uint8_t> frame = good_frame(data[0] & 8);
    if (data[0] & 16) frame.resize(std::min(frame.size(), before.size()));
    before.resize(std::max(before.size(), frame.size()));
    if (data[0] & 16) before.resize(frame.size());
    for (std::size_t i = 0; i < frame.size(); ++i) before[i] ^= frame[i];
  }
  std::vector<std::uint8_t> bytes = before;
  const std::size_t header = std::min(bytes.size(), kMaxHeaderBytes);
  const std::uint64_t outcomes = outcomes_of(*program);
  const Verdict verdict =
      program->ingress(std::span(bytes).first(header), static_cast<std::uint32_t>(bytes.size()), {{}, ingress});
  REQUIRE(outcomes_of(*program) == outcomes + 1);
  if (verdict.action == Verdict::Action::forward) {
    REQUIRE(verdict.value < kPorts);
    REQUIRE(bytes.size() >= 54 && bytes[21] + 1 == before[21] && bytes[21] > 0);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (i == 21 || (i >= 42 && i < 54)) continue;  // hop limit; destination behind its block
      REQUIRE(bytes[i] == before[i]);
    }
  } else {
    REQUIRE(verdict.action == Verdict::Action::drop);
    REQUIRE(program->reason(verdict.value).starts_with("drop_"));
    REQUIRE(bytes == before);
  }
  if (bytes.size() >= 6) {
    const std::uint64_t uid = ln_uid_from_mac(bytes.data());
    std::uint8_t mac[6];
    ln_uid_to_mac(uid, mac);
    REQUIRE(uid <= LN_UID_MASK);
    REQUIRE((bytes[0] & 3) != 2 || std::equal(mac, mac + 6, bytes.data()));
  }
  return 0;
}
