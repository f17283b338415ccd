// Owns the communicators of one rank, checks what callers ask, and carries faults to everyone they
// concern.
#include "collective/executor.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>

#include "collective/communicator.hpp"
#include "collective/sum_run.hpp"
#include "collective/validate.hpp"

namespace loomnet {

class CollectiveExecutor::Impl {
 public:
  Impl(const StagingLayout& layout, JobRank self, std::uint8_t* staging, Verbs& verbs, OperationSink& sink,
       bool await_sends)
      : layout_(layout),
        sum_place_{layout_, staging, verbs, sum_counters_},
        channels_(layout, self, staging, verbs),
        self_(self),
        await_sends_(await_sends),
        lost_(layout.ranks()),
        sink_(sink) {
    if (self >= layout.ranks()) throw std::invalid_argument("collective: own rank outside the job");
  }

  void create(CommunicatorId id, std::span<const JobRank> members, const RingSteps& rings);
  void close(CommunicatorId id);
  OperationId start(CommunicatorId id, Operation operation);
  bool cancel(OperationId id);
  void on_arrival(JobRank peer, std::uint32_t immediate, std::uint32_t length, const Missing& missing);
  void on_completion(JobRank peer, std::uint64_t write_id, WriteStatus status, const Missing& missing);
  void on_sum(std::uint64_t id, WriteStatus status);
  void set_fill(Fill fill) { channels_.set_fill(fill); }
  void lose(JobRank peer, OperationStatus status, const std::string& reason);

  Communicator& at(CommunicatorId id) {
    const auto it = communicators_.find(id);
    if (it == communicators_.end()) {
      throw std::invalid_argument("collective: no communicator " + std::to_string(id));
    }
    return *it->second;
  }
  const Communicator* find(CommunicatorId id) const {
    const auto it = communicators_.find(id);
    return it == communicators_.end() ? nullptr : it->second.get();
  }

  void settle(Communicator& communicator, bool tell_members);
  void serve();
  void deliver();
  void serve_and_deliver() {
    serve();
    deliver();
  }
  bool idle() const;
  void check_peer(JobRank peer) const {
    if (peer >= lost_.size() || peer == self_) {
      throw std::invalid_argument("collective: no peer " + std::to_string(peer));
    }
  }

  // A member that fails early aborts communicators that do not exist here yet; one that invents
  // them is stopped at this many.
  static constexpr std::size_t kEarlyAborts = 4096;

  bool sums(const Communicator& communicator) const;

  const StagingLayout layout_;
  SumCounters sum_counters_;
  const SumPlace sum_place_;
  // The communicator whose all-reduces are sums; never another one: ranks that closed it at different
  // moments would not agree.
  std::optional<CommunicatorId> summing_;
  Channels channels_;
  JobRank self_;
  bool await_sends_;
  std::map<CommunicatorId, std::unique_ptr<Communicator>> communicators_;
  std::set<CommunicatorId> closed_;
  std::set<std::pair<CommunicatorId, JobRank>> early_aborts_;
  std::vector<std::string> lost_;  // why, per job rank; empty while the peer is there
  CommunicatorCounters counters_;
  std::vector<FinishedOperation> finished_, delivered_;
  OperationSink& sink_;
  StepWatch* watch_ = nullptr;
  std::uint64_t next_id_ = 1;
  std::uint64_t started_ = 0, completed_ = 0, failed_ = 0, protocol_errors_ = 0;
  bool delivering_ = false;
};

void CollectiveExecutor::Impl::create(CommunicatorId id, std::span<const JobRank> members, const RingSteps& rings) {
  check_members(id, members, self_, static_cast<std::uint32_t>(lost_.size()));
  if (communicators_.contains(id) || closed_.contains(id)) {
    throw std::invalid_argument("collective: communicator " + std::to_string(id) +
                                " exists or existed; identifiers are not used twice");
  }
  auto created = std::make_unique<Communicator>(channels_, id, std::vector<JobRank>(members.begin(), members.end()),
                                                self_, await_sends_, counters_, finished_, rings);
  Communicator& communicator = *created;
  communicator.watch_steps(watch_);
  if (sums(communicator)) {
    summing_ = id;
    communicator.use_sums(sum_place_);
  }
  communicators_.emplace(id, std::move(created));
  for (GroupRank r = 0; r < communicator.size(); ++r) {
    const JobRank member = communicator.member(r);
    if (!lost_[member].empty()) communicator.raise(OperationStatus::peer_failed, lost_[member]);
    if (early_aborts_.contains({id, member})) {
      communicator.raise(OperationStatus::peer_aborted, communicator.name(r) + " aborted");
    }
  }
  early_aborts_.erase(early_aborts_.lower_bound({id, 0}), early_aborts_.lower_bound({id + 1, 0}));
  settle(communicator, true);
  serve_and_deliver();
}

bool CollectiveExecutor::Impl::sums(const Communicator& communicator) const {
  if (!layout_.has_sums() || summing_ || communicator.size() != layout_.ranks() || communicator.size() < 2) {
    return false;
  }
  for (GroupRank r = 0; r < communicator.size(); ++r) {
    if (communicator.member(r) != r) return false;
  }
  return true;
}

void CollectiveExecutor::Impl::close(CommunicatorId id) {
  Communicator& communicator = at(id);
  if (communicator.unfinished() > 0) {
    communicator.raise(OperationStatus::closed, "closed here with operations unfinished");
    settle(communicator, true);
  }
  communicator.close_channels();
  communicators_.erase(id);
  closed_.insert(id);
  serve_and_deliver();
}

OperationId CollectiveExecutor::Impl::start(CommunicatorId id, Operation operation) {
  Communicator& communicator = at(id);
  check_operation(operation, communicator.rank(), communicator.size(), channels_.carries_bytes());
  const OperationId operation_id{next_id_++};
  ++started_;
  communicator.start(operation_id, std::move(operation));
  settle(communicator, true);
  serve_and_deliver();
  return operation_id;
}

bool CollectiveExecutor::Impl::cancel(OperationId id) {
  for (auto& [key, communicator] : communicators_) {
    if (!communicator->holds(id)) continue;
    if (!communicator->cancel_receive(id)) {
      communicator->raise(OperationStatus::aborted, "an operation was cancelled here");
      settle(*communicator, true);
    }
    serve_and_deliver();
    return true;
  }
  return false;
}

void CollectiveExecutor::Impl::on_arrival(JobRank peer, std::uint32_t immediate, std::uint32_t length,
                                          const Missing& missing) {
  check_peer(peer);
  const ChannelEvent event = channels_.on_arrival(peer, immediate, length, missing);
  if (event.kind == ChannelEvent::Kind::none) return serve_and_deliver();
  if (event.kind == ChannelEvent::Kind::error) {
    ++protocol_errors_;
    lose(peer, OperationStatus::protocol, std::string("sent ") + event.error);
    deliver();
    return;
  }
  const auto it = communicators_.find(event.communicator);
  if (it == communicators_.end()) {
    if (event.kind == ChannelEvent::Kind::opened && closed_.contains(event.communicator)) {
      channels_.discard(peer, event.channel);
    } else if (event.kind == ChannelEvent::Kind::abort && !closed_.contains(event.communicator)) {
      early_aborts_.insert({event.communicator, peer});
      if (early_aborts_.size() > kEarlyAborts) {
        ++protocol_errors_;
        lose(peer, OperationStatus::protocol, "aborted more communicators than can exist");
      }
    }
    serve_and_deliver();
    return;  // data waits in its slots until the communicator is created here
  }
  Communicator& communicator = *it->second;
  if (!communicator.has(peer)) {
    ++protocol_errors_;
    lose(peer, OperationStatus::protocol,
         "spoke on communicator " + std::to_string(event.communicator) + ", of which it is no member");
    deliver();
    return;
  }
  bool tell_members = true;
  switch (event.kind) {
    case ChannelEvent::Kind::data:
      communicator.on_data(peer, event.traffic);
      break;
    case ChannelEvent::Kind::credit:
      communicator.on_room(peer, event.traffic);
      break;
    case ChannelEvent::Kind::opened:
      communicator.on_opened(peer, event.traffic, event.channel);
      break;
    case ChannelEvent::Kind::clear:
      communicator.on_clear(peer, event.value);
      break;
    case ChannelEvent::Kind::abort: {
      const auto reason = static_cast<OperationStatus>(event.value);
      communicator.raise(OperationStatus::peer_aborted,
                         "job rank " + std::to_string(peer) +
                             (reason == OperationStatus::closed ? " left with operations of its own unfinished"
                                                                : " aborted: " + std::string(to_string(reason))));
      tell_members = false;  // the member that aborted first has told everyone
      break;
    }
    default:
      break;
  }
  settle(communicator, tell_members);
  serve_and_deliver();
}

void CollectiveExecutor::Impl::on_completion(JobRank peer, std::uint64_t write_id, WriteStatus status,
                                             const Missing& missing) {
  check_peer(peer);
  if (status != WriteStatus::ok) {
    lose(peer, OperationStatus::peer_failed, "cannot be reached: " + std::string(to_string(status)));
    deliver();
    return;
  }
  channels_.counters.sent_bytes_lost += missing.bytes;
  int channel = -1;
  unsigned slot = 0;
  if (!channels_.on_completion(peer, write_id, &channel, &slot) || channel < 0) return;
  const auto [communicator, traffic] = channels_.owner(peer, static_cast<std::uint16_t>(channel));
  const auto it = communicators_.find(communicator);
  if (it == communicators_.end() || !it->second->has(peer)) return serve_and_deliver();
  it->second->on_sent(peer, traffic, slot);
  settle(*it->second, true);
  serve_and_deliver();
}

void CollectiveExecutor::Impl::on_sum(std::uint64_t id, WriteStatus status) {
  const auto it = summing_ ? communicators_.find(*summing_) : communicators_.end();
  if (it == communicators_.end()) return;  // closed with requests under way
  it->second->on_sum(id, status);
  settle(*it->second, true);
  serve_and_deliver();
}

// Nothing more is expected of this peer: every communicator it belongs to fails.
void CollectiveExecutor::Impl::lose(JobRank peer, OperationStatus status, const std::string& reason) {
  if (!lost_[peer].empty()) return;
  lost_[peer] = "job rank " + std::to_string(peer) + " " + reason;
  channels_.forget(peer);
  for (auto& [id, communicator] : communicators_) {
    if (!communicator->has(peer)) continue;
    communicator->raise(status, lost_[peer]);
    settle(*communicator, true);
  }
}

// Carries a fresh fault to this communicator's operations and members.
void CollectiveExecutor::Impl::settle(Communicator& communicator, bool tell_members) {
  GroupRank culprit = kAnySource;
  if (!communicator.take_fresh_fault(&culprit)) return;
  communicator.fail_all();
  if (culprit != kAnySource) {
    ++protocol_errors_;
    lose(communicator.member(culprit), OperationStatus::protocol, "broke the protocol (" + communicator.fault() + ")");
  }
  if (!tell_members) return;
  for (GroupRank r = 0; r < communicator.size(); ++r) {
    if (r != communicator.rank() && lost_[communicator.member(r)].empty()) {
      channels_.abort(communicator.member(r), communicator.id(), communicator.status());
    }
  }
}

// Gives channels that have come free to the streams that wait for one.
void CollectiveExecutor::Impl::serve() {
  for (bool any = true; any && channels_.anything_waits();) {
    any = false;
    for (JobRank peer = 0; peer < lost_.size(); ++peer) {
      while (const std::optional<Stream> stream = channels_.grant(peer)) {
        any = true;
        const auto it = communicators_.find(stream->communicator);
        if (it == communicators_.end()) continue;
        it->second->on_room(peer, stream->traffic);
        settle(*it->second, true);
      }
    }
  }
}

void CollectiveExecutor::Impl::deliver() {
  if (delivering_) return;  // called by the sink: the loop below goes on
  delivering_ = true;
  while (!finished_.empty()) {
    delivered_.swap(finished_);
    for (const FinishedOperation& f : delivered_) {
      ++(f.result.status == OperationStatus::ok ? completed_ : failed_);
      sink_.finished(f.id, f.result);
    }
    delivered_.clear();
  }
  delivering_ = false;
}

bool CollectiveExecutor::Impl::idle() const {
  return std::all_of(communicators_.begin(), communicators_.end(),
                     [](const auto& entry) { return entry.second->unfinished() == 0; });
}

// --- the public face -----------------------------------------------------------------------------

CollectiveExecutor::CollectiveExecutor(const StagingLayout& layout, JobRank self, std::uint8_t* staging, Verbs& verbs,
                                       OperationSink& sink, bool await_sends)
    : impl_(std::make_unique<Impl>(layout, self, staging, verbs, sink, await_sends)) {}
CollectiveExecutor::~CollectiveExecutor() = default;

void CollectiveExecutor::create(CommunicatorId id, std::span<const JobRank> members, const RingSteps& rings) {
  impl_->create(id, members, rings);
}
void CollectiveExecutor::watch_steps(StepWatch* watch) { impl_->watch_ = watch; }
void CollectiveExecutor::release_steps(CommunicatorId id, std::uint32_t end) {
  Communicator& communicator = impl_->at(id);
  communicator.release_steps(end);
  impl_->settle(communicator, true);
  impl_->serve_and_deliver();
}
void CollectiveExecutor::close(CommunicatorId id) { impl_->close(id); }
void CollectiveExecutor::set_planner(CommunicatorId id, SchedulePlanner planner) {
  impl_->at(id).set_planner(std::move(planner));
}
const Communicator* CollectiveExecutor::find(CommunicatorId id) const { return impl_->find(id); }
OperationId CollectiveExecutor::start(CommunicatorId id, Operation operation) {
  return impl_->start(id, std::move(operation));
}
bool CollectiveExecutor::cancel(OperationId id) { return impl_->cancel(id); }

void CollectiveExecutor::abort(CommunicatorId id, const std::string& reason) {
  Communicator& communicator = impl_->at(id);
  communicator.raise(OperationStatus::aborted, reason);
  impl_->settle(communicator, true);
  impl_->deliver();
}

void CollectiveExecutor::on_arrival(JobRank peer, std::uint32_t immediate, std::uint32_t length,
                                    const Missing& missing) {
  impl_->on_arrival(peer, immediate, length, missing);
}
void CollectiveExecutor::on_completion(JobRank peer, std::uint64_t write_id, WriteStatus status,
                                       const Missing& missing) {
  impl_->on_completion(peer, write_id, status, missing);
}

void CollectiveExecutor::set_fill(Fill fill) { impl_->set_fill(fill); }

void CollectiveExecutor::on_sum(std::uint64_t id, WriteStatus status) { impl_->on_sum(id, status); }

void CollectiveExecutor::on_peer_failure(JobRank peer, const std::string& reason) {
  impl_->check_peer(peer);
  impl_->lose(peer, OperationStatus::peer_failed, reason);
  impl_->deliver();
}

std::uint64_t CollectiveExecutor::sum_overflows() const { return impl_->sum_counters_.overflows; }
std::uint64_t CollectiveExecutor::sums_as_floats() const { return impl_->sum_counters_.as_floats; }
bool CollectiveExecutor::idle() const { return impl_->idle(); }
bool CollectiveExecutor::quiescent() const { return impl_->channels_.in_flight() == 0; }

void CollectiveExecutor::counters(std::vector<CollectiveCounter>& out) const {
  const Impl& i = *impl_;
  const ChannelCounters& c = i.channels_.counters;
  const CommunicatorCounters& k = i.counters_;
  out.insert(out.end(), {{"operations_started", i.started_},
                         {"operations_completed", i.completed_},
                         {"operations_failed", i.failed_},
                         {"protocol_errors", i.protocol_errors_},
                         {"collectives", k.collectives},
                         {"messages_sent", k.messages_sent},
                         {"messages_received", k.messages_received},
                         {"messages_unexpected", k.unexpected_messages},
                         {"messages_stalled", k.stalled_messages},
                         {"messages_cleared", k.cleared_messages},
                         {"chunks_fused", k.fused_chunks},
                         {"chunks_unfused", k.unfused_chunks},
                         {"data_writes", c.data_writes},
                         {"data_bytes", c.data_bytes},
                         {"data_arrivals", c.data_arrivals},
                         {"received_bytes_lost", c.received_bytes_lost},
                         {"sent_bytes_lost", c.sent_bytes_lost},
                         {"credit_writes", c.credit_writes},
                         {"channels_opened", c.channels_opened},
                         {"channels_closed", c.channels_closed},
                         {"channels_reclaimed", c.channels_reclaimed},
                         {"chunks_kept", c.kept_chunks},
                         {"chunks_discarded", c.discarded_chunks},
                         {"late_arrivals", c.late_arrivals},
                         {"stray_completions", c.stray_completions},
                         {"sums", i.sum_counters_.sums},
                         {"sum_requests", i.sum_counters_.requests},
                         {"sum_bytes", i.sum_counters_.bytes},
                         {"sum_overflows", i.sum_counters_.overflows},
                         {"sums_as_floats", i.sum_counters_.as_floats},
                         {"sums_not_finite", i.sum_counters_.not_finite},
                         {"sum_strays", i.sum_counters_.stray}});
}

}  // namespace loomnet
