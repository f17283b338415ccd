// Messages between two members, matched by tag: the first chunk goes at once and announces the
// rest, which waits until the receiver has a buffer. So a large message without a receive never
// blocks the channel for one that has its receive.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "collective/communicator.hpp"
#include "collective/held_operations.hpp"

namespace loomnet {

class PointToPoint {
 public:
  // First chunks kept aside for receives that have not been posted; beyond this they stay in their
  // slots, which stops the sender.
  static constexpr std::uint64_t kUnexpectedBytes = 64u << 20;

  explicit PointToPoint(Communicator& communicator);

  void send(OperationId id, Operation operation);
  void receive(OperationId id, Operation operation);
  bool cancel_receive(OperationId id);
  void on_data(GroupRank from);
  void on_room(GroupRank to);
  void on_sent(GroupRank to, unsigned slot) { held_.on_sent(to, slot); }
  void on_clear(GroupRank to, std::uint32_t message);
  void fail_all(const OperationResult& result);
  std::size_t unfinished() const;
  bool holds(OperationId id) const;

 private:
  struct Outgoing {
    OperationId id;
    Operation operation;
    std::uint32_t number = 0, chunk = 0;
    std::uint64_t bytes = 0, sent = 0;
  };
  struct Posted {
    OperationId id;
    Operation operation;
  };
  struct Incoming {
    OperationId id;
    Operation operation;
    std::uint32_t number = 0, chunk = 0;
    std::uint64_t bytes = 0, received = 0;
    Received from_peer;
  };
  // A first chunk, as announced.
  struct Announced {
    GroupRank from = 0;
    std::uint32_t number = 0, tag = 0;
    DataType type = DataType::opaque;
    std::uint64_t bytes = 0;  // of the whole message; lengths only: 0 unless it is `whole`
    std::uint32_t length = 0; // of this chunk
    bool whole = false;
    Missing missing;
    std::vector<std::uint8_t> payload;
  };
  struct Peer {
    std::deque<Outgoing> fresh;     // nothing sent yet
    std::deque<Outgoing> blocked;   // first chunk sent, buffer at the receiver unknown
    std::deque<Outgoing> cleared;   // the receiver awaits the rest
    std::vector<Incoming> incoming; // the rest is on its way to us
    std::uint32_t next_out = 0, next_in = 0;  // message numbers
    bool stalled = false;           // its front chunk waits in its slot for memory
  };

  bool transmit(GroupRank to, Outgoing& message);
  // False: leave the chunk in its slot.
  bool take_first(GroupRank from, const Chunk& chunk);
  bool take_next(GroupRank from, const Chunk& chunk);
  bool deliver(const Posted& posted, const Announced& first, const std::uint8_t* payload);
  void done(OperationId id, const Operation& operation, GroupRank source, std::uint32_t tag, Received received);
  bool garbage(GroupRank from, const char* what);
  bool read_header(GroupRank from, const Chunk& chunk, SlotHeader* header);

  Communicator& communicator_;
  std::vector<Peer> peers_;
  HeldOperations held_;  // sends whose writes have not all completed
  std::deque<Posted> posted_;
  std::deque<Announced> unexpected_;
  std::uint64_t unexpected_bytes_ = 0;
};

}  // namespace loomnet
