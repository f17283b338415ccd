// A flow for which somebody outside decides now and then: a learner, which sees what the flow has measured
// and answers with a number.
#pragma once

#include <span>

#include "clock/time.hpp"

namespace loomnet {

// What a flow has measured between two decisions. Rates are payload bytes per second, but for the pacing,
// which counts headers and is what the window gives where a flow is not paced; 0 is no sample.
struct PupilInterval {
  Picoseconds begin{}, end{};
  double throughput_Bps = 0;   // mean of the delivery-rate samples
  double rtt_us = 0;           // mean of the RTT samples
  double least_rtt_us = 0;     // the least that the control remembers
  double loss_Bps = 0;         // taken for lost by the sender, whatever lost it
  double pacing_Bps = 0;
  double window_packets = 0;   // as it was during the interval
  double most_throughput_Bps = 0;  // the largest of an interval that the control remembers
};

class Pupil {
 public:
  // Whether an interval has ended for which nobody has acted. Window and rate stay as they are until then.
  virtual bool waits() const = 0;
  // Intervals end at multiples of this time; 0: at any time.
  virtual Picoseconds wake() const = 0;
  // Of the last interval; `end` is 0 before there is one.
  virtual const PupilInterval& interval() const = 0;
  // What a policy sees, of the last interval and of some before.
  virtual std::span<const float> input() const = 0;
  // The decision, -1 to 1. Throws std::logic_error where nobody waits, std::invalid_argument for a number
  // that is not finite or lies outside.
  virtual void act(double action) = 0;

 protected:
  ~Pupil() = default;
};

}  // namespace loomnet
