// Host, state and packet at the beginning, then bytes of a pattern, then the packet's bytes up to the guard.
#include "switch/loaded/call_memory.hpp"

#include <cstring>
#include <new>
#include <stdexcept>

namespace loomnet {
namespace {

constexpr std::size_t kBytes = 8192;
constexpr std::size_t kBeside = 64;  // bytes before the frame that are looked at afterwards
constexpr std::size_t kAligned = 16;
constexpr std::uint64_t kPattern = 0xa5a5'a5a5'a5a5'a5a5;
constexpr std::size_t kMostShown = kBytes - sizeof(CallMemory::Given) - kBeside - kAligned;

// In words: the processor hands bytes that were just stored on to a load of the same width.
void put_pattern(std::uint8_t* at, std::size_t words) {
  for (std::size_t i = 0; i < words; ++i) std::memcpy(at + 8 * i, &kPattern, 8);
}

bool has_pattern(const std::uint8_t* at, std::size_t words) {
  std::uint64_t differs = 0;
  for (std::size_t i = 0; i < words; ++i) {
    std::uint64_t word;
    std::memcpy(&word, at + 8 * i, 8);
    differs |= word ^ kPattern;
  }
  return differs == 0;
}

std::string bytes(std::uintptr_t count) { return std::to_string(count) + (count == 1 ? " byte " : " bytes "); }

// Where `at` lies from the memory [begin, end) of that name; empty where it is further than a guard.
std::string beside(std::uintptr_t at, std::uintptr_t begin, std::uintptr_t end, const std::string& what) {
  if (at >= end && at - end < GuardedMemory::kGuard) return bytes(at - end + 1) + "behind the last of " + what;
  if (at < begin && begin - at <= GuardedMemory::kGuard) return bytes(begin - at) + "before the first of " + what;
  return "";
}

std::uintptr_t number(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

}  // namespace

CallMemory::CallMemory() : memory_(kBytes) { new (memory_.data()) Given{}; }

CallMemory::Given& CallMemory::lay_out(const CallingHost& host, ln_packet& packet, const ln_meta& meta) {
  header_ = static_cast<std::size_t>(packet.end - packet.frame);
  payload_ = static_cast<std::size_t>(packet.payload_end - packet.payload);
  const std::size_t shown = header_ + payload_;
  if (shown > kMostShown) throw std::length_error("a switch program was shown " + std::to_string(shown) + " bytes");
  std::uint8_t* const end = memory_.data() + kBytes;
  frame_ = end - (shown + kAligned - 1) / kAligned * kAligned;
  put_pattern(frame_ - kBeside, kBeside / 8);
  put_pattern(end - kAligned, kAligned / 8);
  if (header_ != 0) std::memcpy(frame_, packet.frame, header_);
  if (payload_ != 0) std::memcpy(frame_ + header_, packet.payload, payload_);

  Given& given = this->given();
  given.host = host;
  given.state = rows_ = *host.host.state;
  given.host.host.state = &given.state;
  given.meta = meta;
  given.packet = packet;
  given.packet.frame = frame_;
  given.packet.end = given.packet.payload = frame_ + header_;
  given.packet.payload_end = given.packet.payload + payload_;
  given.packet.edit = nullptr;  // these bytes are copies already
  return given;
}

bool CallMemory::untouched() const {
  const std::uint8_t* const end = memory_.data() + kBytes;
  bool same = has_pattern(frame_ - kBeside, kBeside / 8);
  for (const std::uint8_t* at = frame_ + header_ + payload_; at != end; ++at) {
    same &= *at == static_cast<std::uint8_t>(kPattern);
  }
  return same;
}

bool CallMemory::take_back(ln_packet& packet) {
  if (!untouched()) return false;
  const ln_packet& made = given().packet;
  packet.length = made.length;
  packet.flow = made.flow;
  packet.message = made.message;
  if (header_ != 0) std::memcpy(packet.frame, frame_, header_);
  const std::uint8_t* const payload = frame_ + header_;
  if (payload_ != 0 && std::memcmp(packet.payload, payload, payload_) != 0) {
    if (packet.edit) packet.edit(&packet);  // they may be the sender's own memory
    std::memcpy(packet.payload, payload, payload_);
  }
  return true;
}

std::string CallMemory::place_of(const void* address) const {
  const std::uintptr_t at = number(address), own = number(memory_.data());
  // The packet's bytes end where a guard begins.
  if (at >= own + kBytes && at - own - kBytes < GuardedMemory::kGuard) {
    return beside(at, number(frame_), number(frame_ + header_ + payload_), "the packet");
  }
  if (at < own && own - at <= GuardedMemory::kGuard) return beside(at, number(frame_), own + kBytes, "the packet");
  if (rows_.count == 0) return "";
  const std::uintptr_t rows = number(rows_.rows);
  return beside(at, rows, rows + std::size_t{rows_.count} * rows_.row_bytes, "its rows");
}

}  // namespace loomnet
