// A receive never waits for a send: what cannot be forwarded at once is kept in memory and its slot
// given back. So slots always drain, and no ring of full slots can lock up.
#include "collective/collective_run.hpp"

#include <cstring>

#include "collective/received.hpp"
#include "collective/reduction.hpp"

namespace loomnet {

CollectiveRun::CollectiveRun(Communicator& communicator)
    : communicator_(communicator),
      size_(communicator.size()),
      held_(communicator, true),
      ring_base_(communicator.rings().first),
      released_(communicator.rings().first + 1),
      in_work_(2 * std::size_t{communicator.size()} + 1, 0) {}

void CollectiveRun::start(OperationId id, Operation operation) {
  queue_.push_back({id, std::move(operation)});
  if (active_) return;
  next();
  run();
}

// Begins what the queue holds, as far as what runs allows it.
void CollectiveRun::next() {
  while (!active_ && !queue_.empty() && !communicator_.failed()) {
    Queued& first = queue_.front();
    if (sums_ && SumRun::takes(first.operation)) {
      sums_->start(first.id, std::move(first.operation), sequence_++);
      queue_.pop_front();
    } else if (sums_ && sums_->unfinished() > 0) {
      return;
    } else {
      begin();
    }
  }
}

bool CollectiveRun::holds(OperationId id) const {
  if ((active_ && id_ == id) || held_.holds(id) || (sums_ && sums_->holds(id))) return true;
  for (const Queued& q : queue_) {
    if (q.id == id) return true;
  }
  return false;
}

void CollectiveRun::on_data(GroupRank from) {
  touch(receive_lane(from));
  run();
}

void CollectiveRun::on_room(GroupRank to) {
  if (!active_) return;
  touch(to);
  run();
}

void CollectiveRun::release_steps(std::uint32_t end) {
  released_ = end;
  if (!active_) return;
  for (GroupRank to = 0; to < size_; ++to) touch(to);
  run();
}

void CollectiveRun::fail_all(const OperationResult& result) {
  const auto finish = [&](OperationId id, const Operation& operation) {
    OperationResult own = result;
    own.cookie = operation.cookie;
    communicator_.finish(id, std::move(own));
  };
  // Their results are in place, and a member that is gone will not read their slots: the fault is
  // for what comes after.
  held_.clear([&](OperationId id, OperationResult& ended) { communicator_.finish(id, std::move(ended)); });
  if (sums_) sums_->fail_all(result);
  if (active_) finish(id_, operation_);
  active_ = false;
  for (const Queued& q : queue_) finish(q.id, q.operation);
  queue_.clear();
}

std::uint32_t CollectiveRun::lane_of(const Step& step) const {
  switch (step.kind) {
    case StepKind::send:
      return step.peer;
    case StepKind::recv:
    case StepKind::recv_reduce:
      return receive_lane(step.peer);
    case StepKind::copy:
      return 2 * size_;
  }
  return 2 * size_;
}

void CollectiveRun::begin() {
  id_ = queue_.front().id;
  operation_ = std::move(queue_.front().operation);
  received_ = {};
  queue_.pop_front();
  active_ = true;
  const bool scaled = operation_.reduce == ReduceOp::premul_sum &&
                      (operation_.collective == Collective::all_reduce || operation_.collective == Collective::reduce ||
                       operation_.collective == Collective::reduce_scatter);
  schedule_.clear();
  const ScheduleRequest request{operation_, communicator_.rank(), size_, scaled};
  const SchedulePlanner& planner = communicator_.planner();
  if (!planner || !planner(request, schedule_)) build_schedule(request, schedule_);
  index_schedule();
  prepare_memory(scaled);
  // Everything may be possible already, and what lies in slots may contradict this operation.
  for (std::uint32_t lane = 0; lane < in_work_.size(); ++lane) {
    const bool receives = lane >= size_ && lane < 2 * size_;
    if (lane_begin_[lane] < lane_begin_[lane + 1] ||
        (receives && communicator_.inbound(lane - size_, Traffic::collective) >= 0)) {
      touch(lane);
    }
  }
}

// The next operation may begin at once; this one ends when its writes have completed.
void CollectiveRun::end() {
  active_ = false;
  ++sequence_;
  ring_base_ += schedule_.ring_steps;
  ++communicator_.counters().collectives;
  OperationResult result;
  result.cookie = operation_.cookie;
  result.received = std::move(received_);
  std::vector<HeldOperations::Wait> waits;
  for (GroupRank to = 0; to < size_; ++to) {
    if (lane_begin_[to] == lane_begin_[to + 1]) continue;
    if (const auto slots = communicator_.unsent(to, Traffic::collective)) {
      waits.emplace_back(to, slots);
    }
  }
  held_.hold(id_, std::move(result), std::move(waits));
}

void CollectiveRun::index_schedule() {
  const std::size_t n = schedule_.steps.size();
  done_.assign(n, 0);
  remaining_ = static_cast<std::uint32_t>(n);
  lane_begin_.assign(2 * std::size_t{size_} + 2, 0);
  waiter_begin_.assign(n + 1, 0);
  for (const Step& step : schedule_.steps) {
    ++lane_begin_[lane_of(step) + 1];
    if (step.after != kNoStep) ++waiter_begin_[static_cast<std::size_t>(step.after) + 1];
  }
  for (std::size_t i = 1; i < lane_begin_.size(); ++i) lane_begin_[i] += lane_begin_[i - 1];
  for (std::size_t i = 1; i < waiter_begin_.size(); ++i) waiter_begin_[i] += waiter_begin_[i - 1];
  lane_steps_.resize(n);
  waiters_.resize(waiter_begin_[n]);
  lane_at_.assign(lane_begin_.begin(), lane_begin_.end() - 1);
  std::vector<std::uint32_t>& next_waiter = work_;  // borrowed: empty between operations
  next_waiter.assign(waiter_begin_.begin(), waiter_begin_.end() - 1);
  for (std::uint32_t i = 0; i < n; ++i) {
    const Step& step = schedule_.steps[i];
    lane_steps_[lane_at_[lane_of(step)]++] = i;
    if (step.after != kNoStep) waiters_[next_waiter[static_cast<std::size_t>(step.after)]++] = i;
  }
  lane_at_.assign(lane_begin_.begin(), lane_begin_.end() - 1);
  next_waiter.clear();
  std::fill(in_work_.begin(), in_work_.end(), std::uint8_t{0});
}

void CollectiveRun::prepare_memory(bool scaled) {
  const std::uint64_t element = element_size(operation_.type);
  const auto offsets = [&](const std::vector<std::uint64_t>& counts, std::vector<std::uint64_t>& out) {
    out.clear();
    std::uint64_t at = 0;
    for (const std::uint64_t c : counts) {
      out.push_back(at);
      at += c * element;
    }
  };
  offsets(operation_.input_counts, input_offsets_);
  offsets(operation_.output_counts, output_offsets_);
  const std::uint32_t blocks = operation_.collective == Collective::reduce_scatter ? size_ : 1;
  std::uint64_t total = 0;
  for (GroupRank k = 0; k < blocks; ++k) total += input_block(operation_, k) * element;
  // What all ranks must agree on; the uneven forms with one list per job count as their sum.
  switch (operation_.collective) {
    case Collective::all_reduce:
    case Collective::broadcast:
    case Collective::reduce:
      agreed_count_ = operation_.count;
      break;
    case Collective::reduce_scatter:
      agreed_count_ = total / element;
      break;
    case Collective::all_gather:
      agreed_count_ = 0;
      for (GroupRank k = 0; k < size_; ++k) agreed_count_ += output_block(operation_, k);
      break;
    default:
      agreed_count_ = 0;
      break;
  }
  if (!communicator_.channels().carries_bytes()) return;
  const std::uint64_t needed = std::max(schedule_.scratch_bytes, scaled ? total : 0);
  if (needed > scratch_capacity_) {
    // Not initialised: pages that fused steps never touch are never paid for.
    scratch_.reset(new std::uint8_t[needed]);
    scratch_capacity_ = needed;
  }
  if (!scaled) return;
  std::uint64_t at = 0;
  for (GroupRank k = 0; k < blocks; ++k) {
    const std::uint64_t bytes = input_block(operation_, k) * element;
    multiply(operation_.type, scratch_.get() + at, resolve({Space::input, k, 0}, 0), bytes, operation_.factor);
    at += bytes;
  }
}

void CollectiveRun::touch(std::uint32_t lane) {
  if (in_work_[lane] != 0) return;
  in_work_[lane] = 1;
  work_.push_back(lane);
}

void CollectiveRun::run() {
  if (running_) return;
  running_ = true;
  while (!communicator_.failed()) {
    if (!work_.empty()) {
      const std::uint32_t lane = work_.back();
      work_.pop_back();
      in_work_[lane] = 0;
      if (lane < size_) {
        run_sends(lane);
      } else if (lane < 2 * size_) {
        run_receives(lane - size_);
      } else {
        run_copies();
      }
    } else if (active_ && remaining_ == 0) {
      end();
      next();
    } else {
      break;
    }
  }
  running_ = false;
}

std::int64_t CollectiveRun::head(std::uint32_t lane) const {
  if (!active_ || lane_at_[lane] == lane_begin_[lane + 1]) return -1;
  return lane_steps_[lane_at_[lane]];
}

bool CollectiveRun::ready(std::uint32_t index) const {
  const Step& step = schedule_.steps[index];
  if (step.after == kNoStep) return true;
  const auto after = static_cast<std::size_t>(step.after);
  if (step.chunkwise && !communicator_.rings().whole) return done_[after] > done_[index];
  if (!released(step)) return false;
  return done_[after] == chunks_of(schedule_.steps[after]);
}

bool CollectiveRun::released(const Step& step) const {
  if (!communicator_.rings().paced || step.ring_step == kNoStep) return true;
  const std::uint32_t number = ring_base_ + static_cast<std::uint32_t>(step.ring_step);
  return static_cast<std::int32_t>(number - released_) < 0;
}

void CollectiveRun::run_sends(GroupRank to) {
  for (std::int64_t i = head(to); i >= 0; i = head(to)) {
    const auto index = static_cast<std::uint32_t>(i);
    if (!ready(index)) return;
    const int channel = communicator_.outbound(to, Traffic::collective);
    Channels& channels = communicator_.channels();
    if (channel < 0 || !channels.can_send(communicator_.member(to), static_cast<std::uint16_t>(channel))) {
      return;
    }
    const Step& step = schedule_.steps[index];
    const std::uint32_t length = chunk_length(step, done_[index]);
    std::uint8_t* slot = channels.payload(communicator_.member(to), static_cast<std::uint16_t>(channel));
    if (slot != nullptr && length > 0) {
      std::memcpy(slot, resolve(step.a, std::uint64_t{done_[index]} * channels.layout().slot_payload()), length);
    }
    transmit(index, static_cast<std::uint16_t>(channel), length);
    advance(index);
  }
}

void CollectiveRun::transmit(std::uint32_t index, std::uint16_t channel, std::uint32_t length) {
  const Step& step = schedule_.steps[index];
  const std::uint32_t chunk = done_[index];
  Attributes attributes = operation_.attributes;
  if (step.ring_step != kNoStep) {
    attributes.ring_step = ring_base_ + static_cast<std::uint32_t>(step.ring_step);
    attributes.step_offset = std::uint64_t{chunk} * communicator_.channels().layout().slot_payload();
    attributes.step_bytes = step.length;
    attributes.ring_rank = static_cast<std::uint16_t>(communicator_.rank());
    attributes.ring_size = static_cast<std::uint16_t>(size_);
  }
  const std::uint32_t number = lane_at_[step.peer] - lane_begin_[step.peer];
  communicator_.channels().send(communicator_.member(step.peer), channel, header_of(step, number, chunk), length,
                                chunk == 0, chunk + 1 == chunks_of(step), sequence_, attributes);
}

void CollectiveRun::run_receives(GroupRank from) {
  Channels& channels = communicator_.channels();
  const int inbound = communicator_.inbound(from, Traffic::collective);
  if (inbound < 0) return;
  const auto channel = static_cast<std::uint16_t>(inbound);
  const JobRank peer = communicator_.member(from);
  while (channels.has_chunk(peer, channel)) {
    const std::int64_t i = head(receive_lane(from));
    const Chunk chunk = channels.front(peer, channel);
    // Looked at even if nothing is expected: a disagreement shows as early as it can.
    if (!front_agrees(from, chunk, i)) return;
    if (i < 0 || !ready(static_cast<std::uint32_t>(i))) return;
    receive_chunk(static_cast<std::uint32_t>(i), chunk);
    channels.release(peer, channel);
    advance(static_cast<std::uint32_t>(i));
  }
}

void CollectiveRun::receive_chunk(std::uint32_t index, const Chunk& chunk) {
  const Step& step = schedule_.steps[index];
  const std::uint8_t* incoming = chunk.payload();
  const std::uint64_t offset = std::uint64_t{done_[index]} * communicator_.channels().layout().slot_payload();
  add_received(received_, chunk.length, chunk.missing,
               [&](std::uint32_t at) { return incoming == nullptr ? nullptr : in_tensors(step, offset + at); });
  if (step.kind == StepKind::recv) {
    if (incoming != nullptr && chunk.length > 0) {
      std::memcpy(resolve(step.out, offset), incoming, chunk.length);
    }
    return;
  }
  if (step.transient && forward_fused(index, incoming, chunk.length)) return;
  if (incoming == nullptr || chunk.length == 0) return;
  std::uint8_t* out = resolve(step.out, offset);
  reduce(operation_.reduce, operation_.type, out, incoming, resolve(step.a, offset), chunk.length);
  if (step.finish && operation_.reduce == ReduceOp::avg) {
    divide(operation_.type, out, out, chunk.length, size_);
  }
}

// Where byte `offset` of what a step receives belongs in the caller's tensors: in the output, or in the
// input that it is added to. A partial sum that lies in scratch belongs to the input that it is the sum of.
const std::uint8_t* CollectiveRun::in_tensors(const Step& recv, std::uint64_t offset) {
  if (recv.out.space != Space::scratch) return resolve(recv.out, offset);
  if (recv.a.space == Space::input) return resolve(recv.a, offset);
  // Scaled input lies in scratch block after block. Elsewhere the step is of the whole tensor.
  const bool blocks = operation_.collective == Collective::reduce_scatter;
  std::uint64_t at = (blocks ? recv.a.offset : 0) + offset;
  for (GroupRank k = 0; k < (blocks ? size_ : 1); ++k) {
    const std::uint64_t bytes = input_block(operation_, k) * element_size(operation_.type);
    if (at < bytes) return resolve({Space::input, k, 0}, at);
    at -= bytes;
  }
  return nullptr;
}

bool CollectiveRun::forward_fused(std::uint32_t index, const std::uint8_t* incoming, std::uint32_t length) {
  if (communicator_.rings().whole) return false;
  // The one chunkwise send that waits for this step, if it is that lane's turn and a slot is free.
  if (waiter_begin_[index + 1] - waiter_begin_[index] != 1) return false;
  const std::uint32_t next = waiters_[waiter_begin_[index]];
  const Step& send = schedule_.steps[next];
  if (send.kind != StepKind::send || !send.chunkwise) return false;
  if (head(send.peer) != static_cast<std::int64_t>(next) || done_[next] != done_[index]) {
    ++communicator_.counters().unfused_chunks;
    return false;
  }
  const int channel = communicator_.outbound(send.peer, Traffic::collective);
  Channels& channels = communicator_.channels();
  const JobRank peer = communicator_.member(send.peer);
  if (channel < 0 || !channels.can_send(peer, static_cast<std::uint16_t>(channel), true)) {
    ++communicator_.counters().unfused_chunks;
    return false;
  }
  const Step& step = schedule_.steps[index];
  const std::uint64_t offset = std::uint64_t{done_[index]} * channels.layout().slot_payload();
  if (incoming != nullptr && length > 0) {
    std::uint8_t* slot = channels.payload(peer, static_cast<std::uint16_t>(channel));
    reduce(operation_.reduce, operation_.type, slot, incoming, resolve(step.a, offset), length);
  }
  transmit(next, static_cast<std::uint16_t>(channel), length);
  advance(next);
  ++communicator_.counters().fused_chunks;
  return true;
}

void CollectiveRun::run_copies() {
  const std::uint32_t lane = 2 * size_;
  for (std::int64_t i = head(lane); i >= 0; i = head(lane)) {
    const auto index = static_cast<std::uint32_t>(i);
    if (!ready(index)) return;
    const Step& step = schedule_.steps[index];
    const std::uint32_t length = chunk_length(step, done_[index]);
    const std::uint64_t offset = std::uint64_t{done_[index]} * communicator_.channels().layout().slot_payload();
    std::uint8_t* out = resolve(step.out, offset);
    const std::uint8_t* in = resolve(step.a, offset);
    if (out != nullptr && in != nullptr && out != in) std::memmove(out, in, length);
    advance(index);
  }
}

void CollectiveRun::advance(std::uint32_t index) {
  const Step& step = schedule_.steps[index];
  const bool complete = ++done_[index] == chunks_of(step);
  if (complete) {
    ++lane_at_[lane_of(step)];
    --remaining_;
    // A fused send leaves its lane without run_sends: let the next step there have its turn.
    touch(lane_of(step));
    if (StepWatch* watch = communicator_.step_watch();
        watch != nullptr && step.ring_step != kNoStep && step.kind != StepKind::send) {
      watch->step_received(communicator_.id(), ring_base_ + static_cast<std::uint32_t>(step.ring_step));
    }
  }
  for (std::uint32_t w = waiter_begin_[index]; w < waiter_begin_[index + 1]; ++w) {
    const Step& waiter = schedule_.steps[waiters_[w]];
    if (complete || waiter.chunkwise) touch(lane_of(waiter));
  }
}

std::uint32_t CollectiveRun::chunks_of(const Step& step) const {
  const std::uint64_t payload = communicator_.channels().layout().slot_payload();
  return step.length == 0 ? 1 : static_cast<std::uint32_t>((step.length + payload - 1) / payload);
}

std::uint32_t CollectiveRun::chunk_length(const Step& step, std::uint32_t chunk) const {
  const std::uint64_t payload = communicator_.channels().layout().slot_payload();
  return static_cast<std::uint32_t>(std::min(payload, step.length - chunk * payload));
}

std::uint8_t* CollectiveRun::resolve(const Range& range, std::uint64_t offset) {
  if (range.space == Space::scratch) {
    return scratch_ == nullptr ? nullptr : scratch_.get() + range.offset + offset;
  }
  const bool input = range.space == Space::input;
  const std::vector<std::uint8_t*>& parts = (input ? operation_.input : operation_.output).parts;
  if (parts.empty()) return nullptr;
  std::uint64_t at = range.offset + offset;
  std::uint8_t* base = parts[0];
  if (range.part > 0 && parts.size() > 1) {
    base = parts[range.part];
  } else if (range.part > 0) {
    const std::vector<std::uint64_t>& uneven = input ? input_offsets_ : output_offsets_;
    at += uneven.empty() ? range.part * operation_.count * element_size(operation_.type) : uneven[range.part];
  }
  return base == nullptr ? nullptr : base + at;
}

}  // namespace loomnet
