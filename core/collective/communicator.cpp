// Binds channels to members and sends events to the run they concern.
#include "collective/communicator.hpp"

#include "collective/collective_run.hpp"
#include "collective/point_to_point.hpp"
#include "collective/sum_run.hpp"

namespace loomnet {

Communicator::Communicator(Channels& channels, std::uint32_t id, std::vector<JobRank> members, JobRank self,
                           bool await_sends, CommunicatorCounters& counters, std::vector<FinishedOperation>& finished,
                           const RingSteps& rings)
    : channels_(channels), id_(id), await_sends_(await_sends), counters_(counters), finished_(finished), rings_(rings) {
  members_.resize(members.size());
  for (GroupRank r = 0; r < members.size(); ++r) {
    members_[r].job_rank = members[r];
    by_job_rank_.emplace(members[r], r);
    if (members[r] == self) {
      rank_ = r;
      continue;
    }
    // A member may have opened its channels, and filled them, before this rank got here.
    for (const Traffic traffic : {Traffic::collective, Traffic::point_to_point}) {
      members_[r].in[static_cast<int>(traffic)] =
          static_cast<std::int16_t>(channels_.find_inbound(members[r], {id, traffic}));
    }
  }
  collectives_ = std::make_unique<CollectiveRun>(*this);
  messages_ = std::make_unique<PointToPoint>(*this);
  for (GroupRank r = 0; r < size(); ++r) {
    if (inbound(r, Traffic::collective) >= 0) collectives_->on_data(r);
    if (inbound(r, Traffic::point_to_point) >= 0) messages_->on_data(r);
  }
}

Communicator::~Communicator() = default;

std::size_t Communicator::unfinished() const { return collectives_->unfinished() + messages_->unfinished(); }

void Communicator::release_steps(std::uint32_t end) {
  if (!failed()) collectives_->release_steps(end);
}

void Communicator::use_sums(const SumPlace& place) {
  sums_ = std::make_unique<SumRun>(*this, place);
  collectives_->use_sums(*sums_);
}

void Communicator::start(OperationId id, Operation operation) {
  if (failed()) {
    OperationResult result;
    result.status = status_;
    result.tag = operation.tag;
    result.cookie = operation.cookie;
    result.message = fault_;
    finish(id, std::move(result));
  } else if (operation.collective == Collective::send) {
    messages_->send(id, std::move(operation));
  } else if (operation.collective == Collective::recv) {
    messages_->receive(id, std::move(operation));
  } else {
    collectives_->start(id, std::move(operation));
  }
}

bool Communicator::cancel_receive(OperationId id) { return messages_->cancel_receive(id); }

bool Communicator::holds(OperationId id) const { return collectives_->holds(id) || messages_->holds(id); }

void Communicator::on_opened(JobRank peer, Traffic traffic, std::uint16_t channel) {
  if (failed()) {
    channels_.discard(peer, channel);
    return;
  }
  members_[by_job_rank_.at(peer)].in[static_cast<int>(traffic)] = static_cast<std::int16_t>(channel);
}

void Communicator::on_data(JobRank peer, Traffic traffic) {
  if (failed()) return;
  const GroupRank from = by_job_rank_.at(peer);
  if (traffic == Traffic::collective) {
    collectives_->on_data(from);
  } else {
    messages_->on_data(from);
  }
}

void Communicator::on_room(JobRank peer, Traffic traffic) {
  if (failed()) return;
  const GroupRank to = by_job_rank_.at(peer);
  if (traffic == Traffic::collective) {
    collectives_->on_room(to);
  } else {
    messages_->on_room(to);
  }
}

void Communicator::on_sent(JobRank peer, Traffic traffic, unsigned slot) {
  if (failed()) return;
  const GroupRank to = by_job_rank_.at(peer);
  if (traffic == Traffic::collective) {
    collectives_->on_sent(to, slot);
    collectives_->on_room(to);
  } else {
    messages_->on_sent(to, slot);
    messages_->on_room(to);
  }
}

void Communicator::on_clear(JobRank peer, std::uint32_t message) {
  if (!failed()) messages_->on_clear(by_job_rank_.at(peer), message);
}

void Communicator::on_sum(std::uint64_t request, WriteStatus status) {
  if (failed() || !sums_) return;
  sums_->on_sum(request, status);
  collectives_->on_sum();
}

void Communicator::raise(OperationStatus status, std::string message, GroupRank culprit) {
  if (failed()) return;
  status_ = status;
  fault_ = "communicator " + std::to_string(id_) + ": " + std::move(message);
  culprit_ = culprit;
  fresh_fault_ = true;
}

bool Communicator::take_fresh_fault(GroupRank* culprit) {
  *culprit = culprit_;
  return std::exchange(fresh_fault_, false);
}

void Communicator::fail_all() {
  OperationResult result;
  result.status = status_;
  result.message = fault_;
  collectives_->fail_all(result);
  messages_->fail_all(result);
  stop_listening();
}

void Communicator::close_channels() {
  stop_listening();
  for (GroupRank r = 0; r < size(); ++r) {
    for (const Traffic traffic : {Traffic::collective, Traffic::point_to_point}) {
      channels_.withdraw(member(r), {id_, traffic});
      const int out = owned(r, traffic);
      if (out < 0) continue;
      // A message that was given up may still be cleared by the member.
      const bool answered = traffic == Traffic::point_to_point && failed();
      channels_.close(member(r), static_cast<std::uint16_t>(out), answered);
    }
  }
}

int Communicator::outbound(GroupRank to, Traffic traffic) {
  const int channel = owned(to, traffic);
  if (channel >= 0) return channel;
  std::int16_t& out = members_[to].out[static_cast<int>(traffic)];
  return out = static_cast<std::int16_t>(channels_.open(member(to), {id_, traffic}));
}

int Communicator::owned(GroupRank to, Traffic traffic) const {
  const int channel = members_[to].out[static_cast<int>(traffic)];
  // It may have been taken back for another communicator meanwhile.
  if (channel < 0 || !channels_.owns(member(to), static_cast<std::uint16_t>(channel), {id_, traffic})) {
    return -1;
  }
  return channel;
}

int Communicator::inbound(GroupRank from, Traffic traffic) const {
  const int channel = members_[from].in[static_cast<int>(traffic)];
  // The member may have closed its side and given the channel to another communicator meanwhile.
  if (channel < 0 || !channels_.serves(member(from), static_cast<std::uint16_t>(channel), {id_, traffic})) {
    return -1;
  }
  return channel;
}

std::uint64_t Communicator::unsent(GroupRank to, Traffic traffic) const {
  const int channel = owned(to, traffic);
  if (!await_sends_ || channel < 0) return 0;
  return channels_.pending(member(to), static_cast<std::uint16_t>(channel));
}

void Communicator::stop_listening() {
  for (GroupRank r = 0; r < size(); ++r) {
    for (const Traffic traffic : {Traffic::collective, Traffic::point_to_point}) {
      const int in = inbound(r, traffic);
      if (in >= 0) channels_.discard(members_[r].job_rank, static_cast<std::uint16_t>(in));
      members_[r].in[static_cast<int>(traffic)] = -1;
    }
  }
}

std::string Communicator::name(GroupRank rank) const {
  std::string text = "rank " + std::to_string(rank);
  if (members_[rank].job_rank != rank) {
    text += " (job rank " + std::to_string(members_[rank].job_rank) + ")";
  }
  return text;
}

}  // namespace loomnet
