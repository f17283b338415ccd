// A rank that waits: blocked calls with their deadlines, the state word that shows them to the engine, and the
// progress thread, which completes works whose time is over.
#include <algorithm>
#include <chrono>

#include "rank/rank_session.hpp"

namespace loomnet::rank {

bool RankSession::block(std::unique_lock<std::mutex>& lock, Waiter& waiter, std::int64_t deadline_ps,
                        bool asked, const std::function<bool()>& done) {
  const bool timed = deadline_ps != kNoAlarm;
  blocks_.push_back({&waiter, deadline_ps, asked, &done});
  update_state();
  client_.publish();
  const auto over = [&] { return done() || left_; };
  if (!timed) {
    conditions_->done.wait(lock, over);
  } else if (virtual_) {
    conditions_->done.wait(lock, [&] { return over() || now_ps() >= deadline_ps; });
  } else {
    const auto left = static_cast<double>(deadline_ps - now_ps()) / 1000.0 * dilation_;
    // A day is longer than any live run; more might overflow the machine's clock.
    const auto limit = std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(left, 86'400e9)));
    conditions_->done.wait_for(lock, limit, over);
  }
  std::erase_if(blocks_, [&](const Block& each) { return each.waiter == &waiter; });
  waiter.end();
  update_state();
  return done();
}

// A work is under way whose future is held.
bool RankSession::awaits_future() const {
  for (const auto& [id, work] : operations_) {
    if (work->wanted) return true;
  }
  return false;
}

void RankSession::update_state() {
  if (left_) return;
  State state = State::computing;
  // While the progress thread runs, or a finished work has no callback yet, posts may follow.
  if (idle_ && ready_works_.empty()) {
    if (!virtual_) {
      if (threads_.some_wait() && threads_.callbacks_wait()) state = State::waiting;
    } else if (threads_.all_wait() || watch_.activity() == Activity::waiting) {
      state = State::waiting;
    } else if (watch_.activity() == Activity::outside) {
      state = State::outside;
    }
  }
  if (virtual_ && state != State::computing) set_alarms();
  client_.set_state(state);
}

void RankSession::set_alarms() {
  std::int64_t asked = kNoAlarm, limit = kNoAlarm;
  const auto take = [&](std::int64_t due, bool chosen) {
    std::int64_t& earliest = chosen ? asked : limit;
    earliest = std::min(earliest, due);
  };
  for (const Block& block : blocks_) {
    if (!block.waiter->ended()) take(block.due_ps, block.asked);
  }
  for (const auto& [id, work] : operations_) take(work->deadline_ps, work->asked);
  client_.set_alarms(asked, limit);
}

void RankSession::resume(Waiter& waiter) {
  if (waiter.ended()) return;
  watch_.moved();
  waiter.end();
  conditions_->done.notify_all();
}

void RankSession::end_blocks() {
  if (blocks_.empty()) return;
  const std::int64_t now = now_ps();
  for (const Block& block : blocks_) {
    if ((virtual_ && block.due_ps <= now) || (*block.done)()) resume(*block.waiter);
  }
}

int RankSession::sleep_ms() const {
  if (virtual_) return -1;
  std::int64_t next = client_.departed().size() > departed_failed_ && !operations_.empty()
                          ? last_event_ps_ + kDepartedGracePs
                          : kNoAlarm;
  for (const auto& [id, work] : operations_) next = std::min(next, work->deadline_ps);
  if (next == kNoAlarm) return -1;
  const double left_ms = static_cast<double>(next - now_ps()) / 1e9 * dilation_;
  return static_cast<int>(std::clamp(left_ms + 1, 0.0, 3.6e6));
}

void RankSession::expire() {
  const std::int64_t now = now_ps();
  std::vector<std::pair<CommunicatorId, std::string>> late;
  for (const auto& [id, work] : operations_) {
    if (now < work->deadline_ps) continue;
    // In Gloo's words, which scripts look for.
    late.emplace_back(work->communicator, "rank " + std::to_string(rank()) + ": Timed out waiting " +
                                              std::to_string(work->limit_ns / 1'000'000) + "ms for " +
                                              work->name + " to complete");
  }
  for (const auto& [communicator, reason] : late) executor_.abort(communicator, reason);
}

// A rank that left of its own accord had finished all operations that it took part in, so operations that still
// run may well end without it. Only silence shows that one of them needed that rank.
void RankSession::expire_departed() {
  const bool stranded = client_.stranded() != stranded_;
  stranded_ = client_.stranded();
  if (client_.departed().size() <= departed_failed_ || operations_.empty()) return;
  if (!stranded && (virtual_ || now_ps() < last_event_ps_ + kDepartedGracePs)) return;
  for (; departed_failed_ < client_.departed().size(); ++departed_failed_) {
    const JobRank peer = client_.departed()[departed_failed_];
    executor_.on_peer_failure(peer, "has exited");
  }
}

// Until the NIC has an entry, a thread calls, or time is up. On the virtual clock the kernel is asked meanwhile
// about threads that the session cannot see blocked.
void RankSession::sleep(std::unique_lock<std::mutex>& lock) {
  idle_ = true;
  for (bool woken = false, looks = true; looks && !woken && !stop_;) {
    update_state();
    client_.publish();
    looks = virtual_ && !threads_.all_wait();
    blind_ = virtual_ && !looks;
    ThreadWatch::Look look;
    if (looks) look = watch_.begin(awaits_future(), progress_tid_);
    const int limit_ms = looks ? watch_.interval_ms() : sleep_ms();
    lock.unlock();
    woken = rank_wake_.wait(limit_ms);
    if (looks && !woken) ThreadWatch::ask(look);
    lock.lock();
    if (looks && !woken) watch_.end(look, monotonic_ns());
  }
  rank_wake_.clear();
  idle_ = blind_ = false;
  // Before entries are read: the engine must not find them read and the rank still at rest.
  update_state();
  client_.cancel_sleep();
}

void RankSession::progress() {
  std::unique_lock lock(mutex_);
  progress_tid_ = ThreadProbe::self();
  while (!stop_) {
    if (client_.poll(&executor_)) {
      last_event_ps_ = now_ps();
      memory_.rank_words().sum_overflows.store(executor_.sum_overflows(), std::memory_order_relaxed);
      memory_.rank_words().sums_as_floats.store(executor_.sums_as_floats(), std::memory_order_relaxed);
    }
    expire();
    expire_departed();
    end_blocks();
    client_.publish();
    if (client_.announce_sleep()) sleep(lock);
    conditions_->done.notify_all();
  }
}

}  // namespace loomnet::rank
