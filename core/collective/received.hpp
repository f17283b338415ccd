// Missing bytes of a slot's payload: where they lie, and what an operation notes of them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "collective/staging.hpp"
#include "collective/types.hpp"
#include "packet/missing.hpp"

namespace loomnet {

// Calls call(begin, end) for each run of the payload that has missing bytes, rounded out to whole elements.
// `length` is the payload's; `missing` speaks of the whole write, header included.
template <typename Call>
void each_missing(const Missing& missing, std::uint32_t length, Call&& call) {
  constexpr std::uint32_t kHeader = StagingLayout::kHeaderBytes, kElement = 16;  // complex128
  missing.each_run(kHeader + length, [&](std::uint32_t begin, std::uint32_t end) {
    const std::uint32_t from = (std::max(begin, kHeader) - kHeader) / kElement * kElement;
    const std::uint32_t to = (std::max(end, kHeader) - kHeader + kElement - 1) / kElement * kElement;
    if (from < std::min(to, length)) call(from, std::min(to, length));
  });
}

// False where more bytes of a write of `length` bytes are missing than its marked extents hold behind the
// slot's header: part of the header is among them.
inline bool header_arrived(const Missing& missing, std::uint32_t length) {
  std::uint64_t most = 0;
  missing.each_run(length, [&](std::uint32_t begin, std::uint32_t end) {
    const std::uint32_t from = std::max(begin, StagingLayout::kHeaderBytes);
    most += end > from ? end - from : 0;
  });
  return missing.bytes <= most;
}

// A payload of `length` bytes has come, `missing` is null where all of it has. `place(offset)` says where
// its byte `offset` belongs in the caller's tensors; null in length-only runs.
template <typename Place>
void add_received(Received& received, std::uint32_t length, const Missing* missing, Place&& place) {
  received.expected += length;
  received.delivered += length;
  if (missing == nullptr) return;
  received.delivered -= missing->bytes;
  each_missing(*missing, length, [&](std::uint32_t begin, std::uint32_t end) {
    if (const std::uint8_t* at = place(begin)) received.missing.push_back({at, end - begin});
  });
}

}  // namespace loomnet
