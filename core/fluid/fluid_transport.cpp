#include "fluid/fluid_transport.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "clock/random.hpp"
#include "packet/rdma.hpp"

namespace loomnet::fluid {
namespace {
constexpr std::size_t kPartBits = 8;  // of a flow's cookie; above them the queue pair's index
}

FluidTransport::FluidTransport(FluidFabric& fabric, NodeId node, TransportSink& sink, std::string name,
                               const Frames& frames)
    : fabric_(fabric), node_(node), sink_(sink), name_(std::move(name)), frames_(frames) {
  if (frames.payload == 0) throw std::invalid_argument("fluid: frames carry at least one byte");
}

void FluidTransport::connect(const QpConfig& config, Picoseconds) {
  const auto refuse = [](const char* what) { throw std::invalid_argument(what); };
  if (config.local < 2 || config.local > kMask24) refuse("QpConfig.local: a number in 2 to 2^24-1");
  if (config.remote < 2 || config.remote > kMask24) refuse("QpConfig.remote: a number in 2 to 2^24-1");
  if (config.planes.empty() || config.planes.size() > kMaxPlanes) refuse("QpConfig.planes: 1 to 8");
  if (config.group) refuse("QpConfig.group: fluid transfers are between two hosts");
  if (by_number_.contains(config.local)) refuse("QpConfig.local: queue pair exists already");
  auto qp = std::make_unique<QueuePair>();
  qp->local = config.local;
  qp->remote = config.remote;
  qp->destination = config.destination;
  const auto index = static_cast<std::uint32_t>(queue_pairs_.size());
  by_number_.add(config.local, index);
  queue_pairs_.push_back(std::move(qp));
  with_path_.push_back(0);
  take_paths(index, config.planes);
  make_parts(*queue_pairs_[index]);
}

void FluidTransport::take_paths(std::uint32_t index, const std::vector<PlanePaths>& planes) {
  static_assert(kMaxPlanes <= 8);
  QueuePair& qp = *queue_pairs_[index];
  qp.ports = static_cast<std::uint8_t>(planes.size());
  qp.with_path = 0;
  for (std::size_t port = 0; port < planes.size(); ++port) {
    if (!planes[port].uplinks.empty()) qp.with_path |= static_cast<std::uint8_t>(1u << port);
  }
  with_path_[index] = qp.with_path;
}

void FluidTransport::make_parts(QueuePair& qp) {
  qp.parts.clear();
  for (PlanePort port = 0; port < qp.ports; ++port) {
    if (!qp.leads_by(port)) continue;
    qp.parts.emplace_back();
    qp.parts.back().port = port;
    qp.parts.back().write = qp.leaving;
  }
  if (frames_.one_port && qp.parts.size() > 1) {
    const std::uint64_t hash =
        mix64(mix64(std::uint64_t{qp.local} << 32 | qp.remote) ^ (std::uint64_t{qp.destination} << 32 | node_));
    qp.parts[0].port = qp.parts[hash % qp.parts.size()].port;
    qp.parts.resize(1);
  }
}

void FluidTransport::on_post(QpNumber number, const WorkRequest& request, Picoseconds now) {
  const std::uint32_t index = by_number_.find(number);
  if (index == NumberIndex::kAbsent || queue_pairs_[index]->failed) {
    ++failed_;
    return sink_.complete({number, Status::flushed, request.id, request.length});
  }
  ++open_;
  Write write;
  write.request = request;
  queue_pairs_[index]->writes.push(std::move(write));
  begin(index, now);
}

// Begins the next write at each port that carries none. A write without a path waits until on_paths brings one.
void FluidTransport::begin(std::uint32_t index, Picoseconds now) {
  QueuePair& qp = *queue_pairs_[index];
  if (qp.failed) return;
  for (std::size_t number = 0; number < qp.parts.size(); ++number) {
    Part& part = qp.parts[number];
    while (!part.flowing && part.left == 0 && part.write < qp.end()) {
      Write& write = qp.write(part.write);
      if (!write.cut) {
        cut(qp, write);
        write.arrives = std::max(write.arrives, now);
      }
      part.left = part.bytes = std::exchange(write.shares[number], 0);
      part.last = write.again ? std::min(part.bytes, frames_.full())
                              : frames_.last_bytes(frames_.part_bytes(write.request.length, qp.parts.size(), number),
                                                   write.request.opcode == Opcode::write_with_immediate);
      if (part.left == 0) {
        ++part.write;  // it has no part for this port
      } else {
        flow(index, number);
      }
    }
  }
}

// Cuts a write into a part for each port, as the transport does. Bytes that a change of paths has left over are
// divided evenly.
void FluidTransport::cut(QueuePair& qp, Write& write) const {
  const std::size_t count = qp.parts.size();
  const bool immediate = write.request.opcode == Opcode::write_with_immediate;
  write.cut = true;
  write.again |= write.interrupted > 0;
  write.parts_open = 0;
  write.shares = {};
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t payload = frames_.part_bytes(write.request.length, count, i);
    if (write.interrupted > 0) {
      write.shares[i] = write.interrupted / count + (i < write.interrupted % count);
    } else if (payload > 0 || i == 0 || (immediate && frames_.immediate > 0)) {
      write.shares[i] = frames_.wire_bytes(payload, immediate);
    }
    write.parts_open += write.shares[i] > 0;
  }
  write.interrupted = 0;
}

// Starts a flow for the bytes that a part has left, where the part's route is whole.
void FluidTransport::flow(std::uint32_t index, std::size_t number) {
  QueuePair& qp = *queue_pairs_[index];
  Part& part = qp.parts[number];
  if (!part.known) {
    take_route(part, find_route(qp, number, part.port));
    // A sender with one port takes another that still leads there.
    for (PlanePort port = 0; frames_.one_port && !part.route.whole && port < qp.ports; ++port) {
      if (!qp.leads_by(port)) continue;
      part.port = port;
      take_route(part, find_route(qp, number, port));
    }
  }
  if (!part.route.whole || part.left == 0) return;
  part.latency = part.route.latency(part.bytes, part.last, frames_);
  part.flow = fabric_.links().start(part.route.links, part.left, 1, *this, std::uint64_t{index} << kPartBits | number);
  part.flowing = true;
  part.left = 0;
}

Route FluidTransport::find_route(const QueuePair& qp, std::size_t number, PlanePort port) {
  const FlowFront front = flow_front(
      {fabric_.network().nic(node_).host(), qp.destination, qp.local, static_cast<std::uint8_t>(number), qp.rerouted},
      kUdpPortRoceV2);
  return fabric_.route(node_, port, qp.destination, front);
}

void FluidTransport::take_route(Part& part, Route route) {
  part.route = std::move(route);
  part.answer = part.route.answer(frames_.ack);
  part.known = true;
}

void FluidTransport::finished(FlowId, std::uint64_t cookie, Picoseconds now) {
  const auto index = static_cast<std::uint32_t>(cookie >> kPartBits);
  Part& part = queue_pairs_[index]->parts[cookie & ((1u << kPartBits) - 1)];
  part.flowing = false;
  part_left(index, part, now);
}

// All bytes of the write's part have been carried at the flow's rate.
void FluidTransport::part_left(std::uint32_t index, Part& part, Picoseconds now) {
  QueuePair& qp = *queue_pairs_[index];
  Write& write = qp.write(part.write++);
  const Picoseconds arrives = now + part.latency;
  write.arrives = std::max(write.arrives, arrives);
  write.answered = std::max(write.answered, arrives + part.answer);
  --write.parts_open;
  // A short write with parts for some ports alone may have left before the one in front of it.
  while (qp.leaving < qp.end() && qp.write(qp.leaving).cut && qp.write(qp.leaving).parts_open == 0) {
    write_left(index, now);
  }
  begin(index, now);
  fabric_.network().nic(node_).look(now);
}

// The first write that was leaving has left by all its ports.
void FluidTransport::write_left(std::uint32_t index, Picoseconds now) {
  QueuePair& qp = *queue_pairs_[index];
  const Write& write = qp.write(qp.leaving++);
  // Neither before that of the write in front of it.
  qp.arrives = std::max(qp.arrives, write.arrives);
  qp.answered = std::max({qp.answered, write.answered, qp.arrives});
  const Picoseconds answer = qp.answered - qp.arrives;
  if (!qp.far) qp.far = fabric_.transport_of(qp.destination, name_);
  FluidTransport* const far = qp.far;
  if (!far || !far->by_number_.contains(qp.remote)) {
    qp.refused = true;
    expect({qp.arrives + answer, 0, index, nullptr, {}, 0, Status::remote_operational, {}});
  } else {
    far->expect({qp.arrives, 0, index, this, write.request, qp.remote, Status::ok, answer});
    fabric_.network().nic(far->node_).look(now);
  }
}

void FluidTransport::expect(Due due) {
  due.order = order_++;
  due_.push_back(due);
  std::push_heap(due_.begin(), due_.end());
}

void FluidTransport::on_deadline(Picoseconds now) {
  while (!due_.empty() && due_.front().at <= now) {
    std::pop_heap(due_.begin(), due_.end());
    const Due due = due_.back();
    due_.pop_back();
    if (due.from) {
      arrive(due);
    } else {
      answer(due);
    }
  }
}

// A write of `due.from` is here whole. Its sender hears so when an acknowledgement has crossed back.
void FluidTransport::arrive(const Due& due) {
  const WorkRequest& write = due.write;
  QueuePair& qp = *due.from->queue_pairs_[due.index];
  Payload payload;
  payload.length = write.length;
  if (write.local && write.length > 0) {
    payload.data = write.local;
    payload.kind = PayloadKind::region;
  }
  Status status = qp.refused ? Status::flushed : Status::ok;
  if (status == Status::ok && !sink_.place(due.qp, write.remote_key, write.remote_address, payload)) {
    ++access_errors_;
    qp.refused = true;
    status = Status::remote_access_error;
  }
  if (status == Status::ok) {
    bytes_ += write.length;
    if (write.opcode == Opcode::write_with_immediate) {
      sink_.arrived({due.qp, write.immediate, write.length, write.remote_address});
    }
  }
  due.from->expect({due.at + due.answer, 0, due.index, nullptr, {}, 0, status, {}});
  fabric_.network().nic(due.from->node_).look(due.at);
}

void FluidTransport::answer(const Due& due) {
  QueuePair& qp = *queue_pairs_[due.index];
  if (qp.failed) return;  // its writes are back already
  complete(qp, due.status);
  if (due.status == Status::ok) return;
  qp.failed = true;
  for (Part& part : qp.parts) {
    if (part.flowing) fabric_.links().stop(part.flow);
    part.flowing = false;
    part.left = 0;
  }
  while (!qp.writes.empty()) complete(qp, Status::flushed);
  qp.leaving = qp.first;
}

void FluidTransport::complete(QueuePair& qp, Status status) {
  const WorkRequest& write = qp.writes.front().request;
  sink_.complete({qp.local, status, write.id, write.length});
  ++(status == Status::ok ? writes_ : failed_);
  --open_;
  qp.writes.pop();
  ++qp.first;
}

void FluidTransport::on_paths(QpNumber number, std::vector<PlanePaths> planes, Picoseconds now) {
  const std::uint32_t index = by_number_.find(number);
  if (index == NumberIndex::kAbsent) throw std::invalid_argument("QpConfig.local: no such queue pair");
  QueuePair& qp = *queue_pairs_[index];
  if (planes.size() != qp.ports) {
    throw std::invalid_argument("QpConfig.planes: as many as before");
  }
  // Writes that have begun are cut again: their remaining bytes go in equal parts by the ports of the new paths.
  for (Part& part : qp.parts) {
    std::uint64_t left = part.left;
    if (part.flowing) {
      left += static_cast<std::uint64_t>(fabric_.links().left(part.flow)) + 1;
      fabric_.links().stop(part.flow);
    }
    if (left > 0) qp.write(part.write).interrupted += left;
  }
  for (std::uint64_t number = qp.leaving; number < qp.end(); ++number) {
    Write& write = qp.write(number);
    if (!write.cut) break;
    if (write.parts_open == 0) continue;
    for (const std::uint64_t share : write.shares) write.interrupted += share;
    write.cut = false;
  }
  take_paths(index, planes);
  ++qp.rerouted;
  make_parts(qp);
  begin(index, now);
}

void FluidTransport::on_renew(QpNumber number, Picoseconds) {
  const std::uint32_t index = by_number_.find(number);
  if (index == NumberIndex::kAbsent) throw std::invalid_argument("QpConfig.local: no such queue pair");
  QueuePair& qp = *queue_pairs_[index];
  ++qp.rerouted;
  for (Part& part : qp.parts) part.known = false;
}

void FluidTransport::find_routes() {
  for (std::uint32_t index = 0; index < queue_pairs_.size(); ++index) find_routes(index, nullptr);
}

void FluidTransport::find_routes(PlanePort port) {
  for (std::uint32_t index = 0; index < queue_pairs_.size(); ++index) {
    if (with_path_[index] >> port & 1) find_routes(index, &port);
  }
}

void FluidTransport::forget_routes() {
  for (const auto& qp : queue_pairs_) {
    for (Part& part : qp->parts) part.known = false;
  }
}

void FluidTransport::find_routes(std::uint32_t index, const PlanePort* port) {
  QueuePair& qp = *queue_pairs_[index];
  for (std::size_t number = 0; number < qp.parts.size(); ++number) {
    Part& part = qp.parts[number];
    // Behind another port nothing has changed, unless a sender with one port waits for any that leads there.
    if (port && part.port != *port && (!frames_.one_port || part.flowing || part.route.whole)) continue;
    if (part.flowing) {
      Route found = find_route(qp, number, part.port);
      if (found.whole && found.links == part.route.links) {
        take_route(part, std::move(found));
        part.latency = part.route.latency(part.bytes, part.last, frames_);
        continue;
      }
      part.left = std::max<std::uint64_t>(static_cast<std::uint64_t>(fabric_.links().left(part.flow)), 1);
      fabric_.links().stop(part.flow);
      part.flowing = false;
    }
    part.known = false;
    if (part.left > 0) flow(index, number);
  }
}

void FluidTransport::counters(std::vector<TransportCounter>& out) const {
  const TransportCounter all[] = {
      {"fluid_writes", writes_},
      {"fluid_bytes", bytes_},
      {"fluid_failed", failed_},
      {"fluid_access_errors", access_errors_},
  };
  out.insert(out.end(), std::begin(all), std::end(all));
}

}  // namespace loomnet::fluid
