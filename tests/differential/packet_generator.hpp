// A seeded stream of frames for the forward program: uSID walks, plain IPv6, every malformation
// that has a drop reason, and flipped bytes; and the switch tables they are drawn for.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "clock/random.hpp"
#include "switch_forward/test_frames.hpp"

namespace loomnet::test {

// A switch with rows of every kind: two blocks, own uN and uA, a FIB, hosts behind groups of 1, 2,
// 7, 60 and no members.
inline ForwardBatch busy_tables(std::uint32_t generation, SwitchPort ports) {
  ForwardBatch batch;
  batch.generation = generation;
  const auto port = [&](unsigned n) { return static_cast<SwitchPort>((n + generation) % ports); };
  for (const unsigned plane : {3u, 4u}) {
    batch.own_un.push_back({usid_block(plane), 0x2005});
    batch.own_ua.push_back({{usid_block(plane), 0xe803}, port(3)});
    batch.own_ua.push_back({{usid_block(plane), 0xf001}, port(1)});
    for (unsigned i = 0; i < 20; ++i) {
      batch.fib.push_back({{usid_block(plane), static_cast<std::uint16_t>(0x1000 + i)}, port(i)});
      batch.fib.push_back({{usid_block(plane), static_cast<std::uint16_t>(0x4000 + i)}, port(20 + i)});
    }
  }
  unsigned next = 0;
  for (const unsigned members : {1u, 2u, 7u, 60u, 0u}) {
    std::vector<SwitchPort> group;
    for (unsigned i = 0; i < members; ++i) group.push_back(port(next++));
    batch.groups.push_back(group);
  }
  for (unsigned host = 1; host <= 50; ++host) {
    Ipv6Address a = address("fd00::");
    a[15] = static_cast<std::uint8_t>(host);
    batch.hosts.push_back({a, static_cast<std::uint16_t>(host % batch.groups.size())});
  }
  return batch;
}

class PacketGenerator {
 public:
  explicit PacketGenerator(std::uint64_t seed, std::size_t longest = 2300)
      : random_(seed, 0, 0x6e66), longest_(longest) {}

  std::vector<std::uint8_t> next() {
    ++uid_;
    const unsigned kind = random_.below(100);
    if (kind < 45) return frame(usid_walk());
    if (kind < 75) return frame(plain());
    if (kind < 88) return malformed();
    if (kind < 97) return flipped();
    std::vector<std::uint8_t> noise(1 + random_.below(300));
    for (std::uint8_t& byte : noise) byte = static_cast<std::uint8_t>(random_());
    return noise;
  }
  std::uint64_t uid() const { return uid_; }

  // A destination of one to six uSIDs of every kind the tables know, and unknown ones and zero.
  FrameSpec usid_walk() {
    FrameSpec spec = common();
    const unsigned plane = one_of({3u, 3u, 3u, 4u, 2u});
    std::vector<std::uint8_t> a = {0xfc, 0x00, 0x00, static_cast<std::uint8_t>(plane)};
    const unsigned length = 1 + random_.below(6);
    for (unsigned i = 0; i < length; ++i) {
      std::uint32_t usid = 0;
      switch (random_.below(10)) {
        case 0:
        case 1:
        case 2:
        case 3:
          usid = 0x2005;
          break;
        case 4:
          usid = one_of({0xe803u, 0xf001u});
          break;
        case 5:
        case 6:
          usid = 0x1000 + random_.below(22);
          break;
        case 7:
          usid = 0x4000 + random_.below(22);
          break;
        case 8:
          usid = random_.below(0x10000);
          break;
        default:
          break;
      }
      a.push_back(static_cast<std::uint8_t>(usid >> 8));
      a.push_back(static_cast<std::uint8_t>(usid));
    }
    a.resize(16);
    std::copy(a.begin(), a.end(), spec.destination.begin());
    return spec;
  }

  // Kernel traffic and RoCE by host address; some to hosts that do not exist.
  FrameSpec plain() {
    FrameSpec spec = common();
    spec.destination = address("fd00::");
    spec.destination[15] = static_cast<std::uint8_t>(random_.below(56));
    spec.next_header = static_cast<std::uint8_t>(one_of({6u, 6u, 17u, 17u, 58u, 44u, 59u}));
    return spec;
  }

  std::vector<std::uint8_t> malformed() {
    FrameSpec spec = random_.below(2) ? usid_walk() : plain();
    static const char* const kBad[] = {"::", "::1", "fe80::7", "ff02::1", "ff02::1:ff00:1"};
    switch (random_.below(8)) {
      case 0:
        spec.version = static_cast<std::uint8_t>(random_.below(16));
        break;
      case 1:
        spec.ether_type = static_cast<std::uint16_t>(one_of({0x0806u, 0x0800u, 0x8100u, 0u}));
        break;
      case 2:
        spec.claimed_beyond = static_cast<int>(random_.below(60000)) - 40;
        break;
      case 3:
        spec.next_header = 43;
        break;
      case 4:
        spec.source = address(kBad[random_.below(5)]);
        break;
      case 5:
        spec.destination = address(kBad[random_.below(5)]);
        break;
      case 6:
        spec.hop_limit = static_cast<std::uint8_t>(random_.below(3));
        break;
      default: {
        std::vector<std::uint8_t> cut = frame(spec);
        cut.resize(1 + random_.below(static_cast<std::uint32_t>(cut.size())));
        return cut;
      }
    }
    clamp(spec);
    return frame(spec);
  }

  std::vector<std::uint8_t> flipped() {
    std::vector<std::uint8_t> bytes = frame(random_.below(2) ? usid_walk() : plain());
    for (unsigned i = 1 + random_.below(4); i-- > 0;) {
      bytes[random_.below(static_cast<std::uint32_t>(std::min<std::size_t>(bytes.size(), 62)))] ^=
          static_cast<std::uint8_t>(1u << random_.below(8));
    }
    return bytes;
  }

  RandomStream& random() { return random_; }

 private:
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return *(values.begin() + random_.below(static_cast<std::uint32_t>(values.size())));
  }
  static void clamp(FrameSpec& spec) {
    const int claimed = static_cast<int>(spec.payload.size()) + spec.claimed_beyond;
    if (claimed < 0) spec.claimed_beyond = -static_cast<int>(spec.payload.size());
    if (claimed > 0xffff) spec.claimed_beyond = 0xffff - static_cast<int>(spec.payload.size());
  }
  FrameSpec common() {
    FrameSpec spec;
    spec.uid = uid_;
    spec.source[15] = static_cast<std::uint8_t>(1 + random_.below(50));
    spec.traffic_class = static_cast<std::uint8_t>(random_());
    spec.flow_label = static_cast<std::uint32_t>(random_()) & 0xfffff;
    const unsigned hop = random_.below(20);
    spec.hop_limit = static_cast<std::uint8_t>(hop == 0   ? 0
                                               : hop == 1 ? 1
                                               : hop == 2 ? 2
                                               : hop == 3 ? 255
                                                          : 3 + random_.below(252));
    // Mostly short, to keep the test quick; every length down to a bare IPv6 header occurs.
    const std::size_t most = random_.below(16) ? 130 : longest_ - 54;
    spec.payload.resize(random_.below(static_cast<std::uint32_t>(most + 1)));
    const std::size_t varied = std::min<std::size_t>(spec.payload.size(), 64);
    for (std::size_t i = 0; i < varied; ++i) spec.payload[i] = static_cast<std::uint8_t>(random_());
    if (random_.below(16) == 0) spec.trailing = random_.below(40);
    return spec;
  }

  RandomStream random_;
  std::size_t longest_;
  std::uint64_t uid_ = 0;
};

}  // namespace loomnet::test
