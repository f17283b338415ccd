// The packet pool: blocks of records, a free list through them, and a count of the records in use.
#include "packet/packet.hpp"

#include <cassert>

namespace loomnet {

PacketPool::PacketPool(std::size_t initial) {
  while (capacity() < initial) grow();
}

PacketPool::~PacketPool() { assert(outstanding_ == 0 && "a packet outlived its pool"); }

void PacketPool::grow() {
  blocks_.push_back(std::unique_ptr<Packet[]>(new Packet[kBlock]));  // header bytes stay untouched
  Packet* block = blocks_.back().get();
  for (std::size_t i = kBlock; i-- > 0;) {
    block[i].pool = this;
    block[i].next = free_;
    free_ = &block[i];
  }
}

PacketPtr PacketPool::allocate() {
  if (!free_) grow();
  Packet* p = free_;
  free_ = p->next;
  ++outstanding_;
  p->next = nullptr;
  p->uid = next_uid_++;
  p->ideal = Picoseconds{};
  p->flow = p->wire_length = p->message = 0;
  p->ingress = p->header_length = 0;
  p->queue = kDataClass;
  p->trimmable = p->ect = p->corrupt = p->lost = p->kernel = false;
  p->payload = Payload{};
  return PacketPtr(p);
}

PacketPtr PacketPool::duplicate(const Packet& original) {
  PacketPtr copy = allocate();
  const std::uint64_t uid = copy->uid;
  *copy = original;
  copy->next = nullptr;
  copy->pool = this;
  copy->uid = uid;
  if (copy->payload.kind == PayloadKind::frame) copy->payload = {nullptr, original.payload.length, 0, PayloadKind::none};
  return copy;
}

void PacketPool::release(Packet* packet) noexcept {
  if (packet->payload.kind == PayloadKind::frame && frame_owner_) {
    frame_owner_->release_frame(packet->payload.frame);
    packet->payload.kind = PayloadKind::none;
  }
  packet->next = free_;
  free_ = packet;
  --outstanding_;
}

}  // namespace loomnet
