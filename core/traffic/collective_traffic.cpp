// Members of a collective job: an executor each, on its host's emulated NIC.
#include "traffic/collective_traffic.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <stdexcept>

#include "clock/random.hpp"
#include "packet/step_stamp.hpp"

namespace loomnet {

namespace {

constexpr std::uint64_t kStepPurpose = 0x73746570;  // "step"
constexpr std::uint32_t kMostIncarnations = (kMaxCommunicatorId + 1) / kRingsPerJob;

bool rings(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::all_gather;
}

}  // namespace

class CollectiveTraffic::Member final {
 public:
  Member(CollectiveTraffic& job, JobRank rank)
      : job_(job), rank_(rank), nic_(job.network_.nic(job.config_.hosts[rank])), meter_(nic_.meter(job.config_.job)) {
    for (std::uint32_t c = 0; c < job.config_.channels; ++c) channels_.push_back(std::make_unique<Channel>(*this, c));
  }

  NicExecutor& executor(std::uint32_t channel) { return channels_.at(channel)->executor; }
  // The rank's compute between two steps of this ring is over.
  void computed(std::uint32_t number, Picoseconds now) {
    Channel& channel = *channels_[number];
    const auto [step, incarnation] = channel.computing.front();
    channel.computing.pop_front();
    if (incarnation != channel.incarnation) return;  // a step of the communicator before
    channel.executor.release_steps(step + 2, now);   // the step behind it may leave
  }
  const std::vector<Iteration>& iterations() const { return iterations_; }

  void begin(Picoseconds now) {
    began_ = now;
    meter_.begin(now);
    if (Tap* tap = job_.network_.tap()) [[unlikely]] {
      const auto number = static_cast<std::uint32_t>(iterations_.size());
      tap->work_begins(
          nic_.host(),
          {to_string(job_.config_.collective), number, 0, number, 1, static_cast<std::uint32_t>(job_.config_.job)},
          now);
    }
    const std::uint32_t every = job_.config_.renew_every;
    const std::uint64_t repeat = iterations_.size();
    if (every > 0 && repeat > 0 && repeat % every == 0) {
      const auto incarnation = static_cast<std::uint32_t>(repeat / every);
      for (const auto& channel : channels_) {
        channel->incarnation = incarnation;
        channel->executor.remake(channel->number + incarnation * kRingsPerJob, now);
      }
    }
    open_ = static_cast<std::uint32_t>(channels_.size());
    total_ = {};
    fill();
    for (const auto& channel : channels_) channel->executor.start(operation(channel->number), now);
  }

 private:
  // One ring of the job, or all of it.
  struct Channel final : NicExecutor::Sink {
    Channel(Member& of, std::uint32_t n)
        : member(of),
          number(n),
          compute(hash_key(of.job_.network_.seed(), static_cast<std::uint64_t>(of.job_.config_.job), kStepPurpose),
                  of.rank_, n),
          executor(of.job_.network_,
                   {.job = of.job_.config_.job,
                    .host = of.job_.config_.hosts[of.rank_],
                    .rank = of.rank_,
                    .payload = of.job_.config_.payload,
                    .await_sends = of.job_.config_.await_sends,
                    .communicator = n,
                    .rings = of.job_.rings_},
                   of.job_.layout_, static_cast<NicExecutor::Sink&>(*this)) {}
    void finished(const OperationResult& result, Picoseconds now) override { member.channel_finished(result, now); }
    void step_received(std::uint32_t step, Picoseconds now) override { member.step_received(*this, step, now); }

    Member& member;
    std::uint32_t number;
    RandomStream compute;          // times that the rank computes between two steps
    Picoseconds computes_until{};  // those that have been drawn
    std::uint32_t incarnation = 0;  // of the communicator
    // Steps that the rank has received and not computed yet, each with its communicator's incarnation.
    std::deque<std::pair<std::uint32_t, std::uint32_t>> computing;
    NicExecutor executor;
  };

  void step_received(Channel& channel, std::uint32_t step, Picoseconds now) {
    job_.steps_.add({rank_, channel.number, step, now});
    const Picoseconds mean = job_.config_.step_compute;
    if (mean.count == 0) return;
    // A rank computes for one step after the other.
    const double time = -std::log(1 - channel.compute.uniform()) * static_cast<double>(mean.count);
    channel.computes_until = std::max(channel.computes_until, now) + Picoseconds{static_cast<std::int64_t>(time)};
    channel.computing.emplace_back(step, channel.incarnation);
    job_.network_.events().schedule(channel.computes_until, job_.id_,
                                    kRelease | std::uint64_t{channel.number} << 32 | rank_);
  }

  void channel_finished(const OperationResult& result, Picoseconds now) {
    if (open_ == 0) return;  // another channel has failed
    total_.received.add(result.received);
    if (result.status != OperationStatus::ok) {
      total_.status = result.status;
      total_.message = result.message;
      open_ = 1;
    }
    if (--open_ == 0) finished(total_, now);
  }

  bool shifted() const { return job_.config_.shift != 0; }
  JobRank sender() const {
    const auto n = static_cast<JobRank>(job_.config_.hosts.size());
    return (rank_ + n - job_.config_.shift) % n;
  }

  bool blocks() const {
    const Collective c = job_.config_.collective;
    return !shifted() &&
           (c == Collective::all_to_all || c == Collective::all_gather || c == Collective::reduce_scatter);
  }
  // Elements of a rank's tensor or, where it has a block for each rank, of a block.
  std::uint64_t elements() const {
    const std::uint64_t total = job_.config_.bytes / 4;
    if (job_.config_.collective == Collective::barrier) return 0;
    return blocks() ? total / job_.config_.hosts.size() : total;
  }

  // Integers whose sum over ranks is known: element i of rank r in repeat k is i + r + k. Sums in the network are of
  // floats.
  void fill() {
    const std::uint64_t count = elements();
    if (!job_.config_.payload || count == 0) return;
    const Collective c = job_.config_.collective;
    const std::uint64_t n = blocks() ? job_.config_.hosts.size() : 1;
    input_.resize(c == Collective::all_gather ? count : count * n);
    output_.assign(c == Collective::reduce_scatter ? count : count * n, -1);
    if (job_.config_.sums) return job_.values_.fill(input_, rank_, iterations_.size());
    for (std::uint64_t i = 0; i < input_.size(); ++i) {
      input_[i] = static_cast<std::int32_t>(i + rank_ + iterations_.size());
    }
  }

  // The part of the repeat that goes by this channel: its share of the tensor, or of each rank's block.
  Operation operation(std::uint32_t channel) {
    const auto n = static_cast<std::uint64_t>(job_.config_.hosts.size());
    Operation op;
    op.collective = job_.config_.collective;
    op.type = job_.config_.sums ? DataType::float32 : DataType::int32;
    op.attributes = job_.config_.attributes;
    const std::uint64_t whole = elements();
    const std::uint64_t from = split_offset(whole, job_.config_.channels, channel);
    op.count = split_offset(whole, job_.config_.channels, channel + 1) - from;
    if (shifted()) {
      op.input_counts.assign(n, 0);
      op.output_counts.assign(n, 0);
      op.input_counts[(rank_ + job_.config_.shift) % n] = whole;
      op.output_counts[sender()] = whole;
    }
    if (job_.config_.payload && whole) {
      op.input = part_of(input_, whole, from);
      op.output = part_of(output_, whole, from);
      // Broadcast: only the root has an input, only the others an output; reduce: the reverse.
      const bool root = rank_ == op.root;
      if (op.collective == Collective::broadcast) (root ? op.output : op.input) = Buffers{};
      if (op.collective == Collective::reduce && !root) op.output = Buffers{};
      if (op.output.parts.empty()) output_.clear();
    }
    return op;
  }

  // From element `from` on of each block of `whole` elements.
  Buffers part_of(std::vector<std::int32_t>& tensor, std::uint64_t whole, std::uint64_t from) {
    if (channels_.size() == 1 || tensor.size() == whole) return Buffers(tensor.data() + from);
    std::vector<std::uint8_t*> parts;
    for (std::uint64_t at = from; at < tensor.size(); at += whole) {
      parts.push_back(reinterpret_cast<std::uint8_t*>(tensor.data() + at));
    }
    return Buffers(std::move(parts));
  }

  void check() {
    if (!job_.config_.payload) return;
    if (job_.config_.sums) {
      job_.wrong_ += job_.values_.wrong(output_, iterations_.size());
      return;
    }
    const auto n = static_cast<std::int64_t>(job_.config_.hosts.size());
    const auto k = static_cast<std::int64_t>(iterations_.size());
    const auto count = static_cast<std::int64_t>(output_.size());
    const std::int64_t block = count / n;
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t expected = 0;
      switch (job_.config_.collective) {
        case Collective::all_reduce:
        case Collective::reduce:
          expected = n * (i + k) + n * (n - 1) / 2;
          break;
        case Collective::broadcast:
          expected = i + k;
          break;  // of rank 0
        case Collective::reduce_scatter:
          expected = n * (i + rank_ * count + k) + n * (n - 1) / 2;
          break;
        case Collective::all_gather:
          expected = i % block + i / block + k;
          break;
        case Collective::all_to_all:
          expected = shifted() ? i + sender() + k : rank_ * block + i % block + i / block + k;
          break;
        default:
          continue;
      }
      job_.wrong_ += output_[i] != static_cast<std::int32_t>(expected);
    }
  }

  void finished(const OperationResult& result, Picoseconds now) {
    if (Tap* tap = job_.network_.tap()) [[unlikely]] {
      tap->work_ends(nic_.host(), static_cast<std::uint32_t>(job_.config_.job), iterations_.size(), job_.config_.bytes,
                     result.status == OperationStatus::ok, now);
    }
    meter_.end(began_, now, result.status == OperationStatus::ok ? job_.config_.bytes : 0);
    if (result.status != OperationStatus::ok) {
      job_.failures_.push_back({rank_, now, result.message});
      job_.ended_ = now;
      ++job_.finished_;
      job_.network_.job_ended(job_.config_.job);
      return;
    }
    job_.expected_bytes_ += result.received.expected;
    job_.delivered_bytes_ += result.received.delivered;
    check();
    iterations_.push_back({began_, now});
    job_.through(rank_);
    const std::size_t k = iterations_.size() - 1;
    const Picoseconds gap = k < job_.config_.gaps.size() ? job_.config_.gaps[k] : job_.config_.compute;
    // All ranks take part in a repeat or none: the rank that is first through one decides whether
    // the next begins before `stop`. A rank behind it is never the one to begin a repeat.
    if (iterations_.size() > job_.decided_) {
      job_.decided_ = static_cast<std::uint32_t>(iterations_.size());
      if (now + gap >= job_.config_.stop) job_.rounds_ = std::min(job_.rounds_, job_.decided_);
    }
    if (iterations_.size() == job_.rounds_) {
      job_.ended_ = now;
      if (++job_.finished_ == job_.members_.size()) job_.network_.job_ended(job_.config_.job);
      return;
    }
    job_.network_.events().schedule(now + gap, job_.id_, rank_);
  }

  CollectiveTraffic& job_;
  JobRank rank_;
  Nic& nic_;
  WorkMeter& meter_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::uint32_t open_ = 0;    // channels that are at work on this repeat
  OperationResult total_;     // of those that are done with it
  std::vector<std::int32_t> input_, output_;
  std::vector<Iteration> iterations_;
  Picoseconds began_{};
};

CollectiveTraffic::CollectiveTraffic(Network& network, const CollectiveTrafficConfig& config)
    : network_(network),
      config_(config),
      layout_(staging_layout(config.hosts.size(), config.bytes, config.slots, config.slot_payload, config.sums)),
      rings_{.first = config.first_step,
             .whole = config.whole_steps || config.step_compute.count > 0,
             .paced = config.step_compute.count > 0},
      values_(config.hosts.size(), config.sums ? config.sums->scale : 0),
      id_(network.events().add(*this)),
      rounds_(config.repeat) {
  network.forbid_lookahead();  // ranks of several hosts begin a round together
  if (config.hosts.size() < 2) throw std::invalid_argument("collective: hosts must be two or more");
  if (config.shift != 0 && (config.collective != Collective::all_to_all || config.shift >= config.hosts.size())) {
    throw std::invalid_argument("collective: shift goes with all_to_all, and to another rank");
  }
  if (config.stop <= config.start) throw std::invalid_argument("collective: stop must be after start");
  if (config.sums && config.collective != Collective::all_reduce) {
    throw std::invalid_argument("collective: sums go with all_reduce");
  }
  if (config.sums && config.bytes < 4) throw std::invalid_argument("collective: sums need 4 bytes or more");
  const bool plain = config.channels == 1 && config.first_step == 0 && !rings_.whole && config.renew_every == 0;
  if (!plain && (config.sums || !rings(config.collective))) {
    throw std::invalid_argument("collective: what is said of channels and steps goes with rings");
  }
  if (config.channels == 0 || config.channels > kMostChannels) {
    throw std::invalid_argument("collective: channels must be 1 to 64");
  }
  if (config.step_compute.count < 0) throw std::invalid_argument("collective: step_compute must not be negative");
  if (config.renew_every > 0 && (config.repeat - 1) / config.renew_every >= kMostIncarnations) {
    throw std::invalid_argument("collective: communicators are made anew 15 times at most");
  }
  if (config.repeat == 0) throw std::invalid_argument("collective: repeat must be 1 or more");
  network.forbid_lookahead();  // an iteration's end stops the run and is told to all ranks
  for (JobRank r = 0; r < config.hosts.size(); ++r) members_.push_back(std::make_unique<Member>(*this, r));
}

CollectiveTraffic::~CollectiveTraffic() = default;

std::uint32_t CollectiveTraffic::staging_key(JobRank rank, std::uint32_t channel) const {
  return members_.at(rank)->executor(channel).staging_key();
}

void CollectiveTraffic::set_queue_pair(JobRank rank, JobRank peer, QpNumber qp, std::uint32_t channel) {
  members_.at(rank)->executor(channel).connect(peer, qp, staging_key(peer, channel));
}

void CollectiveTraffic::take_by_step(JobRank rank, JobRank peer,
                                     const std::vector<std::pair<QpNumber, QpNumber>>& pairs, std::uint32_t channel) {
  NicExecutor::take_by_step(members_.at(rank)->executor(channel), members_.at(peer)->executor(channel), pairs);
}

void CollectiveTraffic::set_sum_pair(JobRank rank, QpNumber qp) { members_.at(rank)->executor(0).connect_sums(qp); }

void CollectiveTraffic::start() {
  for (JobRank r = 0; r < members_.size(); ++r) network_.events().schedule(config_.start, id_, r);
}

const std::vector<CollectiveTraffic::Iteration>& CollectiveTraffic::iterations(JobRank rank) const {
  return members_.at(rank)->iterations();
}

void CollectiveTraffic::through(JobRank rank) {
  const Iteration last = members_[rank]->iterations().back();
  if (config_.collective != Collective::broadcast) {
    if (rank != 0) return;
    iterations_.push_back(last);
  } else {
    // The root receives nothing, and a transport that buffers ends its sends at once: it may be rounds ahead.
    const std::size_t number = members_[rank]->iterations().size() - 1;
    const std::size_t ahead = number - iterations_.size();
    if (through_.size() <= ahead) through_.resize(ahead + 1);
    if (++through_[ahead] < members_.size()) return;
    through_.pop_front();
    const Picoseconds begin = members_[0]->iterations()[number].begin;
    iterations_.push_back({number > 0 ? std::max(begin, iterations_.back().end) : begin, last.end});
  }
  network_.iteration_ended(config_.job);
}

void CollectiveTraffic::on_event(std::uint64_t what, Picoseconds now) {
  Member& member = *members_[what & ~0u];
  if (what & kRelease) {
    member.computed(static_cast<std::uint32_t>(what >> 32 & 0xffff), now);
  } else {
    member.begin(now);
  }
}

}  // namespace loomnet
