// One packet on its way: a fixed record in a preallocated pool, owned by exactly one holder.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "clock/time.hpp"
#include "packet/attributes.hpp"

namespace loomnet {

inline constexpr std::size_t kMaxHeaderBytes = 192;
// Preamble, start delimiter, FCS and inter-packet gap: bytes on the wire that are in no frame.
inline constexpr std::uint32_t kFramingOverhead = 24;
inline constexpr std::uint32_t kMinFrameBytes = 60;

// Strict-priority queue of a link, 0 is served first.
using QueueClass = std::uint8_t;
inline constexpr QueueClass kControlClass = 0;
inline constexpr QueueClass kDataClass = 1;
inline constexpr std::size_t kQueueClasses = 8;
// MAC control (PFC): never queued, taken off the wire by the next node.
inline constexpr QueueClass kMacControlClass = 7;
// The largest frame a transport here sends: 4,096 B of payload behind MRC's headers.
inline constexpr std::uint32_t kMaxFrameBytes = 4096 + 142;

// Where the bytes behind the header are. `none`: lengths only, timed the same. `region`: a sender's
// memory, never written. `frame` and `buffer` are the packet's own.
enum class PayloadKind : std::uint8_t { none, region, frame, buffer };

struct Payload {
  const std::uint8_t* data = nullptr;  // null for PayloadKind::none
  std::uint32_t length = 0;            // bytes; valid for every kind
  std::uint32_t frame = 0;  // frame: handle given back to its owner; buffer: number in the pool
  PayloadKind kind = PayloadKind::none;
};

class PacketPool;

// What links and switches read lies in the first cache line, the outermost 64 header bytes in the
// second: a hop touches no more.
struct alignas(128) Packet {
  Packet* next = nullptr;       // intrusive queues; free list of the pool
  PacketPool* pool = nullptr;
  std::uint64_t uid : 56 = 0;     // unique in a run, from 1
  std::uint64_t carrier : 8 = 0;  // number of its transport among transports(), from 1; 0: of a kernel
  Picoseconds ideal{};          // when it should be here by its path's models alone
  Payload payload;
  std::uint32_t wire_length = 0;  // Ethernet frame without FCS; drives all timing
  std::uint16_t ingress = 0;    // port of the node that holds it
  std::uint8_t header_length = 0;
  QueueClass queue : 3 = kDataClass;
  bool trimmable : 1 = false;   // a full queue may cut it to its header
  bool ect : 1 = false;         // ECN-capable: may be marked CE
  bool corrupt : 1 = false;     // a link damaged it: the next receiver's FCS check drops it
  bool lost : 1 = false;        // a link lost it: it ends where it would have arrived
  bool kernel : 1 = false;      // entered from a host's kernel, leaves to one
  std::array<std::uint8_t, kMaxHeaderBytes> header;
  std::uint32_t flow = 0;       // for statistics: the sender's flow number
  std::uint32_t message = 0;    // for recorders: WorkRequest::message of what it carries; 0: none
  Picoseconds arrival{};        // in a queue that times waiting; for recorders: at the link's far end
  Attributes attributes;        // of the bytes it carries; a packet without a request's bytes has none

  std::span<std::uint8_t> header_bytes() { return {header.data(), header_length}; }
  std::span<const std::uint8_t> header_bytes() const { return {header.data(), header_length}; }
};

static_assert(offsetof(Packet, header) == 64);
// Flow, message and attributes are written together and share a cache line.
static_assert(offsetof(Packet, attributes) + sizeof(Attributes) == 320);

struct ReturnToPool {
  void operator()(Packet* packet) const noexcept;
};
using PacketPtr = std::unique_ptr<Packet, ReturnToPool>;

// Takes frames (PayloadKind::frame) back when their packet ends; the live part implements it.
class FrameOwner {
 public:
  virtual ~FrameOwner() = default;
  virtual void release_frame(std::uint32_t frame) noexcept = 0;
};

// Grows by whole blocks so that records never move; steady state allocates nothing.
class PacketPool {
 public:
  explicit PacketPool(std::size_t initial = 1024);
  ~PacketPool();
  PacketPool(const PacketPool&) = delete;
  PacketPool& operator=(const PacketPool&) = delete;

  // A packet with a fresh uid, no header and no payload.
  PacketPtr allocate();
  // A second packet with the same bytes and a uid of its own. Payload bytes that are the original's own
  // (frame, buffer) are copied into a buffer.
  PacketPtr duplicate(const Packet& original);
  // The payload's bytes for writing, copied into a buffer first where they are a sender's memory.
  // Null for a packet without payload bytes.
  std::uint8_t* own_payload(Packet& packet);
  // Gives back what holds the packet's payload bytes; they are gone, their length stays.
  void release_payload(Packet& packet) noexcept;
  std::size_t outstanding() const { return outstanding_; }
  std::size_t capacity() const { return blocks_.size() * kBlock; }
  std::uint64_t last_uid() const { return next_uid_ - 1; }
  // Numbers the messages of a run, from 1.
  std::uint32_t next_message() { return ++last_message_; }
  void set_frame_owner(FrameOwner* owner) { frame_owner_ = owner; }

 private:
  friend struct ReturnToPool;
  static constexpr std::size_t kBlock = 1024;
  // Memory for payloads that were written on their way; kept for the next one.
  struct Buffer {
    std::unique_ptr<std::uint8_t[]> bytes;
    std::uint32_t capacity = 0;
  };
  void grow();
  void release(Packet* packet) noexcept;
  std::uint8_t* copy_payload(Packet& packet);

  std::vector<std::unique_ptr<Packet[]>> blocks_;
  Packet* free_ = nullptr;
  std::size_t outstanding_ = 0;
  std::uint64_t next_uid_ = 1;
  std::uint32_t last_message_ = 0;
  FrameOwner* frame_owner_ = nullptr;
  std::vector<Buffer> buffers_;
  std::vector<std::uint32_t> free_buffers_;
};

inline PacketPtr PacketPool::allocate() {
  if (!free_) grow();
  Packet* p = free_;
  free_ = p->next;
  ++outstanding_;
  p->next = nullptr;
  p->uid = next_uid_++;
  p->carrier = 0;
  p->ideal = Picoseconds{};
  p->flow = p->wire_length = p->message = 0;
  p->ingress = p->header_length = 0;
  p->queue = kDataClass;
  p->trimmable = p->ect = p->corrupt = p->lost = p->kernel = false;
  p->payload = Payload{};
  p->attributes = Attributes{};
  return PacketPtr(p);
}

inline void ReturnToPool::operator()(Packet* packet) const noexcept { packet->pool->release(packet); }

// First-in first-out list through Packet::next; owns what it holds.
class PacketFifo {
 public:
  PacketFifo() = default;
  ~PacketFifo() { clear(); }
  PacketFifo(PacketFifo&& o) noexcept : head_(o.head_), tail_(o.tail_), before_(o.before_) {
    o.head_ = o.tail_ = o.before_ = nullptr;
  }
  PacketFifo& operator=(PacketFifo&&) = delete;

  bool empty() const { return head_ == nullptr; }
  // Counts them one by one.
  std::size_t size() const {
    std::size_t n = 0;
    for (const Packet* p = head_; p; p = p->next) ++n;
    return n;
  }
  const Packet& front() const { return *head_; }
  Packet& front() { return *head_; }
  const Packet& back() const { return *tail_; }
  void push(PacketPtr packet) {
    Packet* p = packet.release();
    p->next = nullptr;
    (tail_ ? tail_->next : head_) = p;
    before_ = tail_;
    tail_ = p;
  }
  // Puts a packet in the place of the last one, which it returns. Not empty.
  PacketPtr replace_back(PacketPtr packet) {
    Packet* p = packet.release();
    p->next = nullptr;
    (before_ ? before_->next : head_) = p;
    return PacketPtr(std::exchange(tail_, p));
  }
  PacketPtr pop() {
    Packet* p = head_;
    head_ = p->next;
    if (!head_) tail_ = nullptr;
    if (before_ == p) before_ = nullptr;
    p->next = nullptr;
    return PacketPtr(p);
  }
  void clear() {
    while (!empty()) pop();
  }

 private:
  Packet* head_ = nullptr;
  Packet* tail_ = nullptr;
  Packet* before_ = nullptr;  // the last but one, where there is one
};

}  // namespace loomnet
