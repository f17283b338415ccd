// Chunks of one peer that were copied out of their receive slots, because the peer took the channel back
// before this rank had asked for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "collective/wire.hpp"
#include "packet/missing.hpp"

namespace loomnet {

// Each stream that has such chunks has a place here, numbered from 0 on. The place is free for another
// stream once its last chunk has been dropped.
class KeptChunks {
 public:
  struct Chunk {
    std::uint64_t arrival;            // immediate << 32 | length
    std::vector<std::uint8_t> bytes;  // of the slot, header included; empty in length-only runs
    Missing missing;                  // of those bytes
  };
  static constexpr std::size_t kMostStreams = 4096;  // of a correct peer

  // A free place for the chunks of `stream`; -1: there are kMostStreams.
  int take_place(Stream stream);
  // `slot` is null in length-only runs.
  void add(std::size_t place, std::uint64_t arrival, const std::uint8_t* slot, const Missing& missing);

  std::size_t places() const { return places_.size(); }
  bool has_chunk(std::size_t place) const { return !places_[place].chunks.empty(); }
  bool serves(std::size_t place, Stream stream) const { return has_chunk(place) && places_[place].stream == stream; }
  Stream stream(std::size_t place) const { return places_[place].stream; }
  const Chunk& front(std::size_t place) const { return places_[place].chunks.front(); }
  void drop_front(std::size_t place) { places_[place].chunks.pop_front(); }

 private:
  struct Place {
    Stream stream;
    std::deque<Chunk> chunks;
  };
  std::deque<Place> places_;
};

}  // namespace loomnet
