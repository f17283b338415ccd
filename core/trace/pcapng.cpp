// Blocks and options of pcapng, little endian; see pcapng.hpp.
#include "trace/pcapng.hpp"

#include <algorithm>
#include <utility>

namespace loomnet {
namespace {

constexpr std::uint32_t kSection = 0x0a0d0d0a, kInterface = 1, kStatistics = 5, kPacket = 6;
constexpr std::uint16_t kLinkEthernet = 1;
constexpr std::uint16_t kComment = 1;                                              // any block
constexpr std::uint16_t kSectionApplication = 4;                                   // section header
constexpr std::uint16_t kName = 2, kDescription = 3, kSpeed = 8, kResolution = 9;  // interface
constexpr std::uint16_t kFlags = 2, kPacketId = 5;                                 // packet
constexpr std::uint16_t kReceived = 4, kDropped = 5;                               // statistics
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

}  // namespace

PortCapture::PortCapture(std::uint32_t node, std::uint16_t port, const HalfLink& egress,
                         std::string_view interface, std::string_view description)
    : node_(node), port_(port), egress_(egress) {
  std::size_t block = open(header_, kSection);
  put(header_, std::uint32_t{0x1a2b3c4d});
  put(header_, std::uint16_t{1});
  put(header_, std::uint16_t{0});
  put(header_, std::int64_t{-1});  // length of the section: not known yet
  option(
      header_, kComment,
      "timestamps are emulated time; a packet without payload bytes is snapped behind its headers; "
      "packet ids are the engine's uids");
  option(header_, kSectionApplication, "Loomnet");
  option(header_, 0, {});
  close(header_, block);

  block = open(header_, kInterface);
  put(header_, kLinkEthernet);
  put(header_, std::uint16_t{0});
  put(header_, std::uint32_t{0});  // no snap length
  option(header_, kName, interface);
  option(header_, kDescription, description);
  if (egress.config().rate.count) option_of(header_, kSpeed, egress.config().rate.count);
  option_of(header_, kResolution, kNanoseconds);
  option(header_, 0, {});
  close(header_, block);
}

void PortCapture::add(Direction direction, const Packet& packet, Picoseconds at,
                      std::string_view comment, bool crc_error) {
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
  if (bytes)
    blocks_.append(reinterpret_cast<const char*>(packet.payload.data), packet.payload.length);
  blocks_.append(captured - known, '\0');
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
  const auto until = records_.rend() - records_.rbegin() > kLookBack
                         ? records_.rbegin() + kLookBack
                         : records_.rend();
  const auto record = std::find_if(records_.rbegin(), until, [&](const Record& r) {
    return r.uid == packet.uid && r.direction == Direction::inbound;
  });
  if (record == until) return;
  // The block is written again behind the others, its comment in front of its other options; the old
  // one's bytes are left out of the file.
  constexpr std::size_t kPacketBlockHeader = 28, kCapturedLength = 20;
  const std::string old = blocks_.substr(record->begin, record->length);
  std::uint32_t captured = 0;
  for (std::size_t i = 4; i-- > 0;) {
    captured = captured << 8 | static_cast<std::uint8_t>(old[kCapturedLength + i]);
  }
  const std::size_t options = kPacketBlockHeader + (captured + 3) / 4 * 4;
  const std::size_t begin = open(blocks_, kPacket);
  blocks_.append(old, 8, options - 8);
  option(blocks_, kComment, comment);
  blocks_.append(old, options, old.size() - options - 4);
  close(blocks_, begin);
  record->begin = begin;
  record->length = blocks_.size() - begin;
}

std::string PortCapture::take(Picoseconds now, Picoseconds slack) {
  const Picoseconds settled = egress_.settled(now);
  // A packet that waits leaves at `settled` or later.
  return until((settled < now ? settled - Picoseconds{1} : now) - slack);
}

std::string PortCapture::until(Picoseconds limit) {
  std::string out = std::exchange(header_, {});
  std::stable_sort(records_.begin(), records_.end(),
                   [](const Record& a, const Record& b) { return a.at < b.at; });
  const auto later = std::upper_bound(records_.begin(), records_.end(), limit,
                                      [](Picoseconds t, const Record& r) { return t < r.at; });
  for (auto r = records_.begin(); r != later; ++r) out.append(blocks_, r->begin, r->length);
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
  time(out, now);
  option_of(out, kReceived, packets_);
  option_of(out, kDropped, dropped_);
  option(out, 0, {});
  close(out, block);
  return out;
}

}  // namespace loomnet
