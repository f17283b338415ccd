// The queue pairs by which a rank has its part in sums: one for each parameter server of its job. Requests take them
// in turn, as keys are dealt to servers modulo their number (ATP, Lao et al., NSDI 2021).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace loomnet {

class SumPairs {
 public:
  using QpNumber = std::uint32_t;
  void add(QpNumber qp) { pairs_.push_back({qp, 0}); }
  bool empty() const { return pairs_.empty(); }
  bool has(QpNumber qp) const {
    return std::any_of(pairs_.begin(), pairs_.end(), [qp](const Pair& each) { return each.qp == qp; });
  }
  // The queue pair of the next request. `first` says whether the request is the first of its tensor, and then whether
  // it is the tensor's first one there. All ranks post the same requests in the same order, so all deal alike.
  QpNumber deal(bool& first) {
    tensors_ += first;
    Pair& pair = pairs_[next_];
    next_ = (next_ + 1) % pairs_.size();
    first = pair.tensor != tensors_;
    pair.tensor = tensors_;
    return pair.qp;
  }

 private:
  struct Pair {
    QpNumber qp;
    std::uint64_t tensor;  // of its latest request
  };
  std::vector<Pair> pairs_;
  std::size_t next_ = 0;
  std::uint64_t tensors_ = 0;
};

}  // namespace loomnet
