// Fuzzes the NIC's side of a rank's shared memory: whatever the rank wrote there, requests that get
// through lie inside its region, name a bound queue pair and state attributes within their ranges. Parts of sums
// lie inside the part of the region for sums, and a transport can cut them into fragments. Missing
// bytes that a rank takes for sound lie within their write.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "rank/rank_port.hpp"

using namespace loomnet;

namespace {

void check(const WorkRequest& r) {
  const Attributes& a = r.attributes;
  if (!(a.loss_tolerance >= 0 && a.loss_tolerance <= 1) || r.framing > r.length || a.job != 0) std::abort();
  const std::uint64_t payload = r.length - r.framing;
  if (a.step_bytes == 0 && (a.step_offset | a.ring_step | a.ring_rank | a.ring_size) != 0) std::abort();
  if (a.step_bytes != 0 && a.ring_rank >= a.ring_size) std::abort();
  if (a.step_bytes != 0 && (a.step_offset > a.step_bytes || payload > a.step_bytes - a.step_offset)) {
    std::abort();
  }
  for (const std::uint32_t at : {0u, r.framing, r.length}) {
    const Attributes packet = attributes_at(a, r.framing, at);
    if (at < r.framing ? packet.loss_tolerance != 0 : packet.step_offset > a.step_bytes) std::abort();
  }
}

void check_sum(const WorkRequest& r, const std::uint8_t* staging, const StagingLayout& layout) {
  if (!r.local || r.local < staging + layout.sums_at()) std::abort();
  if (r.remote_key != 2 || r.remote_address < layout.sums_at() || r.remote_address + r.length > layout.total_bytes()) {
    std::abort();
  }
  const std::uint32_t values = (r.length - r.framing) / 4;
  if (r.length == 0 || (r.length - r.framing) % 4 != 0 || r.attributes.loss_tolerance != 0) std::abort();
  if (values != 0 && r.framing != 0 && std::uint64_t{r.framing} * 64 < values) std::abort();
}

// Any 24 bytes, as the NIC might write them.
Missing check_missing(const std::uint8_t* data, std::uint32_t length) {
  Missing missing;
  std::memcpy(&missing, data, sizeof missing);
  if (!missing.sound(length)) return {};
  std::uint32_t at = 0;
  missing.each_run(length, [&](std::uint32_t begin, std::uint32_t end) {
    if (begin < at || begin >= end || end > length) std::abort();
    at = end;
  });
  return missing;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rank::Geometry geometry{.rank = 0,
                          .world = 3,
                          .submissions = 8,
                          .completions = 8,
                          .arrivals = 8,
                          .marks = 8,
                          .notices = 8,
                          .slots = 1,
                          .slot_payload = 64,
                          .slot_channels = 1,
                          .sum_slots = 2,
                          .sum_values = 64,
                          .sum_window = 8};
  const StagingLayout layout(rank::staging_of(geometry));
  geometry.staging_bytes = layout.total_bytes();
  auto memory = rank::Memory::create(geometry);
  rank::WakeWord wake(memory.engine_words().rank_wake);
  RankPort port(memory, wake);
  port.bind(1, 0, 16);
  port.bind_sum(17, 2);
  std::array<RankWork, 16> batch;
  std::array<rank::MarkEntry, 16> marks;
  auto* entries = memory.ring_entries(rank::kSubmissions);
  auto& posted = memory.ring_words(rank::kSubmissions)->produced.value;
  auto& marked = memory.ring_words(rank::kMarks)->produced.value;
  // Each round: one control byte, then a submission's bytes for one slot.
  for (std::size_t at = 0; at + 1 + sizeof(rank::Submission) <= size;) {
    const std::uint8_t control = data[at++];
    const std::size_t slot = (control >> 4) % 8;
    std::memcpy(entries + slot * sizeof(rank::Submission), data + at, sizeof(rank::Submission));
    std::memcpy(memory.ring_entries(rank::kMarks) + slot * sizeof(rank::MarkEntry), data + at, sizeof(rank::MarkEntry));
    at += sizeof(rank::Submission);
    posted = posted + control % 4;
    marked = marked + control % 3;
    if (control == 255) memory.ring_words(rank::kCompletions)->consumed.value = data[at - 1];
    memory.rank_words().state = control;
    const std::size_t n = port.poll(batch);
    for (std::size_t i = 0; i < n; ++i) {
      const WorkRequest& r = batch[i].request;
      const auto* begin = reinterpret_cast<const std::uint8_t*>(memory.staging().data());
      const bool sum = batch[i].qp == 17;
      if (!sum && batch[i].qp != 16) std::abort();
      check(r);
      if (r.local && (r.local < begin || r.local + r.length > begin + geometry.staging_bytes)) std::abort();
      if (sum) check_sum(r, begin, layout);
      const Missing missing = check_missing(data + at - sizeof(Missing), r.length);
      port.complete({.qp = batch[i].qp, .id = r.id, .length = r.length, .missing = missing}, {});
    }
    port.poll_marks(marks);
    port.arrived({.qp = 16, .length = 1}, {});
    port.quiescent();
    port.flush({});
  }
  return 0;
}
