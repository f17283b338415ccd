// What Astraea's policy sees of a flow: measurements of one interval, the frame of features that they
// become, and the history of frames. Liao et al., "Towards Fair and Efficient Learning-based Congestion
// Control", EuroSys 2024. Training, virtual runs and the agent of the kernel's TCP all use this file, so
// that a policy meets the inputs that it was trained on.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace loomnet::astraea {

// One interval of a flow. Windows count packets; rates are payload bytes per second.
struct Measured {
  double avg_thr_Bps = 0;   // mean of the delivery-rate samples in the interval; 0: none
  double avg_urtt_us = 0;   // mean of the RTT samples in the interval; 0: none
  double srtt_x8_us = 0;    // smoothed RTT, times 8 as Linux stores it; 0: no sample yet
  double loss_Bps = 0;      // bytes newly taken for lost, over the interval's length
  double packets_out = 0;   // sent and not acknowledged in order, at the last acknowledgement
  double retrans_out = 0;   // retransmitted packets in flight
  double cwnd = 0;          // the window now
  double pacing_Bps = 0;    // bytes of packets, headers included, per second; 0: not paced
  // Of aurora3 alone, and counted where the sender is a model.
  double rtt_slope = 0;        // of the RTT samples over time; 0: fewer than two
  double sent_bytes = 0;       // sent in the interval, retransmissions too
  double delivered_bytes = 0;  // acknowledged in the interval, in order or not
};

// The extremes that features are relative to (extremes.hpp); 0: unknown.
struct Range {
  double max_tput_Bps = 0;  // the largest avg_thr_Bps, this interval's included
  double min_rtt_us = 0;    // the least RTT sample
};

// The numbers are those of the policy file.
enum class FeatureSet : std::uint16_t {
  astraea10 = 1,  // the publication's ten features
  ours11 = 2,     // absolute scales as logarithms, and the flow's own packets in the queue
  rel8 = 3,       // without absolute scales: flows cannot tell a large share from a small one
  aurora3 = 4,    // latency inflation, latency ratio and send ratio of Jay et al., ICML 2019
};
inline constexpr std::size_t kMostFeatures = 11;
inline constexpr std::array kFeatureSets = {FeatureSet::astraea10, FeatureSet::ours11, FeatureSet::rel8,
                                            FeatureSet::aurora3};
std::string_view to_string(FeatureSet set);
std::string names_of_sets();  // "astraea10, ours11, …"
std::size_t features_of(FeatureSet set);  // per frame

// A flow's own packets in queues, by the inflation of its round trips; 0 without an RTT sample.
double queue_packets(const Measured& m, const Range& range);

// Writes features_of(set) values to the front of `out`, which must hold as many.
void frame(FeatureSet set, const Measured& m, const Range& range, std::span<float> out);

// How many intervals back the frames of an input lie; 1 is the interval that has just ended.
enum class Spacing : std::uint8_t {
  every,    // 1, 2, 3, 4, 5 …
  doubled,  // 1, 2, 4, 8, 16 …: a longer memory in as many inputs
};
inline constexpr std::size_t kMostFrames = 16;  // of `every`
inline constexpr std::size_t kMostDoubled = 6;  // 1 … 32

// The frames that a policy's input is made of. Frames before the flow's first are zeros.
class History {
 public:
  // Throws std::invalid_argument for a number of frames that the spacing does not have.
  History(FeatureSet set, std::size_t frames, Spacing spacing = Spacing::every);
  void push(const Measured& m, const Range& range);
  // The input of a policy, features x frames, the newest frame last.
  std::span<const float> input() const { return input_; }
  std::span<const float> newest() const { return std::span(input_).last(width_); }

 private:
  FeatureSet set_;
  std::size_t width_, frames_;
  Spacing spacing_;
  std::size_t next_ = 0;        // row of `kept_` that the next frame goes to
  std::vector<float> kept_;     // a ring of frames, as deep as the oldest that is asked for
  std::vector<float> input_;
};

}  // namespace loomnet::astraea
