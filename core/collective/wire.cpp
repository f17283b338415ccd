// Byte by byte, so that layout does not depend on the compiler.
#include "collective/wire.hpp"

#include <cstddef>
#include <type_traits>

namespace loomnet {
namespace {

template <typename T>
void put(std::uint8_t*& at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) *at++ = static_cast<std::uint8_t>(value >> (8 * i));
}

template <typename T>
T get(const std::uint8_t*& at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value |= std::uint64_t{*at++} << (8 * i);
  return static_cast<T>(value);
}

}  // namespace

std::optional<Immediate> Immediate::decode(std::uint32_t word) {
  const std::uint32_t kind = word >> 29;
  if (kind < static_cast<std::uint32_t>(ImmediateKind::data) ||
      kind > static_cast<std::uint32_t>(ImmediateKind::stream)) {
    return std::nullopt;
  }
  return Immediate{static_cast<ImmediateKind>(kind), static_cast<std::uint8_t>(word >> 21), word & kValueMask};
}

void SlotHeader::serialize(std::span<std::uint8_t, StagingLayout::kHeaderBytes> out) const {
  std::uint8_t* at = out.data();
  put<std::uint16_t>(at, kMagic);
  put<std::uint8_t>(at, kVersion);
  put<std::uint8_t>(at, 0);
  put<std::uint8_t>(at, static_cast<std::uint8_t>(collective));
  put<std::uint8_t>(at, static_cast<std::uint8_t>(type));
  put<std::uint8_t>(at, static_cast<std::uint8_t>(reduce));
  put<std::uint8_t>(at, static_cast<std::uint8_t>(algorithm));
  put(at, communicator);
  put(at, sequence);
  put(at, root_or_tag);
  put(at, step);
  put(at, count);
  put(at, transfer);
  put(at, chunk);
  put<std::uint32_t>(at, 0);
}

std::optional<SlotHeader> SlotHeader::parse(std::span<const std::uint8_t, StagingLayout::kHeaderBytes> in) {
  const std::uint8_t* at = in.data();
  if (get<std::uint16_t>(at) != kMagic || get<std::uint8_t>(at) != kVersion) return std::nullopt;
  ++at;
  const std::uint8_t collective = *at++, type = *at++, reduce = *at++, algorithm = *at++;
  if (collective >= kCollectives || type >= kDataTypes || reduce >= kReduceOps ||
      algorithm > static_cast<std::uint8_t>(Algorithm::tree)) {
    return std::nullopt;
  }
  SlotHeader h;
  h.collective = static_cast<Collective>(collective);
  h.type = static_cast<DataType>(type);
  h.reduce = static_cast<ReduceOp>(reduce);
  h.algorithm = static_cast<Algorithm>(algorithm);
  h.communicator = get<std::uint32_t>(at);
  h.sequence = get<std::uint32_t>(at);
  h.root_or_tag = get<std::uint32_t>(at);
  h.step = get<std::uint32_t>(at);
  h.count = get<std::uint64_t>(at);
  h.transfer = get<std::uint64_t>(at);
  h.chunk = get<std::uint32_t>(at);
  return h;
}

}  // namespace loomnet
