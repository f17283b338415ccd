// Channels: one-way pipes of slots between two ranks, with credits so that no slot is ever
// overrun. The sender owns the numbering of its channels towards a peer and tells the peer which
// communicator a channel serves; since a queue pair keeps order, no agreement between ranks about
// the order in which communicators are created is needed.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "collective/staging.hpp"
#include "collective/verbs.hpp"
#include "collective/wire.hpp"

namespace loomnet {

struct ChannelCounters {
  std::uint64_t data_writes = 0, data_bytes = 0, data_arrivals = 0;
  std::uint64_t credit_writes = 0, channels_opened = 0, channels_closed = 0;
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
  std::uint8_t channel = 0;
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
  // Takes the lowest idle channel and announces it; -1 when all are in use.
  int open(JobRank peer, std::uint32_t communicator, Traffic traffic);
  void close(JobRank peer, std::uint8_t channel);
  // `forwarded`: what has just arrived from another member.
  bool can_send(JobRank peer, std::uint8_t channel, bool forwarded = false) const;
  // Where the next chunk's payload goes; null in length-only runs. can_send must hold.
  std::uint8_t* payload(JobRank peer, std::uint8_t channel);
  // Posts the slot. `sequence_low` goes into the immediate (13 bits); `attributes` gives the
  // Write's descriptive fields.
  void send(JobRank peer, std::uint8_t channel, const SlotHeader& header, std::uint32_t length,
            bool first, bool last, std::uint32_t sequence_low, const Write& attributes);
  void clear_to_send(JobRank peer, std::uint8_t channel, std::uint32_t message);
  void abort(JobRank peer, std::uint32_t communicator, OperationStatus status);

  // --- receiving --------------------------------------------------------------------------------
  // The inbound channel the peer opened for this communicator, or -1.
  int find_inbound(JobRank peer, std::uint32_t communicator, Traffic traffic) const;
  bool serves(JobRank peer, std::uint8_t channel, std::uint32_t communicator,
              Traffic traffic) const;
  bool has_chunk(JobRank peer, std::uint8_t channel) const;
  Chunk front(JobRank peer, std::uint8_t channel) const;
  void release(JobRank peer, std::uint8_t channel);  // the front slot, with its credit
  // Drops what is there and all that still comes until the peer closes the channel.
  void discard(JobRank peer, std::uint8_t channel);

  // --- events -----------------------------------------------------------------------------------
  ChannelEvent on_arrival(JobRank peer, std::uint32_t word, std::uint32_t length);
  // True if `id` named a write in flight to this peer. channel < 0: a bare immediate.
  bool on_completion(JobRank peer, std::uint64_t id, int* channel, unsigned* slot);
  // Whom an outbound channel serves.
  std::pair<std::uint32_t, Traffic> owner(JobRank peer, std::uint8_t channel) const {
    const Outbound& out = peers_[peer]->out[channel];
    return {out.communicator, out.traffic};
  }
  // Nothing will complete or arrive any more.
  void forget(JobRank peer);
  std::uint64_t in_flight() const { return in_flight_; }
  // Slots of an outbound channel whose writes have not completed, one bit each.
  std::uint64_t pending(JobRank peer, std::uint8_t channel) const {
    return peers_[peer]->out[channel].pending;
  }

  ChannelCounters counters;

 private:
  enum class State : std::uint8_t { idle, open, closing, discarding };

  struct Outbound {
    std::uint64_t sent = 0, returned = 0;
    std::uint64_t pending = 0;  // bit per slot: its write has not completed
    std::uint32_t communicator = 0;
    State state = State::idle;
    Traffic traffic = Traffic::collective;
  };
  struct Inbound {
    std::uint64_t received = 0, consumed = 0, returned = 0;
    std::uint32_t communicator = 0;
    State state = State::idle;
    Traffic traffic = Traffic::collective;
    std::unique_ptr<std::uint64_t[]> slots;  // per slot: immediate << 32 | length, once arrived
  };
  // Made when the pair first talks: most pairs of a large job never do.
  struct Peer {
    std::vector<Outbound> out;
    std::vector<Inbound> in;
    std::uint64_t bare_pending = 0;  // immediates without data, in flight
    bool gone = false;
  };

  Peer& peer(JobRank rank);
  void post_bare(JobRank rank, Immediate immediate);
  void give_back(JobRank rank, std::uint8_t channel);
  ChannelEvent on_data(JobRank rank, Immediate immediate, std::uint32_t length, std::uint32_t word);
  ChannelEvent on_control(JobRank rank, Immediate immediate);

  StagingLayout layout_;
  JobRank self_;
  std::uint8_t* staging_;
  Verbs& verbs_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::uint64_t in_flight_ = 0;
};

}  // namespace loomnet
