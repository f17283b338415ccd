// What comes from a peer: chunks, and words about channels and streams. Nothing of it is trusted: what a correct
// peer would not send is an error, which ends the connection.
#include "collective/channels.hpp"

#include <algorithm>
#include <utility>

namespace loomnet {
namespace {

ChannelEvent error(const char* what) {
  ChannelEvent event;
  event.kind = ChannelEvent::Kind::error;
  event.error = what;
  return event;
}

}  // namespace

bool Channels::serves(JobRank rank, std::uint16_t channel, Stream stream) const {
  if (is_kept(channel)) {
    return peers_[rank]->kept.serves(place(channel), stream);
  }
  const Inbound& in = peers_[rank]->in[channel];
  return (in.state == State::open || in.state == State::closing) && in.stream == stream;
}

int Channels::find_inbound(JobRank rank, Stream stream) const {
  if (peers_[rank] == nullptr) return -1;
  const std::size_t all = layout_.channels() + peers_[rank]->kept.places();
  for (std::size_t c = 0; c < all; ++c) {
    if (serves(rank, static_cast<std::uint16_t>(c), stream)) return static_cast<int>(c);
  }
  return -1;
}

bool Channels::has_chunk(JobRank rank, std::uint16_t channel) const {
  if (is_kept(channel)) return peers_[rank]->kept.has_chunk(place(channel));
  const Inbound& in = peers_[rank]->in[channel];
  return in.consumed < in.received;
}

Chunk Channels::front(JobRank rank, std::uint16_t channel) const {
  std::uint64_t entry = 0;
  Chunk chunk;
  if (is_kept(channel)) {
    const KeptChunks::Chunk& first = peers_[rank]->kept.front(place(channel));
    entry = first.arrival;
    if (staging_ != nullptr) chunk.header = first.bytes.data();
    if (first.missing.any()) chunk.missing = &first.missing;
  } else {
    const Inbound& in = peers_[rank]->in[channel];
    const auto slot = static_cast<std::uint32_t>(in.consumed % layout_.slots());
    entry = in.slots[slot];
    if (staging_ != nullptr) chunk.header = staging_ + layout_.receive_slot(rank, channel, slot);
    if (in.missing != nullptr && in.missing[slot].any()) chunk.missing = &in.missing[slot];
  }
  const Immediate immediate = *Immediate::decode(static_cast<std::uint32_t>(entry >> 32));
  chunk.length = static_cast<std::uint32_t>(entry) - StagingLayout::kHeaderBytes;
  chunk.sequence_low = immediate.sequence_low();
  chunk.first = immediate.first();
  chunk.last = immediate.last();
  return chunk;
}

void Channels::release(JobRank rank, std::uint16_t channel) {
  if (!is_kept(channel)) {
    ++peers_[rank]->in[channel].consumed;
    return give_back(rank, channel);
  }
  KeptChunks& kept = peers_[rank]->kept;
  kept.drop_front(place(channel));
  if (kept.has_chunk(place(channel))) return;
  const Stream stream = kept.stream(place(channel));
  post_bare(rank, Immediate::named(ImmediateKind::stream, static_cast<std::uint8_t>(StreamWord::drained),
                                   stream.communicator, stream.traffic));
}

// Copies the chunks that have not been taken out of the slots of `in`. Returns the channel number under which
// they are found from now on; -1: the peer has too many such streams.
int Channels::keep(JobRank rank, Inbound& in) {
  Peer& p = *peers_[rank];
  const int place = p.kept.take_place(in.stream);
  if (place < 0) return -1;
  const auto channel = static_cast<std::uint32_t>(&in - p.in.data());
  for (; in.consumed < in.received; ++in.consumed) {
    const auto slot = static_cast<std::uint32_t>(in.consumed % layout_.slots());
    const std::uint8_t* bytes = staging_ == nullptr ? nullptr : staging_ + layout_.receive_slot(rank, channel, slot);
    p.kept.add(static_cast<std::size_t>(place), in.slots[slot], bytes,
               in.missing == nullptr ? Missing{} : in.missing[slot]);
    ++counters.kept_chunks;
  }
  return static_cast<int>(layout_.channels()) + place;
}

void Channels::give_back(JobRank rank, std::uint16_t channel) {
  // Credits go back a quarter of a window at a time; at once while the peer wants the channel back.
  Inbound& in = peers_[rank]->in[channel];
  const auto owed = static_cast<std::uint32_t>(in.consumed - in.returned);
  const std::uint32_t batch = in.state == State::open ? std::max<std::uint32_t>(1, layout_.slots() / 4) : 1;
  if (owed >= batch) {
    in.returned = in.consumed;
    ++counters.credit_writes;
    post_bare(rank, {ImmediateKind::credit, static_cast<std::uint8_t>(channel), owed});
  }
}

void Channels::discard(JobRank rank, std::uint16_t channel) {
  if (is_kept(channel)) {
    for (; has_chunk(rank, channel); ++counters.discarded_chunks) release(rank, channel);
    return;
  }
  Inbound& in = peers_[rank]->in[channel];
  counters.discarded_chunks += in.received - in.consumed;
  in.consumed = in.received;
  in.state = in.state == State::open ? State::discarding : State::idle;
  give_back(rank, channel);
}

ChannelEvent Channels::on_arrival(JobRank rank, std::uint32_t word, std::uint32_t length, const Missing& missing) {
  if (peer(rank).gone) {
    ++counters.late_arrivals;
    return {};
  }
  const std::optional<Immediate> immediate = Immediate::decode(word);
  if (!immediate) return error("an immediate of no known kind");
  if (peer(rank).clears && immediate->kind != ImmediateKind::clear) {
    return error("a stream to clear and then something else");
  }
  if (immediate->kind == ImmediateKind::data) {
    return on_data(rank, *immediate, length, word, missing);
  }
  if (length != 0) return error("a control immediate that carries bytes");
  return on_control(rank, *immediate);
}

ChannelEvent Channels::on_data(JobRank rank, Immediate immediate, std::uint32_t length, std::uint32_t word,
                               const Missing& missing) {
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
  if (!header_arrived(missing, length)) return error("data whose slot header is missing");
  ++in.received;
  ++counters.data_arrivals;
  if (in.state == State::discarding) {
    ++counters.discarded_chunks;
    release(rank, immediate.channel);
    return {};
  }
  if (in.slots == nullptr) in.slots = std::make_unique<std::uint64_t[]>(layout_.slots());
  in.slots[slot] = std::uint64_t{word} << 32 | length;
  if (missing.any() || in.missing != nullptr) [[unlikely]] {
    fill_missing(rank, immediate.channel, slot, length, missing);
  }
  return {ChannelEvent::Kind::data, immediate.channel, in.stream.communicator, in.stream.traffic, 0, nullptr};
}

void Channels::fill_missing(JobRank rank, std::uint16_t channel, std::uint32_t slot, std::uint32_t length,
                            const Missing& missing) {
  Inbound& in = peers_[rank]->in[channel];
  if (in.missing == nullptr) in.missing = std::make_unique<Missing[]>(layout_.slots());
  in.missing[slot] = missing;
  counters.received_bytes_lost += missing.bytes;
  if (staging_ == nullptr) return;
  std::uint8_t* payload = staging_ + layout_.receive_slot(rank, channel, slot) + StagingLayout::kHeaderBytes;
  each_missing(missing, length - StagingLayout::kHeaderBytes,
               [payload, this](std::uint32_t begin, std::uint32_t end) { fill_({payload + begin, payload + end}); });
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
  if (immediate.kind == ImmediateKind::stream) return on_stream(rank, immediate);
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
      event.communicator = out.stream.communicator;
      event.traffic = out.stream.traffic;
      return event;
    case ImmediateKind::open:
      // A closed channel may be opened anew only after all its slots came back.
      if (in.state == State::closing && in.received == in.returned) in.state = State::idle;
      if (in.state != State::idle || in.received != in.returned) {
        return error("a channel opened while in use");
      }
      if (find_inbound(rank, immediate.stream()) >= 0) {
        return error("a second channel for the same traffic");
      }
      in.state = State::open;
      in.stream = immediate.stream();
      event.kind = ChannelEvent::Kind::opened;
      event.communicator = in.stream.communicator;
      event.traffic = in.stream.traffic;
      return event;
    case ImmediateKind::close:
      return on_close(rank, immediate);
    case ImmediateKind::clear: {
      const std::optional<Stream> named = std::exchange(p.clears, std::nullopt);
      const Stream stream = named ? *named : out.stream;
      if (!named && (out.stream.traffic != Traffic::point_to_point || out.state == State::idle)) {
        return error("clear-to-send on a channel without messages");
      }
      // The communicator is closed. A channel that was taken back serves its stream until the answer.
      if (!named && out.state == State::closing && !out.asked) return {};
      event.kind = ChannelEvent::Kind::clear;
      event.communicator = stream.communicator;
      event.traffic = stream.traffic;
      event.value = immediate.value;
      return event;
    }
    default:
      return error("an immediate of no known kind");
  }
}

ChannelEvent Channels::on_close(JobRank rank, Immediate immediate) {
  Inbound& in = peers_[rank]->in[immediate.channel];
  const bool open = in.state == State::open || in.state == State::discarding;
  if (immediate.value == 0) {
    if (!open) return error("a channel closed that is not open");
    // Chunks that are still in its slots stay readable until its communicator has taken them.
    in.state = in.state == State::open ? State::closing : State::idle;
    give_back(rank, immediate.channel);
    return {};
  }
  const bool unread = in.consumed < in.received;
  int aside = -1;
  if (unread && (aside = keep(rank, in)) < 0) return error("more streams than it can have");
  in.state = State::idle;
  in.returned = in.received;
  post_bare(rank, Immediate::named(ImmediateKind::stream,
                                   static_cast<std::uint8_t>(unread ? StreamWord::kept : StreamWord::returned),
                                   in.stream.communicator, in.stream.traffic));
  if (!unread) return {};
  // The communicator finds the stream under another number from now on.
  return {ChannelEvent::Kind::opened,
          static_cast<std::uint16_t>(aside),
          in.stream.communicator,
          in.stream.traffic,
          0,
          nullptr};
}

ChannelEvent Channels::on_stream(JobRank rank, Immediate immediate) {
  Peer& p = *peers_[rank];
  const Stream stream = immediate.stream();
  ChannelEvent event{ChannelEvent::Kind::credit, 0, stream.communicator, stream.traffic, 0, nullptr};
  switch (static_cast<StreamWord>(immediate.channel)) {
    case StreamWord::returned:
    case StreamWord::kept: {
      const auto out = std::find_if(p.out.begin(), p.out.end(),
                                    [stream](const Outbound& o) { return o.asked && o.stream == stream; });
      if (out == p.out.end()) return error("slots back that were not asked for");
      out->asked = false;
      out->returned = out->sent;
      if (immediate.channel == static_cast<std::uint8_t>(StreamWord::returned)) return event;
      p.parked.push_back(stream);
      return {};
    }
    case StreamWord::drained:
      // Where the communicator has been closed here, its stream is parked no more, and nothing is erased.
      std::erase(p.parked, stream);
      return event;
    case StreamWord::clear:
      p.clears = stream;
      return {};
  }
  return error("a word about a stream that does not exist");
}

}  // namespace loomnet
