// Tracks, slices and arrows from records; see timeline.hpp.
#include "trace/timeline.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <unordered_map>

#include "transport/transport.hpp"

namespace loomnet {
namespace {

// Flow ids of Perfetto are one space for the whole trace.
constexpr std::uint64_t message_flow(std::uint32_t number) { return 1ull << 63 | number; }
constexpr std::uint64_t packet_flow(std::uint64_t uid) { return 1ull << 62 | uid; }

// Attributes that the job has stated; one that it has not is not shown.
void add_stated(std::vector<TraceArgument>& to, const Attributes& a) {
  if (a.step_bytes > 0) {
    to.push_back({"ring_step", a.ring_step});
    to.push_back({"step_offset", static_cast<std::int64_t>(a.step_offset)});
  }
  if (a.layer != kNoLayer) to.push_back({"layer", a.layer});
  if (a.priority != kNoPriority) to.push_back({"priority", a.priority});
  if (a.loss_tolerance > 0) {
    to.push_back({"loss_tolerance_ppm", std::llround(a.loss_tolerance * 1e6)});
  }
  if (a.tag != 0) to.push_back({"tag", a.tag});
}

// Slices that overlap go to several tracks: "name", "name, lane 2" and so on.
class Lanes {
 public:
  // Shown in order of `rank`.
  Lanes(PerfettoWriter& out, TrackId parent, std::string name, std::int32_t rank)
      : out_(&out), parent_(parent), name_(std::move(name)), rank_(rank) {}
  // A track that is free from `begin` on; calls come in order of begin.
  TrackId take(Picoseconds begin, Picoseconds end) {
    for (Lane& lane : lanes_) {
      if (lane.busy_until > begin) continue;
      lane.busy_until = end;
      return lane.track;
    }
    const std::string name = lanes_.empty() ? name_ : name_ + ", lane " + std::to_string(lanes_.size() + 1);
    lanes_.push_back({out_->track(parent_, name, rank_), end});
    return lanes_.back().track;
  }

 private:
  struct Lane {
    TrackId track;
    Picoseconds busy_until;
  };
  PerfettoWriter* out_;
  TrackId parent_;
  std::string name_;
  std::int32_t rank_;
  std::vector<Lane> lanes_;
};

class Timeline {
 public:
  Timeline(const Recorder& recorder, const TimelineNames& names, Picoseconds end, PerfettoWriter& out)
      : recorder_(recorder),
        names_(names),
        end_(end),
        out_(out),
        operations_(recorder.operations()),
        messages_(recorder.messages()) {
    const Picoseconds zero = out.zero();
    std::erase_if(operations_, [&](const Recorder::Operation& o) { return o.end < zero; });
    std::erase_if(messages_, [&](const Recorder::Message& m) { return m.completed < zero; });
  }

  void write() {
    link_operations();
    order_hops();
    attributes();
    describe_hosts();
    write_operations();
    write_messages();
    write_hops();
    write_marks();
    write_queues();
  }

 private:
  void attributes();
  void link_operations();
  void order_hops();
  void describe_hosts();
  void write_operations();
  void write_messages();
  void write_hops();
  void write_marks();
  void write_queues();

  TrackId host(std::uint32_t number) {
    TrackId& track = hosts_[number];
    if (!track) track = out_.process(timeline_pid(number), names_.host(number));
    return track;
  }
  TrackId links() {
    if (!links_) links_ = out_.track(0, "links");
    return links_;
  }
  const std::string& half_name(std::uint32_t half) {
    std::string& name = half_names_[half];
    if (name.empty()) name = names_.half(half);
    return name;
  }
  TrackId half(std::uint32_t number) {
    TrackId& track = halves_[number];
    if (!track) {
      track = out_.track(links(), half_name(number), 1 + static_cast<std::int32_t>(number));
    }
    return track;
  }
  Lanes& lanes(std::map<std::uint64_t, Lanes>& all, std::uint64_t key, TrackId parent, std::string name,
               std::int32_t rank) {
    return all.try_emplace(key, out_, parent, std::move(name), rank).first->second;
  }

  std::int64_t since_zero(Picoseconds at) const { return (at - out_.zero()).count; }

  const Recorder& recorder_;
  const TimelineNames& names_;
  Picoseconds end_;
  PerfettoWriter& out_;
  std::vector<Recorder::Operation> operations_;
  std::vector<Recorder::Message> messages_;
  std::vector<std::vector<std::uint64_t>> of_operation_;  // flows, by index of operations_
  std::vector<bool> linked_;                              // by index of messages_
  std::vector<std::uint32_t> order_;                      // hops by start
  std::unordered_map<std::uint32_t, std::vector<std::uint64_t>> of_message_;  // packet flows
  std::unordered_map<std::uint32_t, std::uint32_t> destination_;              // of a message
  std::unordered_map<std::uint64_t, std::uint32_t> last_hop_;                 // of a uid
  std::map<std::uint32_t, TrackId> hosts_, halves_;
  std::map<std::uint32_t, std::string> half_names_;
  TrackId links_ = 0;
};

void Timeline::attributes() {
  const RecorderConfig& c = recorder_.config();
  const Recorder::Seen& seen = recorder_.seen();
  const auto share = [](const Sampler& s) {
    return s.halvings() ? "1/" + std::to_string(1ull << std::min(s.halvings(), 63)) : std::string("all");
  };
  const auto number = [&](std::string_view key, std::uint64_t value) {
    out_.attribute(key, static_cast<std::int64_t>(value));
  };
  out_.attribute("loomnet.clock",
                 "emulated time in nanoseconds; 0 is the first job's start, and what ended before is "
                 "left out");
  number("loomnet.seed", c.seed);
  out_.attribute("loomnet.sampling",
                 "messages with all their packets, and single packets that carry none, are kept where "
                 "the hash of seed and id lies below a limit, halved whenever a bound is reached");
  out_.attribute("loomnet.sampling.packets_share", share(recorder_.packet_sampler()));
  number("loomnet.sampling.hops_seen", seen.hops);
  number("loomnet.sampling.drops_seen", seen.drops);
  number("loomnet.sampling.hops_and_drops_kept", order_.size());
  number("loomnet.sampling.hops_and_drops_before_zero", recorder_.hops().size() - order_.size());
  number("loomnet.sampling.hops_bound", c.most_hops);
  number("loomnet.sampling.messages_seen", seen.messages);
  number("loomnet.sampling.messages_kept", messages_.size());
  number("loomnet.sampling.messages_bound", c.most_messages);
  out_.attribute("loomnet.sampling.operations_share", share(recorder_.operation_sampler()));
  number("loomnet.sampling.operations_seen", seen.operations);
  number("loomnet.sampling.operations_kept", operations_.size());
  number("loomnet.sampling.operations_bound", c.most_operations);
  number("loomnet.sampling.queue_points_bound", c.most_queue_points);
  out_.attribute("loomnet.sampling.queue_bin_ns", recorder_.queues().bin().count / 1000);
}

// A message belongs to the operation of its host that has its job, communicator and number, while that
// runs.
void Timeline::link_operations() {
  of_operation_.resize(operations_.size());
  linked_.resize(messages_.size());
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>, std::size_t> by_name;
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    const auto& label = operations_[i].label;
    for (std::uint32_t n = 0; n < std::min(label.operations, 64u); ++n) {
      by_name[{operations_[i].host, label.job, label.communicator, label.sequence + n}] = i;
    }
  }
  for (std::size_t i = 0; i < messages_.size(); ++i) {
    const Recorder::Message& m = messages_[i];
    const Attributes& a = m.attributes;
    const auto found = by_name.find({m.host, a.job, a.communicator, a.sequence});
    if (found == by_name.end()) continue;
    const Recorder::Operation& o = operations_[found->second];
    if (m.posted < o.begin || m.posted > o.end) continue;
    of_operation_[found->second].push_back(message_flow(m.number));
    linked_[i] = true;
  }
}

void Timeline::order_hops() {
  const auto& hops = recorder_.hops();
  order_.resize(hops.size());
  std::iota(order_.begin(), order_.end(), 0u);
  std::erase_if(order_,
                [&](std::uint32_t i) { return (hops[i].drop.empty() ? hops[i].done : hops[i].start) < out_.zero(); });
  std::stable_sort(order_.begin(), order_.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return hops[a].start < hops[b].start; });
  for (const std::uint32_t i : order_) {
    const Recorder::Hop& h = hops[i];
    const bool first = last_hop_.insert_or_assign(h.uid, i).second;
    if (first && h.message && h.drop.empty()) {
      of_message_[h.message].push_back(packet_flow(h.uid));
      destination_[h.message] = h.label.destination;
    }
  }
}

// In order of their numbers, whichever has the first slice.
void Timeline::describe_hosts() {
  std::set<std::uint32_t> found;
  for (const Recorder::Operation& o : operations_) found.insert(o.host);
  for (const Recorder::Message& m : messages_) found.insert(m.host);
  for (const std::uint32_t number : found) host(number);
}

void Timeline::write_operations() {
  std::map<std::uint64_t, Lanes> all;
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    const Recorder::Operation& o = operations_[i];
    const bool open = o.end == kNever;
    const Picoseconds end = open ? std::max(end_, o.begin) : o.end;
    const TrackId track = lanes(all, o.host, host(o.host), names_.host(o.host) + " operations", 1).take(o.begin, end);
    const TraceArgument arguments[] = {
        {"number", static_cast<std::int64_t>(o.label.number)},
        {"job", o.label.job},
        {"communicator", o.label.communicator},
        {"bytes", static_cast<std::int64_t>(o.bytes)},
        {"outcome", 0,
         open   ? "unfinished"
         : o.ok ? "ok"
                : "failed"},
        {"begin_ps", since_zero(o.begin)},
        {"end_ps", since_zero(end)},
    };
    std::string name(o.label.name);
    name += ' ';
    name += std::to_string(o.label.number);
    out_.begin(track, o.begin, name, "operation", arguments, of_operation_[i]);
    out_.end(track, end);
  }
}

void Timeline::write_messages() {
  std::map<std::uint64_t, Lanes> all;
  std::vector<std::uint64_t> none;
  for (std::size_t i = 0; i < messages_.size(); ++i) {
    const Recorder::Message& m = messages_[i];
    const bool open = m.completed == kNever;
    const Picoseconds end = open ? std::max(end_, m.posted) : m.completed;
    const auto to = destination_.find(m.number);
    const std::string name = to == destination_.end() ? "message" : "message to " + names_.host(to->second);
    const std::uint64_t key = std::uint64_t{m.host} << 32 | m.qp;
    const TrackId track = lanes(all, key, host(m.host), names_.host(m.host) + " queue pair " + std::to_string(m.qp),
                                2 + static_cast<std::int32_t>(m.qp))
                              .take(m.posted, end);
    std::vector<TraceArgument> arguments = {
        {"message", m.number},
        {"bytes", m.length},
        {"job", m.attributes.job},
        {"communicator", m.attributes.communicator},
        {"operation", m.attributes.sequence},
        {"outcome", 0, open ? "unfinished" : to_string(static_cast<Status>(m.status))},
        {"begin_ps", since_zero(m.posted)},
        {"end_ps", since_zero(end)},
    };
    add_stated(arguments, m.attributes);
    if (m.missing_bytes > 0) arguments.push_back({"missing_bytes", m.missing_bytes});
    const auto packets = of_message_.find(m.number);
    const std::uint64_t operation[] = {message_flow(m.number)};
    out_.begin(track, m.posted, name, "message", arguments, packets == of_message_.end() ? none : packets->second,
               linked_[i] ? std::span<const std::uint64_t>(operation) : std::span<const std::uint64_t>());
    out_.end(track, end);
  }
}

void Timeline::write_hops() {
  const auto& hops = recorder_.hops();
  // A link that went down and up again may begin before what it cut off would have ended.
  std::vector<Picoseconds> ends(hops.size());
  std::map<std::uint32_t, Picoseconds> next;
  for (std::size_t i = order_.size(); i-- > 0;) {
    const Recorder::Hop& h = hops[order_[i]];
    if (!h.drop.empty()) continue;
    const auto [following, first] = next.try_emplace(h.half, h.start);
    ends[order_[i]] = first ? h.done : std::min(h.done, following->second);
    following->second = h.start;
  }
  for (const std::uint32_t i : order_) {
    const Recorder::Hop& h = hops[i];
    const std::uint64_t flow[] = {packet_flow(h.uid)};
    const bool last = last_hop_[h.uid] == i;
    const std::span<const std::uint64_t> on(flow, last ? 0 : 1), ending(flow, last ? 1 : 0);
    std::string name(h.label.name);
    if (h.label.numbered) name += ' ' + std::to_string(h.label.psn);
    if (!h.drop.empty()) {
      std::vector<TraceArgument> arguments = {
          {"uid", static_cast<std::int64_t>(h.uid)}, {"message", h.message}, {"packet", 0, name}};
      add_stated(arguments, h.attributes);
      std::string drop = "drop: ";
      drop += h.drop;
      out_.instant(half(h.half), h.start, drop, "drop", arguments, ending);
      continue;
    }
    std::vector<TraceArgument> arguments = {
        {"uid", static_cast<std::int64_t>(h.uid)},
        {"message", h.message},
        {"bytes", h.length},
        {"queued_ps", (h.start - h.offered).count},
        {"start_ps", since_zero(h.start)},
        {"done_ps", since_zero(h.done)},
    };
    add_stated(arguments, h.attributes);
    out_.begin(half(h.half), h.start, name, "packet", arguments, on, ending);
    out_.end(half(h.half), ends[i]);
  }
}

void Timeline::write_marks() {
  for (const Recorder::Mark& mark : recorder_.marks()) {
    std::vector<TraceArgument> arguments = {{"uid", static_cast<std::int64_t>(mark.uid)}};
    for (std::size_t i = 0; i < mark.names.size(); ++i) {
      arguments.push_back({mark.names[i], mark.values[i]});
    }
    out_.instant(half(mark.half), mark.at, "marked by " + std::string(mark.by), "mark", arguments, {});
  }
}

void Timeline::write_queues() {
  recorder_.queues().each([&](std::uint32_t number, const std::vector<QueueSeries::Point>& points) {
    const TrackId track = out_.counter(links(), "queue " + half_name(number));
    for (std::size_t i = 0; i < points.size(); ++i) {
      // Of the points before zero only the last one tells the depth at zero.
      if (i + 1 < points.size() && points[i + 1].at <= out_.zero()) continue;
      out_.count(track, points[i].at, points[i].bytes);
    }
  });
}

}  // namespace

void write_timeline(const Recorder& recorder, const TimelineNames& names, Picoseconds end, PerfettoWriter& out) {
  Timeline(recorder, names, end, out).write();
}

}  // namespace loomnet
