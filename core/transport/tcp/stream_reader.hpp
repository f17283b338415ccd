// Turns the in-order byte stream back into writes: reads each message's frame header, places its
// payload, reports immediates. Never trusts a byte of it.
#pragma once

#include <array>
#include <cstdint>

#include "transport/tcp/counters.hpp"
#include "transport/tcp/framing.hpp"
#include "transport/transport.hpp"

namespace loomnet::tcp {

class StreamReader {
 public:
  enum class Result : std::uint8_t { ok, framing_error, access_error };

  // `piece` is the next of the stream; its data may be null where only lengths travel.
  Result take(Payload piece, QpNumber qp, TransportSink& sink, Counters& count);

 private:
  std::array<std::uint8_t, FrameHeader::kSize> bytes_{};
  std::uint32_t filled_ = 0;    // of the header; kSize: inside the payload
  std::uint32_t placed_ = 0;    // of the payload
  std::uint64_t messages_ = 0;  // finished
  FrameHeader header_;
};

}  // namespace loomnet::tcp
