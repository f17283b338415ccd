#include "nic/local_link.hpp"

#include <algorithm>
#include <stdexcept>

#include "packet/rdma.hpp"

namespace loomnet {

LocalLink::LocalLink(TransportSink& sink, const LocalLinkConfig& config) : sink_(sink), config_(config) {
  if (config.rate.count == 0) throw std::invalid_argument("local link: its rate must be more than 0");
  if (config.delay < Picoseconds{}) throw std::invalid_argument("local link: its delay must be 0 or more");
}

void LocalLink::connect(const QpConfig& config, Picoseconds) {
  const auto refuse = [](const char* what) { throw std::invalid_argument(what); };
  if (config.local < 2 || config.local > kMask24) refuse("QpConfig.local: a number in 2 to 2^24-1");
  if (config.remote < 2 || config.remote > kMask24) refuse("QpConfig.remote: a number in 2 to 2^24-1");
  if (config.local == config.remote) refuse("QpConfig.remote: must be another queue pair of the host");
  if (by_number_.contains(config.local)) refuse("QpConfig.local: queue pair exists already");
  by_number_.add(config.local, static_cast<std::uint32_t>(queue_pairs_.size()));
  queue_pairs_.push_back(std::make_unique<QueuePair>());
  queue_pairs_.back()->local = config.local;
  queue_pairs_.back()->remote = config.remote;
}

void LocalLink::on_post(QpNumber number, const WorkRequest& request, Picoseconds now) {
  const std::uint32_t found = by_number_.find(number);
  if (found == NumberIndex::kAbsent || queue_pairs_[found]->failed) {
    ++failed_;
    return sink_.complete({number, Status::flushed, request.id, request.length});
  }
  QueuePair& qp = *queue_pairs_[found];
  ++open_;
  qp.writes.push_back(request);
  if (qp.refused || qp.waiting) return;
  qp.waiting = true;
  turns_.push_back(&qp);
  send(now);
}

void LocalLink::send(Picoseconds now) {
  while (!turns_.empty() && free_at_ <= now) {
    QueuePair& qp = *turns_.front();
    turns_.pop_front();
    qp.waiting = false;
    if (qp.refused) continue;
    const std::uint32_t whole = qp.writes[qp.sending].length;
    const std::uint32_t length = std::min(kPiece, whole - qp.sent);
    free_at_ = now + serialization_time(length, config_.rate);
    under_way_.push_back({free_at_ + config_.delay, &qp, qp.sent, length});
    qp.sent += length;
    if (qp.sent == whole) {
      ++qp.sending;
      qp.sent = 0;
    }
    if (qp.sending < qp.writes.size()) {
      qp.waiting = true;
      turns_.push_back(&qp);
    }
  }
}

void LocalLink::arrive(const Piece& piece) {
  QueuePair& qp = *piece.of;
  if (qp.refused) return;
  const WorkRequest& write = qp.writes[qp.arriving];
  const auto answer = [&](Status status) {
    qp.refused = status != Status::ok;
    answers_.push_back({piece.at + config_.delay, &qp, status});
  };
  if (!by_number_.contains(qp.remote)) {
    ++unknown_peer_;
    return answer(Status::remote_operational);
  }
  Payload payload;
  payload.length = piece.length;
  if (write.local && piece.length > 0) {
    payload.data = write.local + piece.offset;
    payload.kind = PayloadKind::region;
  }
  if (!sink_.place(qp.remote, write.remote_key, write.remote_address + piece.offset, payload)) {
    ++access_errors_;
    return answer(Status::remote_access_error);
  }
  bytes_ += piece.length;
  if (piece.offset + piece.length < write.length) return;
  ++qp.arriving;
  if (write.opcode == Opcode::write_with_immediate) {
    sink_.arrived({qp.remote, write.immediate, write.length, write.remote_address});
  }
  answer(Status::ok);
}

void LocalLink::complete(QueuePair& qp, Status status) {
  const WorkRequest& write = qp.writes.front();
  sink_.complete({qp.local, status, write.id, write.length});
  ++(status == Status::ok ? writes_ : failed_);
  --open_;
  qp.writes.pop_front();
}

void LocalLink::end(const Answer& answer) {
  QueuePair& qp = *answer.to;
  complete(qp, answer.status);
  if (answer.status == Status::ok) {
    --qp.sending;
    --qp.arriving;
    return;
  }
  qp.failed = true;
  while (!qp.writes.empty()) complete(qp, Status::flushed);
}

void LocalLink::on_deadline(Picoseconds now) {
  for (; !under_way_.empty() && under_way_.front().at <= now; under_way_.pop_front()) {
    arrive(under_way_.front());
  }
  for (; !answers_.empty() && answers_.front().at <= now; answers_.pop_front()) end(answers_.front());
  send(now);
}

Picoseconds LocalLink::next_deadline() const {
  Picoseconds at = turns_.empty() ? kNever : free_at_;
  if (!under_way_.empty()) at = std::min(at, under_way_.front().at);
  if (!answers_.empty()) at = std::min(at, answers_.front().at);
  return at;
}

void LocalLink::counters(std::vector<TransportCounter>& out) const {
  const TransportCounter all[] = {
      {"local_writes", writes_},
      {"local_bytes", bytes_},
      {"local_failed", failed_},
      {"local_access_errors", access_errors_},
      {"local_unknown_peer", unknown_peer_},
  };
  out.insert(out.end(), std::begin(all), std::end(all));
}

}  // namespace loomnet
