// A rank's buckets are operations of one communicator, which run one after another as on a stream of NCCL's.
#include "traffic/ring_sums.hpp"

#include <stdexcept>

#include "traffic/nic_executor.hpp"

namespace loomnet {

class RingSums::Member final : private NicExecutor::Sink {
 public:
  Member(RingSums& sums, Network& network, const NicExecutorConfig& config)
      : sums_(sums), rank_(config.rank), executor_(network, config, sums.layout_, *this) {}

  NicExecutor& executor() { return executor_; }

 private:
  void finished(const OperationResult& result, Picoseconds now) override {
    if (result.status == OperationStatus::ok) {
      sums_.sink().summed(rank_, static_cast<std::uint32_t>(result.cookie), now);
    } else {
      sums_.sink().failed(rank_, result.message, now);
    }
  }

  RingSums& sums_;
  JobRank rank_;
  NicExecutor executor_;
};

RingSums::RingSums(Network& network, const RingSumsConfig& config)
    : layout_(staging_layout(config.hosts.size(), config.longest, config.slots, config.slot_payload)) {
  if (config.hosts.size() < 2) throw std::invalid_argument("sums: hosts must be two or more");
  for (JobRank r = 0; r < config.hosts.size(); ++r) {
    members_.push_back(std::make_unique<Member>(
        *this, network,
        NicExecutorConfig{.job = config.job, .host = config.hosts[r], .rank = r, .await_sends = config.await_sends}));
  }
}

RingSums::~RingSums() = default;

void RingSums::set_queue_pair(JobRank rank, JobRank peer, QpNumber qp) {
  members_.at(rank)->executor().connect(peer, qp, members_.at(peer)->executor().staging_key());
}

void RingSums::begin(JobRank rank, const GradientBucket& bucket, Picoseconds now) {
  Operation op;
  op.collective = Collective::all_reduce;
  op.type = DataType::float32;
  op.count = bucket.bytes / element_size(op.type);
  op.attributes = bucket.attributes;
  op.cookie = bucket.number;
  members_.at(rank)->executor().start(op, now);
}

}  // namespace loomnet
