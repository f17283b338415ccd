// Matching follows MPI's rule: receives in the order posted, messages of one sender in the order
// sent.
#include "collective/point_to_point.hpp"

#include <algorithm>
#include <cstring>

#include "collective/received.hpp"

namespace loomnet {

PointToPoint::PointToPoint(Communicator& communicator)
    : communicator_(communicator), peers_(communicator.size()), held_(communicator, false) {}

std::size_t PointToPoint::unfinished() const {
  std::size_t n = posted_.size() + held_.size();
  for (const Peer& p : peers_) {
    n += p.fresh.size() + p.blocked.size() + p.cleared.size() + p.incoming.size();
  }
  return n;
}

bool PointToPoint::holds(OperationId id) const {
  const auto in = [id](const auto& list) {
    return std::any_of(list.begin(), list.end(), [id](const auto& m) { return m.id == id; });
  };
  if (in(posted_) || held_.holds(id)) return true;
  return std::any_of(peers_.begin(), peers_.end(),
                     [&](const Peer& p) { return in(p.fresh) || in(p.blocked) || in(p.cleared) || in(p.incoming); });
}

void PointToPoint::fail_all(const OperationResult& result) {
  const auto fail = [&](auto& list) {
    for (const auto& m : list) {
      OperationResult own = result;
      own.cookie = m.operation.cookie;
      own.tag = m.operation.tag;
      communicator_.finish(m.id, std::move(own));
    }
    list.clear();
  };
  held_.clear([&](OperationId id, OperationResult& ended) {
    OperationResult own = result;
    own.cookie = ended.cookie;
    own.tag = ended.tag;
    communicator_.finish(id, std::move(own));
  });
  fail(posted_);
  for (Peer& p : peers_) {
    fail(p.fresh);
    fail(p.blocked);
    fail(p.cleared);
    fail(p.incoming);
  }
  unexpected_.clear();
  unexpected_bytes_ = 0;
}

void PointToPoint::done(OperationId id, const Operation& operation, GroupRank source, std::uint32_t tag,
                        Received received) {
  OperationResult result;
  result.source = source;
  result.tag = tag;
  result.cookie = operation.cookie;
  result.received = std::move(received);
  communicator_.finish(id, std::move(result));
}

// --- sending -------------------------------------------------------------------------------------

void PointToPoint::send(OperationId id, Operation operation) {
  const GroupRank to = operation.peer;
  Outgoing message;
  message.id = id;
  message.bytes = operation.count * element_size(operation.type);
  message.operation = std::move(operation);
  message.number = peers_[to].next_out++;
  peers_[to].fresh.push_back(std::move(message));
  on_room(to);
}

void PointToPoint::on_room(GroupRank to) {
  Peer& p = peers_[to];
  while (!p.cleared.empty() || !p.fresh.empty()) {
    // Older messages first, but a fresh one is announced whenever none is under way.
    std::deque<Outgoing>& queue = p.cleared.empty() ? p.fresh : p.cleared;
    if (!transmit(to, queue.front())) return;
    Outgoing& message = queue.front();
    if (message.sent == message.bytes) {
      ++communicator_.counters().messages_sent;
      std::vector<HeldOperations::Wait> waits;
      if (const auto slots = communicator_.unsent(to, Traffic::point_to_point)) {
        waits.emplace_back(to, slots);
      }
      OperationResult result;
      result.source = communicator_.rank();
      result.tag = message.operation.tag;
      result.cookie = message.operation.cookie;
      held_.hold(message.id, std::move(result), std::move(waits));
      queue.pop_front();
    } else if (&queue == &p.fresh) {
      p.blocked.push_back(std::move(message));
      queue.pop_front();
    }
  }
}

bool PointToPoint::transmit(GroupRank to, Outgoing& message) {
  const int channel = communicator_.outbound(to, Traffic::point_to_point);
  Channels& channels = communicator_.channels();
  const JobRank peer = communicator_.member(to);
  if (channel < 0 || !channels.can_send(peer, static_cast<std::uint16_t>(channel))) return false;
  const Operation& op = message.operation;
  const auto length = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(channels.layout().slot_payload(), message.bytes - message.sent));
  std::uint8_t* slot = channels.payload(peer, static_cast<std::uint16_t>(channel));
  if (slot != nullptr && length > 0) std::memcpy(slot, op.input.parts[0] + message.sent, length);
  SlotHeader header;
  header.communicator = communicator_.id();
  header.sequence = message.number;
  header.collective = Collective::send;
  header.type = op.type;
  header.root_or_tag = op.tag;
  header.count = op.count;
  header.transfer = message.bytes;
  header.chunk = message.chunk;
  const bool first = message.chunk == 0;
  message.sent += length;
  ++message.chunk;
  channels.send(peer, static_cast<std::uint16_t>(channel), header, length, first, message.sent == message.bytes,
                first ? op.tag : message.number, op.attributes);
  return true;
}

void PointToPoint::on_clear(GroupRank to, std::uint32_t number) {
  Peer& p = peers_[to];
  const auto it = std::find_if(p.blocked.begin(), p.blocked.end(),
                               [&](const Outgoing& m) { return (m.number & Immediate::kValueMask) == number; });
  if (it == p.blocked.end()) {
    garbage(to, "clear-to-send for a message that does not wait");
    return;
  }
  p.cleared.push_back(std::move(*it));
  p.blocked.erase(it);
  on_room(to);
}

// --- receiving -----------------------------------------------------------------------------------

bool PointToPoint::garbage(GroupRank from, const char* what) {
  communicator_.raise(OperationStatus::protocol, communicator_.name(from) + " sent " + what, from);
  return false;
}

void PointToPoint::receive(OperationId id, Operation operation) {
  Posted posted{id, std::move(operation)};
  const auto it = std::find_if(unexpected_.begin(), unexpected_.end(), [&](const Announced& u) {
    return u.tag == posted.operation.tag && (posted.operation.peer == kAnySource || posted.operation.peer == u.from);
  });
  if (it == unexpected_.end()) {
    posted_.push_back(std::move(posted));
  } else {
    const Announced first = std::move(*it);
    unexpected_.erase(it);
    unexpected_bytes_ -= first.payload.size();
    deliver(posted, first, first.payload.data());
  }
  // Either there is memory again, or the front of a stalled channel may be what was asked for.
  for (GroupRank r = 0; r < peers_.size(); ++r) {
    if (peers_[r].stalled && !communicator_.failed()) on_data(r);
  }
}

bool PointToPoint::cancel_receive(OperationId id) {
  const auto it = std::find_if(posted_.begin(), posted_.end(), [id](const Posted& p) { return p.id == id; });
  if (it == posted_.end()) return false;
  OperationResult result;
  result.status = OperationStatus::aborted;
  result.tag = it->operation.tag;
  result.cookie = it->operation.cookie;
  result.message = "receive cancelled";
  posted_.erase(it);
  communicator_.finish(id, std::move(result));
  return true;
}

void PointToPoint::on_data(GroupRank from) {
  const int inbound = communicator_.inbound(from, Traffic::point_to_point);
  if (inbound < 0) return;
  const auto channel = static_cast<std::uint16_t>(inbound);
  Channels& channels = communicator_.channels();
  const JobRank peer = communicator_.member(from);
  peers_[from].stalled = false;
  while (!communicator_.failed() && channels.has_chunk(peer, channel)) {
    const Chunk chunk = channels.front(peer, channel);
    if (!(chunk.first ? take_first(from, chunk) : take_next(from, chunk))) return;
    channels.release(peer, channel);
  }
}

bool PointToPoint::read_header(GroupRank from, const Chunk& chunk, SlotHeader* header) {
  std::uint8_t bytes[StagingLayout::kHeaderBytes];
  std::memcpy(bytes, chunk.header, sizeof(bytes));
  const std::optional<SlotHeader> got =
      SlotHeader::parse(std::span<const std::uint8_t, StagingLayout::kHeaderBytes>(bytes));
  if (!got || got->collective != Collective::send || got->communicator != communicator_.id()) {
    return garbage(from, "a message without a valid header");
  }
  *header = *got;
  return true;
}

bool PointToPoint::take_first(GroupRank from, const Chunk& chunk) {
  Announced first;
  first.from = from;
  first.length = chunk.length;
  first.number = peers_[from].next_in;
  first.tag = chunk.sequence_low;
  first.whole = chunk.last;
  first.bytes = chunk.last ? chunk.length : 0;
  if (chunk.missing != nullptr) first.missing = *chunk.missing;
  if (chunk.header != nullptr) {
    SlotHeader header;
    if (!read_header(from, chunk, &header)) return false;
    const std::uint64_t expected =
        std::min<std::uint64_t>(header.transfer, communicator_.channels().layout().slot_payload());
    if (header.sequence != first.number || header.chunk != 0 || chunk.length != expected ||
        first.whole != (header.transfer == chunk.length)) {
      return garbage(from, "a message that begins out of turn");
    }
    first.tag = header.root_or_tag;
    first.type = header.type;
    first.bytes = header.transfer;
  }
  const auto it = std::find_if(posted_.begin(), posted_.end(), [&](const Posted& p) {
    return p.operation.tag == first.tag && (p.operation.peer == kAnySource || p.operation.peer == from);
  });
  if (it != posted_.end()) {
    ++peers_[from].next_in;
    const Posted posted = std::move(*it);
    posted_.erase(it);
    return deliver(posted, first, chunk.payload());
  }
  // A bound on bytes is a bound on entries too: each counts at least its header.
  const std::uint64_t cost = StagingLayout::kHeaderBytes + first.length;
  if (unexpected_bytes_ + unexpected_.size() * StagingLayout::kHeaderBytes + cost > kUnexpectedBytes) {
    peers_[from].stalled = true;
    ++communicator_.counters().stalled_messages;
    return false;
  }
  if (chunk.payload() != nullptr) {
    first.payload.assign(chunk.payload(), chunk.payload() + first.length);
  }
  unexpected_bytes_ += first.payload.size();
  ++communicator_.counters().unexpected_messages;
  ++peers_[from].next_in;
  unexpected_.push_back(std::move(first));
  return true;
}

bool PointToPoint::deliver(const Posted& posted, const Announced& first, const std::uint8_t* payload) {
  const Operation& op = posted.operation;
  const std::uint64_t bytes = op.count * element_size(op.type);
  const bool carries = communicator_.channels().carries_bytes();
  const bool sizes_known = carries || first.whole;
  const bool size_ok = sizes_known ? first.bytes == bytes : bytes > first.length;
  const bool type_ok =
      !carries || first.type == op.type || first.type == DataType::opaque || op.type == DataType::opaque;
  if (!size_ok || !type_ok) {
    // The receive was taken off its list: put it back, so that it fails with the rest.
    posted_.push_back(posted);
    communicator_.raise(OperationStatus::mismatch,
                        communicator_.name(first.from) + " sends " + std::to_string(first.bytes) + " bytes of " +
                            std::string(to_string(first.type)) + " with tag " + std::to_string(first.tag) + ", " +
                            communicator_.name(communicator_.rank()) + " runs " + describe(op));
    return false;
  }
  if (payload != nullptr && first.length > 0) {
    std::memcpy(op.output.parts[0], payload, first.length);
  }
  Received received;
  add_received(received, first.length, first.missing.any() ? &first.missing : nullptr,
               [&](std::uint32_t at) { return payload == nullptr ? nullptr : op.output.parts[0] + at; });
  if (first.whole) {
    ++communicator_.counters().messages_received;
    done(posted.id, op, first.from, first.tag, std::move(received));
    return true;
  }
  Incoming incoming;
  incoming.id = posted.id;
  incoming.operation = op;
  incoming.number = first.number;
  incoming.chunk = 1;
  incoming.bytes = bytes;
  incoming.received = first.length;
  incoming.from_peer = std::move(received);
  peers_[first.from].incoming.push_back(std::move(incoming));
  ++communicator_.counters().cleared_messages;
  communicator_.channels().clear_to_send(communicator_.member(first.from),
                                         {communicator_.id(), Traffic::point_to_point}, first.number);
  return true;
}

bool PointToPoint::take_next(GroupRank from, const Chunk& chunk) {
  std::vector<Incoming>& list = peers_[from].incoming;
  SlotHeader header;
  if (chunk.header != nullptr && !read_header(from, chunk, &header)) return false;
  const auto it = std::find_if(list.begin(), list.end(), [&](const Incoming& m) {
    return chunk.header != nullptr ? m.number == header.sequence
                                   : (m.number & Immediate::kSequenceMask) == chunk.sequence_low;
  });
  if (it == list.end()) return garbage(from, "a chunk of a message that was not cleared");
  const std::uint64_t expected =
      std::min<std::uint64_t>(it->bytes - it->received, communicator_.channels().layout().slot_payload());
  if (chunk.header == nullptr && chunk.length != expected) {
    communicator_.raise(OperationStatus::mismatch,
                        communicator_.name(from) + " sends a message of another size than " + describe(it->operation));
    return false;
  }
  if (chunk.length != expected || chunk.last != (it->received + expected == it->bytes) ||
      (chunk.header != nullptr && (header.chunk != it->chunk || header.transfer != it->bytes))) {
    return garbage(from, "a chunk out of turn in a message");
  }
  if (chunk.payload() != nullptr) {
    std::memcpy(it->operation.output.parts[0] + it->received, chunk.payload(), chunk.length);
  }
  add_received(it->from_peer, chunk.length, chunk.missing, [&](std::uint32_t at) {
    return chunk.payload() == nullptr ? nullptr : it->operation.output.parts[0] + it->received + at;
  });
  it->received += chunk.length;
  ++it->chunk;
  if (it->received == it->bytes) {
    ++communicator_.counters().messages_received;
    done(it->id, it->operation, from, it->operation.tag, std::move(it->from_peer));
    list.erase(it);
  }
  return true;
}

}  // namespace loomnet
