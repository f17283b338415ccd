// A rank that waits: blocked calls with their deadlines, the state word that shows them to the engine, the
// threads that the script has started and the calls that start when all of them rest, and the progress thread,
// which completes works whose time is over.
#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "collective/validate.hpp"
#include "rank/rank_session.hpp"

namespace loomnet::rank {

bool RankSession::block(std::unique_lock<std::mutex>& lock, Waiter& waiter, std::int64_t deadline_ps, bool asked,
                        const std::function<bool()>& done) {
  const bool timed = deadline_ps != kNoAlarm;
  blocks_.push_back({&waiter, deadline_ps, asked, &done});
  update_state();
  client_.publish();
  // Wakes the progress thread, so that it looks at the quiet threads at once.
  if (virtual_ && idle_ && threads_.some_quiet() && threads_.all_wait()) rank_wake_.raise();
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
  resume(waiter);  // where its time was over and this thread saw so before the progress thread did
  waiter.returned();
  update_state();
  return done();
}

// Whether the script holds the future of a work that is under way, or that starts when the rank rests.
bool RankSession::awaits_future() const {
  for (const auto& [id, work] : operations_) {
    if (work->wanted) return true;
  }
  return std::any_of(held_.begin(), held_.end(), [](const Held& each) { return each.work->wanted; });
}

// What the rank does, as far as the session knows.
State RankSession::rest() const {
  // While the progress thread runs, or a finished work has no callback yet, posts may follow.
  if (!idle_ || !ready_works_.empty()) return State::computing;
  if (!virtual_) {
    return threads_.some_wait() && threads_.callbacks_wait() ? State::waiting : State::computing;
  }
  if ((threads_.all_wait() && !threads_.some_quiet()) || watch_.activity() == Activity::waiting) return State::waiting;
  return watch_.activity() == Activity::outside ? State::outside : State::computing;
}

void RankSession::update_state() {
  if (left_) return;
  State state = rest();
  if (state != State::computing && !held_.empty()) {
    start_held();
    state = rest();
  }
  if (virtual_ && state != State::computing) set_alarms();
  client_.set_state(state);
}

// What the executor would refuse at once.
void RankSession::check(CommunicatorId id, const std::vector<Operation>& operations) const {
  const auto group = communicators_.find(id);
  if (group == communicators_.end()) throw std::invalid_argument("no communicator " + std::to_string(id));
  const auto self = std::find(group->second.begin(), group->second.end(), rank());
  for (const Operation& o : operations) {
    check_operation(o, static_cast<GroupRank>(self - group->second.begin()),
                    static_cast<std::uint32_t>(group->second.size()), true);
  }
}

void RankSession::start_held() {
  // A call that ends at once may have another one started meanwhile.
  std::vector<Held> held = std::exchange(held_, {});
  std::stable_sort(held.begin(), held.end(),
                   [](const Held& a, const Held& b) { return a.work->communicator < b.work->communicator; });
  for (Held& each : held) {
    try {
      execute(each.work, std::move(each.operations));
    } catch (const std::exception&) {
      // Its work has failed with the reason.
    }
  }
}

void RankSession::thread_begins(const std::string& name) {
  if (forked()) return;
  const auto lock = watch_.enter(mutex_);
  if (!virtual_ || left_) return;
  watch_.moved();
  threads_.begin(name);
  holds_ = true;
  if (std::exchange(blind_, false)) rank_wake_.raise();
  update_state();
}

void RankSession::thread_ends() {
  if (forked()) return;
  const auto lock = watch_.enter(mutex_);
  if (!virtual_ || left_) return;
  watch_.moved();
  threads_.end();
  // The progress thread may have slept because of this thread.
  rank_wake_.raise();
  update_state();
}

std::vector<std::string> RankSession::strays() const {
  if (forked()) return {};
  const auto lock = watch_.enter(mutex_);
  return strays_;
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
  if (std::exchange(blind_, false)) rank_wake_.raise();
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
                                              std::to_string(work->limit_ns / 1'000'000) + "ms for " + work->name +
                                              " to complete");
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
  bool first = true;
  for (bool woken = false, looks = true; looks && !woken && !stop_; first = false) {
    update_state();
    client_.publish();
    const bool all_wait = threads_.all_wait();
    looks = virtual_ && (!all_wait || threads_.some_quiet());
    blind_ = virtual_ && !looks;
    ThreadWatch::Look look;
    if (looks) look = watch_.begin(awaits_future(), progress_tid_);
    // Where only quiet threads may still run, the first look is likely to show that they sleep.
    const int limit_ms = looks ? (first && all_wait ? 0 : watch_.interval_ms()) : sleep_ms();
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
