// Hangs a recorder on a network and keeps its captures by number.
#include "engine/network_recorder.hpp"

#include <memory>
#include <stdexcept>

namespace loomnet {

NetworkRecorder::NetworkRecorder(Network& network, const RecorderConfig& config)
    : network_(network), recorder_(config) {
  if (network.tap()) throw std::invalid_argument("recorder: the network has one already");
  network.set_tap(&recorder_, config.timeline);
}

NetworkRecorder::~NetworkRecorder() { network_.set_tap(nullptr, false); }

std::size_t NetworkRecorder::capture(std::uint32_t half, const std::string& interface, const std::string& description) {
  const LinkId link = half / 2;
  if (link >= network_.links()) throw std::invalid_argument("recorder: no such link");
  const bool forward = half % 2 == 0;
  const auto [first, second] = network_.ends(link);
  const Endpoint end = forward ? first : second, far = forward ? second : first;
  captures_.push_back(
      &recorder_.capture(half, half ^ 1u,
                         std::make_unique<PortCapture>(end.node, end.port, network_.half(link, forward),
                                                       port_address(far.node, far.port), interface, description)));
  network_.watch(link);
  return captures_.size() - 1;
}

std::string NetworkRecorder::take(std::size_t capture, Picoseconds slack) {
  return at(capture).take(network_.now(), slack);
}

std::string NetworkRecorder::finish(std::size_t capture) {
  std::string rest = at(capture).finish(network_.now());
  recorder_.remove(at(capture));
  captures_[capture] = nullptr;
  return rest;
}

PortCapture& NetworkRecorder::at(std::size_t capture) {
  if (capture >= captures_.size() || !captures_[capture]) {
    throw std::invalid_argument("recorder: no such capture");
  }
  return *captures_[capture];
}

}  // namespace loomnet
