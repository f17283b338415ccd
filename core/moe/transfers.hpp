// Sends bytes from one host to another by a queue pair. Only a few writes are outstanding at a time, so that bytes which
// are not posted yet can be taken back and sent another way.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/network.hpp"

namespace loomnet::moe {

struct Way {
  NodeId source = 0, destination = 0;
  QpNumber qp = 0;  // the source's
};

using TransferId = std::uint32_t;

class Transfers {
 public:
  class Sink {
   public:
    virtual ~Sink() = default;
    virtual void arrived(std::uint64_t cookie, std::uint64_t bytes, Picoseconds now) = 0;  // at the destination
    // All bytes are acknowledged to the sender; the transfer's number may be used again.
    virtual void closed(TransferId transfer, std::uint64_t cookie, Picoseconds now) = 0;
    virtual void failed(std::uint64_t cookie, Status status, Picoseconds now) = 0;
  };
  struct Options {
    JobId job{};
    std::uint32_t message = 1 << 20;  // bytes of a write
    unsigned depth = 4;  // writes outstanding
  };

  // Throws std::invalid_argument.
  Transfers(Network& network, const Options& options);
  ~Transfers();

  // Results of the way's queue pair go to this job from now on.
  void own(const Way& way);
  // `bytes` above 0.
  TransferId start(const Way& way, std::uint64_t bytes, Sink& sink, std::uint64_t cookie, Picoseconds now);
  // Takes the bytes that are not posted yet off the transfer, and returns how many they are.
  std::uint64_t take_back(TransferId transfer);
  WorkMeter& meter(NodeId host) { return network_.nic(host).meter(options_.job); }

 private:
  class Client;
  struct Transfer {
    Way way;
    std::uint64_t bytes = 0, posted = 0, arrived = 0, acked = 0;
    Sink* sink = nullptr;  // null: the slot is free
    std::uint64_t cookie = 0;
  };
  Client& client(NodeId host);
  void pump(TransferId transfer, Picoseconds now);
  void arrived(TransferId transfer, std::uint32_t bytes, Picoseconds now);
  void completed(TransferId transfer, const Completion& completion, Picoseconds now);
  void close(TransferId transfer, Picoseconds now);

  Network& network_;
  Options options_;
  std::vector<std::unique_ptr<Client>> clients_;  // by node, sparse
  std::vector<Transfer> transfers_;
  std::vector<TransferId> free_;
};

}  // namespace loomnet::moe
