// The rate's cuts and raises; see dcqcn.hpp.
#include "transport/roce/dcqcn.hpp"

#include <algorithm>

namespace loomnet::roce {

Dcqcn::Dcqcn(const DcqcnOptions& options)
    : options_(&options),
      rate_(static_cast<double>(options.line_rate)),
      target_(static_cast<double>(options.line_rate)) {}

void Dcqcn::on_cnp(Picoseconds now) {
  advance(now);
  if (!limited_) alpha_ = 1;  // a fresh limiter, as after a long time without congestion
  limited_ = true;
  target_ = rate_;
  rate_ = std::max(rate_ * (1 - alpha_ / 2), static_cast<double>(options_->minimum_rate));
  alpha_ = (1 - options_->g) * alpha_ + options_->g;
  by_time_ = by_bytes_ = 0;
  bytes_ = 0;
  alpha_due_ = now + options_->alpha_timer;
  raise_due_ = now + options_->rate_timer;
}

void Dcqcn::on_sent(std::uint32_t bytes, Picoseconds now) {
  if (!limited_) return;
  advance(now);
  bytes_ += bytes;
  if (bytes_ >= options_->byte_counter) {
    bytes_ -= options_->byte_counter;
    ++by_bytes_;
    raise();
  }
  const double gap = static_cast<double>(bytes) * 8e12 / rate_;
  next_send_ = std::max(next_send_, now) + Picoseconds{static_cast<std::int64_t>(gap)};
}

void Dcqcn::advance(Picoseconds now) {
  while (limited_ && std::min(alpha_due_, raise_due_) <= now) {
    if (alpha_due_ <= raise_due_) {
      alpha_ *= 1 - options_->g;
      alpha_due_ += options_->alpha_timer;
    } else {
      ++by_time_;
      raise_due_ += options_->rate_timer;
      raise();
    }
  }
}

void Dcqcn::raise() {
  const auto line = static_cast<double>(options_->line_rate);
  const std::uint32_t most = std::max(by_time_, by_bytes_), least = std::min(by_time_, by_bytes_);
  if (least > options_->fast_recovery) {
    target_ += static_cast<double>(options_->hyper_rate) * (least - options_->fast_recovery);
  } else if (most > options_->fast_recovery) {
    target_ += static_cast<double>(options_->additive_rate);
  }
  target_ = std::min(target_, line);
  rate_ = std::min((rate_ + target_) / 2, line);
  // Within a thousandth of the line the limiter is let go, as a NIC frees it.
  if (target_ >= line && rate_ > 0.999 * line) {
    limited_ = false;
    rate_ = target_ = line;
  }
}

}  // namespace loomnet::roce
