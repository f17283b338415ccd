// A network that sums, in memory: fragment n of every rank is part of the same sum. Results come in any order
// that a seed picks, within the window. It checks what a NIC would rely on: requests and results inside the
// area for sums, and bytes unchanged until completion.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <vector>

#include "clock/random.hpp"
#include "collective/staging.hpp"
#include "collective/verbs.hpp"

namespace loomnet::testing {

class SumNetwork {
 public:
  SumNetwork(const StagingLayout& layout) : layout_(layout), ranks_(layout.ranks()) {}

  void attach(JobRank rank, std::uint8_t* staging) { ranks_[rank].staging = staging; }

  void post(JobRank rank, const Sum& sum) {
    Rank& r = ranks_[rank];
    const auto offset = static_cast<std::uint64_t>(sum.local - r.staging);
    const std::uint64_t begin = layout_.sums_at(), end = layout_.total_bytes();
    ASSERT_GE(offset, begin);
    ASSERT_LE(offset + sum.length, end);
    ASSERT_GE(sum.result_offset, begin);
    ASSERT_LE(sum.result_offset + sum.length, end);
    ASSERT_LE(sum.framing, sum.length);
    ASSERT_EQ((sum.length - sum.framing) % 4, 0u);
    const std::uint32_t bytes = 4 * layout_.config().sum_values, values = sum.length - sum.framing;
    Request request{sum, std::vector<std::uint8_t>(sum.local, sum.local + sum.length), r.fragments.size(), 0, 0};
    request.fragments = values == 0 ? sum.framing : (values + bytes - 1) / bytes;
    ASSERT_GT(request.fragments, 0u);
    if (sum.framing != 0) {
      ASSERT_GE(sum.framing, request.fragments);
    }
    for (std::uint32_t d = 0; d < request.fragments; ++d) {
      const std::uint32_t at = values == 0 ? 0 : d * bytes;
      r.fragments.push_back({r.posted, d, sum.framing + at, values == 0 ? 0 : std::min(bytes, values - at), false});
    }
    log.push_back({rank, sum});
    ++r.posted;
    r.requests.push_back(std::move(request));
    admit(r);
  }

  // Fragments whose result can be given to a rank now.
  bool idle() {
    for (Rank& r : ranks_) {
      if (!r.done.empty()) return false;
      for (const std::size_t n : r.open) {
        if (ready(n)) return false;
      }
    }
    return true;
  }

  struct Completed {
    JobRank rank = 0;
    std::uint64_t id = 0;
  };
  // One event, chosen by `random`: a result is placed, or a request completes (returned).
  std::optional<Completed> step(RandomStream& random) {
    std::vector<std::pair<JobRank, std::size_t>> results;
    std::vector<JobRank> completions;
    for (JobRank k = 0; k < ranks_.size(); ++k) {
      if (!ranks_[k].done.empty()) completions.push_back(k);
      std::size_t seen = 0;
      for (const std::size_t n : ranks_[k].open) {
        if (ready(n)) results.emplace_back(k, n);
        if (++seen == 8) break;
      }
    }
    const std::size_t events = results.size() + completions.size();
    if (events == 0) return std::nullopt;
    const std::size_t pick = random.below(static_cast<std::uint32_t>(events));
    if (pick < results.size()) {
      place(results[pick].first, results[pick].second);
      return std::nullopt;
    }
    const JobRank k = completions[pick - results.size()];
    const std::uint64_t id = ranks_[k].done.front();
    ranks_[k].done.pop_front();
    return Completed{k, id};
  }

  // From now on, before this rank's next result: bits of the sum's words flip.
  void corrupt(std::uint32_t bits) { corrupt_ = bits; }
  // Sums stop at the ends of an int32 and say so, instead of wrapping.
  void saturate() { saturates_ = true; }
  // Requests complete when their own results are there, as those of several servers do.
  void in_any_order() { any_order_ = true; }
  // Requests that completed before an older one.
  std::size_t passed_by() const { return passed_by_; }
  std::size_t most_under_way() const { return most_under_way_; }
  std::uint64_t fragments(JobRank rank) const { return ranks_[rank].fragments.size(); }

  struct Entry {
    JobRank rank;
    Sum sum;
  };
  std::vector<Entry> log;

 private:
  struct Fragment {
    std::size_t request;
    std::uint32_t number;  // in the request
    std::uint32_t at;      // first byte of its values in the request
    std::uint32_t bytes;   // of values
    bool held;
  };
  struct Request {
    Sum sum;
    std::vector<std::uint8_t> snapshot;
    std::size_t first;
    std::uint32_t fragments, held;
  };
  struct Rank {
    std::uint8_t* staging = nullptr;
    std::vector<Fragment> fragments;
    std::vector<Request> requests;
    std::size_t posted = 0, completed = 0;
    std::size_t base = 0, sent = 0;     // fragments: oldest without a result; next to be sent
    std::set<std::size_t> open;         // sent and without a result
    std::deque<std::uint64_t> done;
  };

  void admit(Rank& r) {
    while (r.sent < r.fragments.size() && r.sent < r.base + layout_.config().sum_window) r.open.insert(r.sent++);
    most_under_way_ = std::max(most_under_way_, r.open.size());
  }

  bool ready(std::size_t n) const {
    const Rank& one = ranks_[0];
    for (const Rank& r : ranks_) {
      if (r.sent <= n) return false;
      // Packets of different shapes never make a result.
      if (r.fragments[n].bytes != one.fragments[n].bytes) return false;
      if (r.requests[r.fragments[n].request].sum.floats != one.requests[one.fragments[n].request].sum.floats)
        return false;
    }
    return true;
  }

  void place(JobRank rank, std::size_t n) {
    Rank& r = ranks_[rank];
    const Fragment& own = r.fragments[n];
    Request& request = r.requests[own.request];
    EXPECT_EQ(0, std::memcmp(request.sum.local, request.snapshot.data(), request.snapshot.size()))
        << "a request changed before it completed";
    std::vector<std::uint32_t> sum(own.bytes / 4);
    std::vector<std::int64_t> exact(sum.size());
    std::int8_t exponent = -127;
    bool framed = false, finite = true;
    for (const Rank& each : ranks_) {
      const Fragment& part = each.fragments[n];
      const Request& of = each.requests[part.request];
      if (of.sum.framing != 0) {
        framed = true;
        const auto e = static_cast<std::int8_t>(of.snapshot[part.number]);
        finite = finite && e != Sum::kNotFinite;
        exponent = std::max(exponent, e);
      }
      for (std::size_t i = 0; i < sum.size(); ++i) {
        std::uint32_t word;
        std::memcpy(&word, of.snapshot.data() + part.at + 4 * i, 4);
        sum[i] += word;
        exact[i] += static_cast<std::int32_t>(word);
      }
    }
    for (std::size_t i = 0; request.sum.floats && i < sum.size(); ++i) {
      float total = 0;
      for (const Rank& each : ranks_) {
        const Fragment& part = each.fragments[n];
        float value;
        std::memcpy(&value, each.requests[part.request].snapshot.data() + part.at + 4 * i, 4);
        total += value;
      }
      sum[i] = std::bit_cast<std::uint32_t>(total);
    }
    for (std::size_t i = 0; saturates_ && !request.sum.floats && i < sum.size(); ++i) {
      const std::int64_t in = std::clamp<std::int64_t>(exact[i], INT32_MIN, INT32_MAX);
      sum[i] = static_cast<std::uint32_t>(in);
      if (in != exact[i]) exponent = Sum::kOverflowed;
    }
    if (corrupt_ != 0 && !sum.empty()) sum[0] ^= std::exchange(corrupt_, 0);
    std::uint8_t* to = r.staging + request.sum.result_offset;
    if (framed && request.sum.framing != 0)
      to[own.number] = static_cast<std::uint8_t>(finite ? exponent : Sum::kNotFinite);
    if (!sum.empty()) std::memcpy(to + own.at, sum.data(), own.bytes);
    r.open.erase(n);
    r.fragments[n].held = true;
    while (r.base < r.fragments.size() && r.fragments[r.base].held) ++r.base;
    ++request.held;
    if (any_order_ && request.held == request.fragments) {
      r.done.push_back(request.sum.id);
      passed_by_ += r.completed != own.request;
      while (r.completed < r.requests.size() && r.requests[r.completed].held == r.requests[r.completed].fragments)
        ++r.completed;
    }
    while (!any_order_ && r.completed < r.requests.size() &&
           r.requests[r.completed].held == r.requests[r.completed].fragments) {
      r.done.push_back(r.requests[r.completed++].sum.id);
    }
    admit(r);
  }

  StagingLayout layout_;
  std::vector<Rank> ranks_;
  std::uint32_t corrupt_ = 0;
  bool saturates_ = false, any_order_ = false;
  std::size_t most_under_way_ = 0, passed_by_ = 0;
};

}  // namespace loomnet::testing
