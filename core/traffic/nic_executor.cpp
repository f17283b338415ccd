// Writes that the executor posts wait in an outbox until the executor returns: the NIC may complete a request
// at once, and the executor takes no event inside its own calls.
#include "traffic/nic_executor.hpp"

#include <algorithm>
#include <utility>

namespace loomnet {

NicExecutor::NicExecutor(Network& network, const NicExecutorConfig& config, const StagingLayout& layout,
                         Sink& sink)
    : config_(config), nic_(network.nic(config.host)), sink_(sink), peers_(layout.ranks()) {
  const std::uint64_t staging = layout.total_bytes();
  if (config.payload) staging_ = SparseMemory(staging);
  std::uint8_t* base = config.payload ? staging_.data() : nullptr;
  key_ = nic_.register_region(base, 0, staging, config.job);
  executor_ = std::make_unique<CollectiveExecutor>(layout, config.rank, base, static_cast<Verbs&>(*this),
                                                   static_cast<OperationSink&>(*this), config.await_sends);
  std::vector<JobRank> all(peers_.size());
  for (JobRank r = 0; r < all.size(); ++r) all[r] = r;
  executor_->create(0, all);
  client_ = nic_.clients().add(*this, config.job, "collective");
  flush(Picoseconds{});
}

NicExecutor::~NicExecutor() {
  nic_.clients().remove(client_);
  nic_.deregister(key_);
}

void NicExecutor::connect(JobRank peer, QpNumber qp, std::uint32_t peer_key) {
  nic_.clients().own(qp, {config_.job, client_});
  peers_.at(peer) = {qp, peer_key};
  if (qp >= by_qp_.size()) by_qp_.resize(qp + 1, kNobody);
  by_qp_[qp] = peer;
}

void NicExecutor::start(Operation operation, Picoseconds now) {
  now_ = now;
  executor_->start(0, std::move(operation));
  flush(now);
}

void NicExecutor::on_completion(const Completion& c, Picoseconds now) {
  now_ = now;
  const JobRank peer = peer_of(c.qp);
  if (peer == kNobody) return;
  executor_->on_completion(peer, c.id, static_cast<WriteStatus>(c.status), c.missing);
  flush(now);
}

void NicExecutor::on_arrival(const Arrival& a, Picoseconds now) {
  now_ = now;
  const JobRank peer = peer_of(a.qp);
  if (peer == kNobody) return;
  executor_->on_arrival(peer, a.immediate, a.length, a.missing);
  flush(now);
}

void NicExecutor::flush(Picoseconds now) {
  if (flushing_) return;
  flushing_ = true;
  for (std::size_t i = 0; i < outbox_.size(); ++i) {
    const auto [peer, write] = outbox_[i];
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
    nic_.post(peers_[peer].qp, request, now);
  }
  outbox_.clear();
  flushing_ = false;
}

StagingLayout staging_layout(std::size_t ranks, std::uint64_t longest, std::uint32_t slots,
                             std::uint32_t slot_payload) {
  const std::uint64_t most = (std::max<std::uint64_t>(longest, 1) + 63) / 64 * 64;
  return StagingLayout({.ranks = static_cast<std::uint32_t>(ranks),
                        .slots = slots,
                        .slot_payload = static_cast<std::uint32_t>(std::min<std::uint64_t>(slot_payload, most)),
                        .channels = 1});
}

}  // namespace loomnet
