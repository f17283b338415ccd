// Channels: one-way pipes of slots between two ranks, with credits so that no slot is ever
// overrun. The sender owns the numbering of its channels towards a peer and tells the peer which
// communicator a channel serves; since a queue pair keeps order, no agreement between ranks about
// the order in which communicators are created is needed.
//
// Streams (a communicator's collectives, or its messages) may be more than channels. A stream that
// finds none free waits in line, and the sender takes the channel back that was used longest ago:
// of a stream with nothing on the wire, or of one that has sent a window since it got the channel.
// The receiver answers that with all slots, having copied aside what lies in them and is not asked
// for yet; the stream may have a channel again when that has been taken. So a channel never waits
// for what the receiver's program does, and what is copied aside is a window per stream at most.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "collective/staging.hpp"
#include "collective/verbs.hpp"
#include "collective/wire.hpp"

namespace loomnet {

struct ChannelCounters {
  std::uint64_t data_writes = 0, data_bytes = 0, data_arrivals = 0;
  std::uint64_t credit_writes = 0, channels_opened = 0, channels_closed = 0;
  std::uint64_t channels_reclaimed = 0;     // taken from a stream, for another that waited
  std::uint64_t kept_chunks = 0;            // copied aside, since their channel was wanted back
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
  const std::uint8_t* payload() const {
    return header == nullptr ? nullptr : header + StagingLayout::kHeaderBytes;
  }
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
  // The channel that serves the stream; else takes the lowest idle one and announces it. -1: the
  // stream must wait; once it need not, on_arrival tells of credit for it or grant() names it.
  int open(JobRank peer, Stream stream);
  // `answered`: the peer may still send `clear` for it, so the channel comes back only behind those.
  void close(JobRank peer, std::uint16_t channel, bool answered);
  // The stream wants no channel any more.
  void withdraw(JobRank peer, Stream stream);
  // Takes channels back as long as streams wait for more than are on their way back; opens an idle
  // one for the stream that has waited longest. Names the stream that shall look again whether it
  // can send. To be called after every event until it names none.
  std::optional<Stream> grant(JobRank peer);
  bool anything_waits() const { return waiting_ > 0; }
  bool owns(JobRank peer, std::uint16_t channel, Stream stream) const {
    const Outbound& out = peers_[peer]->out[channel];
    return out.state == State::open && out.stream == stream;
  }
  // `forwarded`: what has just arrived from another member.
  bool can_send(JobRank peer, std::uint16_t channel, bool forwarded = false) const;
  // Where the next chunk's payload goes; null in length-only runs. can_send must hold.
  std::uint8_t* payload(JobRank peer, std::uint16_t channel);
  // Posts the slot. `sequence_low` goes into the immediate (13 bits); `attributes` gives the
  // Write's descriptive fields.
  void send(JobRank peer, std::uint16_t channel, const SlotHeader& header, std::uint32_t length,
            bool first, bool last, std::uint32_t sequence_low, const Write& attributes);
  void clear_to_send(JobRank peer, Stream stream, std::uint32_t message);
  void abort(JobRank peer, std::uint32_t communicator, OperationStatus status);

  // --- receiving --------------------------------------------------------------------------------
  // The inbound channel of a stream, or -1. Numbers from layout().channels() on stand for chunks
  // that were copied aside.
  int find_inbound(JobRank peer, Stream stream) const;
  bool serves(JobRank peer, std::uint16_t channel, Stream stream) const;
  bool has_chunk(JobRank peer, std::uint16_t channel) const;
  Chunk front(JobRank peer, std::uint16_t channel) const;
  void release(JobRank peer, std::uint16_t channel);  // the front slot, with its credit
  // Drops what is there and all that still comes until the peer closes the channel.
  void discard(JobRank peer, std::uint16_t channel);

  // --- events -----------------------------------------------------------------------------------
  ChannelEvent on_arrival(JobRank peer, std::uint32_t word, std::uint32_t length);
  // True if `id` named a write in flight to this peer. channel < 0: a bare immediate.
  bool on_completion(JobRank peer, std::uint64_t id, int* channel, unsigned* slot);
  // What an outbound channel serves.
  Stream owner(JobRank peer, std::uint16_t channel) const {
    return peers_[peer]->out[channel].stream;
  }
  // Nothing will complete or arrive any more.
  void forget(JobRank peer);
  std::uint64_t in_flight() const { return in_flight_; }
  // Slots of an outbound channel whose writes have not completed, one bit each.
  std::uint64_t pending(JobRank peer, std::uint16_t channel) const {
    return peers_[peer]->out[channel].pending;
  }

  ChannelCounters counters;

 private:
  enum class State : std::uint8_t { idle, open, closing, discarding };

  struct Outbound {
    std::uint64_t sent = 0, returned = 0;
    std::uint64_t pending = 0;  // bit per slot: its write has not completed
    Stream stream;
    State state = State::idle;
    bool asked = false;     // closing, and the peer's answer brings all slots back
    bool yielding = false;  // open, and to be taken back once its writes have completed
    std::uint64_t sent_before = 0;  // `sent` when it was opened
    std::uint64_t used = 0;         // Peer::uses when it last sent
  };
  struct Inbound {
    std::uint64_t received = 0, consumed = 0, returned = 0;
    Stream stream;
    State state = State::idle;
    std::unique_ptr<std::uint64_t[]> slots;  // per slot: immediate << 32 | length, once arrived
  };
  struct KeptChunk {
    std::uint64_t entry;  // as in Inbound::slots
    std::vector<std::uint8_t> bytes;  // empty in length-only runs
  };
  struct Kept {
    Stream stream;
    std::deque<KeptChunk> chunks;  // none: free for another stream
  };
  // Made when the pair first talks: most pairs of a large job never do.
  struct Peer {
    std::vector<Outbound> out;
    std::vector<Inbound> in;
    std::uint64_t bare_pending = 0;  // immediates without data, in flight
    std::uint64_t uses = 0;          // writes of data
    std::deque<Stream> waiting;      // for a channel to the peer, first come first served
    std::deque<Stream> displaced;    // lost their channel at once, and may want one again
    std::vector<Stream> parked;      // of which the peer has kept chunks aside
    std::deque<Kept> kept;           // of the peer's streams; a reference to one stays valid
    std::optional<Stream> clears;    // which the next `clear` speaks of
    bool gone = false;
  };
  // Streams of one peer whose chunks are kept aside; a peer that has more of them makes them up.
  static constexpr std::size_t kMostKept = 4096;

  Peer& peer(JobRank rank);
  void post_bare(JobRank rank, Immediate immediate);
  void give_back(JobRank rank, std::uint16_t channel);
  bool idle(Outbound& out) const;
  int take_idle(JobRank rank, Stream stream);
  void reclaim(JobRank rank);
  Outbound* victim(Peer& peer) const;
  bool is_kept(std::uint16_t channel) const { return channel >= layout_.channels(); }
  Kept& kept(JobRank rank, std::uint16_t channel) const {
    return peers_[rank]->kept[channel - layout_.channels()];
  }
  int keep(JobRank rank, Inbound& in);
  ChannelEvent on_close(JobRank rank, Immediate immediate);
  ChannelEvent on_stream(JobRank rank, Immediate immediate);
  ChannelEvent on_data(JobRank rank, Immediate immediate, std::uint32_t length, std::uint32_t word);
  ChannelEvent on_control(JobRank rank, Immediate immediate);

  StagingLayout layout_;
  JobRank self_;
  std::uint8_t* staging_;
  Verbs& verbs_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::uint64_t in_flight_ = 0;
  std::size_t waiting_ = 0;  // streams that wait or are displaced, over all peers
};

}  // namespace loomnet
