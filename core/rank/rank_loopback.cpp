#include "rank/rank_loopback.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "collective/executor.hpp"

namespace loomnet::rank {
namespace {

// Queue pair numbers of the test wire: the sender's view of (peer, channel).
QpNumber qp_of(std::uint32_t peer, std::uint16_t channel) { return 16 + peer * kMaxChannels + channel; }
constexpr QpNumber kSumQp = 8;

// Small, so that tests of few values have several fragments and several windows.
StagingConfig staging_for(std::uint32_t world, bool sums) {
  StagingConfig config{.ranks = world, .slots = 4, .slot_payload = 16384, .channels = 16};
  if (sums) config.sum_slots = 7, config.sum_values = 64, config.sum_window = 8;
  return config;
}

}  // namespace

LoopbackNic::LoopbackNic(std::uint32_t world, std::uint32_t channels, bool sums)
    : layout_(staging_for(world, sums)), meetings_(world, kMaxCommunicatorId + 1) {
  for (std::uint32_t r = 0; r < world; ++r) {
    hosts_.push_back(std::make_unique<Host>(Geometry{.rank = r,
                                                     .world = world,
                                                     .channels = channels,
                                                     .notices = notices_for(world),
                                                     .slots = layout_.slots(),
                                                     .slot_payload = layout_.slot_payload(),
                                                     .slot_channels = layout_.channels(),
                                                     .sum_slots = layout_.config().sum_slots,
                                                     .sum_values = layout_.config().sum_values,
                                                     .sum_window = layout_.config().sum_window,
                                                     .staging_bytes = layout_.total_bytes()}));
    for (std::uint32_t peer = 0; peer < world; ++peer) {
      if (peer == r) continue;
      for (std::uint16_t c = 0; c < channels; ++c) hosts_[r]->port.bind(peer, c, qp_of(peer, c), 1);
    }
    if (sums) hosts_[r]->port.bind_sum(kSumQp, 1);
  }
}

LoopbackNic::~LoopbackNic() { stop(); }

void LoopbackNic::start() {
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
}

void LoopbackNic::stop() {
  stop_ = true;
  control_.raise();
  if (thread_.joinable()) thread_.join();
}

void LoopbackNic::gone(std::uint32_t rank, GoneReason reason) {
  {
    const std::lock_guard lock(mutex_);
    tell_gone(rank, reason);
  }
  control_.raise();
}

void LoopbackNic::tell_gone(std::uint32_t rank, GoneReason reason) {
  Host& left = *hosts_.at(rank);
  if (left.told_gone) return;
  left.told_gone = true;
  for (auto& host : hosts_) {
    if (host.get() == &left) continue;
    host->port.notify({.kind = static_cast<std::uint32_t>(NoticeKind::peer_gone),
                       .peer = rank,
                       .reason = static_cast<std::uint32_t>(reason),
                       .reserved = 0});
  }
}

void LoopbackNic::last_step(std::uint32_t step) {
  {
    const std::lock_guard lock(mutex_);
    for (auto& host : hosts_) {
      host->port.notify(
          {.kind = static_cast<std::uint32_t>(NoticeKind::last_step), .peer = 0, .reason = step, .reserved = 0});
    }
  }
  control_.raise();
}

void LoopbackNic::set_stalled(bool stalled) {
  {
    const std::lock_guard lock(mutex_);
    stalled_ = stalled;
  }
  control_.raise();
}

RankFault LoopbackNic::fault(std::uint32_t rank) const {
  const std::lock_guard lock(mutex_);
  return hosts_.at(rank)->port.fault();
}

std::vector<MarkEntry> LoopbackNic::take_marks(std::uint32_t rank) {
  const std::lock_guard lock(mutex_);
  return std::exchange(hosts_.at(rank)->marks, {});
}

void LoopbackNic::lose(std::uint32_t packet, std::uint32_t every) {
  if (packet == 0) throw std::invalid_argument("lose: packet must be 1 byte or more");
  const std::lock_guard lock(mutex_);
  packet_ = packet;
  lose_every_ = until_loss_ = every;
}

// Packet by packet, so that some can be lost.
Missing LoopbackNic::copy(const WorkRequest& r, std::uint8_t* target) {
  if (lose_every_ == 0 || r.attributes.loss_tolerance == 0) {
    if (r.local && target) std::memcpy(target, r.local, r.length);
    return {};
  }
  Missing missing = Missing::of(r.length, packet_);
  const double most = static_cast<double>(r.length - r.framing) * r.attributes.loss_tolerance;
  for (std::uint32_t at = 0; at < r.length; at += packet_) {
    const std::uint32_t bytes = std::min(packet_, r.length - at);
    const bool may = attributes_at(r.attributes, r.framing, at).loss_tolerance > 0;
    if (may && missing.bytes + bytes <= most && --until_loss_ == 0) {
      until_loss_ = lose_every_;
      missing.add(at, bytes);
    } else if (r.local && target) {
      std::memcpy(target + at, r.local + at, bytes);
    }
  }
  return missing;
}

std::vector<Attributes> LoopbackNic::take_sum_attributes(std::uint32_t rank) {
  const std::lock_guard lock(mutex_);
  return std::exchange(hosts_.at(rank)->sum_attributes, {});
}

// The oldest part of every rank, while all ranks have one. Parts of different shapes never make a sum.
bool LoopbackNic::add_sums(Picoseconds now) {
  bool any = false;
  const auto ready = [this] {
    const WorkRequest* first = hosts_[0]->sums.empty() ? nullptr : &hosts_[0]->sums.front();
    return first && std::all_of(hosts_.begin(), hosts_.end(), [&](const auto& host) {
             return !host->sums.empty() && host->sums.front().length == first->length &&
                    host->sums.front().framing == first->framing;
           });
  };
  for (; ready(); any = true, ++sums_added_) {
    const std::uint32_t framing = hosts_[0]->sums.front().framing, length = hosts_[0]->sums.front().length;
    std::vector<std::int8_t> exponents(framing, Sum::kOverflowed);
    std::vector<std::uint32_t> words((length - framing) / 4);
    for (const auto& host : hosts_) {
      const std::uint8_t* local = host->sums.front().local;
      for (std::uint32_t d = 0; d < framing; ++d) {
        const auto exponent = static_cast<std::int8_t>(local[d]);
        const bool finite = exponent != Sum::kNotFinite && exponents[d] != Sum::kNotFinite;
        exponents[d] = finite ? std::max(exponents[d], exponent) : Sum::kNotFinite;
      }
      for (std::size_t i = 0; i < words.size(); ++i) {
        std::uint32_t word;
        std::memcpy(&word, local + framing + 4 * i, 4);
        words[i] += word;
      }
    }
    for (const auto& host : hosts_) {
      const WorkRequest request = host->sums.front();
      host->sums.pop_front();
      std::uint8_t* to = host->port.resolve(request.remote_address, length);
      std::copy(exponents.begin(), exponents.end(), to);
      if (!words.empty()) std::memcpy(to + framing, words.data(), 4 * words.size());
      host->port.complete({.qp = kSumQp, .id = request.id, .length = length}, now);
    }
  }
  return any;
}

void LoopbackNic::move(Host& from, const RankWork& work, Picoseconds now) {
  if (work.qp == kSumQp) {
    from.sums.push_back(work.request);
    from.sum_attributes.push_back(work.request.attributes);
    return;
  }
  Host& to = *hosts_[work.peer];
  const WorkRequest& r = work.request;
  Status status = Status::ok;
  std::uint8_t* target = nullptr;
  Missing missing;
  const std::uint64_t row = layout_.receive_row(from.port.rank());
  if (r.remote_address >= row && r.remote_address + r.length <= row + layout_.row_bytes()) {
    target = to.port.resolve(r.remote_address, r.length);
  }
  if (r.length != 0 && !target) {
    status = Status::remote_access_error;
  } else {
    missing = copy(r, target);
    bytes_ += r.length - missing.bytes;
    if (r.opcode == Opcode::write_with_immediate) {
      to.port.arrived({.qp = qp_of(from.port.rank(), work.channel),
                       .immediate = r.immediate,
                       .length = r.length,
                       .address = r.remote_address,
                       .missing = missing},
                      now);
    }
  }
  from.port.complete({.qp = work.qp, .status = status, .id = r.id, .length = r.length, .missing = missing}, now);
}

bool LoopbackNic::pass(Picoseconds now) {
  bool busy = false;
  std::array<RankWork, 64> batch;
  std::array<MarkEntry, 64> marks;
  for (auto& host : hosts_) {
    if (!stalled_ && !host->held.empty()) {
      for (const RankWork& work : host->held) move(*host, work, now);
      host->held.clear();
      busy = true;
    }
    const std::size_t n = host->port.poll(batch);
    for (std::size_t i = 0; i < n; ++i) {
      if (stalled_) {
        host->held.push_back(batch[i]);
      } else {
        move(*host, batch[i], now);
      }
    }
    const std::size_t m = host->port.poll_marks(marks);
    for (std::size_t i = 0; i < m; ++i) {
      if (marks[i].kind != static_cast<std::uint32_t>(MarkKind::meet)) {
        host->marks.push_back(marks[i]);
      } else if (meetings_.ask(host->port.rank(), marks[i]) != Meetings::Verdict::taken) {
        host->port.cut_off(RankFault::bad_mark, now);
      }
    }
    busy |= n + m != 0;
    if (host->port.fault() != RankFault::none) tell_gone(host->port.rank(), GoneReason::cut_off);
    // One that left of its own accord has had everything it posted moved: n was its last.
    if (host->port.state() == State::gone && n == 0) {
      tell_gone(host->port.rank(), GoneReason::exited);
    }
  }
  busy |= add_sums(now);
  for (const auto& [rank, notice] : meetings_.settle()) hosts_[rank]->port.notify(notice);
  bool waiting = !busy;
  for (auto& host : hosts_) waiting = waiting && host->port.quiescent();
  all_waiting_ = waiting;
  for (auto& host : hosts_) host->port.flush(now);
  return busy;
}

void LoopbackNic::run() {
  std::vector<pollfd> fds;
  for (auto& host : hosts_) fds.push_back({host->engine_wake.get(), POLLIN, 0});
  fds.push_back({control_.get(), POLLIN, 0});
  while (!stop_) {
    bool sleep = true;
    {
      const std::lock_guard lock(mutex_);
      if (pass({monotonic_ns() * 1000})) continue;
      for (auto& host : hosts_) sleep &= host->port.announce_sleep();
    }
    if (sleep) ::poll(fds.data(), fds.size(), 1000);
    for (auto& host : hosts_) {
      host->port.cancel_sleep();
      host->engine_wake.clear();
    }
    control_.clear();
  }
}

}  // namespace loomnet::rank
