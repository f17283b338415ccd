// Requests out in order, results in as they complete. A slot of staging memory is a request and its result.
#include "collective/sum_run.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "collective/half.hpp"
#include "collective/quantise.hpp"
#include "collective/reduction.hpp"

namespace loomnet {
namespace {

// In a request with a fixed scale: this rank's block had a value beyond the range of an int32.
constexpr std::int8_t kSaturated = 1;
// A sum of 64 words of so many bits is an int32.
constexpr std::uint32_t kHeadBits = 24;
constexpr std::uint64_t kExponentShare = 16;  // of an operation's blocks, at most, have exponents that travel alone

bool is_float(DataType type) { return type != DataType::int32; }

// Memory need not be aligned.
template <typename Half>
void widen(const std::uint8_t* from, std::uint32_t count, float* out) {
  for (std::uint32_t i = 0; i < count; ++i) {
    Half half;
    std::memcpy(&half, from + std::size_t{i} * sizeof half, sizeof half);
    out[i] = to_float(half);
  }
}

template <typename Half, typename Narrow>
void narrow(const float* from, std::uint32_t count, std::uint8_t* out, Narrow to_half) {
  for (std::uint32_t i = 0; i < count; ++i) {
    const Half half = to_half(from[i]);
    std::memcpy(out + std::size_t{i} * sizeof half, &half, sizeof half);
  }
}

bool overlap(const Buffers& a, const Buffers& b, std::uint64_t a_bytes, std::uint64_t b_bytes) {
  return a.parts[0] < b.parts[0] + b_bytes && b.parts[0] < a.parts[0] + a_bytes;
}

std::uint64_t bytes_of(const Operation& operation) { return operation.count * element_size(operation.type); }

}  // namespace

SumRun::SumRun(Communicator& communicator, const SumPlace& place)
    : communicator_(communicator),
      place_(place),
      values_(place.layout.config().sum_values),
      chunk_(place.layout.sum_chunk()),
      workers_(communicator.size()),
      fixed_(place.layout.config().sum_scale),
      floats_(place.layout.config().sum_floats) {}

bool SumRun::takes(const Operation& operation) {
  const bool adds = operation.reduce == ReduceOp::sum || operation.reduce == ReduceOp::avg;
  const bool fits = operation.type == DataType::float32 || operation.type == DataType::float16 ||
                    operation.type == DataType::bfloat16 || operation.type == DataType::int32;
  return operation.collective == Collective::all_reduce && adds && fits && operation.count > 0;
}

void SumRun::start(OperationId id, Operation operation, std::uint32_t sequence) {
  Active& active = operations_.emplace_back();
  active.id = id;
  active.operation = std::move(operation);
  active.sequence = sequence;
  active.blocks = (active.operation.count + values_ - 1) / values_;
  if (is_float(active.operation.type) && fixed_ == 0) {
    const StagingConfig& config = place_.layout.config();
    const std::uint64_t window = std::uint64_t{config.sum_window} * config.sum_servers;
    // Some windows of exponents are hardly any of a long operation's bytes.
    const std::uint64_t ahead = std::clamp(active.blocks / kExponentShare, 2 * window, config.sum_reach * window);
    active.ahead = std::min(active.blocks, (ahead + 2 * chunk_ - 1) / chunk_ * chunk_);
  }
  proceed();
}

bool SumRun::holds(OperationId id) const {
  return std::any_of(operations_.begin(), operations_.end(), [id](const Active& a) { return a.id == id; });
}

const Operation* SumRun::find(std::uint32_t sequence) const {
  for (const Active& active : operations_) {
    if (active.sequence == sequence) return &active.operation;
  }
  return nullptr;
}

void SumRun::fail_all(const OperationResult& result) {
  for (const Active& active : operations_) {
    OperationResult own = result;
    own.cookie = active.operation.cookie;
    communicator_.finish(active.id, std::move(own));
  }
  operations_.clear();
  posted_.clear();  // the network may still write their results into the staging memory, which nothing reads
  posting_ = 0;
}

// --- requests ------------------------------------------------------------------------------------

void SumRun::proceed() {
  const std::size_t slots = place_.layout.config().sum_slots;
  while (!communicator_.failed() && !operations_.empty() && posted_.size() < slots) {
    Active& oldest = operations_.front();
    if (oldest.held == oldest.blocks && oldest.floats_sent < oldest.beyond.size()) {
      send_floats(oldest);
      continue;
    }
    // Where an operation may have floats, they come before the next one's sums.
    if (posting_ == operations_.size() || (floats_ && posting_ > 0)) return;
    Active& active = operations_[posting_];
    if (!active.headed) {
      if (!may_read(posting_)) return;
      send_head(active);
    } else if (active.told < active.ahead) {
      send_exponents(active);
    } else if (active.ahead != 0 && active.known < std::min(active.blocks, active.sent + chunk_)) {
      return;
    } else {
      send_values(active);
      if (active.sent == active.blocks) ++posting_;
    }
  }
}

// An operation reads its input only once the operations that write there have ended.
bool SumRun::may_read(std::size_t index) const {
  const Operation& reads = operations_[index].operation;
  for (std::size_t i = 0; i < index && has_bytes(); ++i) {
    const Operation& writes = operations_[i].operation;
    if (overlap(writes.output, reads.input, bytes_of(writes), bytes_of(reads))) return false;
  }
  return true;
}

// What all ranks must agree on, in words whose sum over all ranks is below 2^31: if each rank finds its
// own words times the number of ranks, all have sent the same.
SumRun::Head SumRun::head_of(const Active& active) const {
  const Operation& o = active.operation;
  constexpr std::uint64_t mask = (1u << kHeadBits) - 1;
  const auto word = [&](std::uint64_t bits) { return static_cast<std::int32_t>(bits & mask); };
  return {word(active.sequence), word(static_cast<std::uint64_t>(o.type) << 8 | static_cast<std::uint64_t>(o.reduce)),
          word(o.count), word(o.count >> kHeadBits)};
}

void SumRun::send_head(Active& active) {
  const std::uint32_t framing = StagingLayout::sum_framing(1);
  const Head head = head_of(active);
  if (std::uint8_t* const out = request()) {
    std::memset(out, 0, framing);
    if (active.ahead != 0) {
      active.exponents.resize(active.blocks);
      out[0] = exponent(active, 0);
    }
    std::memcpy(out + framing, head.data(), sizeof head);
  }
  if (active.ahead != 0) active.told = 1;
  active.headed = true;
  post(active, Part::head, 1, framing, sizeof head);
}

void SumRun::send_exponents(Active& active) {
  // To the next multiple of a chunk, since the head has carried one.
  const std::uint64_t end = std::min(active.ahead, active.told / chunk_ * chunk_ + chunk_);
  const auto count = static_cast<std::uint32_t>(end - active.told);
  std::uint8_t* const out = request();
  for (std::uint32_t i = 0; i < count && out; ++i) out[i] = exponent(active, active.told + i);
  active.told = end;
  post(active, Part::exponents, count, count, 0);
}

void SumRun::send_values(Active& active) {
  const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(chunk_, active.blocks - active.sent));
  const std::uint32_t framing = StagingLayout::sum_framing(count);
  std::uint8_t* const out = request();
  if (out) std::memset(out, 0, framing);
  std::array<std::int32_t, std::tuple_size_v<Block>> integers;
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t block = active.sent + i;
    const std::size_t length = std::size_t{4} * count_of(active, block);
    if (out) {
      const std::uint8_t own = quantise_block(active, block, integers.data());
      out[i] = active.ahead != 0 ? exponent(active, block + active.ahead) : own;
      std::memcpy(out + framing + bytes, integers.data(), length);
    }
    bytes += length;
  }
  active.sent += count;
  post(active, Part::values, count, framing, bytes);
}

void SumRun::send_floats(Active& active) {
  const auto count =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(chunk_, active.beyond.size() - active.floats_sent));
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::span<const float> values = load(active, active.beyond[active.floats_sent + i]);
    std::memcpy(request() + bytes, values.data(), values.size_bytes());
    bytes += values.size_bytes();
  }
  active.floats_sent += count;
  post(active, Part::floats, count, 0, bytes);
}

void SumRun::post(const Active& active, Part part, std::uint32_t fragments, std::uint32_t framing,
                  std::uint64_t bytes) {
  Attributes attributes = active.operation.attributes;
  attributes.communicator = communicator_.id();
  attributes.sequence = active.sequence;
  attributes.loss_tolerance = 0;  // a sum without a rank's part is no sum
  const Sum sum{.id = next_id_++,
                .local = request(),
                .result_offset = place_.layout.sum_result(next_slot_),
                .length = framing + static_cast<std::uint32_t>(bytes),
                .framing = framing,
                .continues = part != Part::head,
                .floats = part == Part::floats,
                .attributes = attributes};
  posted_.push_back({sum.id, next_slot_, part, fragments, framing});
  next_slot_ = (next_slot_ + 1) % place_.layout.config().sum_slots;
  ++place_.counters.requests;
  place_.counters.bytes += sum.length;
  place_.verbs.post_sum(sum);
}

// --- results -------------------------------------------------------------------------------------

void SumRun::on_sum(std::uint64_t id, WriteStatus status) {
  if (communicator_.failed()) return;
  const auto ended =
      std::find_if(posted_.begin(), posted_.end(), [id](const Posted& each) { return each.id == id && !each.ended; });
  if (ended == posted_.end()) {
    ++place_.counters.stray;
    return;
  }
  if (status != WriteStatus::ok) {
    communicator_.raise(OperationStatus::peer_failed, "a sum in the network failed: " + std::string(to_string(status)));
    return;
  }
  // One queue pair's requests complete in order; of several, one may be ahead of another.
  ended->ended = true;
  while (!posted_.empty() && posted_.front().ended) {
    const Posted posted = posted_.front();
    posted_.pop_front();
    received(posted);
    if (communicator_.failed()) return;
  }
  proceed();
}

// Requests are taken in the order of posting, so this one is of the oldest operation.
void SumRun::received(const Posted& posted) {
  Active& active = operations_.front();
  if (has_bytes()) {
    take(active, posted, place_.staging + place_.layout.sum_result(posted.slot));
    if (communicator_.failed()) return;
  } else {
    if (posted.part == Part::values) active.held += posted.fragments;
    if (active.ahead != 0) active.known = std::min(active.blocks, active.known + posted.fragments);
  }
  if (active.held == active.blocks && active.floats_held == active.beyond.size()) end();
}

void SumRun::take(Active& active, const Posted& posted, const std::uint8_t* result) {
  if (posted.part == Part::head && !take_head(active, result + posted.framing)) return;
  if (posted.part == Part::values) take_values(active, posted, result);
  if (posted.part == Part::floats) take_floats(active, posted, result);
  if (active.ahead != 0) learn(active, result, posted.fragments);
}

bool SumRun::take_head(const Active& active, const std::uint8_t* result) {
  Head sums;
  std::memcpy(sums.data(), result, sizeof sums);
  const Head own = head_of(active);
  for (std::size_t i = 0; i < kHeadWords; ++i) {
    if (sums[i] == own[i] * static_cast<std::int32_t>(workers_)) continue;
    communicator_.raise(OperationStatus::mismatch,
                        communicator_.name(communicator_.rank()) + " runs " + describe(active.operation) +
                            " as operation " + std::to_string(active.sequence) +
                            "; another rank runs another operation, or of another size or type");
    return false;
  }
  return true;
}

void SumRun::learn(Active& active, const std::uint8_t* framing, std::uint32_t fragments) {
  for (std::uint32_t i = 0; i < fragments; ++i) {
    const auto exponent = static_cast<std::int8_t>(framing[i]);
    if (exponent == Sum::kOverflowed) {
      // With block exponents no sum overflows, unless a rank or a switch adds a value it should not.
      communicator_.raise(OperationStatus::protocol,
                          "a sum of " + describe(active.operation) + " has left the range of an int32 in the network");
      return;
    }
    if (active.known < active.blocks) active.exponents[active.known++] = exponent;
  }
}

void SumRun::take_values(Active& active, const Posted& posted, const std::uint8_t* result) {
  const DataType type = active.operation.type;
  const std::uint8_t* values = result + posted.framing;
  std::array<std::int32_t, std::tuple_size_v<Block>> sums;
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < posted.fragments; ++i, ++active.held, values += std::size_t{4} * count) {
    count = count_of(active, active.held);
    const auto own = static_cast<std::int8_t>(result[i]);
    // Of integers only where switches saturate: their sums wrap elsewhere, as PyTorch's do.
    if (own == Sum::kOverflowed || (active.ahead == 0 && own == kSaturated)) {
      ++place_.counters.overflows;
      if (floats_ && is_float(type)) {
        active.beyond.push_back(active.held);
        continue;  // its floats may lie where the sum is to go
      }
    }
    if (!is_float(type)) {
      std::uint8_t* out = active.operation.output.parts[0] + active.held * 4 * values_;
      std::memcpy(out, values, std::size_t{4} * count);
      if (active.operation.reduce == ReduceOp::avg) divide(type, out, out, std::size_t{4} * count, workers_);
    } else {
      const std::int8_t exponent = active.ahead != 0 ? active.exponents[active.held] : own;
      const std::span<float> block(block_.data(), count);
      if (exponent == Sum::kNotFinite) {
        ++place_.counters.not_finite;
        std::fill(block.begin(), block.end(), std::numeric_limits<float>::quiet_NaN());
      } else {
        std::memcpy(sums.data(), values, std::size_t{4} * count);
        dequantise(std::span(sums).first(count), fixed_ != 0 ? fixed_ : scale_of(exponent, workers_), block.data());
      }
      store(active, active.held, block);
    }
  }
}

void SumRun::take_floats(Active& active, const Posted& posted, const std::uint8_t* result) {
  for (std::uint32_t i = 0; i < posted.fragments; ++i) {
    const std::uint64_t block = active.beyond[active.floats_held++];
    const std::span<float> values(block_.data(), count_of(active, block));
    std::memcpy(values.data(), result, values.size_bytes());
    result += values.size_bytes();
    ++place_.counters.as_floats;
    store(active, block, values);
  }
}

void SumRun::end() {
  Active& active = operations_.front();
  OperationResult result;
  result.cookie = active.operation.cookie;
  result.received.expected = result.received.delivered = bytes_of(active.operation);
  ++communicator_.counters().collectives;
  ++place_.counters.sums;
  communicator_.finish(active.id, std::move(result));
  operations_.pop_front();
  --posting_;
}

// --- blocks --------------------------------------------------------------------------------------

std::uint32_t SumRun::count_of(const Active& active, std::uint64_t block) const {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(values_, active.operation.count - block * values_));
}

std::span<const float> SumRun::load(const Active& active, std::uint64_t block) {
  const DataType type = active.operation.type;
  const std::uint32_t count = count_of(active, block);
  const std::uint8_t* from = active.operation.input.parts[0] + block * values_ * element_size(type);
  if (type == DataType::float16) {
    widen<Float16>(from, count, block_.data());
  } else if (type == DataType::bfloat16) {
    widen<BFloat16>(from, count, block_.data());
  } else {
    std::memcpy(block_.data(), from, std::size_t{4} * count);
  }
  return {block_.data(), count};
}

void SumRun::store(const Active& active, std::uint64_t block, std::span<float> values) {
  const DataType type = active.operation.type;
  const auto count = static_cast<std::uint32_t>(values.size());
  if (active.operation.reduce == ReduceOp::avg) {
    auto* bytes = reinterpret_cast<std::uint8_t*>(values.data());
    divide(DataType::float32, bytes, bytes, values.size_bytes(), workers_);  // before it is narrowed
  }
  std::uint8_t* out = active.operation.output.parts[0] + block * values_ * element_size(type);
  if (type == DataType::float16) {
    narrow<Float16>(values.data(), count, out, [](float f) { return to_float16(f); });
  } else if (type == DataType::bfloat16) {
    narrow<BFloat16>(values.data(), count, out, [](float f) { return to_bfloat16(f); });
  } else {
    std::memcpy(out, values.data(), values.size_bytes());
  }
}

// Of this rank's block, as the framing has it.
std::uint8_t SumRun::exponent(const Active& active, std::uint64_t block) {
  if (block >= active.blocks) return static_cast<std::uint8_t>(kLeastExponent);
  const BlockExponent own = exponent_of(load(active, block));
  return static_cast<std::uint8_t>(own.finite ? own.exponent : Sum::kNotFinite);
}

// Returns what the framing says of the block where no exponents travel.
std::uint8_t SumRun::quantise_block(const Active& active, std::uint64_t block, std::int32_t* out) {
  const std::uint32_t count = count_of(active, block);
  if (!is_float(active.operation.type)) {
    std::memcpy(out, active.operation.input.parts[0] + block * 4 * values_, std::size_t{4} * count);
    return 0;
  }
  const std::span<const float> values = load(active, block);
  if (active.ahead != 0) {
    const std::int8_t exponent = active.exponents[block];
    // Where a rank's block is not finite, no rank reads the sum.
    const double scale = exponent == Sum::kNotFinite ? 0.0 : scale_of(exponent, workers_);
    if (quantise(values, scale, out) && scale != 0.0) ++place_.counters.overflows;
    return 0;
  }
  const bool saturated = quantise(values, fixed_, out);
  if (std::all_of(values.begin(), values.end(), [](float f) { return std::isfinite(f); })) {
    return static_cast<std::uint8_t>(saturated ? kSaturated : 0);
  }
  return static_cast<std::uint8_t>(Sum::kNotFinite);
}

}  // namespace loomnet
