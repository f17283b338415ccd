// Channels: one-way pipes of slots between two ranks. Credits keep the sender from writing to a slot that the
// receiver still reads. The sender numbers its channels towards a peer, and tells the peer which communicator
// each channel serves. Ranks need not agree on the order in which communicators are created, because a queue
// pair delivers in order: the peer hears which communicator a channel serves before the channel's first data arrives.
//
// There may be more streams than channels; a stream is a communicator's collectives, or its messages. A stream
// that finds no free channel waits in line. The sender then takes a channel back, the one that was used
// longest ago among two kinds: channels with no write in flight, and channels whose stream has sent at least a
// window since it got the channel. The receiver answers with the credit for all slots. Before that the
// receiver copies chunks that its program has not asked for yet out of the slots (KeptChunks). The stream may
// have a channel again once its copied chunks have been taken. A channel therefore never waits for the
// receiver's program, and at most one window of chunks per stream is copied.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "collective/fill.hpp"
#include "collective/kept_chunks.hpp"
#include "collective/received.hpp"
#include "collective/staging.hpp"
#include "collective/verbs.hpp"
#include "collective/wire.hpp"

namespace loomnet {

struct ChannelCounters {
  std::uint64_t data_writes = 0, data_bytes = 0, data_arrivals = 0;
  // Payload bytes that were lost on the way here and to peers, as their operations tolerate.
  std::uint64_t received_bytes_lost = 0, sent_bytes_lost = 0;
  std::uint64_t credit_writes = 0, channels_opened = 0, channels_closed = 0;
  std::uint64_t channels_reclaimed = 0;     // taken back from a stream, because another stream waited
  std::uint64_t kept_chunks = 0;            // copied out of a channel that the peer took back
  std::uint64_t discarded_chunks = 0;       // for a communicator that is closed or failed here
  std::uint64_t stray_completions = 0;      // for a write that was never posted
  std::uint64_t late_arrivals = 0;          // from a peer that has already failed
};

// A chunk that lies in a receive slot.
struct Chunk {
  std::uint32_t length = 0;        // payload bytes
  std::uint32_t sequence_low = 0;
  bool first = false, last = false;
  const std::uint8_t* header = nullptr;  // 48 bytes; null in length-only runs
  // Of the whole write, header included; the lost bytes are zeros. Null: all bytes have arrived.
  const Missing* missing = nullptr;
  const std::uint8_t* payload() const { return header == nullptr ? nullptr : header + StagingLayout::kHeaderBytes; }
};

// What one arrival means, once checked.
struct ChannelEvent {
  enum class Kind : std::uint8_t { none, data, credit, opened, clear, abort, error };
  Kind kind = Kind::none;
  std::uint16_t channel = 0;
  std::uint32_t communicator = 0;
  Traffic traffic = Traffic::collective;
  std::uint32_t value = 0;         // clear: message number; abort: OperationStatus
  const char* error = nullptr;     // error: what a correct peer never does
};

class Channels {
 public:
  Channels(const StagingLayout& layout, JobRank self, std::uint8_t* staging, Verbs& verbs);

  const StagingLayout& layout() const { return layout_; }
  bool carries_bytes() const { return staging_ != nullptr; }

  // --- sending ----------------------------------------------------------------------------------
  // The channel that serves the stream. If there is none, the lowest idle channel is taken for the stream and
  // announced to the peer. -1: the stream must wait, until on_arrival() returns credit for the stream or
  // grant() returns the stream.
  int open(JobRank peer, Stream stream);
  // `answered`: the peer is asked to answer, and the channel is idle again only after the answer. For a stream
  // of messages, whose peer may still send `clear`: each `clear` comes before the answer.
  void close(JobRank peer, std::uint16_t channel, bool answered);
  // Takes the stream out of the line for a channel.
  void withdraw(JobRank peer, Stream stream);
  // Takes channels back while more streams wait than channels are on their way back, and opens an idle channel
  // for the stream that has waited longest. Returns a stream that can perhaps send now. Call it after every
  // event until it returns none.
  std::optional<Stream> grant(JobRank peer);
  bool anything_waits() const { return waiting_ > 0; }
  bool owns(JobRank peer, std::uint16_t channel, Stream stream) const {
    const Outbound& out = peers_[peer]->out[channel];
    return out.state == State::open && out.stream == stream;
  }
  // `forwarded`: the chunk to send has just arrived from another member.
  bool can_send(JobRank peer, std::uint16_t channel, bool forwarded = false) const;
  // Where the next chunk's payload goes; null in length-only runs. can_send must hold.
  std::uint8_t* payload(JobRank peer, std::uint16_t channel);
  // Posts the slot. `sequence_low` goes into the immediate (13 bits). Communicator and sequence of the
  // attributes are the header's.
  void send(JobRank peer, std::uint16_t channel, const SlotHeader& header, std::uint32_t length, bool first, bool last,
            std::uint32_t sequence_low, const Attributes& attributes);
  void clear_to_send(JobRank peer, Stream stream, std::uint32_t message);
  void abort(JobRank peer, std::uint32_t communicator, OperationStatus status);

  // --- receiving --------------------------------------------------------------------------------
  // The inbound channel of a stream, or -1. Numbers from layout().channels() on are places of copied chunks
  // (KeptChunks), and the calls below take both kinds of number.
  int find_inbound(JobRank peer, Stream stream) const;
  bool serves(JobRank peer, std::uint16_t channel, Stream stream) const;
  bool has_chunk(JobRank peer, std::uint16_t channel) const;
  Chunk front(JobRank peer, std::uint16_t channel) const;
  void release(JobRank peer, std::uint16_t channel);  // the front slot, with its credit
  // How lost bytes of chunks that arrive from now on are filled.
  void set_fill(Fill fill) { fill_ = fill; }
  // Drops the chunks that are there, and those that arrive until the peer closes the channel.
  void discard(JobRank peer, std::uint16_t channel);

  // --- events -----------------------------------------------------------------------------------
  ChannelEvent on_arrival(JobRank peer, std::uint32_t word, std::uint32_t length, const Missing& missing);
  // True if `id` named a write in flight to this peer. channel < 0: a bare immediate.
  bool on_completion(JobRank peer, std::uint64_t id, int* channel, unsigned* slot);
  // The stream that an outbound channel serves.
  Stream owner(JobRank peer, std::uint16_t channel) const { return peers_[peer]->out[channel].stream; }
  // The peer has failed: none of its writes will complete, and nothing will arrive from it.
  void forget(JobRank peer);
  std::uint64_t in_flight() const { return in_flight_; }
  // Slots of an outbound channel whose writes have not completed, one bit each.
  std::uint64_t pending(JobRank peer, std::uint16_t channel) const { return peers_[peer]->out[channel].pending; }

  ChannelCounters counters;

 private:
  enum class State : std::uint8_t { idle, open, closing, discarding };

  struct Outbound {
    std::uint64_t sent = 0, returned = 0;
    std::uint64_t pending = 0;  // bit per slot: its write has not completed
    Stream stream;
    State state = State::idle;
    bool asked = false;     // closing; the peer's answer will give credit for all slots
    bool yielding = false;  // open; will be taken back when its writes have completed
    std::uint64_t sent_before = 0;  // `sent` when it was opened
    std::uint64_t used = 0;         // Peer::uses when it last sent
  };
  struct Inbound {
    std::uint64_t received = 0, consumed = 0, returned = 0;
    Stream stream;
    State state = State::idle;
    std::unique_ptr<std::uint64_t[]> slots;  // per slot: immediate << 32 | length, once arrived
    std::unique_ptr<Missing[]> missing;      // per slot; null until bytes are missing in one
  };
  // Made when the pair first talks: most pairs of a large job never do.
  struct Peer {
    std::vector<Outbound> out;
    std::vector<Inbound> in;
    std::uint64_t bare_pending = 0;  // immediates without data, in flight
    std::uint64_t uses = 0;          // writes of data
    std::deque<Stream> waiting;      // for a channel to the peer, first come first served
    std::deque<Stream> displaced;    // their channel was taken back without an answer; they may want another
    std::vector<Stream> parked;      // the peer has copied their chunks, and not taken all of them yet
    KeptChunks kept;                 // of the peer's streams
    std::optional<Stream> clears;    // the stream of the next `clear`, where that is not said by its channel
    bool gone = false;
  };
  Peer& peer(JobRank rank);
  void post_bare(JobRank rank, Immediate immediate);
  void give_back(JobRank rank, std::uint16_t channel);
  bool idle(Outbound& out) const;
  int take_idle(JobRank rank, Stream stream);
  void reclaim(JobRank rank);
  Outbound* victim(Peer& peer) const;
  bool is_kept(std::uint16_t channel) const { return channel >= layout_.channels(); }
  std::size_t place(std::uint16_t channel) const { return channel - layout_.channels(); }
  int keep(JobRank rank, Inbound& in);
  ChannelEvent on_close(JobRank rank, Immediate immediate);
  ChannelEvent on_stream(JobRank rank, Immediate immediate);
  ChannelEvent on_data(JobRank rank, Immediate immediate, std::uint32_t length, std::uint32_t word,
                       const Missing& missing);
  void fill_missing(JobRank rank, std::uint16_t channel, std::uint32_t slot, std::uint32_t length,
                    const Missing& missing);
  ChannelEvent on_control(JobRank rank, Immediate immediate);

  StagingLayout layout_;
  JobRank self_;
  std::uint8_t* staging_;
  Fill fill_ = fill_zero;
  Verbs& verbs_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::uint64_t in_flight_ = 0;
  std::size_t waiting_ = 0;  // streams that wait or are displaced, over all peers
};

}  // namespace loomnet
