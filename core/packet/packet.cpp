// The packet pool: blocks of records, a free list through them, and a count of the records in use.
#include "packet/packet.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

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

PacketPtr PacketPool::duplicate(const Packet& original) {
  PacketPtr copy = allocate();
  const std::uint64_t uid = copy->uid;
  *copy = original;
  copy->next = nullptr;
  copy->pool = this;
  copy->uid = uid;
  if (copy->payload.kind >= PayloadKind::frame) {
    if (copy->payload.data) {
      copy_payload(*copy);
    } else {  // trimmed: what still holds the bytes is the original's
      copy->payload.kind = PayloadKind::none;
    }
  }
  return copy;
}

// Into a buffer; what held the bytes before is left alone.
std::uint8_t* PacketPool::copy_payload(Packet& packet) {
  if (free_buffers_.empty()) {
    free_buffers_.push_back(static_cast<std::uint32_t>(buffers_.size()));
    buffers_.emplace_back();
    // Every buffer fits into the list of free ones: release_payload() must not allocate.
    free_buffers_.reserve(buffers_.capacity());
  }
  const std::uint32_t number = free_buffers_.back();
  free_buffers_.pop_back();
  Buffer& buffer = buffers_[number];
  Payload& payload = packet.payload;
  if (buffer.capacity < payload.length) {
    buffer.capacity = std::max(payload.length, kMaxFrameBytes);
    buffer.bytes.reset(new std::uint8_t[buffer.capacity]);
  }
  std::memcpy(buffer.bytes.get(), payload.data, payload.length);
  payload.data = buffer.bytes.get();
  payload.frame = number;
  payload.kind = PayloadKind::buffer;
  return buffer.bytes.get();
}

std::uint8_t* PacketPool::own_payload(Packet& packet) {
  Payload& payload = packet.payload;
  if (!payload.data) return nullptr;
  // A frame or buffer has one owner, this packet.
  if (payload.kind >= PayloadKind::frame) return const_cast<std::uint8_t*>(payload.data);
  return copy_payload(packet);
}

void PacketPool::release_payload(Packet& packet) noexcept {
  Payload& payload = packet.payload;
  if (payload.kind == PayloadKind::buffer) {
    free_buffers_.push_back(payload.frame);
  } else if (payload.kind == PayloadKind::frame && frame_owner_) {
    frame_owner_->release_frame(payload.frame);
  }
  payload.data = nullptr;
  payload.kind = PayloadKind::none;
}

void PacketPool::release(Packet* packet) noexcept {
  if (packet->payload.kind >= PayloadKind::frame) release_payload(*packet);
  packet->next = free_;
  free_ = packet;
  --outstanding_;
}

}  // namespace loomnet
