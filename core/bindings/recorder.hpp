// A recorder on a network, as Python holds it.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/network.hpp"
#include "trace/recorder.hpp"

namespace loomnet {

class NetworkRecorder {
 public:
  NetworkRecorder(Network& network, const RecorderConfig& config)
      : network_(network), recorder_(config) {
    if (network.tap()) throw std::invalid_argument("recorder: the network has one already");
    network.set_tap(&recorder_, config.timeline);
  }
  ~NetworkRecorder() { network_.set_tap(nullptr, false); }
  NetworkRecorder(const NetworkRecorder&) = delete;

  // Captures the port that the half-link (2 * link, + 1 for the way back) leaves from.
  std::size_t capture(std::uint32_t half, const std::string& interface,
                      const std::string& description) {
    const LinkId link = half / 2;
    if (link >= network_.links()) throw std::invalid_argument("recorder: no such link");
    const bool forward = half % 2 == 0;
    const auto [first, second] = network_.ends(link);
    const Endpoint end = forward ? first : second;
    captures_.push_back(&recorder_.capture(
        half, half ^ 1u,
        std::make_unique<PortCapture>(end.node, end.port, network_.half(link, forward), interface,
                                      description)));
    network_.watch(link);
    return captures_.size() - 1;
  }
  std::string take(std::size_t capture, Picoseconds slack) {
    return at(capture).take(network_.now(), slack);
  }
  // The last bytes of a capture, which ends.
  std::string finish(std::size_t capture) {
    std::string rest = at(capture).finish(network_.now());
    recorder_.remove(at(capture));
    captures_[capture] = nullptr;
    return rest;
  }
  std::uint64_t packets(std::size_t capture) { return at(capture).packets(); }
  Recorder& recorder() { return recorder_; }
  Network& network() { return network_; }

 private:
  PortCapture& at(std::size_t capture) {
    if (capture >= captures_.size() || !captures_[capture]) {
      throw std::invalid_argument("recorder: no such capture");
    }
    return *captures_[capture];
  }
  Network& network_;
  Recorder recorder_;
  std::vector<PortCapture*> captures_;
};

}  // namespace loomnet
