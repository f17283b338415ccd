// Wake-ups, and what flows have measured at each; see episode.hpp.
#include "learning/episode.hpp"

#include <algorithm>
#include <stdexcept>

namespace loomnet {
namespace {
constexpr Picoseconds kLook = milliseconds(5);  // between two looks for a flow, as of Astraea's agent
}  // namespace

Episode::Episode(Network& network, std::vector<const FlowTraffic*> traffics, EpisodeOptions options)
    : network_(network), options_(std::move(options)) {
  for (const FlowTraffic* traffic : traffics) {
    for (std::size_t flow = 0; flow < traffic->flows(); ++flow) rows_.push_back({.traffic = traffic, .flow = flow});
  }
  if (options_.base_rtt_us.size() != rows_.size()) {
    throw std::invalid_argument("episode: " + std::to_string(rows_.size()) + " flows need as many base RTTs, not " +
                                std::to_string(options_.base_rtt_us.size()));
  }
  network_.count_losses(&losses_);
}

Episode::~Episode() { network_.count_losses(nullptr); }

Pupil* Episode::pupil(const Row& row) const {
  const FlowConfig& flow = row.traffic->flow(row.flow);
  return network_.nic(flow.source).pupil(flow.qp, 0);
}

Episode::Stand Episode::advance(Picoseconds until) {
  if (decided_) {
    for (Row& row : rows_) row.waits = row.born = row.left = false;
    decided_ = false;
  }
  while (network_.now() < until) {
    const Picoseconds step = std::min(wake_, kLook);
    const Picoseconds next = step * (network_.now() / step + 1);
    if (!network_.run_until(std::min(next, until))) return Stand::stopped;
    look();
    decided_ = somebody_waits();
    if (decided_) return Stand::decision;
  }
  return Stand::bound;
}

void Episode::look() {
  const Picoseconds now = network_.now();
  for (Row& row : rows_) {
    if (row.state == State::over) continue;
    const FlowResult& result = row.traffic->results()[row.flow];
    if (result.start > now) continue;
    if (row.state == State::unborn) row.born = true;
    row.state = result.end == kNever ? State::present : State::over;
    row.left = row.state == State::over;
    if (row.left) continue;
    const Pupil* seen = pupil(row);
    if (!seen) continue;
    if (seen->wake().count == 0) {
      throw std::invalid_argument("episode: a flow decides at any time; give its control a grid, wake_us");
    }
    wake_ = std::min(wake_, seen->wake());
    if (seen->interval().end == row.seen) continue;
    take(row, seen->interval());
    row.waits = seen->waits();
  }
}

void Episode::take(Row& row, const PupilInterval& interval) {
  const double lasted = (interval.end - interval.begin).seconds();
  const std::uint64_t dropped =
      losses_.bytes(static_cast<std::uint32_t>(row.traffic->job()), static_cast<std::uint32_t>(row.flow));
  row.terms[seconds] = lasted;
  row.terms[throughput_Bps] = interval.throughput_Bps;
  row.terms[rtt_us] = interval.rtt_us;
  row.terms[least_rtt_us] = interval.least_rtt_us;
  row.terms[loss_Bps] = interval.loss_Bps;
  row.terms[queue_loss_Bps] = lasted > 0 ? static_cast<double>(dropped - row.dropped) / lasted : 0;
  row.terms[pacing_Bps] = interval.pacing_Bps;
  row.terms[window_packets] = interval.window_packets;
  row.terms[most_throughput_Bps] = interval.most_throughput_Bps;
  row.seen = interval.end;
  row.dropped = dropped;
  if (row.throughput.size() == options_.reward.window) row.throughput.erase(row.throughput.begin());
  row.throughput.push_back(interval.throughput_Bps);
}

bool Episode::somebody_waits() const {
  return std::any_of(rows_.begin(), rows_.end(), [](const Row& row) { return row.waits; });
}

void Episode::act(std::size_t flow, double action) {
  Row& row = rows_.at(flow);
  if (!row.waits) throw std::logic_error("episode: flow " + std::to_string(flow) + " does not wait for an action");
  pupil(row)->act(action);
  row.waits = false;
}

std::span<const float> Episode::input(std::size_t flow) const {
  const Row& row = rows_.at(flow);
  if (row.state != State::present) return {};
  const Pupil* seen = pupil(row);
  return seen ? seen->input() : std::span<const float>();
}

double Episode::capacity_Bps() const {
  double found = options_.capacity_Bps;
  for (const CapacityChange& change : options_.changes) {
    if (change.at <= network_.now()) found = change.capacity_Bps;
  }
  return found;
}

std::vector<astraea::FlowStep> Episode::steps() const {
  std::vector<astraea::FlowStep> found;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    if (row.state != State::present || row.throughput.empty()) continue;
    found.push_back({.thr_Bps = row.throughput,
                     .avg_urtt_us = row.terms[rtt_us],
                     .base_rtt_us = options_.base_rtt_us[i],
                     .min_rtt_us = row.terms[least_rtt_us],
                     .pacing_Bps = row.terms[pacing_Bps],
                     .loss_Bps = row.terms[queue_loss_Bps],
                     .cwnd = row.terms[window_packets]});
  }
  return found;
}

std::array<float, astraea::kGlobalValues> Episode::global_state() const {
  return astraea::global_state(steps(), {capacity_Bps(), options_.buffer_bytes, false});
}

}  // namespace loomnet
