// Members of a collective job: an executor each, on its host's emulated NIC.
#include "traffic/collective_traffic.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "traffic/nic_executor.hpp"
#include "traffic/sum_client.hpp"

namespace loomnet {

class CollectiveTraffic::Member final : private NicExecutor::Sink, private SumClient::Sink {
 public:
  Member(CollectiveTraffic& job, JobRank rank)
      : job_(job),
        rank_(rank),
        nic_(job.network_.nic(job.config_.hosts[rank])),
        meter_(nic_.meter(job.config_.job)),
        executor_(job.network_,
                  {.job = job.config_.job, .host = job.config_.hosts[rank], .rank = rank,
                   .payload = job.config_.payload, .await_sends = job.config_.await_sends},
                  job.layout_, *this) {}

  NicExecutor& executor() { return executor_; }
  void set_sum_pair(QpNumber qp) {
    SumShape shape = *job_.config_.sums;
    shape.members = static_cast<std::uint32_t>(job_.config_.hosts.size());
    shape.member = rank_;
    sums_ = std::make_unique<SumClient>(nic_, job_.config_.job, qp, shape, job_.config_.payload,
                                        static_cast<SumClient::Sink&>(*this));
  }
  const std::vector<Iteration>& iterations() const { return iterations_; }

  void begin(Picoseconds now) {
    began_ = now;
    meter_.begin(now);
    if (Tap* tap = job_.network_.tap()) [[unlikely]] {
      const auto number = static_cast<std::uint32_t>(iterations_.size());
      tap->work_begins(nic_.host(), {to_string(job_.config_.collective), number, 0, number, 1,
                                    static_cast<std::uint32_t>(job_.config_.job)}, now);
    }
    if (sums_) {
      const auto repeat = static_cast<std::int64_t>(iterations_.size());
      Attributes attributes = job_.config_.attributes;
      attributes.sequence = static_cast<std::uint32_t>(repeat);  // as an executor counts its operations
      sums_->poster().begin(iterations_.size(), job_.config_.bytes / 4 * 4, attributes, repeat, now);
      return;
    }
    executor_.start(operation(), now);
  }

 private:
  bool shifted() const { return job_.config_.shift != 0; }
  JobRank sender() const {
    const auto n = static_cast<JobRank>(job_.config_.hosts.size());
    return (rank_ + n - job_.config_.shift) % n;
  }

  // Integers whose sum over ranks is known: element i of rank r in repeat k is i + r + k.
  Operation operation() {
    const auto n = static_cast<std::uint64_t>(job_.config_.hosts.size());
    Operation op;
    op.collective = job_.config_.collective;
    op.type = DataType::int32;
    op.attributes = job_.config_.attributes;
    const std::uint64_t total = job_.config_.bytes / 4;
    const bool blocks = !shifted() && (op.collective == Collective::all_to_all ||
                                       op.collective == Collective::all_gather ||
                                       op.collective == Collective::reduce_scatter);
    op.count = blocks ? total / n : total;
    if (op.collective == Collective::barrier) op.count = 0;
    if (shifted()) {
      op.input_counts.assign(n, 0);
      op.output_counts.assign(n, 0);
      op.input_counts[(rank_ + job_.config_.shift) % n] = total;
      op.output_counts[sender()] = total;
    }
    if (job_.config_.payload && op.count) {
      const std::uint64_t in = op.collective == Collective::all_gather ? op.count : blocks ? op.count * n : total;
      const std::uint64_t out = op.collective == Collective::reduce_scatter ? op.count : blocks ? op.count * n : total;
      input_.resize(in);
      output_.assign(out, -1);
      for (std::uint64_t i = 0; i < in; ++i) {
        input_[i] = static_cast<std::int32_t>(i + rank_ + iterations_.size());
      }
      op.input = Buffers(input_.data());
      op.output = Buffers(output_.data());
      // Broadcast: only the root has an input, only the others an output; reduce: the reverse.
      const bool root = rank_ == op.root;
      if (op.collective == Collective::broadcast) (root ? op.output : op.input) = Buffers{};
      if (op.collective == Collective::reduce && !root) op.output = Buffers{};
      if (op.output.parts.empty()) output_.clear();
    }
    return op;
  }

  void check() {
    if (!job_.config_.payload) return;
    const auto n = static_cast<std::int64_t>(job_.config_.hosts.size());
    const auto k = static_cast<std::int64_t>(iterations_.size());
    const auto count = static_cast<std::int64_t>(output_.size());
    const std::int64_t block = count / n;
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t expected = 0;
      switch (job_.config_.collective) {
        case Collective::all_reduce:
        case Collective::reduce: expected = n * (i + k) + n * (n - 1) / 2; break;
        case Collective::broadcast: expected = i + k; break;  // of rank 0
        case Collective::reduce_scatter: expected = n * (i + rank_ * count + k) + n * (n - 1) / 2; break;
        case Collective::all_gather: expected = i % block + i / block + k; break;
        case Collective::all_to_all:
          expected = shifted() ? i + sender() + k : rank_ * block + i % block + i / block + k;
          break;
        default: continue;
      }
      job_.wrong_ += output_[i] != static_cast<std::int32_t>(expected);
    }
  }

  void ended(const SumPoster::Ended& tensor, Picoseconds now) override {
    job_.wrong_ += tensor.wrong;
    OperationResult result;
    if (tensor.status != Status::ok) {
      result.status = OperationStatus::peer_failed;
      result.message = "the sum failed: " + std::string(to_string(tensor.status));
    } else {
      result.received.expected = result.received.delivered = job_.config_.bytes;
    }
    finished(result, now);
  }

  void finished(const OperationResult& result, Picoseconds now) override {
    if (Tap* tap = job_.network_.tap()) [[unlikely]] {
      tap->work_ends(nic_.host(), static_cast<std::uint32_t>(job_.config_.job), iterations_.size(),
                     job_.config_.bytes, result.status == OperationStatus::ok, now);
    }
    meter_.end(began_, now, result.status == OperationStatus::ok ? job_.config_.bytes : 0);
    if (result.status != OperationStatus::ok) {
      job_.failures_.push_back({rank_, now, result.message});
      ++job_.finished_;
      job_.network_.events().stop();
      return;
    }
    job_.expected_bytes_ += result.received.expected;
    job_.delivered_bytes_ += result.received.delivered;
    if (!sums_) check();
    iterations_.push_back({began_, now});
    if (rank_ == 0) job_.network_.events().stop();  // run_until returns after every iteration
    const std::size_t k = iterations_.size() - 1;
    const Picoseconds gap = k < job_.config_.gaps.size() ? job_.config_.gaps[k] : job_.config_.compute;
    // All ranks take part in a repeat or none: the rank that is first through one decides whether
    // the next begins before `stop`. A rank behind it is never the one to begin a repeat.
    if (iterations_.size() > job_.decided_) {
      job_.decided_ = static_cast<std::uint32_t>(iterations_.size());
      if (now + gap >= job_.config_.stop) job_.rounds_ = std::min(job_.rounds_, job_.decided_);
    }
    if (iterations_.size() == job_.rounds_) {
      if (++job_.finished_ == job_.members_.size()) job_.network_.events().stop();
      return;
    }
    job_.network_.events().schedule(now + gap, job_.id_, rank_);
  }

  CollectiveTraffic& job_;
  JobRank rank_;
  Nic& nic_;
  WorkMeter& meter_;
  NicExecutor executor_;
  std::unique_ptr<SumClient> sums_;
  std::vector<std::int32_t> input_, output_;
  std::vector<Iteration> iterations_;
  Picoseconds began_{};
};

namespace {

constexpr std::uint64_t kMostSummedPayload = 512u << 20;

}  // namespace

CollectiveTraffic::CollectiveTraffic(Network& network, const CollectiveTrafficConfig& config)
    : network_(network),
      config_(config),
      layout_(staging_layout(config.hosts.size(), config.bytes, config.slots, config.slot_payload)),
      id_(network.events().add(*this)),
      rounds_(config.repeat) {
  if (config.hosts.size() < 2) throw std::invalid_argument("collective: hosts must be two or more");
  if (config.shift != 0 && (config.collective != Collective::all_to_all ||
                            config.shift >= config.hosts.size())) {
    throw std::invalid_argument("collective: shift goes with all_to_all, and to another rank");
  }
  if (config.stop <= config.start) throw std::invalid_argument("collective: stop must be after start");
  if (config.sums && config.collective != Collective::all_reduce) {
    throw std::invalid_argument("collective: sums go with all_reduce");
  }
  if (config.sums && config.payload && config.bytes > kMostSummedPayload) {
    throw std::invalid_argument("collective: sums with payload take 512 MiB at most");
  }
  if (config.sums && config.bytes < 4) throw std::invalid_argument("collective: sums need 4 bytes or more");
  if (config.repeat == 0) throw std::invalid_argument("collective: repeat must be 1 or more");
  network.forbid_lookahead();  // an iteration's end stops the run and is told to all ranks
  for (JobRank r = 0; r < config.hosts.size(); ++r) members_.push_back(std::make_unique<Member>(*this, r));
}

CollectiveTraffic::~CollectiveTraffic() = default;

std::uint32_t CollectiveTraffic::staging_key(JobRank rank) const {
  return members_.at(rank)->executor().staging_key();
}

void CollectiveTraffic::set_queue_pair(JobRank rank, JobRank peer, QpNumber qp) {
  members_.at(rank)->executor().connect(peer, qp, staging_key(peer));
}

void CollectiveTraffic::set_sum_pair(JobRank rank, QpNumber qp) { members_.at(rank)->set_sum_pair(qp); }

void CollectiveTraffic::start() {
  for (JobRank r = 0; r < members_.size(); ++r) network_.events().schedule(config_.start, id_, r);
}

const std::vector<CollectiveTraffic::Iteration>& CollectiveTraffic::iterations(JobRank rank) const {
  return members_.at(rank)->iterations();
}

void CollectiveTraffic::on_event(std::uint64_t what, Picoseconds now) { members_[what]->begin(now); }

}  // namespace loomnet
