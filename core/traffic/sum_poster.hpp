// A rank's all-reduces through switches that sum, run inside the engine: tensors become requests of its
// queue pair of transport "ina", whose results come back into the rank's own memory.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "nic/nic.hpp"

namespace loomnet {

struct SumShape {
  std::uint32_t values = 256;  // int32 in a fragment
  std::uint32_t window = 256;  // fragments
  // Fragments carry block exponents, and BOOT fragments the first ones, as float tensors need them (SwitchML,
  // NSDI 2021, 3.7). Without: int32 tensors, or fixed-point ones.
  bool exponents = true;
  std::uint32_t members = 1, member = 0;
};

class SumPoster {
 public:
  // `client` owns the queue pair. `payload`: real int32, which are checked when they come back.
  SumPoster(Nic& nic, JobId job, ClientId client, QpNumber qp, const SumShape& shape, bool payload);
  ~SumPoster();
  SumPoster(const SumPoster&) = delete;
  SumPoster& operator=(const SumPoster&) = delete;

  QpNumber qp() const { return qp_; }
  // Sums `bytes` of this rank (a multiple of 4, at least 4) with as many of every other. Tensors are
  // summed in the order of the calls, which must be the same on all ranks. With payload element i of
  // member r is i + r + seed.
  void begin(std::uint64_t id, std::uint64_t bytes, const Attributes& attributes, std::int64_t seed,
             Picoseconds now);
  struct Ended {
    std::uint64_t id = 0;
    Status status = Status::ok;
    std::uint64_t wrong = 0;  // elements that differ from the sum of all members', and exponents
  };
  // Of this queue pair. Something, where the tensor has ended.
  std::optional<Ended> on_completion(const Completion& completion, Picoseconds now);

 private:
  struct Tensor {
    std::uint64_t id = 0, bytes = 0;
    std::int64_t seed = 0;
    Attributes attributes;
    std::uint32_t fragments = 0, boots = 0;
    std::uint32_t next = 0;    // data fragment of the next request
    std::uint32_t open = 0;    // requests posted and not complete
    bool booted = false;       // the BOOT request is complete, or there is none
    bool boot_posted = false;
    Status status = Status::ok;
    std::uint32_t key = 0;     // of `out`
    std::vector<std::uint8_t> in, out;
  };
  std::uint8_t exponent(std::uint64_t fragment, std::uint32_t member) const;
  void fill(Tensor& t);
  std::uint64_t wrong(const Tensor& t) const;
  void post(Tensor& t, std::uint64_t offset, std::uint32_t framing, std::uint64_t length, Picoseconds now);
  void pump(Picoseconds now);

  Nic& nic_;
  JobId job_;
  QpNumber qp_;
  SumShape shape_;
  bool payload_;
  std::uint32_t key_ = 0;        // lengths only: of memory that is not there
  std::deque<Tensor> tensors_;   // from the oldest that has not ended
  // Memory of tensors that have ended: new pages for each would hold up a run on the wall clock.
  std::vector<std::pair<std::vector<std::uint8_t>, std::vector<std::uint8_t>>> spare_;
};

}  // namespace loomnet
