#include "rank/rank_client.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace loomnet::rank {
namespace {

std::string describe_gone(const NoticeEntry& n) {
  const auto reason = static_cast<GoneReason>(n.reason);
  if (reason == GoneReason::failed) return "has ended with exit status " + std::to_string(n.reserved);
  const std::string name(to_string(reason));
  if (reason == GoneReason::killed && n.reserved != 0) return "was killed by signal " + std::to_string(n.reserved);
  return (reason == GoneReason::exited ? "has " : "was ") + name;
}

template <typename Entry>
Missing missing_of(const Entry& e) {
  return {e.missing_bytes, e.missing_extent, {e.missing_extents[0], e.missing_extents[1]}};
}

}  // namespace

RankClient::RankClient(Memory& memory, Waker& engine_wake)
    : memory_(memory),
      engine_wake_(engine_wake),
      layout_(staging_of(memory.geometry())),
      staging_(reinterpret_cast<std::uint8_t*>(memory.staging().data())),
      submissions_(memory.ring_words(kSubmissions), memory.ring_entries(kSubmissions), memory.geometry().submissions),
      marks_(memory.ring_words(kMarks), memory.ring_entries(kMarks), memory.geometry().marks),
      completions_(memory.ring_words(kCompletions), memory.ring_entries(kCompletions), memory.geometry().completions),
      arrivals_(memory.ring_words(kArrivals), memory.ring_entries(kArrivals), memory.geometry().arrivals),
      notices_(memory.ring_words(kNotices), memory.ring_entries(kNotices), memory.geometry().notices),
      peers_(memory.geometry().world) {
  if (layout_.total_bytes() > memory.geometry().staging_bytes) {
    throw std::runtime_error("memory of a rank: staging area smaller than its slots");
  }
  for (Peer& peer : peers_) peer.early.resize(memory.geometry().channels);
  const auto word = memory.rank_words().state.load(std::memory_order_acquire);
  if (word != state_word(0, State::starting)) {
    throw std::runtime_error("memory of a rank: another process has used it; start the run anew");
  }
}

void RankClient::post(JobRank peer, const Write& w) {
  Peer& to = peers_.at(peer);
  const Submission s{.id = w.id,
                     .local_offset = w.local ? static_cast<std::uint64_t>(w.local - staging_) : kNoData,
                     .remote_offset = w.remote_offset,
                     .posted_ns = monotonic_ns(),
                     .step_offset = w.attributes.step_offset,
                     .step_bytes = w.attributes.step_bytes,
                     .peer = peer,
                     .length = w.length,
                     .immediate = w.immediate,
                     .framing = w.framing,
                     .communicator = w.attributes.communicator,
                     .sequence = w.attributes.sequence,
                     .ring_step = w.attributes.ring_step,
                     .tag = w.attributes.tag,
                     .loss_tolerance = w.attributes.loss_tolerance,
                     .channel = to.next_out,
                     .layer = w.attributes.layer,
                     .ring_rank = w.attributes.ring_rank,
                     .ring_size = w.attributes.ring_size,
                     .priority = w.attributes.priority,
                     .opcode = static_cast<std::uint8_t>(Opcode::write_with_immediate),
                     .reserved = 0};
  to.next_out = static_cast<std::uint16_t>((to.next_out + 1) % memory_.geometry().channels);
  submit(s);
}

void RankClient::post_sum(const Sum& sum) {
  submit({.id = sum.id,
          .local_offset = static_cast<std::uint64_t>(sum.local - staging_),
          .remote_offset = sum.result_offset,
          .posted_ns = monotonic_ns(),
          .step_offset = 0,
          .step_bytes = 0,
          .peer = rank(),
          .length = sum.length,
          .immediate = (sum.continues ? kSumContinues : 0u) | (sum.floats ? kSumFloats : 0u),
          .framing = sum.framing,
          .communicator = sum.attributes.communicator,
          .sequence = sum.attributes.sequence,
          .ring_step = 0,
          .tag = sum.attributes.tag,
          .loss_tolerance = 0,
          .channel = 0,
          .layer = sum.attributes.layer,
          .ring_rank = 0,
          .ring_size = 0,
          .priority = sum.attributes.priority,
          .opcode = kSumOpcode,
          .reserved = 0});
}

void RankClient::submit(const Submission& s) {
  ++writes_;
  bytes_ += s.length;
  if (!backlog_.empty() || !push(s)) backlog_.push_back(s);
}

bool RankClient::push(const Submission& s) {
  if (outstanding_ >= memory_.geometry().completions || !submissions_.push(s)) return false;
  ++outstanding_;
  return true;
}

void RankClient::drain_backlog() {
  while (!backlog_.empty() && push(backlog_.front())) backlog_.pop_front();
}

void RankClient::show() {
  drain_backlog();
  unannounced_ |= submissions_.publish();
  unannounced_ |= marks_.publish();
}

void RankClient::publish() {
  show();
  if (!std::exchange(unannounced_, false)) return;
  memory_.rank_words().local_ns.store(monotonic_ns(), std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (memory_.engine_words().sleeping.load(std::memory_order_relaxed) != 0) engine_wake_.raise();
}

void RankClient::feed_arrival(CollectiveExecutor& executor, const ArrivalEntry& arrival) {
  Peer& from = peers_[arrival.peer];
  const auto channels = static_cast<std::uint16_t>(memory_.geometry().channels);
  const auto next = [&] { from.next_in = static_cast<std::uint16_t>((from.next_in + 1) % channels); };
  if (arrival.channel != from.next_in) {
    from.early[arrival.channel].push_back(arrival);
    return;
  }
  executor.on_arrival(arrival.peer, arrival.immediate, arrival.length, missing_of(arrival));
  next();
  while (!from.early[from.next_in].empty()) {
    const ArrivalEntry early = from.early[from.next_in].front();
    from.early[from.next_in].pop_front();
    executor.on_arrival(early.peer, early.immediate, early.length, missing_of(early));
    next();
  }
}

bool RankClient::poll(CollectiveExecutor* executor) {
  if (!failure_.empty()) return false;
  std::array<NoticeEntry, 32> notices;
  std::array<ArrivalEntry, 64> arrivals;
  std::array<CompletionEntry, 64> completions;
  const std::size_t told = notices_.pop(notices);
  bool any = told != 0;
  for (std::size_t i = 0; i < told; ++i) note(notices[i]);
  const std::uint32_t world = memory_.geometry().world, channels = memory_.geometry().channels;
  for (;;) {
    const std::size_t ended = completions_.pop(completions);
    const std::size_t arrived = arrivals_.pop(arrivals);
    if (completions_.corrupt() || arrivals_.corrupt() || notices_.corrupt()) {
      fail(executor, "the NIC's rings are corrupted");
      return true;
    }
    if (ended + arrived == 0) break;
    any = true;
    for (std::size_t i = 0; i < ended; ++i) {
      const CompletionEntry& c = completions[i];
      const Missing missing = missing_of(c);
      if (c.peer >= world || c.status > static_cast<std::uint8_t>(WriteStatus::flushed) || !missing.sound(c.length)) {
        fail(executor, "the NIC wrote a malformed completion");
        return true;
      }
      if (outstanding_ > 0) --outstanding_;
      if (executor && c.peer == rank()) {
        executor->on_sum(c.id, static_cast<WriteStatus>(c.status));
      } else if (executor) {
        executor->on_completion(c.peer, c.id, static_cast<WriteStatus>(c.status), missing);
      }
    }
    for (std::size_t i = 0; i < arrived; ++i) {
      const ArrivalEntry& a = arrivals[i];
      if (a.peer >= world || a.channel >= channels || !missing_of(a).sound(a.length)) {
        fail(executor, "the NIC wrote a malformed arrival");
        return true;
      }
      if (executor) feed_arrival(*executor, a);
    }
    drain_backlog();
  }
  for (std::size_t i = 0; i < told; ++i) apply(notices[i], executor);
  return any;
}

// Known before the arrivals of the same pass are fed: when a survivor's abort is among them, the
// message can name the ranks that are really missing.
void RankClient::note(const NoticeEntry& n) {
  if (static_cast<NoticeKind>(n.kind) != NoticeKind::peer_gone || absent_.size() > 1000) return;
  absent_ += (absent_.empty() ? "rank " : "; rank ") + std::to_string(n.peer) + " " + describe_gone(n);
}

void RankClient::apply(const NoticeEntry& n, CollectiveExecutor* executor) {
  const auto gone = static_cast<GoneReason>(n.reason);
  switch (static_cast<NoticeKind>(n.kind)) {
    case NoticeKind::peer_gone:
      if (n.peer >= memory_.geometry().world) return;
      if (gone == GoneReason::exited) {
        departed_.push_back(n.peer);
      } else if (executor) {
        executor->on_peer_failure(n.peer, describe_gone(n));
      }
      return;
    case NoticeKind::cut_off:
      return fail(executor,
                  "the NIC cut this rank off: " + std::string(loomnet::to_string(static_cast<RankFault>(n.reason))));
    case NoticeKind::run_ended:
      ended_ = true;
      return fail(executor, "the run " + std::string(to_string(gone)));
    case NoticeKind::last_step:
      last_step_ = n.reason;
      return;
    case NoticeKind::alarm:
      return;  // the emulated clock says the rest
    case NoticeKind::came:
      if (const auto at = meetings_.find(n.peer); at != meetings_.end()) {
        at->second.came.emplace_back(n.reason >> 16, n.reason & 0xffff);
        if (n.reserved != 0) at->second.number = n.reserved - 1;
      }
      return;
    case NoticeKind::same_place:
      if (const auto at = meetings_.find(n.peer); at != meetings_.end()) {
        at->second.doubles.push_back(n.reason);
        at->second.refused |= n.reserved != 0;
      }
      return;
    case NoticeKind::stranded:
      ++stranded_;
      return;
    case NoticeKind::answer:
      if (const auto at = answers_.find(n.peer); at != answers_.end()) take_answer(n, at->second);
      return;
  }
}

void RankClient::take_answer(const NoticeEntry& n, Answer& answer) {
  if (!answer.length) {
    answer.length = std::min(n.reason, kMostAnswer);
    return;
  }
  std::uint8_t part[kAnswerPart];
  std::memcpy(part, &n.reason, 4);
  std::memcpy(part + 4, &n.reserved, 4);
  const std::size_t left = *answer.length - answer.bytes.size();
  answer.bytes.insert(answer.bytes.end(), part, part + std::min<std::size_t>(left, kAnswerPart));
}

bool RankClient::report(std::uint32_t number, std::span<const std::uint8_t> bytes, std::uint64_t keep_room) {
  const auto length = static_cast<std::uint32_t>(bytes.size());
  if (marks_.room() <= keep_room + (length + kReportPart - 1) / kReportPart) return false;
  for (std::uint32_t at = 0; at < length; at += kReportPart) {
    std::uint64_t words[2] = {};
    std::memcpy(words, bytes.data() + at, std::min(length - at, kReportPart));
    if (!mark(MarkKind::report, report_part(number, at, length), words[0], words[1])) return false;
  }
  return true;
}

void RankClient::fail(CollectiveExecutor* executor, const std::string& reason) {
  if (!failure_.empty()) return;
  failure_ = reason;
  if (!executor) return;
  for (JobRank peer = 0; peer < world(); ++peer) {
    if (peer != rank()) executor->on_peer_failure(peer, reason);
  }
}

bool RankClient::mark(MarkKind kind, std::uint64_t value, std::uint64_t a, std::uint64_t b, std::uint32_t status,
                      std::uint64_t keep_room) {
  if ((keep_room != 0 && marks_.room() <= keep_room) || !marks_.push({.kind = static_cast<std::uint32_t>(kind),
                                                                      .status = status,
                                                                      .at_ns = monotonic_ns(),
                                                                      .value = value,
                                                                      .a = a,
                                                                      .b = b})) {
    memory_.rank_words().marks_lost.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  return true;
}

void RankClient::set_state(State state) {
  if (state == state_) return;
  // Entries first. An engine that found the rank at rest before its last post or mark would let emulated
  // time pass, or would call a deadlock.
  show();
  state_ = state;
  unannounced_ = true;
  memory_.rank_words().state.store(state_word(++epoch_, state), std::memory_order_seq_cst);
}

void RankClient::set_alarms(std::int64_t alarm_ps, std::int64_t limit_ps) {
  memory_.rank_words().alarm_ps.store(alarm_ps, std::memory_order_relaxed);
  memory_.rank_words().limit_ps.store(limit_ps, std::memory_order_relaxed);
}

bool RankClient::announce_sleep() {
  memory_.rank_words().sleeping.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool nothing = completions_.empty() && arrivals_.empty() && notices_.empty();
  const bool corrupt = completions_.corrupt() || arrivals_.corrupt() || notices_.corrupt();
  if (!failure_.empty() || (nothing && !corrupt)) return true;
  cancel_sleep();
  return false;
}

void RankClient::cancel_sleep() { memory_.rank_words().sleeping.store(0, std::memory_order_relaxed); }

}  // namespace loomnet::rank
