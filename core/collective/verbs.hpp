// All that the collective executor knows of a network: RDMA writes with immediate between staging
// memories, one connected queue pair per pair of ranks.
#pragma once

#include <cstdint>

#include "collective/types.hpp"
#include "packet/attributes.hpp"

namespace loomnet {

// One RDMA write-with-immediate, executed at the peer in posting order. Reliable, but for payload bytes
// within Attributes::loss_tolerance.
struct Write {
  std::uint64_t id = 0;            // given back in CollectiveExecutor::on_completion
  // In local staging, unchanged until completion; null: length only.
  const std::uint8_t* local = nullptr;
  std::uint64_t remote_offset = 0;  // in the peer's staging memory
  std::uint32_t length = 0;         // 0: a bare immediate
  std::uint32_t immediate = 0;
  std::uint32_t framing = 0;        // leading bytes that may not be lost: the slot's header
  Attributes attributes;            // of the payload behind them; a bare immediate has none
};

// How a write ended; the order is that of a transport's completion status.
enum class WriteStatus : std::uint8_t {
  ok, retry_exceeded, remote_access_error, remote_invalid_request, remote_operational, flushed,
};
std::string_view to_string(WriteStatus status);

// The rank's NIC or the engine implements it. post() must not call back into the executor: arrivals
// and completions are fed to it later. There is no bound on writes in flight but that of the
// staging layout: data never exceeds slots × channels per peer, and bare immediates (credits,
// opens, clear-to-send) are no more than 2 per data write the peer made plus a few per
// communicator; an implementation whose queue is full keeps the rest in order and posts them later.
class Verbs {
 public:
  virtual ~Verbs() = default;
  virtual void post(JobRank peer, const Write& write) = 0;
};

}  // namespace loomnet
