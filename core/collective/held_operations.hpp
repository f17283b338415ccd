// Operations whose every step is done while some of their writes are still on the way. An RDMA work
// request is complete when the peer's NIC has acknowledged it; until then a rank that went on to
// compute would leave its NIC sending, and the bytes would count as moved before they were.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "collective/communicator.hpp"

namespace loomnet {

class HeldOperations {
 public:
  // A member and the slots of the channel to it that have not completed, one bit each.
  using Wait = std::pair<GroupRank, std::uint64_t>;

  // `in_order`: finished in the order held, as a stream's collectives are.
  HeldOperations(Communicator& communicator, bool in_order) : communicator_(communicator), in_order_(in_order) {}

  // `waits` in order of members, none of them empty.
  void hold(OperationId id, OperationResult result, std::vector<Wait> waits) {
    held_.push_back({id, std::move(result), std::move(waits)});
    release();
  }
  // The write in `slot` towards `to` has completed.
  void on_sent(GroupRank to, unsigned slot) {
    bool any = false;
    for (Held& h : held_) {
      const auto at = std::lower_bound(h.waits.begin(), h.waits.end(), Wait{to, 0});
      if (at == h.waits.end() || at->first != to || (at->second >> slot & 1) == 0) continue;
      at->second &= ~(1ull << slot);
      h.sent += at->second == 0;
      any |= h.sent == h.waits.size();
    }
    if (any) release();
  }
  // Hands all of them to `finish`.
  template <typename F>
  void clear(F finish) {
    for (Held& h : held_) finish(h.id, h.result);
    held_.clear();
  }
  std::size_t size() const { return held_.size(); }
  bool holds(OperationId id) const {
    return std::any_of(held_.begin(), held_.end(), [id](const Held& h) { return h.id == id; });
  }

 private:
  struct Held {
    OperationId id;
    OperationResult result;
    std::vector<Wait> waits;
    std::size_t sent = 0;  // of `waits`, those with no slot left
  };
  void release() {
    for (std::size_t i = 0; i < held_.size();) {
      Held& h = held_[i];
      if (h.sent == h.waits.size()) {
        communicator_.finish(h.id, std::move(h.result));
        held_.erase(held_.begin() + static_cast<long>(i));
      } else if (in_order_) {
        return;
      } else {
        ++i;
      }
    }
  }

  Communicator& communicator_;
  bool in_order_;
  std::vector<Held> held_;
};

}  // namespace loomnet
