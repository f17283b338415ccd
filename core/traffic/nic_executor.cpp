// Writes that the executor posts wait in an outbox until the executor returns: the NIC may complete a request
// at once, and the executor takes no event inside its own calls.
#include "traffic/nic_executor.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace loomnet {

NicExecutor::NicExecutor(Network& network, const NicExecutorConfig& config, const StagingLayout& layout, Sink& sink)
    : config_(config), nic_(network.nic(config.host)), sink_(sink), peers_(layout.ranks()) {
  const std::uint64_t staging = layout.total_bytes();
  if (config.payload) staging_ = SparseMemory(staging);
  std::uint8_t* base = config.payload ? staging_.data() : nullptr;
  key_ = nic_.register_region(base, 0, staging, config.job);
  executor_ = std::make_unique<CollectiveExecutor>(layout, config.rank, base, static_cast<Verbs&>(*this),
                                                   static_cast<OperationSink&>(*this), config.await_sends);
  executor_->watch_steps(static_cast<StepWatch*>(this));
  create(config.communicator);
  client_ = nic_.clients().add(*this, config.job, "collective");
  flush(Picoseconds{});
}

NicExecutor::~NicExecutor() {
  nic_.clients().remove(client_);
  nic_.deregister(key_);
}

void NicExecutor::connect(JobRank peer, QpNumber qp, std::uint32_t peer_key) {
  peers_.at(peer).qp = qp;
  peers_.at(peer).key = peer_key;
  own(peer, qp);
}

void NicExecutor::connect_sums(QpNumber qp) {
  nic_.clients().own(qp, {config_.job, client_});
  sums_.add(qp);
}

void NicExecutor::own(JobRank peer, QpNumber qp) {
  nic_.clients().own(qp, {config_.job, client_});
  if (qp >= by_qp_.size()) by_qp_.resize(qp + 1, kNobody);
  by_qp_[qp] = peer;
}

void NicExecutor::take_by_step(NicExecutor& from, NicExecutor& to,
                               const std::vector<std::pair<QpNumber, QpNumber>>& pairs) {
  if (pairs.size() < 2) throw std::invalid_argument("queue pairs by ring step: two or more");
  const JobRank source = from.config_.rank, target = to.config_.rank;
  Peer& there = from.peers_.at(target);
  Peer& here = to.peers_.at(source);
  auto order = std::make_shared<PostingOrder>();
  there.sender = std::make_unique<StepSender>(from.nic_, order);
  here.receiver = std::make_unique<StepReceiver>(std::move(order));
  there.sender->add(there.qp, here.qp);
  for (const auto& [local, remote] : pairs) {
    from.own(target, local);
    to.own(source, remote);
    there.sender->add(local, remote);
  }
}

void NicExecutor::create(CommunicatorId id) {
  std::vector<JobRank> all(peers_.size());
  for (JobRank r = 0; r < all.size(); ++r) all[r] = r;
  config_.communicator = id;
  executor_->create(id, all, config_.rings);
}

void NicExecutor::remake(CommunicatorId id, Picoseconds now) {
  now_ = now;
  executor_->close(config_.communicator);
  create(id);
  flush(now);
}

void NicExecutor::release_steps(std::uint32_t end, Picoseconds now) {
  now_ = now;
  executor_->release_steps(config_.communicator, end);
  flush(now);
}

void NicExecutor::start(Operation operation, Picoseconds now) {
  now_ = now;
  executor_->start(config_.communicator, std::move(operation));
  flush(now);
}

void NicExecutor::on_completion(const Completion& c, Picoseconds now) {
  now_ = now;
  if (sums_.has(c.qp)) {
    executor_->on_sum(c.id, static_cast<WriteStatus>(c.status));
    return flush(now);
  }
  const JobRank peer = peer_of(c.qp);
  if (peer == kNobody) return;
  executor_->on_completion(peer, c.id, static_cast<WriteStatus>(c.status), c.missing);
  if (peers_[peer].sender) peers_[peer].sender->completed(c.qp, now);
  flush(now);
}

void NicExecutor::on_arrival(const Arrival& a, Picoseconds now) {
  now_ = now;
  const JobRank peer = peer_of(a.qp);
  if (peer == kNobody) return;
  if (StepReceiver* receiver = peers_[peer].receiver.get()) {
    receiver->hold(a);
    while (const auto next = receiver->next()) {
      executor_->on_arrival(peer, next->immediate, next->length, next->missing);
    }
  } else {
    executor_->on_arrival(peer, a.immediate, a.length, a.missing);
  }
  flush(now);
}

void NicExecutor::post(JobRank peer, const Write& write) {
  WorkRequest request;
  request.id = write.id;
  request.local = write.local;
  request.remote_address = write.remote_offset;
  request.remote_key = peers_[peer].key;
  request.length = write.length;
  request.immediate = write.immediate;
  request.opcode = Opcode::write_with_immediate;
  request.framing = write.framing;
  request.attributes = write.attributes;
  request.attributes.job = static_cast<std::uint32_t>(config_.job);
  outbox_.push_back({peers_[peer].qp, peers_[peer].sender.get(), request});
}

void NicExecutor::post_sum(const Sum& sum) {
  WorkRequest request;
  request.id = sum.id;
  request.local = sum.local;
  request.remote_address = sum.result_offset;
  request.remote_key = key_;
  request.length = sum.length;
  bool first = !sum.continues;
  const QpNumber qp = sums_.deal(first);
  request.immediate = (first ? 0u : kSumContinues) | (sum.floats ? kSumFloats : 0u);
  request.framing = sum.framing;
  request.attributes = sum.attributes;
  request.attributes.job = static_cast<std::uint32_t>(config_.job);
  outbox_.push_back({qp, nullptr, request});
}

void NicExecutor::flush(Picoseconds now) {
  if (flushing_) return;
  flushing_ = true;
  for (std::size_t i = 0; i < outbox_.size(); ++i) {
    const Outgoing out = outbox_[i];
    if (out.sender) {
      out.sender->post(out.request, now);
    } else {
      nic_.post(out.qp, out.request, now);
    }
  }
  outbox_.clear();
  flushing_ = false;
}

StagingLayout staging_layout(std::size_t ranks, std::uint64_t longest, std::uint32_t slots, std::uint32_t slot_payload,
                             const std::optional<SumShape>& sums) {
  const std::uint64_t most = (std::max<std::uint64_t>(longest, 1) + 63) / 64 * 64;
  StagingConfig config{.ranks = static_cast<std::uint32_t>(ranks),
                       .slots = slots,
                       .slot_payload = static_cast<std::uint32_t>(std::min<std::uint64_t>(slot_payload, most)),
                       .channels = 1};
  if (sums) {
    config.sum_slots = sums->slots;
    config.sum_values = sums->values;
    config.sum_window = sums->window;
    config.sum_scale = sums->scale;
    config.sum_floats = sums->floats;
    config.sum_servers = sums->servers;
    config.sum_reach = sums->reach;
  }
  return StagingLayout(config);
}

}  // namespace loomnet
