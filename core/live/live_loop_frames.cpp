// Frames that the live loop takes from the kernel and gives to it, and the packets that they are in the network.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <unordered_map>

#include "ebpf/metadata.h"
#include "live/live_loop.hpp"
#include "packet/ecn.hpp"
#include "packet/ethernet.hpp"

namespace loomnet {
namespace {

constexpr MacAddress kFirstHop{2, 0, 0, 0, 0, 1};  // as the hosts' permanent neighbours have it
constexpr std::size_t kDestinationMac = 0, kSourceMac = 6;
// Of a loop that stands: a socket holds 128 frames, which a port of 1 Gb/s fills in 3 ms.
constexpr auto kStandingLook = std::chrono::microseconds(500);

}  // namespace

bool LiveLoop::receive_all(Picoseconds instant) {
  bool any = false;
  for (const auto& [port, frame] : kept_) any |= receive(ports_[port], {&frame, 1}, instant);
  kept_.clear();
  for (Port& port : ports_) {
    const std::size_t n = port.socket->receive(batch_);
    any |= receive(port, std::span(batch_).first(n), instant);
  }
  return any;
}

bool LiveLoop::receive(Port& port, std::span<const ReceivedFrame> frames, Picoseconds instant) {
  if (frames.empty()) return false;
  counters_.received += frames.size();
  const Picoseconds late = clock_.now();
  for (std::size_t i = 0; i < frames.size(); ++i) {
    // Headers lie a page apart, in one set of the first cache: fetch ahead, metadata too.
    if (i + 4 < frames.size()) {
      __builtin_prefetch(frames[i + 4].data);
      __builtin_prefetch(frames[i + 4].data - sizeof(ln_metadata));
    }
    if (port.kind == PortKind::xdp_switch) {
      from_xdp_switch(port, frames[i], late);
    } else if (port.kind == PortKind::xdp_panel) {
      from_xdp_panel(port, frames[i], late);
    } else {
      from_kernel(port, frames[i], instant);
    }
  }
  return true;
}

void LiveLoop::stand(const std::function<void()>& stands, std::future<void> go) {
  // A packet that the other thread drops frees its frame into the UMEM. The loop therefore takes the frames for its
  // sockets from a reserve, which it fills before that thread begins.
  std::unordered_map<Umem*, std::vector<std::uint32_t>> reserves;
  for (Port& port : ports_) reserves[&port.socket->umem()];
  for (auto& [umem, reserve] : reserves) {
    const std::size_t half = umem->free_frames() / 2;
    for (std::uint32_t handle = 0; reserve.size() < half && umem->take(handle);) reserve.push_back(handle);
  }
  stands();
  while (go.wait_for(kStandingLook) != std::future_status::ready) {
    for (std::uint32_t i = 0; i < ports_.size(); ++i) {
      XskSocket& socket = *ports_[i].socket;
      const std::size_t n = socket.receive(batch_, &reserves[&socket.umem()]);
      for (const ReceivedFrame& frame : std::span(batch_).first(n)) kept_.emplace_back(i, frame);
    }
  }
  for (auto& [umem, reserve] : reserves) {
    for (const std::uint32_t handle : reserve) umem->put(handle);
  }
}

// Makes what follows the header in the frame the packet's payload.
void LiveLoop::attach(Packet& packet, Port& port, const ReceivedFrame& frame, bool bytes) {
  if (!bytes) return drop_frame(port, frame);  // lengths only: the frame has served its purpose
  // A packet that was here before knows its payload; what follows in the frame is padding.
  const std::uint32_t rest = frame.length - packet.header_length;
  const std::uint32_t length = packet.payload.length ? std::min(packet.payload.length, rest) : rest;
  packet.payload = {frame.data + packet.header_length, length, frame.handle, PayloadKind::frame};
}

void LiveLoop::from_xdp_switch(Port& port, const ReceivedFrame& frame, Picoseconds now) {
  if (frame.length < EthernetHeader::kSize) {
    ++counters_.malformed;
    return drop_frame(port, frame);
  }
  UidTable::Entry entry = in_kernel_.take(ln_uid_from_mac(frame.data + kSourceMac));
  if (!entry.uid) {
    ++counters_.foreign;
    return drop_frame(port, frame);
  }
  SwitchReckoning& reckoning = reckonings_[entry.node];
  ++reckoning.returned;
  std::uint8_t* before = frame.data - kKernelMetadataBytes;
  const KernelVerdict verdict =
      kernel_verdict(std::span<const std::uint8_t, kKernelMetadataBytes>(before, kKernelMetadataBytes),
                     entry.packet->ingress, port.port);
  // The area is not wiped by the kernel: a frame must never show what an earlier one left.
  std::memset(frame.data - sizeof(ln_metadata), 0, sizeof(ln_metadata::magic));
  if (verdict.trust == KernelVerdict::Trust::missing) ++counters_.no_metadata;
  if (verdict.trust == KernelVerdict::Trust::mismatched) ++counters_.metadata_mismatch;
  window_[Stage::kernel].record(emulated(looked_ - entry.given));
  PacketPtr packet = std::move(entry.packet);
  if (!take_header(*packet, {frame.data, frame.length}, verdict.cut)) {
    ++counters_.malformed;
    return drop_frame(port, frame);
  }
  attach(*packet, port, frame, entry.bytes);
  if (verdict.label) {
    packet->flow = verdict.label->flow;
    packet->message = verdict.label->message;
  }
  window_[Stage::packet].record(now - packet->ideal);
  return_packet(port, std::move(packet), verdict);
}

// Takes back a frame that an XDP panel has forwarded. The frame carried its uid in place of its source MAC, which
// is restored here: a panel changes nothing in a frame.
void LiveLoop::from_xdp_panel(Port& port, const ReceivedFrame& frame, Picoseconds now) {
  UidTable::Entry entry;
  if (frame.length >= EthernetHeader::kSize) entry = in_kernel_.take(ln_uid_from_mac(frame.data + kSourceMac));
  if (!entry.uid) {
    ++counters_.foreign;
    return drop_frame(port, frame);
  }
  ++reckonings_[entry.node].returned;
  window_[Stage::kernel].record(emulated(looked_ - entry.given));
  PacketPtr packet = std::move(entry.packet);
  std::copy(entry.source.begin(), entry.source.end(), frame.data + kSourceMac);
  if (!take_header(*packet, {frame.data, frame.length}, false)) {
    ++counters_.malformed;
    return drop_frame(port, frame);
  }
  attach(*packet, port, frame, entry.bytes);
  window_[Stage::packet].record(now - packet->ideal);
  returned_.push_back({std::move(packet), port.node, port.port});
}

// The packet goes on out of the port that its frame came out of; of a replicate verdict, which sends
// one frame back, the engine makes the copies.
void LiveLoop::return_packet(Port& port, PacketPtr packet, const KernelVerdict& verdict) {
  if (verdict.verdict.action != Verdict::Action::replicate) {
    returned_.push_back({std::move(packet), port.node, port.port});
    return;
  }
  const auto members = port.program->members(verdict.generation, verdict.verdict.value);
  if (!members) {
    port.program->count(LN_HOST_DROP_NO_GROUP, 1);
    if (Tap* tap = network_.tap()) {
      tap->refused(port.node, *packet, "drop_no_group", network_.now());
    }
    return;
  }
  port.program->count(LN_HOST_COPIES, members->size());
  for (std::size_t i = 1; i < members->size(); ++i) {
    returned_.push_back({network_.pool().duplicate(*packet), port.node, (*members)[i - 1]});
  }
  returned_.push_back({std::move(packet), port.node, members->back()});
}

bool LiveLoop::take_reports() {
  return fabric_.reports().take([this](const ln_report& report) { on_report(report); }) > 0;
}

// A packet that does not come back: its record is freed at once.
void LiveLoop::on_report(const ln_report& report) {
  const UidTable::Entry entry = in_kernel_.take(report.uid & LN_UID_MASK);
  if (!entry.uid) {
    ++counters_.unknown_report;
    return;
  }
  ++counters_.reported;
  SwitchReckoning& reckoning = reckonings_[entry.node];
  Tap* tap = network_.tap();
  const auto action = static_cast<Verdict::Action>(report.action);
  switch (action) {
    case Verdict::Action::absorb:
      ++reckoning.absorbed;
      break;
    case Verdict::Action::pass:
      ++reckoning.passed;
      break;
    default:  // a drop stands in the program's own counters
      if (const XdpSwitch* s = tap ? fabric_.switch_of(reckoning.node) : nullptr) {
        tap->refused(reckoning.node, *entry.packet, s->program().reason(report.value), network_.now());
      }
      return;
  }
  if (tap) tap->ended(reckoning.node, *entry.packet, ending(action), network_.now());
}

void LiveLoop::offer_returned() {
  if (returned_.empty()) return;
  std::sort(returned_.begin(), returned_.end(), [](const Arriving& a, const Arriving& b) {
    return a.packet->ideal != b.packet->ideal ? a.packet->ideal < b.packet->ideal : a.packet->uid < b.packet->uid;
  });
  for (auto& [packet, node, port] : returned_) network_.from_switch(node, port, std::move(packet));
  returned_.clear();
}

// A frame that begins its life here: of a host's kernel, or of a switch that keeps no uid.
void LiveLoop::from_kernel(Port& port, const ReceivedFrame& frame, Picoseconds now) {
  if (frame.length < EthernetHeader::kSize) {
    ++counters_.malformed;
    return drop_frame(port, frame);
  }
  PacketPtr packet = network_.pool().allocate();
  packet->header_length = static_cast<std::uint16_t>(std::min<std::size_t>(frame.length, kMaxHeaderBytes));
  packet->wire_length = frame.length;
  packet->ideal = now;
  packet->kernel = true;
  packet->payload.length = frame.length - packet->header_length;
  std::memcpy(packet->header.data(), frame.data, packet->header_length);
  attach(*packet, port, frame, true);
  packet->ect = is_ect(*packet);
  if (port.kind == PortKind::host) {
    ++counters_.host_frames;
    from_hosts_.push_back({std::move(packet), port.node, port.port});
  } else {
    returned_.push_back({std::move(packet), port.node, port.port});
  }
}

void LiveLoop::to_switch(NodeId node, std::uint16_t port, PacketPtr packet, Picoseconds) {
  const std::uint32_t index = find(node, port);
  if (index == kNoPort) {
    ++counters_.no_port;
    return;
  }
  Port& p = ports_[index];
  packet->ingress = port;
  const bool bytes = packet->payload.data != nullptr;
  const std::uint64_t uid = packet->uid & LN_UID_MASK;
  if (p.program && p.program->wants_labels()) {
    p.program->set_label(uid, packet->flow, packet->message);
  }
  MacAddress source{};
  std::copy_n(packet->header.begin() + kSourceMac, source.size(), source.begin());
  if (!send(index, *packet, true)) return;
  if (p.kind != PortKind::xdp_switch && p.kind != PortKind::xdp_panel) {
    window_[Stage::packet].record(clock_.now() - packet->ideal);
    return;  // the record ends here; what comes back is a new packet
  }
  ++reckonings_[p.reckoning].given;
  in_kernel_.put({uid, std::move(packet), pass_wall_, p.reckoning, source, bytes});
}

void LiveLoop::to_host(HostId host, PlanePort port, PacketPtr packet, Picoseconds) {
  const std::uint32_t index = find(host, port);
  if (index == kNoPort) {
    ++counters_.no_port;
    return;
  }
  // Hosts' kernels send to their first hop; a frame to another address passes as it is.
  if (ports_[index].mac != MacAddress{} &&
      std::equal(kFirstHop.begin(), kFirstHop.end(), packet->header.begin() + kDestinationMac)) {
    std::memcpy(packet->header.data() + kDestinationMac, ports_[index].mac.data(), 6);
  }
  window_[Stage::packet].record(clock_.now() - packet->ideal);
  send(index, *packet, false);
}

// Queues the packet's bytes on the port's socket: in the frame they already are in if the socket's
// group owns it, else in a fresh one. The packet owns no frame afterwards.
bool LiveLoop::send(std::uint32_t index, Packet& packet, bool with_uid) {
  Port& port = ports_[index];
  Umem& umem = port.socket->umem();
  if (with_uid) ln_uid_to_mac(packet.uid & LN_UID_MASK, packet.header.data() + kSourceMac);
  Payload& payload = packet.payload;
  // What follows the payload (padding, invariant CRC) is in the wire length alone: zeros on the
  // wire.
  const std::uint32_t known = packet.header_length + payload.length;
  const std::uint32_t length = std::max(known, packet.wire_length);
  std::uint32_t handle = 0, offset = kFrameHeadroom;
  bool in_place = false;
  if (payload.kind == PayloadKind::frame && Umem::id_of(payload.frame) == umem.id()) {
    const std::uint8_t* base = umem.base(payload.frame);
    const std::ptrdiff_t start =
        payload.data ? payload.data - base - packet.header_length : std::ptrdiff_t{kFrameHeadroom};
    if (start >= 0 && start + length <= kFrameBytes) {
      in_place = true;
      handle = payload.frame;
      offset = static_cast<std::uint32_t>(start);
    }
  }
  if (!in_place) {
    if (length > kMaxFrameLength) {
      ++counters_.too_long;
      return false;
    }
    if (!umem.take(handle)) {
      ++counters_.umem_dry;
      return false;
    }
    if (payload.data) {
      std::memcpy(umem.base(handle) + offset + packet.header_length, payload.data, payload.length);
    }
  }
  std::memcpy(umem.base(handle) + offset, packet.header.data(), packet.header_length);
  if (length > known) std::memset(umem.base(handle) + offset + known, 0, length - known);
  if (!port.socket->transmit(handle, offset, length)) {
    port.socket->flush();
    if (!port.socket->transmit(handle, offset, length)) {
      ++counters_.tx_ring_full;
      if (!in_place) umem.put(handle);
      return false;
    }
  }
  if (!in_place) network_.pool().release_payload(packet);
  payload.kind = PayloadKind::none;
  payload.data = nullptr;
  ++counters_.sent;
  if (!port.dirty) {
    port.dirty = true;
    dirty_.push_back(index);
  }
  return true;
}

bool LiveLoop::flush() {
  if (dirty_.empty()) return false;
  std::size_t kept = 0;
  for (const std::uint32_t index : dirty_) {
    if (ports_[index].socket->flush()) {
      ports_[index].dirty = false;
    } else {
      dirty_[kept++] = index;
    }
  }
  const bool progress = kept < dirty_.size();
  dirty_.resize(kept);
  return progress;
}

}  // namespace loomnet
