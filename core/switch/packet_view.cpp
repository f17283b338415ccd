// Showing and taking back: in place where the packet's own split into header and payload is the
// program's, else by way of scratch memory.
#include "switch/packet_view.hpp"

#include <algorithm>
#include <cstring>

namespace loomnet {
namespace {
constexpr std::size_t kSourceMac = 6;
}

PacketView::PacketView(Packet& packet, PacketPool& pool, const ProgramNeeds& needs, ViewScratch& scratch)
    : ln_packet{},
      packet_(packet),
      pool_(pool),
      scratch_(scratch),
      // As long as the kernel would see it: a packet whose wire length is less than its bytes is sent
      // whole.
      length_(std::max(packet.wire_length, packet.header_length + packet.payload.length)) {
  length = length_;
  flow = packet.flow;
  message = packet.message;
  edit = on_edit;
  // Bytes behind the header that the program looks at.
  const std::uint32_t wanted =
      length_ > needs.header_bytes ? std::min(length_ - needs.header_bytes, needs.payload_bytes) : 0;
  const bool header_here = packet.header_length >= std::min(needs.header_bytes, length_) &&
                           (needs.payload_bytes == 0 || wanted == 0 || packet.header_length == needs.header_bytes);
  in_place_ = header_here && (wanted == 0 || (packet.payload.data && packet.payload.length >= wanted));
  if (in_place_) {
    frame = packet.header.data();
    end = frame + std::min<std::uint32_t>(packet.header_length, length_);
    // The program writes only behind ln_edit(), which makes these bytes its own.
    payload = wanted ? const_cast<std::uint8_t*>(packet.payload.data) : end;
    payload_end = payload + wanted;
  } else {
    assemble(needs, wanted);
  }
  has_mac_ = end - frame >= static_cast<std::ptrdiff_t>(kSourceMac + source_mac_.size());
  if (has_mac_) std::memcpy(source_mac_.data(), frame + kSourceMac, source_mac_.size());
}

void PacketView::assemble(const ProgramNeeds& needs, std::uint32_t wanted) {
  const std::uint32_t shown = std::min(length_, needs.header_bytes) + wanted;
  const std::uint32_t header = std::min<std::uint32_t>(packet_.header_length, length_);
  scratch_.assign(std::max(shown, header), 0);
  std::memcpy(scratch_.data(), packet_.header.data(), header);
  if (packet_.payload.data && shown > header) {
    std::memcpy(scratch_.data() + header, packet_.payload.data, std::min(shown - header, packet_.payload.length));
  }
  frame = scratch_.data();
  end = frame + std::min(length_, needs.header_bytes);
  payload = wanted ? frame + needs.header_bytes : end;
  payload_end = payload + wanted;
}

void PacketView::on_edit(ln_packet* packet) {
  auto& view = *static_cast<PacketView*>(packet);
  if (view.written_) return;
  view.written_ = true;
  if (!view.in_place_ || view.payload == view.payload_end) return;
  const std::ptrdiff_t shown = view.payload_end - view.payload;
  view.payload = view.pool_.own_payload(view.packet_);
  view.payload_end = view.payload + shown;
}

std::optional<ln_host_counter> PacketView::apply() {
  if (has_mac_ && std::memcmp(source_mac_.data(), frame + kSourceMac, source_mac_.size()) != 0) {
    return LN_HOST_DROP_SOURCE_MAC;
  }
  if (length > length_) return LN_HOST_DROP_BAD_VERDICT;
  packet_.flow = flow;
  packet_.message = message;
  if (!in_place_) {
    // Header and payload as the program sees them lie side by side here.
    const auto shown = static_cast<std::size_t>(std::max(payload_end, end) - frame);
    std::memcpy(packet_.header.data(), frame, std::min<std::size_t>(packet_.header_length, shown));
    // Of a packet without bytes (lengths only) nothing else is kept. Padding behind the payload is
    // zeros on the wire, whatever the program wrote there.
    if (packet_.payload.data && shown > packet_.header_length) {
      const std::size_t behind = std::min<std::size_t>(shown - packet_.header_length, packet_.payload.length);
      const std::uint8_t* now = frame + packet_.header_length;
      if (std::memcmp(packet_.payload.data, now, behind) != 0) {
        std::memcpy(pool_.own_payload(packet_), now, behind);
      }
    }
  }
  if (length < length_) cut();
  return std::nullopt;
}

void PacketView::cut() {
  const std::uint32_t kept = std::max(length, std::min(length_, LN_MIN_FRAME));
  packet_.wire_length = kept;
  packet_.header_length = static_cast<std::uint8_t>(std::min<std::uint32_t>(packet_.header_length, kept));
  packet_.payload.length = std::min(packet_.payload.length, kept - packet_.header_length);
}

}  // namespace loomnet
