// Posts from shared memory into the NIC, results back, works into the host's meter.
#include "engine/rank_bridge.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "collective/types.hpp"

namespace loomnet {

namespace {

rank::Geometry with_key(rank::Geometry geometry, std::uint32_t key) {
  geometry.staging_key = key;
  return geometry;
}

}  // namespace

RankBridge::RankBridge(Network& network, NodeId host, const rank::Geometry& geometry, JobId job)
    : network_(network),
      nic_(network.nic(host)),
      job_(job),
      meter_(nic_.meter(job)),
      region_(nic_, nic_.register_region(nullptr, 0, geometry.staging_bytes, job)),
      memory_(rank::Memory::create(with_key(geometry, region_.key))),
      rank_wake_(memory_.engine_words().rank_wake),
      port_(memory_, rank_wake_) {
  nic_.set_base(region_.key, reinterpret_cast<std::uint8_t*>(memory_.staging().data()));
  client_ = nic_.clients().add(*this, job, "rank");
  network.forbid_lookahead();
}

RankBridge::~RankBridge() { nic_.clients().remove(client_); }

void RankBridge::bind(std::uint32_t peer, QpNumber qp, std::uint32_t key, std::uint16_t channel) {
  nic_.clients().own(qp, {job_, client_});
  port_.bind(peer, channel, qp, key);
}

void RankBridge::bind_sum(QpNumber qp) {
  nic_.clients().own(qp, {job_, client_});
  port_.bind_sum(qp, region_.key);
}

bool RankBridge::poll(Picoseconds now, std::int64_t wall_ns, double dilation) {
  std::array<RankWork, 64> batch;
  std::array<rank::MarkEntry, 64> marks;
  // Marks first: a work begins before the requests that carry it.
  const std::size_t m = port_.poll_marks(marks);
  if (const RankFault fault = excess(std::span(marks).first(m), now, wall_ns); fault != RankFault::none) {
    cut_off(fault, now);
    return true;
  }
  for (std::size_t i = 0; i < m; ++i) {
    const auto kind = static_cast<rank::MarkKind>(marks[i].kind);
    const bool work = kind == rank::MarkKind::work_begin || kind == rank::MarkKind::work_end;
    if (holds_ && work) {
      held_works_.push_back(marks[i]);
    } else {
      take(marks[i], now, wall_ns, dilation);
    }
  }
  const std::size_t n = port_.poll(batch);
  // The rank's own word: at most 10 s are believed.
  waited_ns_ = n == 0 ? 0 : std::clamp<std::int64_t>(wall_ns - batch[0].request.posted.count / 1000, 0, 10'000'000'000);
  if (holds_) {
    held_posts_.insert(held_posts_.end(), batch.begin(), batch.begin() + static_cast<std::ptrdiff_t>(n));
  } else {
    for (std::size_t i = 0; i < n; ++i) post(batch[i], now);
  }
  return m + n != 0;
}

void RankBridge::post(RankWork& work, Picoseconds now) {
  Attributes& attributes = work.request.attributes;
  attributes.job = static_cast<std::uint32_t>(job_);
  if (urgency_ && port_.sums_by(work.qp)) {
    const std::int16_t own = urgency_->of_part(attributes.communicator, attributes.sequence, work.request.length, now);
    if (attributes.priority == kNoPriority) attributes.priority = own;
  }
  nic_.post(work.qp, work.request, now);
}

bool RankBridge::submit(Picoseconds now) {
  if (held_works_.empty() && held_posts_.empty()) return false;
  for (const rank::MarkEntry& mark : held_works_) take(mark, now, 0, 1.0);
  for (RankWork& work : held_posts_) post(work, now);
  held_works_.clear();
  held_posts_.clear();
  return true;
}

void RankBridge::take(const rank::MarkEntry& mark, Picoseconds now, std::int64_t wall_ns, double dilation) {
  const auto when = [&](std::int64_t at_ns) {
    if (wall_ns == 0) return now;
    // A rank's clock reading is only its word: it counts as now where it lies in the future.
    const double ago = static_cast<double>(wall_ns - std::max<std::int64_t>(at_ns, 0)) * 1000.0 / dilation;
    return ago <= 0                               ? now
           : ago > static_cast<double>(now.count) ? Picoseconds{}
                                                  : now - Picoseconds{static_cast<std::int64_t>(ago)};
  };
  const auto kind = static_cast<rank::MarkKind>(mark.kind);
  // Nor may a rank's time run backwards: intervals would end before they begin.
  const Picoseconds at = latest_mark_ = std::max(when(mark.at_ns), latest_mark_);
  if (Tap* tap = network_.tap()) [[unlikely]]
    tell(*tap, mark, at);
  if (kind == rank::MarkKind::work_begin) {
    meter_.begin(at);
    // From here on a job's time may count, so the virtual clock stops for a look before any of it passes.
    if (first_work_ == kNever) {
      first_work_ = at;
      marks_.push_back({kind, mark.status, at, mark.value, mark.a, mark.b});
    }
    if (began_.size() < kMostOpenWorks) {
      began_.emplace(mark.value, Begun{at, static_cast<std::uint8_t>(mark.b)});
    }
  } else if (kind == rank::MarkKind::work_end) {
    Picoseconds began = when(static_cast<std::int64_t>(mark.a));
    if (const auto known = began_.find(mark.value); known != began_.end()) {
      began = known->second.at;
      began_.erase(known);
    }
    const std::uint64_t bytes = mark.status == 0 ? mark.b : 0;
    meter_.end(std::min(began, at), at, bytes);
    ++(mark.status == 0 ? finished_ : failed_);
    cut_short_ += mark.status == static_cast<std::uint32_t>(OperationStatus::closed);
  } else if (kind == rank::MarkKind::meet) {
    using Verdict = rank::Meetings::Verdict;
    const Verdict verdict = meetings_ ? meetings_->ask(port_.rank(), mark) : Verdict::taken;
    if (verdict == Verdict::senseless) cut_off(RankFault::bad_mark, now);
    if (verdict == Verdict::too_many) cut_off(RankFault::too_many_groups, now);
  } else if (kind == rank::MarkKind::report) {
    if (!take_report(mark, now)) cut_off(RankFault::bad_mark, now);
  } else if (kind == rank::MarkKind::ring_step) {
    steps_.add({port_.rank(), static_cast<std::uint32_t>(mark.a), static_cast<std::uint32_t>(mark.value), at});
  } else {
    if (urgency_ && kind == rank::MarkKind::step) urgency_->stepped(at);
    marks_.push_back({kind, mark.status, at, mark.value, mark.a, mark.b});
  }
}

void RankBridge::weigh_sums(SumUrgencyConfig config) {
  config.rank = port_.rank();
  config.job = static_cast<std::uint32_t>(job_);
  config.seed = network_.seed();
  urgency_.emplace(std::move(config));
}

// A rank sends the parts of a report one after another; a first part begins another.
bool RankBridge::take_report(const rank::MarkEntry& mark, Picoseconds now) {
  const auto number = static_cast<std::uint32_t>(mark.value >> 32);
  const std::size_t at = mark.value >> 16 & 0xffff, bytes = mark.value & 0xffff;
  if (at == 0) report_.clear();
  if (at != report_.size() || at >= bytes || bytes > rank::kMostReport) return false;
  const std::uint64_t words[2] = {mark.a, mark.b};
  const auto* const part = reinterpret_cast<const std::uint8_t*>(words);
  report_.insert(report_.end(), part, part + std::min<std::size_t>(bytes - at, rank::kReportPart));
  if (report_.size() < bytes || reports_.empty()) return true;
  const std::vector<std::uint8_t> whole = std::exchange(report_, {});
  std::uint32_t kind = 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(whole.size(), 4); ++i) kind |= std::uint32_t{whole[i]} << 8 * i;
  const auto client = reports_.find(kind);
  return client != reports_.end() && client->second->report(port_.rank(), number, whole, now);
}

void RankBridge::use_reports(std::uint32_t kind, RankReports* reports) {
  if (!reports) {
    reports_.erase(kind);
  } else if (!reports_.emplace(kind, reports).second) {
    throw std::logic_error("a rank's reports of one kind go to one client");
  }
}

void RankBridge::answer(std::uint32_t number, std::span<const std::uint8_t> bytes, Picoseconds now) {
  constexpr auto kind = static_cast<std::uint32_t>(rank::NoticeKind::answer);
  if (bytes.size() > rank::kMostAnswer) throw std::invalid_argument("answer: its length");
  news_ = true;
  port_.notify({kind, number, static_cast<std::uint32_t>(bytes.size()), 1});
  for (std::size_t at = 0; at < bytes.size(); at += rank::kAnswerPart) {
    std::uint32_t words[2] = {};
    std::memcpy(words, bytes.data() + at, std::min<std::size_t>(bytes.size() - at, sizeof words));
    port_.notify({kind, number, words[0], words[1]});
  }
  port_.flush(now);
}

RankFault RankBridge::excess(std::span<const rank::MarkEntry> marks, Picoseconds now, std::int64_t wall_ns) {
  if (marks.empty()) return RankFault::none;
  if (wall_ns != 0) {
    const std::int64_t earned = (wall_ns - marks_seen_ns_) / kMarkCostNs;
    if (earned > 0) {
      allowance_ = std::min(allowance_ + earned, kMarkBurst);
      marks_seen_ns_ = wall_ns;
    }
    allowance_ -= static_cast<std::int64_t>(marks.size());
    if (allowance_ < 0) return RankFault::too_many_per_second;
  } else if (now != instant_) {
    instant_ = now;
    marked_at_once_ = {};
  }
  for (const rank::MarkEntry& mark : marks) {
    const auto kind = static_cast<rank::MarkKind>(mark.kind);
    const bool work = kind == rank::MarkKind::work_begin || kind == rank::MarkKind::work_end;
    ++(work ? marked_at_once_.works : marked_at_once_.records);
    // Of ring steps the log keeps so many and no more.
    if (kind != rank::MarkKind::ring_step) ++(work ? marked_.works : marked_.records);
  }
  if (marked_.works > 2 * kMostWorks || marked_.records > kMostRecords) return RankFault::too_many_operations;
  const bool at_once = marked_at_once_.works > 2 * kMostWorksAtOnce || marked_at_once_.records > kMostRecordsAtOnce;
  return wall_ns == 0 && at_once ? RankFault::too_many_at_once : RankFault::none;
}

// A rank may write anything: names and numbers only appear in a trace, nothing follows from
// them.
void RankBridge::tell(Tap& tap, const rank::MarkEntry& mark, Picoseconds at) {
  tap.rank_clock(nic_.host(), mark.at_ns, at);
  const auto kind = static_cast<rank::MarkKind>(mark.kind);
  if (kind == rank::MarkKind::work_end) {
    tap.work_ends(nic_.host(), static_cast<std::uint32_t>(job_), mark.value, mark.b, mark.status == 0, at);
  }
  if (kind != rank::MarkKind::work_begin) return;
  WorkLabel label{.name = "operation", .number = mark.value, .job = static_cast<std::uint32_t>(job_)};
  if (const auto collective = mark.b & 0xff; collective >= 1 && collective <= kCollectives) {
    label.name = to_string(static_cast<Collective>(collective - 1));
    label.communicator = static_cast<std::uint32_t>(mark.a);
    label.operations = static_cast<std::uint32_t>(mark.b >> 8);
    if (sequences_.size() < 4096 || sequences_.contains(label.communicator)) {
      std::uint32_t& next = sequences_[label.communicator];
      label.sequence = next;
      next += label.operations;
    }
  }
  tap.work_begins(nic_.host(), label, at);
}

void RankBridge::tell(rank::NoticeKind kind, std::uint32_t peer, rank::GoneReason reason, Picoseconds now,
                      std::uint32_t status) {
  port_.notify({static_cast<std::uint32_t>(kind), peer, static_cast<std::uint32_t>(reason), status});
  port_.flush(now);
}

std::string RankBridge::under_way() const {
  if (began_.empty()) return meetings_ ? meetings_->open(port_.rank()) : std::string();
  const Begun& first = began_.begin()->second;
  std::string name = first.collective >= 1 && first.collective <= kCollectives
                         ? std::string(to_string(static_cast<Collective>(first.collective - 1)))
                         : "operation";
  if (began_.size() > 1) name += " and " + std::to_string(began_.size() - 1) + " more";
  return name;
}

std::vector<RankMark> RankBridge::take_marks() { return std::exchange(marks_, {}); }

}  // namespace loomnet
