// A rank's buckets are operations of one communicator: over a ring they run one after another as on a stream of
// NCCL's; those that switches sum share the window of the rank's queue pair, in the order in which they came.
#include "traffic/executor_sums.hpp"

#include <deque>
#include <stdexcept>

namespace loomnet {

class ExecutorSums::Member final : private NicExecutor::Sink {
 public:
  Member(ExecutorSums& sums, Network& network, const NicExecutorConfig& config)
      : sums_(sums), rank_(config.rank), executor_(network, config, sums.layout_, *this) {}

  NicExecutor& executor() { return executor_; }

  void begin(const GradientBucket& bucket, Picoseconds now) {
    Operation op;
    op.collective = Collective::all_reduce;
    op.type = DataType::float32;
    op.count = bucket.bytes / element_size(op.type);
    op.attributes = bucket.attributes;
    op.cookie = bucket.number;
    if (sums_.payload_) {
      // Each bucket has other values than the one before.
      Tensors& own = open_.emplace_back();
      own.given = given_++;
      if (!spare_.empty()) {
        own.in = std::move(spare_.back().in);
        own.out = std::move(spare_.back().out);
        spare_.pop_back();
      }
      own.in.resize(op.count);
      own.out.assign(op.count, -1);
      sums_.values_.fill(own.in, rank_, own.given);
      op.input = Buffers(own.in.data());
      op.output = Buffers(own.out.data());
    }
    executor_.start(op, now);
  }

 private:
  struct Tensors {
    std::uint64_t given = 0;  // number of the bucket, over all iterations
    std::vector<std::int32_t> in, out;
  };

  void finished(const OperationResult& result, Picoseconds now) override {
    const bool ok = result.status == OperationStatus::ok;
    if (sums_.payload_) {  // operations end in their order
      Tensors& own = open_.front();
      if (ok) sums_.wrong_ += sums_.values_.wrong(own.out, own.given);
      spare_.push_back(std::move(own));  // new pages for each would hold up a run on the wall clock
      open_.pop_front();
    }
    if (ok) {
      sums_.sink().summed(rank_, static_cast<std::uint32_t>(result.cookie), now);
    } else {
      sums_.sink().failed(rank_, result.message, now);
    }
  }

  ExecutorSums& sums_;
  JobRank rank_;
  std::uint64_t given_ = 0;
  std::deque<Tensors> open_;
  std::vector<Tensors> spare_;
  NicExecutor executor_;
};

ExecutorSums::ExecutorSums(Network& network, const ExecutorSumsConfig& config)
    : layout_(staging_layout(config.hosts.size(), config.longest, config.slots, config.slot_payload, config.sums)),
      values_(config.hosts.size(), config.sums ? config.sums->scale : 0),
      payload_(config.payload) {
  if (config.hosts.size() < 2) throw std::invalid_argument("sums: hosts must be two or more");
  if (config.payload && !config.sums) throw std::invalid_argument("sums: payload goes with sums of switches");
  for (JobRank r = 0; r < config.hosts.size(); ++r) {
    members_.push_back(std::make_unique<Member>(*this, network,
                                                NicExecutorConfig{.job = config.job,
                                                                  .host = config.hosts[r],
                                                                  .rank = r,
                                                                  .payload = config.payload,
                                                                  .await_sends = config.await_sends}));
  }
}

ExecutorSums::~ExecutorSums() = default;

void ExecutorSums::set_queue_pair(JobRank rank, JobRank peer, QpNumber qp) {
  members_.at(rank)->executor().connect(peer, qp, members_.at(peer)->executor().staging_key());
}

void ExecutorSums::set_sum_pair(JobRank rank, QpNumber qp) { members_.at(rank)->executor().connect_sums(qp); }

void ExecutorSums::begin(JobRank rank, const GradientBucket& bucket, Picoseconds now) {
  members_.at(rank)->begin(bucket, now);
}

}  // namespace loomnet
