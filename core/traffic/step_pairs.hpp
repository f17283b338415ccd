// Several queue pairs between two ranks. Each ring step takes the next one and renews it, as a collective
// library does that opens a connection for each message. Writes to a peer execute in the order of posting,
// also where several queue pairs carry them.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "nic/nic.hpp"

namespace loomnet {

// Queue pairs (numbers at the receiver) by which writes were posted, in order. Both ranks of a pair share
// one object per direction. It stands for the number that a library puts in its immediate.
struct PostingOrder {
  std::deque<QpNumber> posted;
};

// The sending half towards one peer.
class StepSender {
 public:
  // Of the queue pairs added, the first carries writes outside ring steps too.
  StepSender(Nic& nic, std::shared_ptr<PostingOrder> order) : nic_(nic), order_(std::move(order)) {}

  // A queue pair by its numbers at the sender and at the receiver.
  void add(QpNumber local, QpNumber remote) { pairs_.push_back({local, remote}); }
  // Posts the request, or keeps it until a queue pair is free for its ring step. Requests leave in order.
  void post(const WorkRequest& request, Picoseconds now);
  // A request by this queue pair has completed.
  void completed(QpNumber local, Picoseconds now);
  // Ring steps that began with a queue pair anew.
  std::uint64_t renewals() const { return renewals_; }

 private:
  struct Pair {
    QpNumber local = 0, remote = 0;
    std::uint32_t open = 0;  // requests posted and not completed
  };
  void pump(Picoseconds now);
  bool claim(const WorkRequest& request, Picoseconds now);

  Nic& nic_;
  std::shared_ptr<PostingOrder> order_;
  std::vector<Pair> pairs_;
  std::deque<WorkRequest> waiting_;
  std::size_t current_ = 0;  // that the ring step takes
  bool pumping_ = false;     // the NIC may complete a request inside post()
  std::optional<std::uint32_t> step_;
  std::uint64_t renewals_ = 0;
};

// The receiving half: hands arrivals on in the order of posting.
class StepReceiver {
 public:
  explicit StepReceiver(std::shared_ptr<PostingOrder> order) : order_(std::move(order)) {}

  void hold(const Arrival& arrival) { held_.push_back(arrival); }
  // The next arrival whose turn it is, if it has come.
  std::optional<Arrival> next();

 private:
  std::shared_ptr<PostingOrder> order_;
  std::vector<Arrival> held_;  // few: what one queue pair runs ahead of another
};

}  // namespace loomnet
