// Blocks and options of pcapng, little endian; see pcapng.hpp.
#include "trace/pcapng.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace loomnet {
namespace {

constexpr std::uint32_t kSection = 0x0a0d0d0a, kInterface = 1, kStatistics = 5, kPacket = 6;
constexpr std::uint16_t kLinkEthernet = 1;
constexpr std::uint16_t kComment = 1;                                              // any block
constexpr std::uint16_t kSectionApplication = 4;                                   // section header
constexpr std::uint16_t kName = 2, kDescription = 3, kAddress = 6, kSpeed = 8, kResolution = 9,
                        kOffset = 14;  // interface
constexpr std::uint16_t kFlags = 2, kPacketId = 5;                                 // packet
constexpr std::uint16_t kStarted = 2, kReceived = 4, kDropped = 5;                 // statistics
constexpr char kNanoseconds = 9;                                                   // 10^-9 s
constexpr std::uint32_t kCrcError = 1u << 24;  // of epb_flags' link-layer errors

template <typename T>
void put(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i) {
    out.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> 8 * i));
  }
}

void pad(std::string& out, std::size_t length) { out.append((4 - length % 4) % 4, '\0'); }

void option(std::string& out, std::uint16_t code, std::string_view value) {
  put(out, code);
  put(out, static_cast<std::uint16_t>(value.size()));
  out += value;
  pad(out, value.size());
}
template <typename T>
void option_of(std::string& out, std::uint16_t code, T value) {
  put(out, code);
  put(out, static_cast<std::uint16_t>(sizeof value));
  put(out, value);
  pad(out, sizeof value);
}

// Opens a block; close() writes its length at both ends.
std::size_t open(std::string& out, std::uint32_t type) {
  const std::size_t begin = out.size();
  put(out, type);
  put(out, std::uint32_t{0});
  return begin;
}
void close(std::string& out, std::size_t begin) {
  const auto length = static_cast<std::uint32_t>(out.size() - begin + 4);
  for (int i = 0; i < 4; ++i) out[begin + 4 + i] = static_cast<char>(length >> 8 * i);
  put(out, length);
}
void time(std::string& out, Picoseconds at) {
  const auto ns = static_cast<std::uint64_t>(at.count) / 1000;
  put(out, static_cast<std::uint32_t>(ns >> 32));
  put(out, static_cast<std::uint32_t>(ns));
}

constexpr std::int64_t kOffsetSeconds = 1'000'000;  // times before zero are at most as far from it

// Places in a packet's block.
constexpr std::size_t kTimeAt = 12, kCapturedLengthAt = 20, kFrameAt = 28;

// Appends a packet's block with a comment in front of its other options.
void append_commented(std::string& out, std::string_view old, std::string_view comment) {
  std::uint32_t captured = 0;
  for (std::size_t i = 4; i-- > 0;) {
    captured = captured << 8 | static_cast<std::uint8_t>(old[kCapturedLengthAt + i]);
  }
  const std::size_t options = kFrameAt + (captured + 3) / 4 * 4;
  const std::size_t begin = open(out, kPacket);
  out.append(old.substr(8, options - 8));
  option(out, kComment, comment);
  out.append(old.substr(options, old.size() - options - 4));
  close(out, begin);
}

}  // namespace

PortCapture::PortCapture(std::uint32_t node, std::uint16_t port, const HalfLink& egress, const MacAddress& far,
                         std::string_view interface, std::string_view description)
    : node_(node),
      port_(port),
      egress_(egress),
      near_(port_address(node, port)),
      far_(far),
      interface_(interface),
      description_(description) {}

std::string PortCapture::header() {
  std::string out;
  if (std::exchange(begun_, true)) return out;
  std::size_t block = open(out, kSection);
  put(out, std::uint32_t{0x1a2b3c4d});
  put(out, std::uint16_t{1});
  put(out, std::uint16_t{0});
  put(out, std::int64_t{-1});  // length of the section: not known yet
  option(out, kComment,
         "timestamps are emulated time, from the first job's start on; a packet without payload bytes "
         "is snapped behind its headers; packet ids are the engine's uids");
  option(out, kSectionApplication, "Loomnet");
  option(out, 0, {});
  close(out, block);

  block = open(out, kInterface);
  put(out, kLinkEthernet);
  put(out, std::uint16_t{0});
  put(out, std::uint32_t{0});  // no snap length
  option(out, kName, interface_);
  option(out, kDescription, description_);
  option(out, kAddress, {reinterpret_cast<const char*>(near_.data()), near_.size()});
  if (egress_.config().rate.count) option_of(out, kSpeed, egress_.config().rate.count);
  option_of(out, kResolution, kNanoseconds);
  if (zero_ != Picoseconds{}) {
    offset_ = seconds(kOffsetSeconds);
    option_of(out, kOffset, -kOffsetSeconds);
  }
  option(out, 0, {});
  close(out, block);
  return out;
}

void PortCapture::add(Direction direction, const Packet& packet, Picoseconds at, std::string_view comment,
                      bool crc_error) {
  if (blocks_.size() > kMostPending) {
    ++dropped_;
    return;
  }
  ++packets_;
  const std::uint32_t header = packet.header_length;
  const bool bytes = packet.payload.data != nullptr;
  // Where bytes are missing only behind the payload, the frame is whole with zeros there.
  const bool whole = bytes || packet.payload.length == 0;
  const std::uint32_t known = header + (bytes ? packet.payload.length : 0);
  const std::uint32_t original = std::max(packet.wire_length, known);
  const std::uint32_t captured = whole ? original : known;

  const std::size_t begin = open(blocks_, kPacket);
  put(blocks_, std::uint32_t{0});  // the only interface
  time(blocks_, at);
  put(blocks_, captured);
  put(blocks_, original);
  blocks_.append(reinterpret_cast<const char*>(packet.header.data()), header);
  if (bytes) blocks_.append(reinterpret_cast<const char*>(packet.payload.data), packet.payload.length);
  blocks_.append(captured - known, '\0');
  if (header >= EthernetHeader::kSize) address(begin + kFrameAt, direction);
  pad(blocks_, captured);
  if (!comment.empty()) option(blocks_, kComment, comment);
  option_of(blocks_, kFlags, static_cast<std::uint32_t>(direction) | (crc_error ? kCrcError : 0));
  option_of(blocks_, kPacketId, packet.uid);
  option(blocks_, 0, {});
  close(blocks_, begin);
  records_.push_back({at, begin, blocks_.size() - begin, packet.uid, direction});
}

void PortCapture::annotate(const Packet& packet, std::string_view comment) {
  constexpr std::ptrdiff_t kLookBack = 4096;
  const auto until = records_.rend() - records_.rbegin() > kLookBack ? records_.rbegin() + kLookBack : records_.rend();
  const auto record = std::find_if(records_.rbegin(), until, [&](const Record& r) {
    return r.uid == packet.uid && r.direction == Direction::inbound;
  });
  if (record == until) return;
  // The block is written again behind the others; the old one's bytes are left out of the file.
  const std::string old = blocks_.substr(record->begin, record->length);
  const std::size_t begin = blocks_.size();
  append_commented(blocks_, old, comment);
  record->begin = begin;
  record->length = blocks_.size() - begin;
}

// A model's frame has no destination; its source is zero, or the uid that a switch in the kernel knows it
// by. A frame of the kernel's own has both. A PFC frame has a destination, and port 0's source.
void PortCapture::address(std::size_t frame, Direction direction) {
  constexpr std::size_t kBytes = std::tuple_size_v<MacAddress>;
  const bool outbound = direction == Direction::outbound;
  const auto put_at = [&](std::size_t at, const MacAddress& address) {
    std::copy(address.begin(), address.end(), blocks_.begin() + static_cast<std::ptrdiff_t>(at));
  };
  const auto is = [&](std::size_t at, const MacAddress& address) {
    return std::equal(address.begin(), address.end(), reinterpret_cast<const std::uint8_t*>(blocks_.data()) + at);
  };
  const std::size_t source = frame + kBytes;
  const bool model = is(frame, MacAddress{});
  if (model) put_at(frame, outbound ? far_ : near_);
  if (model || is(source, local_mac(0))) put_at(source, outbound ? near_ : far_);
}

void PortCapture::write(std::string& out, const Record& record) const {
  std::string stamp;
  if (zero_ < kNever) {
    time(stamp, record.at - zero_ + offset_);
    const std::size_t begin = out.size();
    out.append(blocks_, record.begin, record.length);
    out.replace(begin + kTimeAt, stamp.size(), stamp);
    return;
  }
  std::string block = blocks_.substr(record.begin, record.length);
  time(stamp, {});
  block.replace(kTimeAt, stamp.size(), stamp);
  append_commented(out, block, "before the first job's start, at a time that was not known yet");
}

std::string PortCapture::take(Picoseconds now, Picoseconds slack) {
  if (zero_ == kNever && !full()) return header();
  const Picoseconds settled = egress_.settled(now);
  // A packet that waits leaves at `settled` or later.
  return until((settled < now ? settled - Picoseconds{1} : now) - slack);
}

std::string PortCapture::until(Picoseconds limit) {
  std::string out = header();
  std::stable_sort(records_.begin(), records_.end(), [](const Record& a, const Record& b) { return a.at < b.at; });
  const auto later = std::upper_bound(records_.begin(), records_.end(), limit,
                                      [](Picoseconds t, const Record& r) { return t < r.at; });
  for (auto r = records_.begin(); r != later; ++r) write(out, *r);
  std::string rest;
  for (auto r = later; r != records_.end(); ++r) {
    const std::size_t begin = rest.size();
    rest.append(blocks_, r->begin, r->length);
    r->begin = begin;
  }
  records_.erase(records_.begin(), later);
  blocks_ = std::move(rest);
  return out;
}

std::string PortCapture::finish(Picoseconds now) {
  std::string out = until(kNever);
  const std::size_t block = open(out, kStatistics);
  put(out, std::uint32_t{0});
  time(out, zero_ < kNever ? now - zero_ + offset_ : Picoseconds{});
  if (zero_ < kNever) {
    std::string started;
    time(started, offset_ - zero_);
    option(out, kStarted, started);
  }
  option_of(out, kReceived, packets_);
  option_of(out, kDropped, dropped_);
  option(out, 0, {});
  close(out, block);
  return out;
}

}  // namespace loomnet
