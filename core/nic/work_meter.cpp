// Book-keeping of work, payload and silence at one host.
#include "nic/work_meter.hpp"

#include <algorithm>

namespace loomnet {

void WorkMeter::begin(Picoseconds now) {
  if (open_++ > 0) return;
  if (!busy_.empty() && now < busy_.back().end) {
    opened_ = busy_.back().begin;
    busy_.pop_back();
    return;
  }
  opened_ = last_ = now;
}

void WorkMeter::end(Picoseconds began, Picoseconds now, std::uint64_t bytes) {
  if (open_ == 0) return;
  work_.push_back({began, now, bytes});
  last_end_ = std::max(last_end_, now);
  if (--open_ == 0) {
    silence(now);
    busy_.push_back({opened_, now});
  }
}

// What was closed since `at` is open again, as one interval.
void WorkMeter::begin_late(Picoseconds at) {
  if (open_++ == 0) {
    opened_ = at;
    if (busy_.empty() || at >= busy_.back().end) last_ = at;
  }
  opened_ = std::min(opened_, at);
  while (!busy_.empty() && opened_ < busy_.back().end) {
    opened_ = std::min(opened_, busy_.back().begin);
    latest_end_ = std::max(latest_end_, busy_.back().end);
    busy_.pop_back();
  }
}

void WorkMeter::end_late(Picoseconds began, Picoseconds at, std::uint64_t bytes) {
  if (open_ == 0) return;
  work_.push_back({began, at, bytes});
  last_end_ = std::max(last_end_, at);
  latest_end_ = std::max(latest_end_, at);
  if (--open_ > 0) return;
  silence(std::max(latest_end_, last_));
  busy_.push_back({opened_, latest_end_});
}

void WorkMeter::silence(Picoseconds now) {
  if ((now - last_) * 10 > bin_) silences_.push_back({last_, now});
  last_ = now;
}

void WorkMeter::payload(std::uint32_t bytes, Picoseconds now) {
  bytes_ += bytes;
  last_payload_ = now;
  if (open_ > 0) silence(now);
  auto index = static_cast<std::size_t>(now / bin_);
  while (index >= most_bins_) {
    for (std::size_t i = 0; i < bins_.size(); ++i) {
      const std::uint64_t value = bins_[i];
      bins_[i] = 0;
      bins_[i / 2] += value;
    }
    bins_.resize((bins_.size() + 1) / 2);
    bin_ = bin_ * 2;
    index /= 2;
  }
  if (index >= bins_.size()) bins_.resize(index + 1);
  bins_[index] += bytes;
}

void WorkMeter::close(Picoseconds now) {
  if (open_ == 0) return;
  silence(now);
  busy_.push_back({opened_, now});
  open_ = 0;
}

}  // namespace loomnet
