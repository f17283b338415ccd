// All that the collective executor knows of a network: RDMA writes with immediate between staging
// memories, one connected queue pair per pair of ranks; and, in a network that aggregates, sums over all
// ranks of the job.
#pragma once

#include <cstdint>
#include <stdexcept>

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
  ok,
  retry_exceeded,
  remote_access_error,
  remote_invalid_request,
  remote_operational,
  flushed,
};
std::string_view to_string(WriteStatus status);

// One rank's part of a sum over all ranks of the job: request n of every rank is part of the same sum, so all
// ranks post requests of the same lengths in the same order. `framing` bytes, then int32 values, in fragments
// of StagingConfig::sum_values. Byte d of the framing belongs to fragment d: an int8 exponent, kNotFinite where
// the block holds NaN or infinity. A request of framing alone has as many fragments as bytes. The result has the
// same layout: the sums of the values, which wrap, and the largest exponents, kNotFinite above all others.
struct Sum {
  static constexpr std::int8_t kNotFinite = -128;
  static constexpr std::int8_t kOverflowed = -127;  // in a result: an addition left the range of an int32

  std::uint64_t id = 0;                 // given back in CollectiveExecutor::on_sum
  const std::uint8_t* local = nullptr;  // in local staging, unchanged until completion
  std::uint64_t result_offset = 0;      // in the rank's own staging memory
  std::uint32_t length = 0;
  std::uint32_t framing = 0;
  bool continues = false;               // the tensor of the request before: all ranks are at work on it
  bool floats = false;                  // the values are float32, and so is their sum
  Attributes attributes;
};

// The rank's NIC or the engine implements it. post() must not call back into the executor: arrivals
// and completions are fed to it later. There is no bound on writes in flight but that of the
// staging layout: data never exceeds slots × channels per peer, and bare immediates (credits,
// opens, clear-to-send) are no more than 2 per data write the peer made plus a few per
// communicator; an implementation whose queue is full keeps the rest in order and posts them later.
class Verbs {
 public:
  virtual ~Verbs() = default;
  virtual void post(JobRank peer, const Write& write) = 0;
  // Only called where the staging memory has an area for sums. Sums complete in the order of posting.
  virtual void post_sum(const Sum&) { throw std::logic_error("this network makes no sums"); }
};

}  // namespace loomnet
