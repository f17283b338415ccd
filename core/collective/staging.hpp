// Where every slot lies in a rank's staging memory: a pure function of the job's shape, so that a
// sender knows addresses in its peer's memory without asking.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/types.hpp"

namespace loomnet {

// Must be equal on all ranks of a job.
struct StagingConfig {
  std::uint32_t ranks = 0;
  std::uint32_t slots = 8;             // per channel, 1..64
  std::uint32_t slot_payload = 32768;  // bytes of user data per slot, a multiple of 64
  std::uint32_t channels = 16;         // per ordered pair, 1..256; a communicator uses up to 2

  // Of sums in the network; no slots: there are none.
  std::uint32_t sum_slots = 0;   // requests under way at once, 1..64
  std::uint32_t sum_values = 0;  // int32 of a fragment: 64, 128 or 256
  std::uint32_t sum_window = 0;  // fragments that a queue pair has under way at once, 1..32768
  std::uint32_t sum_servers = 1;  // queue pairs that requests are dealt to, 1..64
  // Windows that a worker goes on behind a fragment that is missing, 2..1024. Exponents of long operations travel
  // so far ahead.
  std::uint32_t sum_reach = 2;
  // Floats are multiplied by this number and rounded. 0: by a power of 2 that each block's largest value
  // gives (block exponents).
  std::uint32_t sum_scale = 0;
  // With a scale: the blocks that it cannot hold are summed as float32, after the others of their operation, and
  // one operation's sums follow another's.
  bool sum_floats = false;
};

// [receive: sender][channel][slot], then [send: receiver][channel][slot], then, where there are sums,
// [slot][request, result]. Everything one peer may
// write is one contiguous range, so that a NIC can register it as that queue pair's only region.
// Own rows exist and stay unused; untouched pages cost nothing.
class StagingLayout {
 public:
  static constexpr std::uint32_t kHeaderBytes = 48;

  // Throws std::invalid_argument naming the field.
  explicit StagingLayout(const StagingConfig& config);

  const StagingConfig& config() const { return config_; }
  std::uint32_t ranks() const { return config_.ranks; }
  std::uint32_t slots() const { return config_.slots; }
  std::uint32_t channels() const { return config_.channels; }
  std::uint32_t slot_payload() const { return config_.slot_payload; }
  std::uint32_t slot_bytes() const { return kHeaderBytes + config_.slot_payload; }  // longest write
  std::uint64_t slot_stride() const { return stride_; }

  std::uint64_t total_bytes() const { return sums_at() + sums_bytes(); }
  std::uint64_t receive_bytes() const { return row_bytes() * config_.ranks; }
  // The range of staging memory that `sender` writes: receive_row(sender), row_bytes() long.
  std::uint64_t row_bytes() const { return stride_ * config_.slots * config_.channels; }
  std::uint64_t receive_row(JobRank sender) const { return row_bytes() * sender; }
  std::uint64_t receive_slot(JobRank sender, std::uint32_t channel, std::uint32_t slot) const {
    return receive_row(sender) + stride_ * (std::uint64_t{channel} * config_.slots + slot);
  }
  std::uint64_t send_slot(JobRank receiver, std::uint32_t channel, std::uint32_t slot) const {
    return receive_bytes() + receive_slot(receiver, channel, slot);
  }

  bool has_sums() const { return config_.sum_slots != 0; }
  std::uint64_t sums_at() const { return 2 * receive_bytes(); }
  std::uint64_t sums_bytes() const { return 2 * sum_stride_ * config_.sum_slots; }
  // Fragments of the longest request: some requests fill a window, so that a window's end does not wait for
  // its begin; fewer of each of many servers, so that two windows of all fit into the slots.
  std::uint32_t sum_chunk() const {
    const std::uint32_t in_window = config_.sum_servers < 8 ? 4 : config_.sum_servers < 16 ? 2 : 1;
    return config_.sum_window < in_window ? 1 : config_.sum_window / in_window;
  }
  std::uint64_t sum_request(std::uint32_t slot) const { return sums_at() + 2 * sum_stride_ * slot; }
  std::uint64_t sum_result(std::uint32_t slot) const { return sum_request(slot) + sum_stride_; }
  // Bytes of framing before the values of so many fragments: whole int32, so that the values are aligned.
  static constexpr std::uint32_t sum_framing(std::uint32_t fragments) { return (fragments + 3) / 4 * 4; }

 private:
  StagingConfig config_;
  std::uint64_t stride_;
  std::uint64_t sum_stride_ = 0;
};

}  // namespace loomnet
