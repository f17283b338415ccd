// Carriers of hosts' interfaces, which go and come with a panel's light. A thread of its own asks the kernel: an
// interface that goes down costs a grace period of RCU, tenths of a millisecond, which the live loop may not wait.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "live/lateness.hpp"
#include "live/live_fabric.hpp"
#include "live/worker.hpp"

namespace loomnet {

class HostCarriers {
 public:
  // `realtime`: the thread has the live loop's priority, so that a machine's other work does not hold it up.
  HostCarriers(LiveFabric& fabric, bool realtime) : fabric_(fabric), realtime_(realtime) {}
  ~HostCarriers() { stop(); }
  HostCarriers(const HostCarriers&) = delete;

  // Notes what has changed at this wall time; flush() hands it to the thread. One caller at a time.
  void set(const CarrierChange& change, std::int64_t wall);
  // What was noted since the last call is one batch, and batches are carried out in their order. A carrier that
  // goes and comes at once is in two of them, so that it is seen to go.
  void flush();
  // Returns when the kernel has taken all. Idempotent.
  void stop() {
    if (worker_) worker_->stop();
  }

  // After stop(). Of each batch, the wall time from its first change of light to the kernel's answer that all
  // its carriers have changed. Batches in which a carrier goes are apart from those that only bring carriers.
  LatenessSummary taken_down() const { return down_.summary(); }
  LatenessSummary taken_up() const { return up_.summary(); }
  std::string failure() const { return worker_ ? worker_->failure() : std::string(); }

 private:
  struct Noted {
    CarrierChange change;
    std::int64_t wall;
  };
  LiveFabric& fabric_;
  bool realtime_;
  std::vector<Noted> noted_;
  LatenessHistogram down_, up_;     // the thread's, until stop()
  std::unique_ptr<Worker> worker_;  // null: no carrier has changed yet. Last: it uses the others
};

}  // namespace loomnet
