// What one host's job saw of the network: intervals with work outstanding, payload over time, and
// the silences in between. goodput_ratio and blip_s are computed from it.
#pragma once

#include <cstdint>
#include <vector>

#include "clock/time.hpp"

namespace loomnet {

// Begins and ends of operations may be told in any order, and later than they happened: a host hears of an end
// elsewhere a link delay late, and live ranks of one host report one after another. Payload is told when it comes.
class WorkMeter {
 public:
  struct Interval {
    Picoseconds begin, end;
  };
  // Finished operation: its payload bytes count as completed at `end`.
  struct Work {
    Picoseconds begin, end;
    std::uint64_t bytes;
  };

  explicit WorkMeter(Picoseconds bin = milliseconds(1)) : bin_(bin) {}
  // The most bins that are kept; further on they double in width.
  void limit(std::size_t bins) { most_bins_ = bins; }

  // One more operation is outstanding, since `at`. Operations may overlap; `busy()` is their union.
  void begin(Picoseconds at);
  // The one that began at `began` has finished at `at`, with `bytes` of payload moved for this host.
  void end(Picoseconds began, Picoseconds at, std::uint64_t bytes);
  // Payload reached this host.
  void payload(std::uint32_t bytes, Picoseconds now);
  // Counts what is outstanding as busy until now, at the end of a run.
  void close(Picoseconds now);

  bool outstanding() const { return !open_.empty(); }
  // Since when there has been work without a break, while some is outstanding.
  Picoseconds opened() const;
  // When the last payload came, when the last operation ended.
  Picoseconds last_payload() const { return last_payload_; }
  Picoseconds last_end() const { return last_end_; }
  std::uint64_t bytes() const { return bytes_; }
  // Union of the operations that have ended, in the order of time. Two that only touch stay apart.
  const std::vector<Interval>& busy() const { return busy_; }
  const std::vector<Work>& work() const { return work_; }
  // Silences longer than a tenth of a bin inside `busy()`, each from a payload (or the interval's begin)
  // to the next (or the interval's end).
  std::vector<Interval> silences() const;
  Picoseconds bin() const { return bin_; }
  // Payload bytes by bin, from time 0 up to the last bin that has some.
  std::vector<std::uint64_t> bins() const;

 private:
  struct Begun {
    Picoseconds at;
    std::uint32_t works;
  };
  // Bins first, first + 1, … are filled_[at], filled_[at + 1], … up to where the next run's begin.
  struct Run {
    std::size_t first, at;
  };
  static constexpr std::size_t kRoom = 2;  // empty bins that cost no more than a new run
  void add(std::size_t bin, std::uint64_t bytes);
  void double_bins();
  bool is_silence(Picoseconds begin, Picoseconds end) const { return (end - begin) * 10 > bin_; }
  void add_busy(Interval added);

  std::size_t most_bins_ = 1 << 20;  // then the bin doubles: a run may be long
  Picoseconds bin_;
  std::vector<Begun> open_;  // in the order of time
  Picoseconds last_payload_{}, last_end_{};
  std::uint64_t bytes_ = 0;
  std::vector<Interval> busy_;
  std::vector<Work> work_;
  std::vector<Interval> gaps_;  // long times from one payload to the next, whether or not work was outstanding
  // A host of a model computes for most of the time, so bins without payload are left out where they are many.
  std::vector<Run> runs_;
  std::vector<std::uint64_t> filled_;
};

}  // namespace loomnet
