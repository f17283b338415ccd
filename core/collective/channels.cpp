// Credits: a slot is free for the sender when its write has completed (the local copy may change)
// and the receiver gave it back (the remote one may).
#include "collective/channels.hpp"

#include <algorithm>
#include <bit>

namespace loomnet {
namespace {

// Write ids: bare immediates, or data with channel and slot.
constexpr std::uint64_t kBareWrite = ~0ull;
constexpr std::uint64_t data_id(std::uint8_t channel, std::uint32_t slot) {
  return std::uint64_t{channel} << 8 | slot;
}

ChannelEvent error(const char* what) {
  ChannelEvent event;
  event.kind = ChannelEvent::Kind::error;
  event.error = what;
  return event;
}

}  // namespace

Channels::Channels(const StagingLayout& layout, JobRank self, std::uint8_t* staging, Verbs& verbs)
    : layout_(layout), self_(self), staging_(staging), verbs_(verbs), peers_(layout.ranks()) {}

Channels::Peer& Channels::peer(JobRank rank) {
  std::unique_ptr<Peer>& p = peers_[rank];
  if (p == nullptr) {
    p = std::make_unique<Peer>();
    p->out.resize(layout_.channels());
    p->in.resize(layout_.channels());
  }
  return *p;
}

void Channels::post_bare(JobRank rank, Immediate immediate) {
  Peer& p = peer(rank);
  if (p.gone) return;
  ++p.bare_pending;
  ++in_flight_;
  Write write;
  write.id = kBareWrite;
  write.immediate = immediate.encode();
  verbs_.post(rank, write);
}

int Channels::open(JobRank rank, std::uint32_t communicator, Traffic traffic) {
  Peer& p = peer(rank);
  for (std::size_t c = 0; c < p.out.size(); ++c) {
    Outbound& out = p.out[c];
    if (out.state == State::closing && out.sent == out.returned) out.state = State::idle;
    if (out.state != State::idle) continue;
    out.state = State::open;
    out.communicator = communicator;
    out.traffic = traffic;
    ++counters.channels_opened;
    post_bare(rank, Immediate::named(ImmediateKind::open, static_cast<std::uint8_t>(c),
                                     communicator, traffic));
    return static_cast<int>(c);
  }
  return -1;
}

void Channels::close(JobRank rank, std::uint8_t channel) {
  peer(rank).out[channel].state = State::closing;
  ++counters.channels_closed;
  post_bare(rank, {ImmediateKind::close, channel, 0});
}

bool Channels::can_send(JobRank rank, std::uint8_t channel, bool forwarded) const {
  const Peer& p = *peers_[rank];
  const Outbound& out = p.out[channel];
  const std::uint64_t slot = out.sent % layout_.slots();
  if (p.gone || out.sent - out.returned >= layout_.slots()) return false;
  if ((out.pending >> slot & 1) != 0) return false;
  // A queue pair keeps order, so this rank's credits to the peer stand behind what it has posted to
  // it: half a window there leaves the peer the other half to send from until they arrive. What is
  // forwarded comes at the pace of the network and does not pile up.
  return forwarded || static_cast<std::uint32_t>(std::popcount(out.pending)) <
         std::max<std::uint32_t>(1, layout_.slots() / 2);
}

std::uint8_t* Channels::payload(JobRank rank, std::uint8_t channel) {
  if (staging_ == nullptr) return nullptr;
  const auto slot = static_cast<std::uint32_t>(peers_[rank]->out[channel].sent % layout_.slots());
  return staging_ + layout_.send_slot(rank, channel, slot) + StagingLayout::kHeaderBytes;
}

void Channels::send(JobRank rank, std::uint8_t channel, const SlotHeader& header,
                    std::uint32_t length, bool first, bool last, std::uint32_t sequence_low,
                    const Write& attributes) {
  Outbound& out = peers_[rank]->out[channel];
  const auto slot = static_cast<std::uint32_t>(out.sent % layout_.slots());
  Write write = attributes;
  write.id = data_id(channel, slot);
  if (staging_ != nullptr) {
    std::uint8_t* at = staging_ + layout_.send_slot(rank, channel, slot);
    header.serialize(std::span<std::uint8_t, StagingLayout::kHeaderBytes>(
        at, StagingLayout::kHeaderBytes));
    write.local = at;
  }
  write.remote_offset = layout_.receive_slot(self_, channel, slot);
  write.length = StagingLayout::kHeaderBytes + length;
  write.immediate = Immediate::data(channel, slot, first, last, sequence_low).encode();
  write.communicator = header.communicator;
  write.sequence = header.sequence;
  ++out.sent;
  out.pending |= 1ull << slot;
  ++in_flight_;
  ++counters.data_writes;
  counters.data_bytes += length;
  verbs_.post(rank, write);
}

void Channels::clear_to_send(JobRank rank, std::uint8_t channel, std::uint32_t message) {
  post_bare(rank, {ImmediateKind::clear, channel, message & Immediate::kValueMask});
}

void Channels::abort(JobRank rank, std::uint32_t communicator, OperationStatus status) {
  post_bare(rank, Immediate::named(ImmediateKind::abort, static_cast<std::uint8_t>(status),
                                   communicator));
}

bool Channels::serves(JobRank rank, std::uint8_t channel, std::uint32_t communicator,
                      Traffic traffic) const {
  const Inbound& in = peers_[rank]->in[channel];
  return (in.state == State::open || in.state == State::closing) &&
         in.communicator == communicator && in.traffic == traffic;
}

int Channels::find_inbound(JobRank rank, std::uint32_t communicator, Traffic traffic) const {
  if (peers_[rank] == nullptr) return -1;
  for (std::uint32_t c = 0; c < layout_.channels(); ++c) {
    if (serves(rank, static_cast<std::uint8_t>(c), communicator, traffic))
      return static_cast<int>(c);
  }
  return -1;
}

bool Channels::has_chunk(JobRank rank, std::uint8_t channel) const {
  const Inbound& in = peers_[rank]->in[channel];
  return in.consumed < in.received;
}

Chunk Channels::front(JobRank rank, std::uint8_t channel) const {
  const Inbound& in = peers_[rank]->in[channel];
  const auto slot = static_cast<std::uint32_t>(in.consumed % layout_.slots());
  const std::uint64_t entry = in.slots[slot];
  const Immediate immediate = *Immediate::decode(static_cast<std::uint32_t>(entry >> 32));
  Chunk chunk;
  chunk.length = static_cast<std::uint32_t>(entry) - StagingLayout::kHeaderBytes;
  chunk.sequence_low = immediate.sequence_low();
  chunk.first = immediate.first();
  chunk.last = immediate.last();
  if (staging_ != nullptr) chunk.header = staging_ + layout_.receive_slot(rank, channel, slot);
  return chunk;
}

void Channels::release(JobRank rank, std::uint8_t channel) {
  ++peers_[rank]->in[channel].consumed;
  give_back(rank, channel);
}

void Channels::give_back(JobRank rank, std::uint8_t channel) {
  // Credits go back a quarter of a window at a time; at once while the peer wants the channel back.
  Inbound& in = peers_[rank]->in[channel];
  const auto owed = static_cast<std::uint32_t>(in.consumed - in.returned);
  const std::uint32_t batch =
      in.state == State::open ? std::max<std::uint32_t>(1, layout_.slots() / 4) : 1;
  if (owed >= batch) {
    in.returned = in.consumed;
    ++counters.credit_writes;
    post_bare(rank, {ImmediateKind::credit, channel, owed});
  }
}

void Channels::discard(JobRank rank, std::uint8_t channel) {
  Inbound& in = peers_[rank]->in[channel];
  counters.discarded_chunks += in.received - in.consumed;
  in.consumed = in.received;
  in.state = in.state == State::open ? State::discarding : State::idle;
  give_back(rank, channel);
}

ChannelEvent Channels::on_arrival(JobRank rank, std::uint32_t word, std::uint32_t length) {
  if (peer(rank).gone) {
    ++counters.late_arrivals;
    return {};
  }
  const std::optional<Immediate> immediate = Immediate::decode(word);
  if (!immediate) return error("an immediate of no known kind");
  if (immediate->kind == ImmediateKind::data) return on_data(rank, *immediate, length, word);
  if (length != 0) return error("a control immediate that carries bytes");
  return on_control(rank, *immediate);
}

ChannelEvent Channels::on_data(JobRank rank, Immediate immediate, std::uint32_t length,
                               std::uint32_t word) {
  Peer& p = *peers_[rank];
  if (immediate.channel >= p.in.size()) return error("data on a channel that does not exist");
  Inbound& in = p.in[immediate.channel];
  if (in.state != State::open && in.state != State::discarding) {
    return error("data on a channel that is not open");
  }
  if (in.received - in.returned >= layout_.slots()) return error("data without credit");
  const auto slot = static_cast<std::uint32_t>(in.received % layout_.slots());
  if (immediate.slot() != slot) return error("data in a slot out of turn");
  if (length < StagingLayout::kHeaderBytes || length > layout_.slot_bytes()) {
    return error("data of a length no slot has");
  }
  ++in.received;
  ++counters.data_arrivals;
  if (in.state == State::discarding) {
    ++counters.discarded_chunks;
    release(rank, immediate.channel);
    return {};
  }
  if (in.slots == nullptr) in.slots = std::make_unique<std::uint64_t[]>(layout_.slots());
  in.slots[slot] = std::uint64_t{word} << 32 | length;
  return {ChannelEvent::Kind::data, immediate.channel, in.communicator, in.traffic, 0, nullptr};
}

ChannelEvent Channels::on_control(JobRank rank, Immediate immediate) {
  Peer& p = *peers_[rank];
  ChannelEvent event;
  event.channel = immediate.channel;
  if (immediate.kind == ImmediateKind::abort) {
    if (immediate.channel == 0 || immediate.channel >= kOperationStatuses) {
      return error("an abort without a reason");
    }
    event.kind = ChannelEvent::Kind::abort;
    event.communicator = immediate.communicator();
    event.value = immediate.channel;
    return event;
  }
  if (immediate.channel >= p.in.size()) return error("control of a channel that does not exist");
  Outbound& out = p.out[immediate.channel];
  Inbound& in = p.in[immediate.channel];
  switch (immediate.kind) {
    case ImmediateKind::credit:
      if (immediate.value == 0 || immediate.value > out.sent - out.returned) {
        return error("credit for slots that were not used");
      }
      out.returned += immediate.value;
      if (out.state != State::open) return {};
      event.kind = ChannelEvent::Kind::credit;
      event.communicator = out.communicator;
      event.traffic = out.traffic;
      return event;
    case ImmediateKind::open:
      // A closed channel may be opened anew only after all its slots came back.
      if (in.state == State::closing && in.received == in.returned) in.state = State::idle;
      if (in.state != State::idle || in.received != in.returned) {
        return error("a channel opened while in use");
      }
      if (find_inbound(rank, immediate.communicator(), immediate.traffic()) >= 0) {
        return error("a second channel for the same traffic");
      }
      in.state = State::open;
      in.communicator = immediate.communicator();
      in.traffic = immediate.traffic();
      event.kind = ChannelEvent::Kind::opened;
      event.communicator = in.communicator;
      event.traffic = in.traffic;
      return event;
    case ImmediateKind::close:
      if (in.state != State::open && in.state != State::discarding) {
        return error("a channel closed that is not open");
      }
      // What is still in its slots stays readable until its communicator has taken it.
      in.state = in.state == State::open ? State::closing : State::idle;
      give_back(rank, immediate.channel);
      return {};
    case ImmediateKind::clear:
      if (out.state != State::open || out.traffic != Traffic::point_to_point) {
        return out.state == State::closing ? ChannelEvent{}
                                           : error("clear-to-send on a channel without messages");
      }
      event.kind = ChannelEvent::Kind::clear;
      event.communicator = out.communicator;
      event.traffic = out.traffic;
      event.value = immediate.value;
      return event;
    default: return error("an immediate of no known kind");
  }
}

bool Channels::on_completion(JobRank rank, std::uint64_t id, int* channel, unsigned* at) {
  *channel = -1;
  Peer* p = peers_[rank].get();
  if (p == nullptr || p->gone) return false;
  if (id == kBareWrite) {
    if (p->bare_pending == 0) return ++counters.stray_completions, false;
    --p->bare_pending;
    --in_flight_;
    return true;
  }
  const std::uint64_t c = id >> 8, slot = id & 0xff;
  if (c >= p->out.size() || slot >= layout_.slots() || (p->out[c].pending >> slot & 1) == 0) {
    return ++counters.stray_completions, false;
  }
  p->out[c].pending &= ~(1ull << slot);
  --in_flight_;
  *channel = static_cast<int>(c);
  *at = static_cast<unsigned>(slot);
  return true;
}

void Channels::forget(JobRank rank) {
  Peer& p = peer(rank);
  if (p.gone) return;
  p.gone = true;
  in_flight_ -= p.bare_pending;
  for (const Outbound& out : p.out) {
    in_flight_ -= static_cast<std::uint64_t>(std::popcount(out.pending));
  }
}

}  // namespace loomnet
