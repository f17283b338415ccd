#include "live/chain_source.hpp"

#include <cstring>
#include <utility>

namespace loomnet {
namespace {

constexpr int kFirstUsid = 0xe801;  // lane n has the one n further

}  // namespace

ForwardBatch chain_tables(int lanes) {
  ForwardBatch tables;
  tables.generation = 1;
  for (int lane = 0; lane < lanes; ++lane) {
    tables.own_ua.push_back(
        {{usid_block(0), static_cast<std::uint16_t>(kFirstUsid + lane)}, static_cast<SwitchPort>(2 * lane + 1)});
  }
  return tables;
}

ChainSource::ChainSource(Network& network, NodeId host, int lane, int hops, std::span<const std::uint8_t> payload)
    : network_(network), host_(host), payload_(payload), id_(network.events().add(*this)) {
  header_[0] = 0x06, header_[12] = 0x86, header_[13] = 0xdd;  // Ethernet, to IPv6
  std::uint8_t* ip = &header_[14];
  ip[0] = 0x60, ip[6] = 17, ip[7] = 64, ip[8] = 0xfd, ip[23] = 1, ip[24] = 0xfc;
  const int usid = kFirstUsid + lane;
  for (int hop = 0; hop < hops; ++hop) {
    ip[28 + 2 * hop] = static_cast<std::uint8_t>(usid >> 8);
    ip[29 + 2 * hop] = static_cast<std::uint8_t>(usid);
  }
  ip[28 + 2 * hops] = 0x40;  // the uSID of the host at the end
}

void ChainSource::on_event(std::uint64_t, Picoseconds now) {
  PacketPtr p = network_.pool().allocate();
  p->header_length = kHeader;
  std::memcpy(p->header.data(), header_.data(), kHeader);
  p->payload = {payload_.data(), static_cast<std::uint32_t>(payload_.size()), 0, PayloadKind::region};
  p->wire_length = static_cast<std::uint32_t>(kHeader + payload_.size());
  p->ideal = now;
  network_.egress(host_, 0)->offer(std::move(p), now);
  network_.events().schedule(now + gap_, id_);
}

}  // namespace loomnet
