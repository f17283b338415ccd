#include "collective/kept_chunks.hpp"

#include <algorithm>

namespace loomnet {

int KeptChunks::take_place(Stream stream) {
  auto at = std::find_if(places_.begin(), places_.end(), [](const Place& p) { return p.chunks.empty(); });
  if (at == places_.end()) {
    if (places_.size() == kMostStreams) return -1;
    at = places_.emplace(places_.end());
  }
  at->stream = stream;
  return static_cast<int>(at - places_.begin());
}

void KeptChunks::add(std::size_t place, std::uint64_t arrival, const std::uint8_t* slot, const Missing& missing) {
  Chunk& chunk = places_[place].chunks.emplace_back();
  chunk.arrival = arrival;
  chunk.missing = missing;
  if (slot != nullptr) chunk.bytes.assign(slot, slot + static_cast<std::uint32_t>(arrival));
}

}  // namespace loomnet
