// Fuzzes the NIC's side of a rank's shared memory: whatever the rank wrote there, requests that get
// through lie inside its region and name a bound queue pair.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "rank/rank_port.hpp"

using namespace loomnet;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto memory = rank::Memory::create({.rank = 0, .world = 3, .submissions = 8, .completions = 8,
                                      .arrivals = 8, .marks = 8, .notices = 8,
                                      .staging_bytes = 4096});
  rank::WakeWord wake(memory.engine_words().rank_wake);
  RankPort port(memory, wake);
  port.bind(1, 0, 16);
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
    std::memcpy(memory.ring_entries(rank::kMarks) + slot * sizeof(rank::MarkEntry), data + at,
                sizeof(rank::MarkEntry));
    at += sizeof(rank::Submission);
    posted = posted + control % 4;
    marked = marked + control % 3;
    if (control == 255) memory.ring_words(rank::kCompletions)->consumed.value = data[at - 1];
    memory.rank_words().state = control;
    const std::size_t n = port.poll(batch);
    for (std::size_t i = 0; i < n; ++i) {
      const WorkRequest& r = batch[i].request;
      const auto* begin = reinterpret_cast<const std::uint8_t*>(memory.staging().data());
      if (batch[i].qp != 16) std::abort();
      if (r.local && (r.local < begin || r.local + r.length > begin + 4096)) std::abort();
      port.complete({.qp = 16, .id = r.id, .length = r.length}, {});
    }
    port.poll_marks(marks);
    port.arrived({.qp = 16, .length = 1}, {});
    port.quiescent();
    port.flush({});
  }
  return 0;
}
