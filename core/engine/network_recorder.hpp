// The recorder of one network: a tap from construction to destruction, with captures of its ports.
#pragma once

#include <string>
#include <vector>

#include "engine/network.hpp"
#include "trace/recorder.hpp"

namespace loomnet {

class NetworkRecorder {
 public:
  // Throws std::invalid_argument for a network that has a tap already.
  NetworkRecorder(Network& network, const RecorderConfig& config);
  ~NetworkRecorder();
  NetworkRecorder(const NetworkRecorder&) = delete;

  // Captures the port that the half-link (2 * link, + 1 for the way back) leaves from. Returns the
  // capture's number; the calls below throw std::invalid_argument for one that is not there.
  std::size_t capture(std::uint32_t half, const std::string& interface, const std::string& description);
  // pcapng bytes since the last call, in order of time, of packets before `slack` ago.
  std::string take(std::size_t capture, Picoseconds slack);
  // The last bytes of a capture, which ends.
  std::string finish(std::size_t capture);
  std::uint64_t packets(std::size_t capture) { return at(capture).packets(); }
  Recorder& recorder() { return recorder_; }
  Network& network() { return network_; }

 private:
  PortCapture& at(std::size_t capture);

  Network& network_;
  Recorder recorder_;
  std::vector<PortCapture*> captures_;  // by number; null: it has ended
};

}  // namespace loomnet
