#include "nic/rank_session.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <system_error>

namespace loomnet::rank {
namespace {

thread_local bool in_callback = false;  // this thread has a work from next_finished() in hand

int duplicate(int fd, const char* what) {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) throw std::system_error(errno, std::generic_category(), what);
  return copy;
}

// Mark work_begin's b: how many collectives, and the first one.
std::uint64_t work_label(const std::vector<Operation>& operations) {
  if (operations.empty()) return 0;
  std::uint64_t collectives = 0;
  for (const Operation& o : operations) {
    collectives += o.collective != Collective::send && o.collective != Collective::recv;
  }
  return collectives << 8 | (1 + static_cast<std::uint64_t>(operations.front().collective));
}

}  // namespace

RankSession::RankSession(int memory_fd, int engine_event_fd, bool await_sends)
    : memory_(Memory::attach(memory_fd)),
      rank_wake_(memory_.engine_words().rank_wake),
      engine_wake_(duplicate(engine_event_fd, "the engine's eventfd")),
      client_(memory_, engine_wake_),
      executor_(client_.layout(), client_.rank(), client_.staging(), client_, *this,
                await_sends),
      pid_(::getpid()) {
  client_.set_state(State::computing);
  client_.publish();
}

RankSession::~RankSession() { leave(0); }

void RankSession::start_progress() {
  if (thread_.joinable() || stop_) return;
  idle_ = false;
  thread_ = std::thread([this] { progress(); });
}

void RankSession::create(CommunicatorId id, const std::vector<JobRank>& members) {
  const std::lock_guard lock(mutex_);
  if (left_) throw std::runtime_error("this rank has left its NIC");
  executor_.create(id, members);
  communicators_[id] = members;
  start_progress();
  client_.publish();
}

void RankSession::close(CommunicatorId id) {
  const std::lock_guard lock(mutex_);
  if (left_ || communicators_.erase(id) == 0) return;
  executor_.close(id);
  client_.publish();
}

void RankSession::abort(CommunicatorId id, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (left_ || communicators_.count(id) == 0) return;
  executor_.abort(id, reason);
  client_.publish();
}

std::uint64_t RankSession::payload_bytes(CommunicatorId id, const Operation& o) const {
  const auto sum = [](const std::vector<std::uint64_t>& v) {
    return std::accumulate(v.begin(), v.end(), std::uint64_t{0});
  };
  std::uint64_t elements = std::max({o.count, sum(o.input_counts), sum(o.output_counts)});
  const bool per_rank = o.collective == Collective::reduce_scatter ||
                        o.collective == Collective::all_gather ||
                        o.collective == Collective::all_to_all;
  if (per_rank && o.input_counts.empty() && o.output_counts.empty()) {
    const auto group = communicators_.find(id);
    if (group != communicators_.end()) elements *= group->second.size();
  }
  return elements * element_size(o.type);
}

WorkPtr RankSession::start(CommunicatorId id, std::vector<Operation> operations,
                           std::int64_t timeout_ns) {
  auto work = std::make_shared<Work>();
  work->communicator = id;
  if (!operations.empty()) work->name = describe(operations.front());
  work->started_ns = monotonic_ns();
  if (timeout_ns > 0) work->deadline_ns = work->started_ns + timeout_ns;
  work->left = static_cast<std::uint32_t>(operations.size()) + 1;  // one is this call's
  const std::lock_guard lock(mutex_);
  awake();
  if (left_) throw std::runtime_error("this rank has left its NIC");
  for (const Operation& o : operations) work->bytes += payload_bytes(id, o);
  work->id = next_work_++;
  // Every begin keeps room for its end: a union of intervals with an end missing is worthless.
  work->marked = client_.mark(MarkKind::work_begin, work->id, id, work_label(operations), 0,
                              open_marks_ + 2);
  open_marks_ += work->marked;
  starting_ = true;
  try {
    for (Operation& o : operations) {
      const OperationId operation = executor_.start(id, std::move(o));
      const auto early = std::find_if(early_.begin(), early_.end(),
                                      [&](const auto& e) { return e.first == operation; });
      if (early == early_.end()) {
        operations_.emplace(operation.value, work);
      } else {
        const OperationResult result = early->second;
        early_.erase(early);
        account(work, result);
      }
    }
  } catch (const std::exception& e) {
    starting_ = false;
    work->left = 1;
    account(work, {.status = OperationStatus::aborted, .message = e.what()});
    client_.publish();
    throw;
  }
  starting_ = false;
  release(work);
  client_.publish();
  // The progress thread may sleep past this deadline.
  if (work->deadline_ns != 0 && !work->done && idle_) rank_wake_.raise();
  return work;
}

void RankSession::finished(OperationId id, const OperationResult& result) {
  const auto found = operations_.find(id.value);
  if (found == operations_.end()) {
    if (starting_) early_.emplace_back(id, result);
    return;
  }
  const WorkPtr work = found->second;
  operations_.erase(found);
  account(work, result);
}

void RankSession::account(const WorkPtr& work, const OperationResult& result) {
  work->source = result.source;
  if (result.status != OperationStatus::ok && work->status == OperationStatus::ok) {
    work->status = result.status;
    work->message = result.message;
    if (!client_.absent().empty() && work->message.find(client_.absent()) == std::string::npos) {
      work->message += " (" + client_.absent() + ")";
    }
  }
  release(work);
}

void RankSession::release(const WorkPtr& work) {
  if (work->left == 0 || --work->left != 0) return;
  work->ended_ns = monotonic_ns();
  if (work->marked) {
    --open_marks_;
    client_.mark(MarkKind::work_end, work->id, static_cast<std::uint64_t>(work->started_ns),
                 work->bytes, static_cast<std::uint32_t>(work->status));
  }
  work->done.store(true, std::memory_order_release);
  // Whoever waits for it computes from now on, even before the scheduler lets it run.
  blocked_ -= std::exchange(work->waiters, 0);
  blocked_callbacks_ -= std::exchange(work->callback_waiters, 0);
  if (work->wanted) {
    asleep_ = false;  // its callback will run, and perhaps wake others
    ready_works_.push_back(work);
    ready_.notify_one();
  }
  done_.notify_all();
}

bool RankSession::wait(const WorkPtr& work, std::int64_t timeout_ns) {
  if (work->done.load(std::memory_order_acquire)) return true;
  std::unique_lock lock(mutex_);
  awake();
  if (work->done) return true;
  auto& waiters = in_callback ? work->callback_waiters : work->waiters;
  auto& blocked = in_callback ? blocked_callbacks_ : blocked_;
  ++waiters;
  ++blocked;
  update_state();
  client_.publish();
  const auto is_done = [&] { return work->done.load(); };
  if (timeout_ns < 0) {
    done_.wait(lock, is_done);
  } else if (!done_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), is_done)) {
    --waiters;  // account() did not run, so both still count this thread
    --blocked;
    update_state();
    client_.publish();
    return false;
  }
  return true;
}

bool RankSession::want(const WorkPtr& work) {
  const std::lock_guard lock(mutex_);
  awake();
  if (work->done) return false;
  work->wanted = true;
  if (watch_sleep_ && idle_) rank_wake_.raise();  // the progress thread must watch from now on
  return true;
}

WorkPtr RankSession::next_finished() {
  std::unique_lock lock(mutex_);
  if (std::exchange(in_callback, false)) {
    --callbacks_;
    update_state();
    client_.publish();
  }
  ready_.wait(lock, [&] { return !ready_works_.empty() || left_; });
  if (ready_works_.empty()) return nullptr;
  WorkPtr work = ready_works_.front();
  ready_works_.pop_front();
  in_callback = true;
  ++callbacks_;
  return work;
}

void RankSession::watch_sleep() {
  const std::lock_guard lock(mutex_);
  watch_sleep_ = true;
}

// Something is under way whose future somebody holds.
bool RankSession::awaits_future() const {
  for (const auto& [id, work] : operations_) {
    if (work->wanted) return true;
  }
  return false;
}

void RankSession::update_state() {
  if (left_) return;
  // Waiting: some thread is blocked in communication, and nothing that could lead to a post is
  // under way: neither the progress thread nor a callback that is not itself blocked.
  const bool waiting = idle_ && (asleep_ || blocked_ + blocked_callbacks_ > 0) && ready_works_.empty() &&
                       callbacks_ == blocked_callbacks_;
  client_.set_state(waiting ? State::waiting : State::computing);
}

int RankSession::sleep_ms(std::int64_t now) const {
  std::int64_t next = client_.departed().size() > departed_failed_ && !operations_.empty()
                          ? last_event_ns_ + kDepartedGrace
                          : 0;
  for (const auto& [id, work] : operations_) {
    if (work->deadline_ns != 0 && (next == 0 || work->deadline_ns < next)) next = work->deadline_ns;
  }
  if (next == 0) return -1;
  return static_cast<int>(std::clamp<std::int64_t>((next - now) / 1'000'000 + 1, 0, 3'600'000));
}

void RankSession::expire(std::int64_t now) {
  std::vector<std::pair<CommunicatorId, std::string>> late;
  for (const auto& [id, work] : operations_) {
    if (work->deadline_ns == 0 || now < work->deadline_ns) continue;
    const auto limit = (work->deadline_ns - work->started_ns) / 1'000'000;
    // In Gloo's words, which scripts look for.
    late.emplace_back(work->communicator, "rank " + std::to_string(rank()) + ": Timed out waiting " +
                                              std::to_string(limit) + "ms for " + work->name +
                                              " to complete");
  }
  for (const auto& [communicator, reason] : late) executor_.abort(communicator, reason);
}

// A rank that left has finished all it took part in, so what runs may still end without it: only
// silence shows that something needed it.
void RankSession::expire_departed(std::int64_t now) {
  if (client_.departed().size() <= departed_failed_ || operations_.empty() ||
      now < last_event_ns_ + kDepartedGrace) {
    return;
  }
  for (; departed_failed_ < client_.departed().size(); ++departed_failed_) {
    const JobRank peer = client_.departed()[departed_failed_];
    executor_.on_peer_failure(peer, "has exited");
  }
}

void RankSession::progress() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (client_.poll(&executor_)) last_event_ns_ = monotonic_ns();
    end_compute();
    end_leave();
    const std::int64_t now = monotonic_ns();
    expire(now);
    expire_departed(now);
    client_.publish();
    if (!client_.announce_sleep()) continue;
    const int limit = sleep_ms(now);
    const bool watch = watch_sleep_ && !asleep_ && blocked_ == 0 && awaits_future();
    idle_ = true;
    update_state();
    client_.publish();
    const std::uint64_t calls = calls_;
    lock.unlock();
    bool asleep = false;
    if (!rank_wake_.wait(watch ? kWatchMs : limit) && watch) asleep = sleep_watch_.others_asleep();
    rank_wake_.clear();
    lock.lock();
    asleep_ |= asleep && calls == calls_ && ready_works_.empty();
    idle_ = false;
    update_state();  // before anything is read: the engine must not see us read and still wait
    client_.cancel_sleep();
    done_.notify_all();
  }
}

bool RankSession::mark(MarkKind kind, std::uint64_t value, std::uint64_t a, std::uint64_t b,
                       std::uint32_t status) {
  const std::lock_guard lock(mutex_);
  awake();
  if (left_) return false;
  const bool ok = client_.mark(kind, value, a, b, status, open_marks_ + 1);
  client_.publish();
  return ok;
}

std::int64_t RankSession::last_step() {
  const std::lock_guard lock(mutex_);
  // Without a communicator no progress thread reads the notices.
  if (!thread_.joinable() && !left_) client_.poll(nullptr);
  return client_.last_step();
}

void RankSession::compute(std::uint64_t picoseconds) {
  std::unique_lock lock(mutex_);
  awake();
  done_.wait(lock, [&] { return !computing_; });
  if (left_ || picoseconds == 0 || !client_.failure().empty()) return;
  start_progress();
  if (!client_.mark(MarkKind::compute, picoseconds, 0, 0, 0, open_marks_ + 1)) return;
  ++computes_;
  computing_ = true;
  ++blocked_;
  update_state();
  client_.publish();
  done_.wait(lock, [&] { return !computing_ || left_; });
}

// Whoever computed goes on from now, even before the scheduler lets it run.
void RankSession::end_compute() {
  if (!computing_ || (client_.resumed() < computes_ && client_.failure().empty())) return;
  computing_ = false;
  --blocked_;
  done_.notify_all();
}

bool RankSession::settled() const {
  return executor_.quiescent() || !client_.failure().empty();
}

// Whoever leaves computes from now on, at this instant: on the virtual clock time stands still until
// its process has ended, and so where it ends does not depend on the scheduler.
void RankSession::end_leave() {
  if (!leaving_ || !settled()) return;
  leaving_ = false;
  --blocked_;
  done_.notify_all();
}

std::uint64_t RankSession::foreign_begin() {
  const std::lock_guard lock(mutex_);
  if (left_) return 0;
  const std::uint64_t number = next_work_++;
  if (!client_.mark(MarkKind::work_begin, number, 0, 0, 0, open_marks_ + 2)) return 0;
  ++open_marks_;
  client_.publish();
  return number;
}

void RankSession::foreign_end(std::uint64_t number, std::int64_t began_ns, std::uint64_t bytes,
                              bool ok) {
  const std::lock_guard lock(mutex_);
  if (left_ || number == 0) return;
  --open_marks_;
  client_.mark(MarkKind::work_end, number, static_cast<std::uint64_t>(began_ns), bytes,
               static_cast<std::uint32_t>(ok ? OperationStatus::ok : OperationStatus::aborted));
  client_.publish();
}

void RankSession::foreign_wait(bool begins) {
  const std::lock_guard lock(mutex_);
  begins ? ++blocked_ : --blocked_;
  update_state();
  client_.publish();
}

void RankSession::leave(std::int64_t linger_ns) {
  if (::getpid() != pid_) {  // forked: the thread and the NIC are the parent's
    if (thread_.joinable()) thread_.detach();
    return;
  }
  {
    std::unique_lock lock(mutex_);
    if (left_) return;
    for (const auto& [id, members] : communicators_) executor_.close(id);
    communicators_.clear();
    awake();
    client_.publish();
    if (thread_.joinable() && !settled()) {
      leaving_ = true;
      ++blocked_;  // virtual clock: time must go on, or nothing in flight would ever complete
      update_state();
      client_.publish();
      if (!done_.wait_for(lock, std::chrono::nanoseconds(linger_ns), [&] { return !leaving_; })) {
        leaving_ = false;
        --blocked_;
      }
    }
    stop_ = true;
  }
  rank_wake_.raise();
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  left_ = true;
  client_.set_state(State::gone);
  client_.publish();
  ready_.notify_all();
  done_.notify_all();
}

std::vector<std::pair<std::string, std::uint64_t>> RankSession::counters() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<std::string, std::uint64_t>> out{
      {"writes", client_.writes()},
      {"write_bytes", client_.bytes()},
      {"marks_lost", memory_.rank_words().marks_lost.load(std::memory_order_relaxed)}};
  std::vector<CollectiveCounter> counters;
  executor_.counters(counters);
  for (const auto& c : counters) out.emplace_back(c.name, c.value);
  return out;
}

}  // namespace loomnet::rank
