// Keeping a bounded, repeatable sample of what a run does; see recorder.hpp.
#include "trace/recorder.hpp"

#include <algorithm>

#include "link/egress_hook.hpp"
#include "transport/transport.hpp"

namespace loomnet {
namespace {

constexpr std::uint64_t kPacketPurpose = 0x7472616365;     // "trace"
constexpr std::uint64_t kOperationPurpose = 0x6f70657261;  // "opera"
constexpr std::uint64_t kNoMessage = 1ull << 63;           // ids of packets that carry no message

std::uint64_t key_of(std::uint32_t host, std::uint32_t qp) { return std::uint64_t{host} << 32 | qp; }

}  // namespace

Recorder::Recorder(const RecorderConfig& config)
    : config_(config),
      packets_(config.seed, kPacketPurpose),
      work_(config.seed, kOperationPurpose),
      queues_(config.most_queue_points) {}

PortCapture& Recorder::capture(std::uint32_t egress, std::uint32_t ingress, std::unique_ptr<PortCapture> made) {
  captures_.push_back(std::move(made));
  PortCapture* capture = captures_.back().get();
  capture->set_zero(zero_);
  watchers_[egress].push_back({capture, Direction::outbound});
  watchers_[ingress].push_back({capture, Direction::inbound});
  return *capture;
}

void Recorder::set_zero(Picoseconds zero) {
  zero_ = zero;
  for (const auto& capture : captures_) capture->set_zero(zero);
}

void Recorder::remove(const PortCapture& capture) {
  for (auto& [half, list] : watchers_) {
    std::erase_if(list, [&](const Watcher& w) { return w.capture == &capture; });
  }
  std::erase_if(captures_, [&](const auto& c) { return c.get() == &capture; });
}

template <typename Call>
void Recorder::each_watcher(std::uint32_t half, Call&& call) {
  if (watchers_.empty()) return;
  const auto found = watchers_.find(half);
  if (found == watchers_.end()) return;
  for (const Watcher& w : found->second) {
    call(*w.capture, w.direction);
    if (events_ && w.capture->full()) events_->stop();
  }
}

// --- the timeline's sample -----------------------------------------------------------------------

// Messages are kept or left with all their packets; packets that carry none are chosen one by one.
bool Recorder::keeps(const Packet& packet) const {
  return packets_.keeps(packet.message ? packet.message : packet.uid | kNoMessage);
}

void Recorder::add(const Hop& hop) {
  hops_.push_back(hop);
  while (hops_.size() > config_.most_hops) tighten();
}

void Recorder::tighten() {
  packets_.tighten();
  std::erase_if(hops_, [&](const Hop& h) { return !packets_.keeps(h.message ? h.message : h.uid | kNoMessage); });
  const auto left = [&](const Message& m) { return !packets_.keeps(m.number); };
  std::erase_if(messages_, left);
  open_message_count_ = 0;
  for (auto& [key, list] : open_messages_) {
    std::erase_if(list, left);
    open_message_count_ += list.size();
  }
}

void Recorder::marked(std::uint32_t half, const Packet& packet, const EgressNote& note, Picoseconds now) {
  mark_ = "marked by ";
  mark_ += note.by;
  for (std::size_t i = 0; i < note.names.size(); ++i) {
    mark_ += i ? ' ' : ':';
    if (i == 0) mark_ += ' ';
    mark_ += note.names[i];
    mark_ += '=' + std::to_string(note.values[i]);
  }
  if (!config_.timeline) return;
  ++seen_.marks;
  if (marks_.size() >= config_.most_marks) return;
  Mark& mark = marks_.emplace_back(Mark{half, now, packet.uid, note.by, note.names, {}});
  std::copy_n(note.values.begin(), std::min(note.values.size(), mark.values.size()), mark.values.begin());
}

void Recorder::sent(std::uint32_t half, const Packet& packet, Picoseconds start, Picoseconds done) {
  each_watcher(half, [&](PortCapture& capture, Direction direction) {
    if (direction == Direction::outbound) {
      std::string comment = mark_;
      if (packet.lost || packet.corrupt) {
        if (!comment.empty()) comment += "; ";
        comment += packet.lost ? "lost on the link: loss" : "lost on the link: fcs";
      }
      capture.add(direction, packet, start, comment);
    }
  });
  mark_.clear();
  if (!config_.timeline) return;
  ++seen_.hops;
  if (keeps(packet)) {
    add({packet.uid,
         packet.ideal,
         start,
         done,
         half,
         packet.message,
         packet.wire_length,
         label_of(packet),
         {},
         packet.attributes});
  }
}

void Recorder::delivered(std::uint32_t half, const Packet& packet, Picoseconds) {
  each_watcher(half, [&](PortCapture& capture, Direction direction) {
    if (direction == Direction::inbound) capture.add(direction, packet, packet.arrival);
  });
}

void Recorder::dropped(std::uint32_t half, const Packet& packet, std::string_view reason, bool was_sent,
                       Picoseconds now) {
  each_watcher(half, [&](PortCapture& capture, Direction direction) {
    if (was_sent == (direction == Direction::outbound)) return;  // it has been shown, or never was there
    std::string comment = was_sent ? "never received, lost on the link: " : "dropped before sending: ";
    comment += reason;
    capture.add(direction, packet, now, comment, reason == "fcs");
  });
  if (!config_.timeline) return;
  ++seen_.drops;
  if (keeps(packet)) {
    add({packet.uid, now, now, now, half, packet.message, packet.wire_length, label_of(packet), reason,
         packet.attributes});
  }
}

void Recorder::queued(std::uint32_t half, std::uint64_t bytes, Picoseconds now) {
  if (config_.timeline) queues_.add(half, bytes, now);
}

void Recorder::refused(std::uint32_t node, const Packet& packet, std::string_view reason, Picoseconds) {
  for (const auto& capture : captures_) {
    if (capture->node() != node) continue;
    std::string comment = "dropped by the switch program: ";
    comment += reason;
    capture->annotate(packet, comment);
  }
}

void Recorder::ended(std::uint32_t node, const Packet& packet, std::string_view how, Picoseconds) {
  for (const auto& capture : captures_) {
    if (capture->node() == node) capture->annotate(packet, how);
  }
}

// --- messages and operations ---------------------------------------------------------------------

void Recorder::posted(std::uint32_t host, std::uint32_t qp, const WorkRequest& request, Picoseconds now) {
  if (!config_.timeline) return;
  ++seen_.messages;
  if (!packets_.keeps(request.message)) return;
  open_messages_[key_of(host, qp)].push_back(
      {host, qp, request.message, request.length, request.attributes, request.id, now, kNever});
  ++open_message_count_;
  while (messages_.size() + open_message_count_ > config_.most_messages) tighten();
}

void Recorder::completed(std::uint32_t host, const Completion& completion, Picoseconds now) {
  if (!config_.timeline) return;
  const auto found = open_messages_.find(key_of(host, completion.qp));
  if (found == open_messages_.end()) return;
  auto& list = found->second;
  const auto message = std::find_if(list.begin(), list.end(), [&](const Message& m) { return m.id == completion.id; });
  if (message == list.end()) return;  // not in the sample
  message->completed = now;
  message->status = static_cast<std::uint8_t>(completion.status);
  message->missing_bytes = completion.missing.bytes;
  messages_.push_back(*message);
  list.erase(message);
  --open_message_count_;
}

// An operation's number is its ordinal at each member of a group, so all members keep it or none.
std::uint64_t Recorder::operation_id(const WorkLabel& label) const {
  return label.operations ? std::uint64_t{label.communicator} << 32 | label.sequence : label.number | kNoMessage;
}

void Recorder::work_begins(std::uint32_t host, const WorkLabel& label, Picoseconds now) {
  if (!config_.timeline) return;
  ++seen_.operations;
  if (!work_.keeps(operation_id(label))) return;
  open_operations_[{host, label.job, label.number}] = {host, label, now, kNever};
  while (operations_.size() + open_operations_.size() > config_.most_operations) {
    work_.tighten();
    std::erase_if(operations_, [&](const Operation& o) { return !work_.keeps(operation_id(o.label)); });
    std::erase_if(open_operations_, [&](const auto& entry) { return !work_.keeps(operation_id(entry.second.label)); });
  }
}

void Recorder::work_ends(std::uint32_t host, std::uint32_t job, std::uint64_t number, std::uint64_t bytes, bool ok,
                         Picoseconds now) {
  if (!config_.timeline) return;
  const auto found = open_operations_.find({host, job, number});
  if (found == open_operations_.end()) return;
  Operation& operation = found->second;
  operation.end = std::max(now, operation.begin);
  operation.bytes = bytes;
  operation.ok = ok;
  operations_.push_back(operation);
  open_operations_.erase(found);
}

void Recorder::rank_clock(std::uint32_t host, std::int64_t wall_ns, Picoseconds now) {
  if (!config_.timeline) return;
  ++seen_.clock_points;
  if (clock_.size() < config_.most_clock_points) clock_.push_back({host, wall_ns, now});
}

std::vector<Recorder::Operation> Recorder::operations() const {
  std::vector<Operation> all = operations_;
  for (const auto& [key, operation] : open_operations_) all.push_back(operation);
  std::stable_sort(all.begin(), all.end(), [](const Operation& a, const Operation& b) { return a.begin < b.begin; });
  return all;
}

std::vector<Recorder::Message> Recorder::messages() const {
  std::vector<Message> all = messages_;
  for (const auto& [key, list] : open_messages_) all.insert(all.end(), list.begin(), list.end());
  std::sort(all.begin(), all.end(), [](const Message& a, const Message& b) {
    return a.posted != b.posted ? a.posted < b.posted : a.number < b.number;
  });
  return all;
}

}  // namespace loomnet
