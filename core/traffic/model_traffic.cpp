// Ranks of a model job. Each rank has compute times of its own; the sums alone make ranks wait for one another.
#include "traffic/model_traffic.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "clock/random.hpp"

namespace loomnet {
namespace {

constexpr std::uint64_t kModelJitter = 0x6d6f64656c6a6f62;  // purpose of the random streams here

Picoseconds share_of(Picoseconds time, double share) { return {std::llround(static_cast<double>(time.count) * share)}; }
Picoseconds part_of(Picoseconds time, std::uint64_t part, std::uint64_t whole) {
  return {static_cast<std::int64_t>(static_cast<__int128>(time.count) * part / whole)};
}

}  // namespace

class ModelTraffic::Rank {
 public:
  Rank(ModelTraffic& job, JobRank rank)
      : job_(job),
        rank_(rank),
        nic_(job.network_.nic(job.config_.hosts[rank])),
        meter_(nic_.meter(job.config_.job)),
        jitter_(hash_key(job.network_.seed(), static_cast<std::uint64_t>(job.config_.job), kModelJitter), rank, 0),
        pace_(job.config_.compute),
        given_(job.config_.buckets.size(), kNotGiven) {}

  const std::vector<Iteration>& iterations() const { return iterations_; }
  const std::vector<Picoseconds>& computed() const { return computed_; }
  bool failed() const { return failed_; }

  void begin(Picoseconds now) {
    const ModelTrafficConfig& c = job_.config_;
    began_ = now;
    const double factor = 1 + c.jitter * (2 * jitter_.uniform() - 1);
    compute_ = c.jitter > 0 ? share_of(c.compute, factor) : c.compute;
    computed_.push_back(compute_);
    forward_ = share_of(compute_, c.forward);
    open_ = next_ = static_cast<std::uint32_t>(c.buckets.size());
    urgency_ = {.remaining_s = pace_.remaining_s(c.iterations - static_cast<std::uint32_t>(iterations_.size()),
                                                 c.stop == kNever ? kNever : c.stop - now),
                .communication_ratio = pace_.communication_ratio(job_.bytes_, c.link),
                .layers = next_};
    schedule_next();
  }

  // Backward has produced the gradients of the next bucket.
  void produced(Picoseconds now) {
    if (failed_) return;
    const std::uint32_t number = --next_;
    GradientBucket bucket{number, job_.config_.buckets[number], {}};
    bucket.attributes.layer = static_cast<std::uint16_t>(number);
    bucket.attributes.priority = priority(number, now);
    const std::uint64_t work = work_number(number);
    bucket.attributes.sequence = static_cast<std::uint32_t>(work);
    given_[number] = now;
    meter_.begin(now);
    if (Tap* tap = job_.network_.tap()) [[unlikely]] {
      tap->work_begins(nic_.host(),
                       {to_string(Collective::all_reduce), work, 0, bucket.attributes.sequence, 1,
                        static_cast<std::uint32_t>(job_.config_.job)},
                       now);
    }
    // Before begin(): it may call summed(), which ends the iteration.
    if (number > 0) schedule_next();
    job_.sums_.begin(rank_, bucket, now);
  }

  void summed(std::uint32_t number, Picoseconds now) {
    if (failed_) return;
    end_work(number, true, now);
    if (--open_ > 0) return;
    iterations_.push_back({began_, now});
    pace_.computed(compute_);
    pace_.iterated(now - began_);
    if (rank_ == 0) job_.network_.iteration_ended(job_.config_.job);
    // All ranks take part in an iteration or none: the rank that is first through one decides whether the
    // next begins before `stop`.
    if (iterations_.size() > job_.decided_) {
      job_.decided_ = static_cast<std::uint32_t>(iterations_.size());
      if (now >= job_.config_.stop) job_.rounds_ = std::min(job_.rounds_, job_.decided_);
    }
    if (iterations_.size() == job_.rounds_) {
      job_.ended_ = now;
      if (++job_.finished_ == job_.ranks_.size()) job_.network_.job_ended(job_.config_.job);
      return;
    }
    job_.network_.events().schedule(now, job_.id_, kBegin + rank_);
  }

  void fail(const std::string& reason, Picoseconds now) {
    if (failed_) return;
    failed_ = true;
    for (std::uint32_t number = 0; number < given_.size(); ++number) {
      if (given_[number] != kNotGiven) end_work(number, false, now);
    }
    job_.failures_.push_back({rank_, now, reason});
    job_.ended_ = now;
    ++job_.finished_;
    job_.network_.job_ended(job_.config_.job);
  }

 private:
  static constexpr Picoseconds kNotGiven = kNever;

  void schedule_next() {
    const Picoseconds backward = part_of(compute_ - forward_, job_.from_back_[next_ - 1], job_.bytes_);
    job_.network_.events().schedule(began_ + forward_ + backward, job_.id_, rank_);
  }

  std::uint8_t priority(std::uint32_t number, Picoseconds now) {
    urgency_.layer = number;
    const auto iteration = static_cast<std::uint32_t>(iterations_.size());
    if (!job_.config_.ask) {
      return priority_of(job_.config_.priority, urgency_,
                         {job_.network_.seed(), static_cast<std::uint32_t>(job_.config_.job), iteration});
    }
    const double over = compute_.count > 0 ? (now - began_).seconds() / compute_.seconds() : 1;
    return job_.config_.ask({rank_, iteration + 1, std::min(over, 1.0), job_.config_.buckets[number], urgency_});
  }

  // Number of a bucket of this iteration among all buckets of the rank, in the order of begin().
  std::uint64_t work_number(std::uint32_t number) const {
    return (iterations_.size() + 1) * given_.size() - 1 - number;
  }

  void end_work(std::uint32_t number, bool ok, Picoseconds now) {
    const std::uint64_t bytes = job_.config_.buckets[number];
    if (Tap* tap = job_.network_.tap()) [[unlikely]] {
      tap->work_ends(nic_.host(), static_cast<std::uint32_t>(job_.config_.job), work_number(number), bytes, ok, now);
    }
    meter_.end(given_[number], now, ok ? bytes : 0);
    given_[number] = kNotGiven;
  }

  ModelTraffic& job_;
  JobRank rank_;
  Nic& nic_;
  WorkMeter& meter_;
  RandomStream jitter_;
  JobPace pace_;
  Urgency urgency_;
  Picoseconds began_{}, compute_{}, forward_{};
  std::uint32_t next_ = 0;  // number of this iteration's buckets that backward has not produced yet
  std::uint32_t open_ = 0;  // number of this iteration's buckets without a sum
  std::vector<Picoseconds> given_;  // by bucket: time of begin(); kNotGiven before it and after the sum
  std::vector<Iteration> iterations_;
  std::vector<Picoseconds> computed_;
  bool failed_ = false;
};

ModelTraffic::ModelTraffic(Network& network, BucketSums& sums, const ModelTrafficConfig& config)
    : network_(network), sums_(sums), config_(config), id_(network.events().add(*this)), rounds_(config.iterations) {
  network.forbid_lookahead();  // ranks of several hosts begin a sum together
  if (config.hosts.size() < 2) throw std::invalid_argument("model: hosts must be two or more");
  if (config.iterations == 0) throw std::invalid_argument("model: iterations must be 1 or more");
  if (config.stop <= config.start) throw std::invalid_argument("model: stop must be after start");
  if (config.compute.count < 0) throw std::invalid_argument("model: compute must not be negative");
  if (!(config.forward >= 0 && config.forward <= 1)) throw std::invalid_argument("model: forward must be 0 to 1");
  if (!(config.jitter >= 0 && config.jitter < 1))
    throw std::invalid_argument("model: jitter must be 0 or more, below 1");
  if (config.link.count == 0) throw std::invalid_argument("model: link must be above 0");
  if (config.buckets.empty() || config.buckets.size() >= kNoLayer) {
    throw std::invalid_argument("model: buckets must be 1 to 65534");
  }
  from_back_.resize(config.buckets.size());
  for (std::size_t i = config.buckets.size(); i-- > 0;) {
    if (config.buckets[i] == 0 || config.buckets[i] % 4 != 0) {
      throw std::invalid_argument("model: buckets must be multiples of 4 bytes, above 0");
    }
    bytes_ += config.buckets[i];
    from_back_[i] = bytes_;
  }
  network.forbid_lookahead();  // an iteration's end stops the run and is told to all ranks
  sums.tell(*this);
  for (JobRank r = 0; r < config.hosts.size(); ++r) ranks_.push_back(std::make_unique<Rank>(*this, r));
}

ModelTraffic::~ModelTraffic() = default;

void ModelTraffic::start() {
  for (JobRank r = 0; r < ranks_.size(); ++r) network_.events().schedule(config_.start, id_, kBegin + r);
}

const std::vector<ModelTraffic::Iteration>& ModelTraffic::iterations(JobRank rank) const {
  return ranks_.at(rank)->iterations();
}
const std::vector<Picoseconds>& ModelTraffic::computed(JobRank rank) const { return ranks_.at(rank)->computed(); }

void ModelTraffic::on_event(std::uint64_t what, Picoseconds now) {
  Rank& rank = *ranks_[what & (kBegin - 1)];
  if (what & kBegin) {
    rank.begin(now);
  } else {
    rank.produced(now);
  }
}

void ModelTraffic::summed(JobRank rank, std::uint32_t number, Picoseconds now) { ranks_.at(rank)->summed(number, now); }
void ModelTraffic::failed(JobRank rank, const std::string& reason, Picoseconds now) {
  ranks_.at(rank)->fail(reason, now);
}

}  // namespace loomnet
