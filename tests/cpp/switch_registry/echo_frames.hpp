// UDP frames for the example programs: echo requests, multicast, and the ports that sum adds.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ebpf/mirror_abi.h"
#include "ebpf/sum_abi.h"
#include "switch_forward/test_frames.hpp"

namespace loomnet::test {

inline std::vector<std::uint8_t> udp_frame(const std::string& destination, std::uint16_t port, std::size_t payload,
                                           std::uint64_t uid = 1, std::uint8_t fill = 0x11) {
  FrameSpec spec;
  spec.destination = address(destination);
  spec.next_header = kNextHeaderUdp;
  spec.uid = uid;
  spec.payload.assign(8 + payload, fill);
  ln_store_be16(spec.payload.data(), 5000);
  ln_store_be16(spec.payload.data() + 2, port);
  ln_store_be16(spec.payload.data() + 4, static_cast<std::uint16_t>(8 + payload));
  ln_store_be16(spec.payload.data() + 6, 0x1234);
  return frame(spec);
}

// Hosts fd00::1 … behind ports 0 …; the batch's groups as given.
inline std::shared_ptr<const TableBatch> host_tables(std::size_t ports, std::uint32_t generation = 1,
                                                     std::vector<std::vector<SwitchPort>> groups = {}) {
  ForwardBatch batch;
  batch.generation = generation;
  for (std::size_t port = 0; port < ports; ++port) {
    Ipv6Address a = address("fd00::");
    a[15] = static_cast<std::uint8_t>(port + 1);
    batch.hosts.push_back({a, static_cast<std::uint16_t>(port)});
    batch.groups.push_back({static_cast<SwitchPort>(port)});
  }
  auto packed = std::make_shared<TableBatch>(*batch.pack());
  packed->groups = std::move(groups);
  return packed;
}

}  // namespace loomnet::test
