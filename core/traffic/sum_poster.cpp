#include "traffic/sum_poster.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <tuple>

namespace loomnet {
namespace {

constexpr std::uint64_t kMostRequest = std::uint64_t{1} << 30;  // bytes; a request's length has 32 bits
constexpr std::uint64_t kAnyLength = std::uint64_t{1} << 48;

}  // namespace

SumPoster::SumPoster(Nic& nic, JobId job, ClientId client, QpNumber qp, const SumShape& shape, bool payload)
    : nic_(nic), job_(job), qp_(qp), shape_(shape), payload_(payload) {
  nic.clients().own(qp, {job, client});
  if (!payload) key_ = nic.register_region(nullptr, 0, kAnyLength, job);
}

SumPoster::~SumPoster() {
  if (!payload_) nic_.deregister(key_);
  for (const Tensor& t : tensors_) {
    if (payload_) nic_.deregister(t.key);
  }
}

void SumPoster::begin(std::uint64_t id, std::uint64_t bytes, const Attributes& attributes,
                      std::int64_t seed, Picoseconds now) {
  if (bytes == 0 || bytes % 4 != 0) throw std::invalid_argument("sum: whole int32 values, at least one");
  const std::uint64_t fragment = 4ull * shape_.values, fragments = (bytes + fragment - 1) / fragment;
  // With payload the framing of all fragments lies in front of all values: one request has them all.
  if (payload_ && bytes >= kMostRequest) throw std::invalid_argument("sum: with payload 1 GiB at most");
  if (fragments >= 1u << 31) throw std::invalid_argument("sum: a tensor of more than 2^31 fragments");
  Tensor& t = tensors_.emplace_back();
  t.id = id;
  t.bytes = bytes;
  t.seed = seed;
  t.attributes = attributes;
  t.fragments = static_cast<std::uint32_t>(fragments);
  t.boots = shape_.exponents ? std::min(shape_.window, t.fragments) : 0;
  t.booted = t.boots == 0;
  if (payload_) fill(t);
  pump(now);
}

// Of a block that is in no tensor: the least one. Otherwise any, different on every rank.
std::uint8_t SumPoster::exponent(std::uint64_t fragment, std::uint32_t member) const {
  return static_cast<std::uint8_t>(fragment % 5 + (fragment + member) % shape_.members);
}

// In memory: the exponents of the BOOT fragments, those that data fragments carry, the values. A data
// fragment carries the exponent of the block `boots` fragments behind it.
void SumPoster::fill(Tensor& t) {
  const std::uint64_t framing = shape_.exponents ? std::uint64_t{t.boots} + t.fragments : 0;
  if (!spare_.empty()) {
    std::tie(t.in, t.out) = std::move(spare_.back());
    spare_.pop_back();
  }
  t.in.resize(framing + t.bytes);
  t.out.assign(t.in.size(), 0xee);
  t.key = nic_.register_region(t.out.data(), 0, t.out.size(), job_);
  for (std::uint64_t i = 0; i < framing; ++i) {
    t.in[i] = i < t.fragments ? exponent(i, shape_.member) : static_cast<std::uint8_t>(-126);
  }
  for (std::uint64_t i = 0; i < t.bytes / 4; ++i) {
    const auto value = static_cast<std::int32_t>(static_cast<std::int64_t>(i) + shape_.member + t.seed);
    std::memcpy(&t.in[framing + 4 * i], &value, sizeof value);
  }
}

std::uint64_t SumPoster::wrong(const Tensor& t) const {
  const std::uint64_t framing = shape_.exponents ? std::uint64_t{t.boots} + t.fragments : 0;
  std::uint64_t found = 0;
  for (std::uint64_t i = 0; i < framing; ++i) {
    std::int8_t most = -126;
    for (std::uint32_t m = 0; i < t.fragments && m < shape_.members; ++m) {
      most = std::max(most, static_cast<std::int8_t>(exponent(i, m)));
    }
    found += t.out[i] != static_cast<std::uint8_t>(most);
  }
  const auto n = static_cast<std::int64_t>(shape_.members);
  for (std::uint64_t i = 0; i < t.bytes / 4; ++i) {
    std::int32_t value = 0;
    std::memcpy(&value, &t.out[framing + 4 * i], sizeof value);
    const std::int64_t sum = n * (static_cast<std::int64_t>(i) + t.seed) + n * (n - 1) / 2;
    found += value != static_cast<std::int32_t>(sum);
  }
  return found;
}

void SumPoster::post(Tensor& t, std::uint64_t offset, std::uint32_t framing, std::uint64_t length,
                     Picoseconds now) {
  WorkRequest request;
  request.id = t.id;
  request.local = payload_ ? t.in.data() + offset : nullptr;
  request.remote_key = payload_ ? t.key : key_;
  request.remote_address = payload_ ? offset : 0;
  request.length = static_cast<std::uint32_t>(length);
  request.framing = framing;
  request.attributes = t.attributes;
  request.attributes.job = static_cast<std::uint32_t>(job_);
  ++t.open;
  nic_.post(qp_, request, now);
}

// Posts what may go, in order: a tensor of fewer fragments than the window knows its exponents only
// when its BOOT fragments have come back, and the next tensor waits for it, as on every other rank.
void SumPoster::pump(Picoseconds now) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    Tensor& t = tensors_[i];
    if (t.next == t.fragments) continue;
    if (!t.booted && !t.boot_posted) {
      t.boot_posted = true;
      post(t, 0, t.boots, t.boots, now);
    }
    if (!t.booted && t.boots < shape_.window) return;
    const std::uint32_t fragment = 4 * shape_.values;
    const auto most = static_cast<std::uint32_t>(kMostRequest / fragment);
    while (t.next < t.fragments) {
      const std::uint32_t first = t.next, count = std::min(most, t.fragments - first);
      const std::uint64_t from = std::uint64_t{first} * fragment,
                          bytes = std::min(std::uint64_t{count} * fragment, t.bytes - from);
      const std::uint32_t framing = shape_.exponents ? count : 0;
      t.next = first + count;
      post(t, t.boots, framing, framing + bytes, now);
    }
  }
}

std::optional<SumPoster::Ended> SumPoster::on_completion(const Completion& completion, Picoseconds now) {
  // A queue pair's requests complete in order.
  if (tensors_.empty()) return std::nullopt;
  Tensor& t = tensors_.front();
  --t.open;
  t.booted = true;
  if (completion.status != Status::ok && t.status == Status::ok) t.status = completion.status;
  if (t.next < t.fragments) {
    pump(now);
    return std::nullopt;
  }
  if (t.open > 0) return std::nullopt;
  const Ended ended{t.id, t.status, payload_ && t.status == Status::ok ? wrong(t) : 0};
  if (payload_) {
    nic_.deregister(t.key);
    spare_.emplace_back(std::move(t.in), std::move(t.out));
  }
  tensors_.pop_front();
  pump(now);
  return ended;
}

}  // namespace loomnet
