#include "rank/rank_session.hpp"

#include <fcntl.h>
#include <pthread.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <system_error>

namespace loomnet::rank {
namespace {

constexpr std::size_t kMostStrays = 64;  // that are named

int duplicate(int fd, const char* what) {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) throw std::system_error(errno, std::generic_category(), what);
  return copy;
}

// How often this process has been forked from its ancestors since they loaded this code.
std::atomic<unsigned> forks{0};
[[maybe_unused]] const int counts_forks = ::pthread_atfork(nullptr, nullptr, [] { ++forks; });

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
      executor_(client_.layout(), client_.rank(), client_.staging(), client_, *this, await_sends),
      watch_(threads_),
      forks_(forks) {
  client_.set_state(State::computing);
  client_.publish();
  if (memory_.engine_words().virtual_clock.load(std::memory_order_acquire) != 0) use_virtual_clock();
}

RankSession::~RankSession() {
  leave(0);
  // To destroy a condition variable waits for the threads that wait for it, and these are the parent's.
  if (forked()) (void)conditions_.release();
}

bool RankSession::forked() const { return forks.load(std::memory_order_relaxed) != forks_; }

void RankSession::refuse_fork() const {
  if (forked()) throw std::runtime_error("this process was forked from a rank: the NIC is its parent's alone");
}

void RankSession::start_progress() {
  if (thread_.joinable() || stop_) return;
  idle_ = false;
  thread_ = std::thread([this] { progress(); });
}

void RankSession::create(CommunicatorId id, const std::vector<JobRank>& members) {
  refuse_fork();
  const auto lock = watch_.enter(mutex_);
  awake();
  if (left_) throw std::runtime_error("this rank has left its NIC");
  executor_.create(id, members);
  communicators_[id] = members;
  start_progress();
  client_.publish();
}

void RankSession::close(CommunicatorId id) {
  if (forked()) return;
  const auto lock = watch_.enter(mutex_);
  awake();
  if (left_ || communicators_.count(id) == 0) return;
  start_held();
  communicators_.erase(id);
  executor_.close(id);
  client_.publish();
}

void RankSession::abort(CommunicatorId id, const std::string& reason) {
  if (forked()) return;
  const auto lock = watch_.enter(mutex_);
  awake();
  if (left_ || communicators_.count(id) == 0) return;
  start_held();
  executor_.abort(id, reason);
  client_.publish();
}

std::uint64_t RankSession::payload_bytes(CommunicatorId id, const Operation& o) const {
  const auto sum = [](const std::vector<std::uint64_t>& v) {
    return std::accumulate(v.begin(), v.end(), std::uint64_t{0});
  };
  std::uint64_t elements = std::max({o.count, sum(o.input_counts), sum(o.output_counts)});
  const bool per_rank = o.collective == Collective::reduce_scatter || o.collective == Collective::all_gather ||
                        o.collective == Collective::all_to_all;
  if (per_rank && o.input_counts.empty() && o.output_counts.empty()) {
    const auto group = communicators_.find(id);
    if (group != communicators_.end()) elements *= group->second.size();
  }
  return elements * element_size(o.type);
}

WorkPtr RankSession::start(CommunicatorId id, std::vector<Operation> operations, std::int64_t timeout_ns, bool asked) {
  refuse_fork();
  auto work = std::make_shared<Work>();
  work->communicator = id;
  if (!operations.empty()) work->name = describe(operations.front());
  work->started_ns = monotonic_ns();
  if (timeout_ns > 0) {
    work->limit_ns = timeout_ns;
    work->deadline_ps = after(timeout_ns);
    work->asked = asked;
  }
  work->left = static_cast<std::uint32_t>(operations.size()) + 1;  // one is this call's
  const auto lock = watch_.enter(mutex_);
  awake();
  if (left_) throw std::runtime_error("this rank has left its NIC");
  for (const Operation& o : operations) work->bytes += payload_bytes(id, o);
  work->id = next_work_++;
  // Every begin keeps room for its end: a union of intervals with an end missing is worthless.
  work->marked = client_.mark(MarkKind::work_begin, work->id, id, work_label(operations), 0, open_marks_ + 2);
  open_marks_ += work->marked;
  if (holds_ && !operations.empty()) {
    try {
      check(id, operations);
    } catch (const std::exception& e) {
      work->left = 1;
      account(work, {.status = OperationStatus::aborted, .message = e.what()});
      client_.publish();
      throw;
    }
    held_.push_back({work, std::move(operations)});
    client_.publish();
    return work;
  }
  execute(work, std::move(operations));
  client_.publish();
  // The progress thread may sleep past this deadline.
  if (!virtual_ && timeout_ns > 0 && !work->done && idle_) rank_wake_.raise();
  return work;
}

void RankSession::execute(const WorkPtr& work, std::vector<Operation> operations) {
  starting_ = true;
  try {
    for (Operation& o : operations) {
      const OperationId operation = executor_.start(work->communicator, std::move(o));
      const auto early =
          std::find_if(early_.begin(), early_.end(), [&](const auto& e) { return e.first == operation; });
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
  work->received.add(result.received);
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
    client_.mark(MarkKind::work_end, work->id, static_cast<std::uint64_t>(work->started_ns), work->bytes,
                 static_cast<std::uint32_t>(work->status));
  }
  work->done.store(true, std::memory_order_release);
  for (Waiter* waiter : std::exchange(work->waiters, {})) resume(*waiter);
  if (work->wanted) {
    watch_.moved();  // its callback will run, and perhaps wake others
    ready_works_.push_back(work);
    conditions_->ready.notify_one();
  }
  conditions_->done.notify_all();
}

Thread& RankSession::awake() {
  watch_.moved();
  bool made = false;
  Thread& thread = threads_.self(&made);
  if (made && virtual_ && client_.state() == State::waiting) {
    memory_.rank_words().strays.fetch_add(1, std::memory_order_relaxed);
    if (strays_.size() < kMostStrays) strays_.push_back(thread.name);
  }
  holds_ |= made && virtual_ && threads_.size() > 1;
  // From now on a thread runs that the progress thread must look at.
  if (std::exchange(blind_, false)) rank_wake_.raise();
  update_state();
  return thread;
}

std::int64_t RankSession::now_ps() const {
  if (virtual_) return client_.now_ps();
  return static_cast<std::int64_t>(static_cast<double>(monotonic_ns()) / dilation_) * 1000;
}

std::int64_t RankSession::after(std::int64_t timeout_ns) const {
  const std::int64_t now = now_ps();
  return timeout_ns > (kNoAlarm - 1 - now) / 1000 ? kNoAlarm - 1 : now + timeout_ns * 1000;
}

bool RankSession::wait(const WorkPtr& work, std::int64_t timeout_ns) {
  if (work->done.load(std::memory_order_acquire)) return true;
  refuse_fork();
  auto lock = watch_.enter(mutex_);
  Thread& thread = awake();
  if (work->done) return true;
  Waiter waiter(thread);
  work->waiters.push_back(&waiter);
  const bool done =
      block(lock, waiter, timeout_ns < 0 ? kNoAlarm : after(timeout_ns), true, [&] { return work->done.load(); });
  std::erase(work->waiters, &waiter);
  return done;
}

bool RankSession::want(const WorkPtr& work) {
  refuse_fork();
  const auto lock = watch_.enter(mutex_);
  awake();
  if (work->done) return false;
  work->wanted = true;
  if (virtual_ && idle_) rank_wake_.raise();  // the progress thread must look often from now on
  return true;
}

WorkPtr RankSession::next_finished() {
  if (forked()) return nullptr;
  auto lock = watch_.enter(mutex_);
  Thread& thread = threads_.self();
  thread.callback = true;
  if (std::exchange(thread.busy, false)) {
    update_state();
    client_.publish();
  }
  conditions_->ready.wait(lock, [&] { return !ready_works_.empty() || left_; });
  if (ready_works_.empty()) return nullptr;
  WorkPtr work = ready_works_.front();
  ready_works_.pop_front();
  thread.busy = true;
  // The callback runs from here on. A look that is under way does not know of it, and a progress thread that
  // has had no thread to look at must look at this one.
  awake();
  return work;
}

RankClient::Meeting RankSession::meet(std::uint64_t name_high, std::uint64_t name_low, std::uint32_t position,
                                      std::uint32_t size, std::int64_t timeout_ns, bool asked, bool whole) {
  refuse_fork();
  auto lock = watch_.enter(mutex_);
  Thread& thread = awake();
  if (left_) throw std::runtime_error("this rank has left its NIC");
  start_progress();
  const std::uint32_t request = meetings_++;
  RankClient::Meeting& meeting = client_.meeting(request);
  if (client_.failure().empty() && client_.mark(MarkKind::meet, std::uint64_t{position} << 32 | request, name_high,
                                                name_low, whole ? size | kDefaultGroup : size, open_marks_ + 1)) {
    Waiter waiter(thread);
    block(lock, waiter, timeout_ns > 0 ? after(timeout_ns) : kNoAlarm, asked,
          [&] { return meeting.over() || !client_.failure().empty(); });
  }
  RankClient::Meeting found = meeting;
  client_.forget_meeting(request);
  if (!found.over() && !client_.failure().empty()) throw std::runtime_error(client_.failure());
  return found;
}

std::optional<std::uint32_t> RankSession::report(std::span<const std::uint8_t> bytes) {
  if (bytes.empty() || bytes.size() > kMostReport) throw std::invalid_argument("report: its length");
  refuse_fork();
  const auto lock = watch_.enter(mutex_);
  awake();
  if (left_) throw std::runtime_error("this rank has left its NIC");
  start_progress();
  const std::uint32_t number = reports_++;
  client_.answer(number);
  if (client_.report(number, bytes, open_marks_ + 1)) {
    client_.publish();
    return number;
  }
  client_.forget_answer(number);
  return std::nullopt;
}

std::optional<std::vector<std::uint8_t>> RankSession::answer(std::uint32_t number, std::int64_t timeout_ns) {
  refuse_fork();
  auto lock = watch_.enter(mutex_);
  Thread& thread = awake();
  RankClient::Answer& answer = client_.answer(number);
  const auto ready = [&] { return answer.whole() || !client_.failure().empty(); };
  if (!ready()) {
    Waiter waiter(thread);
    block(lock, waiter, timeout_ns > 0 ? after(timeout_ns) : kNoAlarm, true, ready);
  }
  const RankClient::Answer found = std::move(answer);
  client_.forget_answer(number);
  if (found.whole()) return found.bytes;
  if (!client_.failure().empty()) throw std::runtime_error(client_.failure());
  return std::nullopt;
}

void RankSession::use_virtual_clock() {
  const auto lock = watch_.enter(mutex_);
  virtual_ = true;
  threads_.add_main();
  start_progress();
}

void RankSession::future_call(bool enters) { count_call(&Thread::futures, enters); }

void RankSession::local_call(bool enters) { count_call(&Thread::locals, enters); }

void RankSession::count_call(std::uint32_t Thread::* calls, bool enters) {
  if (forked()) return;
  const auto lock = watch_.enter(mutex_);
  Thread& thread = awake();
  if (enters) {
    ++(thread.*calls);
  } else if (thread.*calls != 0) {
    --(thread.*calls);
  }
}

bool RankSession::mark(MarkKind kind, std::uint64_t value, std::uint64_t a, std::uint64_t b, std::uint32_t status) {
  if (forked()) return false;
  const auto lock = watch_.enter(mutex_);
  awake();
  if (left_) return false;
  const bool ok = client_.mark(kind, value, a, b, status, open_marks_ + 1);
  client_.publish();
  return ok;
}

void RankSession::mark_ring_steps() {
  if (forked()) return;
  const auto lock = watch_.enter(mutex_);
  executor_.watch_steps(this);
}

// The executor calls this with the mutex held. The mark is published when the call of the executor ends.
void RankSession::step_received(std::uint32_t communicator, std::uint32_t ring_step) {
  client_.mark(MarkKind::ring_step, ring_step, communicator, 0, 0, open_marks_ + 1);
}

std::int64_t RankSession::last_step() {
  if (forked()) return -1;
  const auto lock = watch_.enter(mutex_);
  // Without a communicator no progress thread reads the notices.
  if (!thread_.joinable() && !left_) client_.poll(nullptr);
  return client_.last_step();
}

void RankSession::compute(std::uint64_t picoseconds, bool poll) {
  if (forked()) return;
  auto lock = watch_.enter(mutex_);
  Thread& thread = awake();
  if (!virtual_ || left_ || picoseconds == 0 || !client_.failure().empty()) return;
  if (poll) memory_.rank_words().polls.fetch_add(1, std::memory_order_relaxed);
  // An hour of emulated time is the most that one call may ask for.
  constexpr std::uint64_t kMost = 3'600'000'000'000'000;
  Waiter waiter(thread);
  block(lock, waiter, now_ps() + static_cast<std::int64_t>(std::min(picoseconds, kMost)), true,
        [&] { return !client_.failure().empty(); });
}

bool RankSession::settled() const { return executor_.quiescent() || !client_.failure().empty(); }

std::uint64_t RankSession::foreign_begin() {
  if (forked()) return 0;
  const auto lock = watch_.enter(mutex_);
  if (left_) return 0;
  const std::uint64_t number = next_work_++;
  if (!client_.mark(MarkKind::work_begin, number, 0, 0, 0, open_marks_ + 2)) return 0;
  ++open_marks_;
  client_.publish();
  return number;
}

void RankSession::foreign_end(std::uint64_t number, std::int64_t began_ns, std::uint64_t bytes, bool ok) {
  if (forked()) return;
  const auto lock = watch_.enter(mutex_);
  if (left_ || number == 0) return;
  --open_marks_;
  client_.mark(MarkKind::work_end, number, static_cast<std::uint64_t>(began_ns), bytes,
               static_cast<std::uint32_t>(ok ? OperationStatus::ok : OperationStatus::aborted));
  client_.publish();
}

void RankSession::leave(std::int64_t linger_ns) {
  if (forked()) {  // the thread is the parent's as well
    if (thread_.joinable()) thread_.detach();
    return;
  }
  {
    auto lock = watch_.enter(mutex_);
    if (left_) return;
    if (std::exchange(leaving_, true)) {  // another thread leaves: both return once it has left
      Waiter waiter(awake());
      block(lock, waiter, kNoAlarm, false, [&] { return left_; });
      return;
    }
    Thread& thread = awake();
    start_held();
    for (const auto& [id, members] : communicators_) executor_.close(id);
    communicators_.clear();
    client_.publish();
    if (thread_.joinable() && !settled()) {
      // On the virtual clock this thread waits as in any other call, so that time moves and the writes in
      // flight complete. At the instant at which the last has completed the rank computes again and time
      // stands. The instant at which the process ends thus does not depend on the scheduler.
      Waiter waiter(thread);
      const std::uint64_t stranded = client_.stranded();
      block(lock, waiter, virtual_ ? kNoAlarm : after(linger_ns), false,
            [&] { return settled() || client_.stranded() != stranded; });
    }
    stop_ = true;
  }
  rank_wake_.raise();
  if (thread_.joinable()) thread_.join();
  const auto lock = watch_.enter(mutex_);
  left_ = true;
  client_.set_state(State::gone);
  client_.publish();
  conditions_->ready.notify_all();
  conditions_->done.notify_all();
}

std::vector<std::pair<std::string, std::uint64_t>> RankSession::counters() const {
  if (forked()) return {};
  const auto lock = watch_.enter(mutex_);
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
