// What a faulty link does to a packet on its way: loss (random or in bursts), duplication,
// corruption, reordering, and delays that vary without it. All draws come from the link's own stream.
#pragma once

#include "clock/random.hpp"
#include "clock/time.hpp"

namespace loomnet {

struct Impairment {
  double loss = 0;         // share of packets lost in silence
  double burst = 1;        // mean packets per loss burst; 1 = independent losses
  double duplicate = 0;    // share sent twice
  double corrupt = 0;      // share damaged: the receiver's FCS check drops them
  double reorder = 0;      // share that takes up to `jitter` longer
  Picoseconds jitter{};
  // Packets keep their order: each takes up to `wander` longer, and those that would arrive within one of the slots of
  // this length, counted from when the impairment began, all arrive at its end.
  Picoseconds wander{}, slot{};

  bool in_order() const { return wander.count > 0 || slot.count > 0; }
  bool any() const { return loss > 0 || duplicate > 0 || corrupt > 0 || reorder > 0 || in_order(); }
};

// Two-state loss (Gilbert): every packet in the bad state is lost, mean sojourn `burst` packets,
// and the stationary share of the bad state is `loss`.
class LossProcess {
 public:
  bool lose(const Impairment& model, RandomStream& random) {
    if (model.loss <= 0) return false;
    if (model.burst <= 1) return random.uniform() < model.loss;
    const double leave_bad = 1.0 / model.burst;
    const double enter_bad = model.loss >= 1 ? 1.0 : leave_bad * model.loss / (1 - model.loss);
    bad_ = bad_ ? random.uniform() >= leave_bad : random.uniform() < enter_bad;
    return bad_;
  }

 private:
  bool bad_ = false;
};

}  // namespace loomnet
