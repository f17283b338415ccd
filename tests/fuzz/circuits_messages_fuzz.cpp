// Any bytes as what ranks and a region's controller say to each other: they are refused, or are what the message
// that they mean is written as.
#include <algorithm>
#include <cstdlib>

#include "circuits/messages.hpp"

using namespace loomnet::circuits;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::uint8_t> bytes(data, size);
  if (const auto report = DemandReport::parse(bytes)) {
    if (!std::ranges::equal(report->serialize(), bytes)) std::abort();
  }
  // A map's reserved bits are not kept.
  if (const auto map = CircuitMap::parse(bytes)) {
    if (CircuitMap::parse(map->serialize()) != map) std::abort();
  }
  return 0;
}
