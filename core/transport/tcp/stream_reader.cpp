// Reading frames out of the stream.
#include "transport/tcp/stream_reader.hpp"

#include <algorithm>
#include <cstring>

namespace loomnet::tcp {

StreamReader::Result StreamReader::take(Payload piece, QpNumber qp, TransportSink& sink, Counters& count) {
  const auto advance = [&piece](std::uint32_t n) {
    if (piece.data) piece.data += n;
    piece.length -= n;
  };
  while (piece.length > 0 || (filled_ == FrameHeader::kSize && placed_ == header_.length)) {
    if (filled_ < FrameHeader::kSize) {
      const auto n = std::min<std::uint32_t>(piece.length, FrameHeader::kSize - filled_);
      if (!piece.data) return Result::framing_error;  // a header of which only the length came
      std::memcpy(bytes_.data() + filled_, piece.data, n);
      filled_ += n;
      advance(n);
      if (filled_ < FrameHeader::kSize) return Result::ok;
      ByteReader in(bytes_);
      header_ = FrameHeader::parse(in);
      placed_ = 0;
      const bool known =
          header_.operation == FrameHeader::kWrite || header_.operation == FrameHeader::kWriteWithImmediate;
      if (header_.magic != FrameHeader::kMagic || !known || header_.number != messages_ ||
          header_.address + header_.length < header_.address) {
        return Result::framing_error;
      }
    }
    if (const std::uint32_t n = std::min(piece.length, header_.length - placed_); n > 0) {
      Payload part = piece;
      part.length = n;
      if (!sink.place(qp, header_.key, header_.address + placed_, part)) return Result::access_error;
      count.bytes_placed += n;
      placed_ += n;
      advance(n);
    }
    if (placed_ < header_.length) return Result::ok;
    ++messages_;
    filled_ = 0;
    if (header_.operation == FrameHeader::kWriteWithImmediate) {
      ++count.immediates_delivered;
      sink.arrived({qp, header_.immediate, header_.length, header_.address});
    }
  }
  return Result::ok;
}

}  // namespace loomnet::tcp
