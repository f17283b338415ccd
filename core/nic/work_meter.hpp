// What one host's job saw of the network: intervals with work outstanding, payload over time, and
// the silences in between. goodput_ratio and blip_s are computed from it.
#pragma once

#include <cstdint>
#include <vector>

#include "clock/time.hpp"

namespace loomnet {

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

  // One more operation is outstanding, since `now` or, where a host is told of it later, since a time
  // before the last end. Operations may overlap; `busy()` is their union.
  void begin(Picoseconds now);
  // One that began at `began` has finished with `bytes` of payload moved for this host.
  void end(Picoseconds began, Picoseconds now, std::uint64_t bytes);
  // The same for a host whose ranks report one after another. A rank reports what it did before, so these
  // times may lie before those of earlier calls.
  void begin_late(Picoseconds at);
  void end_late(Picoseconds began, Picoseconds at, std::uint64_t bytes);
  // Payload reached this host.
  void payload(std::uint32_t bytes, Picoseconds now);
  // Closes the open interval, at the end of a run.
  void close(Picoseconds now);

  bool outstanding() const { return open_ > 0; }
  // Since when the outstanding work has been; when the last payload came, when the last operation ended.
  Picoseconds opened() const { return opened_; }
  Picoseconds last_payload() const { return last_payload_; }
  Picoseconds last_end() const { return last_end_; }
  std::uint64_t bytes() const { return bytes_; }
  const std::vector<Interval>& busy() const { return busy_; }
  const std::vector<Work>& work() const { return work_; }
  // Silences longer than a tenth of a bin while work was outstanding, each from the last payload
  // (or the start of the work) to the next (or its end).
  const std::vector<Interval>& silences() const { return silences_; }
  Picoseconds bin() const { return bin_; }
  const std::vector<std::uint64_t>& bins() const { return bins_; }

 private:
  std::size_t most_bins_ = 1 << 20;  // then the bin doubles: a run may be long
  void silence(Picoseconds now);

  Picoseconds bin_;
  std::uint32_t open_ = 0;
  Picoseconds opened_{};
  Picoseconds latest_end_{};  // of work that was heard late
  Picoseconds last_{};
  Picoseconds last_payload_{}, last_end_{};
  std::uint64_t bytes_ = 0;
  std::vector<Interval> busy_;
  std::vector<Work> work_;
  std::vector<Interval> silences_;
  std::vector<std::uint64_t> bins_;
};

}  // namespace loomnet
