// A packet as a switch program sees it: header bytes in place, payload bytes where they lie, copied
// into a buffer of the packet's own before the first write.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "packet/packet.hpp"
#include "switch/program.hpp"

namespace loomnet {

// Memory of one switch for packets that cannot be shown in place. One packet at a time.
using ViewScratch = std::vector<std::uint8_t>;

class PacketView : public ln_packet {
 public:
  PacketView(Packet& packet, PacketPool& pool, const ProgramNeeds& needs, ViewScratch& scratch);
  PacketView(const PacketView&) = delete;
  PacketView& operator=(const PacketView&) = delete;

  // Takes over what the program did with a packet that leaves: edits, label, length. The host counter
  // of the reason where the packet must be dropped instead, because the program broke its contract.
  std::optional<ln_host_counter> apply();

 private:
  static void on_edit(ln_packet* packet);
  void assemble(const ProgramNeeds& needs, std::uint32_t wanted);
  void cut();

  Packet& packet_;
  PacketPool& pool_;
  ViewScratch& scratch_;
  std::uint32_t length_;
  std::array<std::uint8_t, 6> source_mac_{};
  bool has_mac_;
  bool in_place_;         // header and payload are the packet's own bytes
  bool written_ = false;  // the program announced writes into the payload
};

}  // namespace loomnet
