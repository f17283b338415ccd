// What ranks say to each other: the 32-bit immediate of every write and the header at the start of
// every data slot. Parsing checks everything; a peer's bytes are never trusted.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "collective/staging.hpp"
#include "collective/types.hpp"

namespace loomnet {

// Immediate, from the most significant bit:
//
//   kind 3 | channel 8 | value 21
//
//   kind    channel                  value                                    length
//   data    sender's channel         slot 6 | first 1 | last 1 | low 13 (*)   48 + payload
//   credit  receiver's own channel   slots given back, 1..slots               0
//   open    sender's channel         communicator 20 | traffic 1              0
//   close   sender's channel         1: answer with `stream`, else 0          0
//   clear   receiver's own channel   low 21 bits of the message number        0
//   abort   OperationStatus          communicator 20 | 0                      0
//   stream  StreamWord               communicator 20 | traffic 1              0
//
// (*) of the operation's number; for messages, of the tag where `first`, else of the message's
// number. "Receiver's own": the channel on which the receiver of this immediate sends.
enum class ImmediateKind : std::uint8_t { data = 1, credit, open, close, clear, abort, stream };

enum class Traffic : std::uint8_t { collective, point_to_point };

// What one rank sends another in one communicator and kind of traffic, over whichever channel.
struct Stream {
  std::uint32_t communicator = 0;
  Traffic traffic = Traffic::collective;
  bool operator==(const Stream&) const = default;
};

// What a receiver says of a stream.
enum class StreamWord : std::uint8_t {
  returned = 1,  // its channel is closed, and all slots are the sender's again
  kept,          // so they are, and chunks that nothing had asked for were copied out of them
  drained,       // the chunks that were kept have been taken
  clear,         // the `clear` that follows speaks of this stream, which has no channel now
};

struct Immediate {
  ImmediateKind kind = ImmediateKind::data;
  std::uint8_t channel = 0;
  std::uint32_t value = 0;  // 21 bits

  static constexpr std::uint32_t kValueMask = (1u << 21) - 1;
  static constexpr std::uint32_t kSequenceMask = (1u << 13) - 1;

  static Immediate data(std::uint8_t channel, std::uint32_t slot, bool first, bool last, std::uint32_t sequence) {
    return {ImmediateKind::data, channel,
            slot << 15 | std::uint32_t{first} << 14 | std::uint32_t{last} << 13 | (sequence & kSequenceMask)};
  }
  static Immediate named(ImmediateKind kind, std::uint8_t channel, std::uint32_t communicator,
                         Traffic traffic = Traffic::collective) {
    return {kind, channel, communicator << 1 | static_cast<std::uint32_t>(traffic)};
  }

  std::uint32_t slot() const { return value >> 15; }
  bool first() const { return (value >> 14 & 1) != 0; }
  bool last() const { return (value >> 13 & 1) != 0; }
  std::uint32_t sequence_low() const { return value & kSequenceMask; }
  std::uint32_t communicator() const { return value >> 1; }
  Traffic traffic() const { return static_cast<Traffic>(value & 1); }
  Stream stream() const { return {communicator(), traffic()}; }

  std::uint32_t encode() const { return static_cast<std::uint32_t>(kind) << 29 | std::uint32_t{channel} << 21 | value; }
  static std::optional<Immediate> decode(std::uint32_t word);
};

// First bytes of a data slot, little-endian. In length-only runs the 48 bytes are there in length,
// so that both are timed alike, but hold nothing.
struct SlotHeader {
  static constexpr std::uint16_t kMagic = 0x4c4e;
  static constexpr std::uint8_t kVersion = 1;

  std::uint32_t communicator = 0;
  std::uint32_t sequence = 0;  // number of the operation, or of the message on this channel
  Collective collective = Collective::barrier;
  DataType type = DataType::opaque;
  ReduceOp reduce = ReduceOp::sum;
  Algorithm algorithm = Algorithm::automatic;
  std::uint32_t root_or_tag = 0;
  std::uint64_t count = 0;      // what all ranks must agree on; 0 where sizes are per pair
  std::uint64_t transfer = 0;   // payload bytes of the whole step or message
  std::uint32_t step = 0;       // number of this transfer between the two ranks in this operation
  std::uint32_t chunk = 0;      // number of this slot in the transfer

  void serialize(std::span<std::uint8_t, StagingLayout::kHeaderBytes> out) const;
  // Nothing for a wrong magic, version or enumerator.
  static std::optional<SlotHeader> parse(std::span<const std::uint8_t, StagingLayout::kHeaderBytes> in);
  bool operator==(const SlotHeader&) const = default;
};

}  // namespace loomnet
