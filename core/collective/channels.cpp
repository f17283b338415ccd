// A slot is free for the sender after two events. Its write has completed, so that the local bytes may change;
// and the receiver has given credit for the slot, so that the remote bytes may change.
#include "collective/channels.hpp"

#include <algorithm>
#include <bit>

namespace loomnet {
namespace {

// Write ids: bare immediates, or data with channel and slot.
constexpr std::uint64_t kBareWrite = ~0ull;
constexpr std::uint64_t data_id(std::uint16_t channel, std::uint32_t slot) {
  return std::uint64_t{channel} << 8 | slot;
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

bool Channels::idle(Outbound& out) const {
  // While a completion is due the channel stays closed: it would count for the next stream's write.
  if (out.state == State::closing && !out.asked && out.sent == out.returned && out.pending == 0) {
    out.state = State::idle;
  }
  return out.state == State::idle;
}

int Channels::take_idle(JobRank rank, Stream stream) {
  Peer& p = peer(rank);
  for (std::size_t c = 0; c < p.out.size(); ++c) {
    Outbound& out = p.out[c];
    if (!idle(out)) continue;
    out.state = State::open;
    out.stream = stream;
    out.sent_before = out.sent;
    out.used = p.uses;
    ++counters.channels_opened;
    post_bare(rank,
              Immediate::named(ImmediateKind::open, static_cast<std::uint8_t>(c), stream.communicator, stream.traffic));
    return static_cast<int>(c);
  }
  return -1;
}

int Channels::open(JobRank rank, Stream stream) {
  Peer& p = peer(rank);
  for (std::size_t c = 0; c < p.out.size(); ++c) {
    const Outbound& out = p.out[c];
    if (out.stream != stream) continue;
    if (out.state == State::open) return static_cast<int>(c);
    if (out.state == State::closing && out.asked) return -1;  // until the peer has answered
  }
  const auto in = [stream](const auto& list) { return std::find(list.begin(), list.end(), stream) != list.end(); };
  if (in(p.parked) || in(p.waiting)) return -1;
  if (p.waiting.empty()) {
    if (const int c = take_idle(rank, stream); c >= 0) return c;
  }
  p.waiting.push_back(stream);
  ++waiting_;
  reclaim(rank);
  return -1;
}

void Channels::close(JobRank rank, std::uint16_t channel, bool answered) {
  Outbound& out = peer(rank).out[channel];
  out.state = State::closing;
  out.yielding = false;
  out.asked = answered;
  ++counters.channels_closed;
  post_bare(rank, {ImmediateKind::close, static_cast<std::uint8_t>(channel), answered});
}

void Channels::withdraw(JobRank rank, Stream stream) {
  if (peers_[rank] == nullptr) return;
  waiting_ -= std::erase(peers_[rank]->waiting, stream);
  std::erase(peers_[rank]->parked, stream);
}

// The channel to take back. First choice: a channel that its communicator has closed and whose slots lie unread
// at the peer. Else, of the channels that have no write in flight or whose stream has sent a window, the one
// that was used longest ago.
Channels::Outbound* Channels::victim(Peer& p) const {
  Outbound* best = nullptr;
  for (Outbound& out : p.out) {
    if (out.state == State::closing && !out.asked) return &out;
    const bool had_turn = out.sent - out.sent_before >= layout_.slots();
    if (out.state != State::open || out.yielding || (out.pending != 0 && !had_turn)) continue;
    if (best == nullptr || out.used < best->used) best = &out;
  }
  return best;
}

void Channels::reclaim(JobRank rank) {
  Peer& p = *peers_[rank];
  const auto coming = static_cast<std::size_t>(std::count_if(
      p.out.begin(), p.out.end(), [this](Outbound& out) { return idle(out) || out.asked || out.yielding; }));
  std::size_t wanted = p.waiting.size() > coming ? p.waiting.size() - coming : 0;
  const auto take_back = [&](Outbound& out) {
    // For a collective only credit comes back along a channel. If all of it is here, no answer is needed.
    const bool answered = out.stream.traffic != Traffic::collective || out.sent != out.returned;
    close(rank, static_cast<std::uint16_t>(&out - p.out.data()), answered);
    ++counters.channels_reclaimed;
    if (answered) return;
    p.displaced.push_back(out.stream);
    ++waiting_;
  };
  for (Outbound& out : p.out) {
    if (out.yielding && out.pending == 0) take_back(out);
  }
  for (; wanted > 0; --wanted) {
    Outbound* out = victim(p);
    if (out == nullptr) return;
    if (out->state == State::open && out->pending != 0) {
      out->yielding = true;
    } else if (out->state == State::open) {
      take_back(*out);
    } else {
      out->asked = true;
      post_bare(rank, {ImmediateKind::close, static_cast<std::uint8_t>(out - p.out.data()), 1});
    }
  }
}

std::optional<Stream> Channels::grant(JobRank rank) {
  Peer* p = peers_[rank].get();
  if (p == nullptr || p->gone) return std::nullopt;
  if (!p->displaced.empty()) {
    --waiting_;
    const Stream stream = p->displaced.front();
    p->displaced.pop_front();
    return stream;
  }
  if (p->waiting.empty()) return std::nullopt;
  reclaim(rank);
  const Stream stream = p->waiting.front();
  if (take_idle(rank, stream) < 0) return std::nullopt;
  p->waiting.pop_front();
  --waiting_;
  return stream;
}

bool Channels::can_send(JobRank rank, std::uint16_t channel, bool forwarded) const {
  const Peer& p = *peers_[rank];
  const Outbound& out = p.out[channel];
  const std::uint64_t slot = out.sent % layout_.slots();
  if (p.gone || out.yielding || out.sent - out.returned >= layout_.slots()) return false;
  if ((out.pending >> slot & 1) != 0) return false;
  // A queue pair keeps order, so this rank's credits to the peer stand behind what it has posted to
  // it: half a window there leaves the peer the other half to send from until they arrive. Data that
  // is forwarded comes at the pace of the network and does not pile up.
  return forwarded ||
         static_cast<std::uint32_t>(std::popcount(out.pending)) < std::max<std::uint32_t>(1, layout_.slots() / 2);
}

std::uint8_t* Channels::payload(JobRank rank, std::uint16_t channel) {
  if (staging_ == nullptr) return nullptr;
  const auto slot = static_cast<std::uint32_t>(peers_[rank]->out[channel].sent % layout_.slots());
  return staging_ + layout_.send_slot(rank, channel, slot) + StagingLayout::kHeaderBytes;
}

void Channels::send(JobRank rank, std::uint16_t channel, const SlotHeader& header, std::uint32_t length, bool first,
                    bool last, std::uint32_t sequence_low, const Attributes& attributes) {
  Peer& p = *peers_[rank];
  Outbound& out = p.out[channel];
  out.used = ++p.uses;
  const auto slot = static_cast<std::uint32_t>(out.sent % layout_.slots());
  Write write;
  write.id = data_id(channel, slot);
  if (staging_ != nullptr) {
    std::uint8_t* at = staging_ + layout_.send_slot(rank, channel, slot);
    header.serialize(std::span<std::uint8_t, StagingLayout::kHeaderBytes>(at, StagingLayout::kHeaderBytes));
    write.local = at;
  }
  write.remote_offset = layout_.receive_slot(self_, channel, slot);
  write.length = StagingLayout::kHeaderBytes + length;
  write.immediate = Immediate::data(static_cast<std::uint8_t>(channel), slot, first, last, sequence_low).encode();
  write.framing = StagingLayout::kHeaderBytes;
  write.attributes = attributes;
  write.attributes.communicator = header.communicator;
  write.attributes.sequence = header.sequence;
  ++out.sent;
  out.pending |= 1ull << slot;
  ++in_flight_;
  ++counters.data_writes;
  counters.data_bytes += length;
  verbs_.post(rank, write);
}

void Channels::clear_to_send(JobRank rank, Stream stream, std::uint32_t message) {
  const int channel = find_inbound(rank, stream);
  const bool has_channel = channel >= 0 && !is_kept(static_cast<std::uint16_t>(channel));
  if (!has_channel) {
    post_bare(rank, Immediate::named(ImmediateKind::stream, static_cast<std::uint8_t>(StreamWord::clear),
                                     stream.communicator, stream.traffic));
  }
  post_bare(rank, {ImmediateKind::clear, static_cast<std::uint8_t>(has_channel ? channel : 0),
                   message & Immediate::kValueMask});
}

void Channels::abort(JobRank rank, std::uint32_t communicator, OperationStatus status) {
  post_bare(rank, Immediate::named(ImmediateKind::abort, static_cast<std::uint8_t>(status), communicator));
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
  if (p->waiting.empty()) p->out[c].yielding = false;  // the streams that waited have got channels
  --in_flight_;
  *channel = static_cast<int>(c);
  *at = static_cast<unsigned>(slot);
  return true;
}

void Channels::forget(JobRank rank) {
  Peer& p = peer(rank);
  if (p.gone) return;
  p.gone = true;
  waiting_ -= p.waiting.size() + p.displaced.size();
  p.waiting.clear();
  p.displaced.clear();
  in_flight_ -= p.bare_pending;
  for (const Outbound& out : p.out) {
    in_flight_ -= static_cast<std::uint64_t>(std::popcount(out.pending));
  }
}

}  // namespace loomnet
