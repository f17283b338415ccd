// Bitmap of received PSNs; see receive_window.hpp.
#include "transport/mrc/receive_window.hpp"

namespace loomnet::mrc {

void ReceiveWindow::accept(PsnCount n, std::uint32_t mpr) {
  if (received_.empty()) {
    const std::size_t words = std::bit_ceil<std::size_t>(2 * mpr);
    received_.assign(words, 0);
    reported_.assign(words, 0);
  }
  max_ = std::max(max_, n);
  ring_set(received_, n);
  ++out_of_order_;
  while (true) {
    const std::uint64_t bits = ring_window(received_, cack_ + 1);
    const int run = std::countr_one(bits);
    for (int i = 1; i <= run; ++i) {
      ring_clear(received_, cack_ + static_cast<unsigned>(i));
      ring_clear(reported_, cack_ + static_cast<unsigned>(i));
    }
    cack_ += static_cast<unsigned>(run);
    out_of_order_ -= static_cast<std::uint32_t>(run);
    if (run < 64) return;
  }
}

PsnCount ReceiveWindow::lowest_unreported() const {
  for (PsnCount n = cack_ + 1; n <= max_; n += 64) {
    const std::uint64_t bits = ring_window(received_, n) & ~ring_window(reported_, n);
    if (bits) return n + static_cast<unsigned>(std::countr_zero(bits));
  }
  return max_ + 1;
}

ReceiveWindow::Sack ReceiveWindow::build(SackBase rule, PsnCount trigger, bool prompt) {
  Sack sack;
  sack.base = cack_ + 1;
  if (received_.empty() || max_ <= cack_) return sack;
  const auto back63 = [](PsnCount n) { return n - 63; };
  switch (rule) {
    case SackBase::covering:
      sack.base = std::max(cack_ + 1, std::min(back63(max_), lowest_unreported()));
      break;
    case SackBase::max:
      sack.base = std::max(cack_ + 1, back63(max_));
      break;
    case SackBase::trigger:
      sack.base = std::max(cack_ + 1, prompt ? trigger : back63(trigger));
      break;
  }
  // A ring of 128 * mpr bits is never read past max_: bits there belong to nothing.
  sack.bitmap = ring_window(received_, sack.base);
  if (max_ - sack.base < 63) sack.bitmap &= ~0ull >> (63 - (max_ - sack.base));
  if (sack.base > max_) sack.bitmap = 0;
  for (std::uint64_t bits = sack.bitmap; bits; bits &= bits - 1) {
    ring_set(reported_, sack.base + static_cast<unsigned>(std::countr_zero(bits)));
  }
  sack.more = rule == SackBase::covering && lowest_unreported() <= max_;
  return sack;
}

}  // namespace loomnet::mrc
