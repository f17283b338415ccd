// All buckets of a rank that are there share the window of its queue pair, in the order in which they came.
#include "traffic/switch_sums.hpp"

#include <stdexcept>

#include "traffic/sum_client.hpp"

namespace loomnet {

class SwitchSums::Member final : private SumClient::Sink {
 public:
  Member(SwitchSums& sums, JobRank rank, QpNumber qp)
      : sums_(sums), rank_(rank),
        client_(sums.network_.nic(sums.config_.hosts[rank]), sums.config_.job, qp, shape(sums, rank),
                sums.config_.payload, *this) {}

  void begin(const GradientBucket& bucket, Picoseconds now) {
    // With payload each bucket has other values than the one before.
    client_.poster().begin(bucket.number, bucket.bytes, bucket.attributes, given_++, now);
  }

 private:
  static SumShape shape(const SwitchSums& sums, JobRank rank) {
    SumShape own = sums.config_.shape;
    own.members = static_cast<std::uint32_t>(sums.config_.hosts.size());
    own.member = rank;
    return own;
  }

  void ended(const SumPoster::Ended& tensor, Picoseconds now) override {
    sums_.wrong_ += tensor.wrong;
    if (tensor.status == Status::ok) {
      sums_.sink().summed(rank_, static_cast<std::uint32_t>(tensor.id), now);
    } else {
      sums_.sink().failed(rank_, "the sum failed: " + std::string(to_string(tensor.status)), now);
    }
  }

  SwitchSums& sums_;
  JobRank rank_;
  std::int64_t given_ = 0;
  SumClient client_;
};

SwitchSums::SwitchSums(Network& network, const SwitchSumsConfig& config)
    : network_(network), config_(config), members_(config.hosts.size()) {
  if (config.hosts.size() < 2) throw std::invalid_argument("sums: hosts must be two or more");
}

SwitchSums::~SwitchSums() = default;

void SwitchSums::set_sum_pair(JobRank rank, QpNumber qp) {
  members_.at(rank) = std::make_unique<Member>(*this, rank, qp);
}

void SwitchSums::begin(JobRank rank, const GradientBucket& bucket, Picoseconds now) {
  members_.at(rank)->begin(bucket, now);
}

}  // namespace loomnet
