// A job in memory: executors joined by queue pairs that keep order, in any interleaving a seed
// picks. Checks what a NIC would rely on: addresses, lengths, and slots unchanged until completion.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "clock/random.hpp"
#include "collective/communicator.hpp"
#include "collective/executor.hpp"
#include "collective/sum_network.hpp"

namespace loomnet::testing {

class World {
 public:
  struct Endpoint;

  World(std::uint32_t ranks, std::uint64_t seed, StagingConfig shape = {0, 3, 128, 8}, bool bytes = true)
      : layout_(with_ranks(shape, ranks)), random_(seed, 0, 0), bytes_(bytes), sums_(layout_) {
    for (JobRank r = 0; r < ranks; ++r) ends_.push_back(std::make_unique<Endpoint>(*this, r));
  }

  const StagingLayout& layout() const { return layout_; }
  CollectiveExecutor& at(JobRank r) { return *ends_[r]->executor; }
  RandomStream& random() { return random_; }

  void create(CommunicatorId id, const std::vector<JobRank>& members) {
    for (const JobRank r : members) at(r).create(id, members);
  }
  void create_all(CommunicatorId id) {
    std::vector<JobRank> members;
    for (JobRank r = 0; r < ends_.size(); ++r) members.push_back(r);
    create(id, members);
  }

  OperationId start(JobRank r, CommunicatorId id, Operation op) { return at(r).start(id, std::move(op)); }
  // Null while unfinished.
  const OperationResult* result(JobRank r, OperationId id) const {
    const auto it = ends_[r]->results.find(id.value);
    return it == ends_[r]->results.end() ? nullptr : &it->second;
  }
  const std::vector<std::uint64_t>& order(JobRank r) const { return ends_[r]->order; }

  // One random event; false when nothing is in flight.
  bool step() {
    const bool sums = !sums_.idle();
    if (sums && (busy_.empty() || random_.below(2) == 0)) {
      if (const auto done = sums_.step(random_)) at(done->rank).on_sum(done->id, WriteStatus::ok);
      return true;
    }
    if (busy_.empty()) return false;
    auto it = busy_.begin();
    std::advance(it, random_.below(static_cast<std::uint32_t>(busy_.size())));
    const std::pair<JobRank, JobRank> pair = *it;
    Pipe& pipe = pipes_[pair];
    const bool complete = pipe.posted.empty() || (!pipe.delivered.empty() && random_.below(3) == 0);
    std::deque<InFlight>& queue = complete ? pipe.delivered : pipe.posted;
    InFlight write = std::move(queue.front());
    queue.pop_front();
    if (complete) {
      if (write.write.local != nullptr) {
        EXPECT_EQ(0, std::memcmp(write.write.local, write.snapshot.data(), write.snapshot.size()))
            << "a send slot changed before its write completed";
      }
      if (pipe.posted.empty() && pipe.delivered.empty()) busy_.erase(pair);
      at(pair.first).on_completion(pair.second, write.write.id, WriteStatus::ok);
      return true;
    }
    const Missing missing = place(pair.first, pair.second, write);
    const Write w = write.write;
    pipe.delivered.push_back(std::move(write));
    at(pair.second).on_arrival(pair.first, w.immediate, w.length, missing);
    return true;
  }

  void run(std::uint64_t limit = 50'000'000) {
    while (limit-- > 0 && step()) {
    }
    EXPECT_TRUE(busy_.empty()) << "did not come to rest";
  }

  // Writes go in packets of so many bytes, and a third of the packets that may be lost are.
  void lose(std::uint32_t packet) { packet_ = packet; }
  std::uint64_t lost() const { return lost_; }

  // What rank `from` would send by hand: a misbehaving peer.
  void forge(JobRank from, JobRank to, std::uint32_t immediate, std::uint32_t length, const Missing& missing = {}) {
    at(to).on_arrival(from, immediate, length, missing);
  }
  std::uint8_t* staging(JobRank r) { return ends_[r]->staging.data(); }
  // Cuts one direction: what is in flight is lost and its writes fail.
  void break_pair(JobRank from, JobRank to) {
    Pipe& pipe = pipes_[{from, to}];
    const bool any = !pipe.posted.empty() || !pipe.delivered.empty();
    const std::uint64_t id = any ? (pipe.posted.empty() ? pipe.delivered : pipe.posted).front().write.id : 0;
    pipe.posted.clear();
    pipe.delivered.clear();
    busy_.erase({from, to});
    at(from).on_completion(to, id, WriteStatus::retry_exceeded);
  }
  std::uint64_t counter(JobRank r, std::string_view name) {
    std::vector<CollectiveCounter> all;
    at(r).counters(all);
    for (const CollectiveCounter& c : all) {
      if (c.name == name) return c.value;
    }
    ADD_FAILURE() << "no counter " << name;
    return 0;
  }
  SumNetwork& sums() { return sums_; }
  const std::vector<Write>& log(JobRank r) const { return ends_[r]->log; }
  void expect_quiet() {
    for (JobRank r = 0; r < ends_.size(); ++r) {
      EXPECT_TRUE(at(r).idle()) << "rank " << r;
      EXPECT_TRUE(at(r).quiescent()) << "rank " << r;
    }
  }

  struct Endpoint : Verbs, OperationSink {
    Endpoint(World& w, JobRank r) : world(w), rank(r) {
      if (w.bytes_) staging.resize(w.layout_.total_bytes());
      w.sums_.attach(r, staging.data());
      executor = std::make_unique<CollectiveExecutor>(w.layout_, r, w.bytes_ ? staging.data() : nullptr, *this, *this);
    }
    void post(JobRank peer, const Write& write) override { world.post(rank, peer, write); }
    void post_sum(const Sum& sum) override { world.sums_.post(rank, sum); }
    void finished(OperationId id, const OperationResult& result) override {
      EXPECT_TRUE(results.emplace(id.value, result).second) << "finished twice";
      order.push_back(result.cookie);
    }
    World& world;
    JobRank rank;
    std::vector<std::uint8_t> staging;
    std::map<std::uint64_t, OperationResult> results;
    std::vector<std::uint64_t> order;
    std::vector<Write> log;
    std::unique_ptr<CollectiveExecutor> executor;
  };

 private:
  struct InFlight {
    Write write;
    std::vector<std::uint8_t> snapshot;
  };
  struct Pipe {
    std::deque<InFlight> posted, delivered;
  };

  static StagingConfig with_ranks(StagingConfig shape, std::uint32_t ranks) {
    shape.ranks = ranks;
    return shape;
  }

  void post(JobRank from, JobRank to, const Write& write) {
    ASSERT_NE(from, to);
    ASSERT_LT(to, ends_.size());
    InFlight f{write, {}};
    if (write.length > 0) {
      ASSERT_GE(write.remote_offset, layout_.receive_row(from));
      ASSERT_LE(write.remote_offset + write.length, layout_.receive_row(from) + layout_.row_bytes());
      ASSERT_EQ(write.local != nullptr, bytes_);
      if (bytes_) f.snapshot.assign(write.local, write.local + write.length);
    }
    ends_[from]->log.push_back(write);
    pipes_[{from, to}].posted.push_back(std::move(f));
    busy_.insert({from, to});
  }

  Missing place(JobRank from, JobRank to, const InFlight& f) {
    (void)from;
    const Write& w = f.write;
    if (w.length == 0) return {};
    if (packet_ == 0 || w.attributes.loss_tolerance == 0) {
      if (bytes_) std::memcpy(ends_[to]->staging.data() + w.remote_offset, w.local, w.length);
      return {};
    }
    Missing missing = Missing::of(w.length, packet_);
    for (std::uint32_t at = 0; at < w.length; at += packet_) {
      const std::uint32_t bytes = std::min(packet_, w.length - at);
      if (attributes_at(w.attributes, w.framing, at).loss_tolerance > 0 && random_.below(3) == 0) {
        missing.add(at, bytes);
      } else if (bytes_) {
        std::memcpy(ends_[to]->staging.data() + w.remote_offset + at, w.local + at, bytes);
      }
    }
    lost_ += missing.bytes;
    return missing;
  }

  StagingLayout layout_;
  RandomStream random_;
  bool bytes_;
  SumNetwork sums_;
  std::uint32_t packet_ = 0;
  std::uint64_t lost_ = 0;
  std::vector<std::unique_ptr<Endpoint>> ends_;
  std::map<std::pair<JobRank, JobRank>, Pipe> pipes_;
  std::set<std::pair<JobRank, JobRank>> busy_;
};

template <typename T>
Buffers buffer(std::vector<T>& v) {
  return v.empty() ? Buffers() : Buffers(static_cast<void*>(v.data()));
}

}  // namespace loomnet::testing
