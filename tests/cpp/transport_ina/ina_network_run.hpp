// How ina_network.hpp builds its tree and moves packets through it.
#pragma once

#include "transport_ina/ina_network.hpp"

namespace loomnet::ina::test {

inline Network::Network(const Case& c) : case_(c), random_(c.seed, 0, 0x6e65), jobs_(c.places.size()) {
  boxes_.resize(3);
  const auto racks = static_cast<std::uint32_t>(jobs_.size());  // the root's first port to a rack
  for (std::uint32_t j = 0; j < jobs_.size(); ++j) boxes_[0].peers.push_back({Peer::Kind::host, j, kServer});
  for (std::uint32_t r = 1; r <= 2; ++r) {
    boxes_[0].peers.push_back({Peer::Kind::box, r, 0});
    boxes_[r].peers.push_back({Peer::Kind::box, 0, racks + r - 1});
  }
  for (std::uint32_t j = 0; j < jobs_.size(); ++j) {
    Job& job = jobs_[j];
    const auto& places = c.places[j];
    job.known.job = static_cast<std::uint16_t>(j + 1);
    job.known.workers = bit(static_cast<unsigned>(places.size())) - 1;
    job.known.trees.resize(1);
    job.options = c.options;
    if (c.removed.lifelong_numbers) job.options.first_sequence = 0;
    job.reference = std::make_unique<Reference>(c, j, places.size());
    job.self = {Peer::Kind::host, j, kServer};
    job.up = {Peer::Kind::box, 0, j};
    job.had.assign(c.fragments, 0);
    std::array<AggregateBatch::Job, 3> rows;
    for (std::uint32_t b = 0; b < 3; ++b) {
      rows[b] = loomnet::test::job_of(job.known.job, 0, c.options.scheme, c.options.window);
      rows[b].root = b != 0                                      ? AGGREGATE_INNER
                     : c.options.result_path == ResultPath::root ? AGGREGATE_ANSWERS
                                                                 : AGGREGATE_ROOT;
      rows[b].up = static_cast<SwitchPort>(b == 0 ? j : 0);
      rows[b].base = 2 * c.options.window * j;
    }
    job.hosts.resize(places.size());
    for (std::uint32_t w = 0; w < places.size(); ++w) {
      Host& host = job.hosts[w];
      Box& box = boxes_[places[w]];
      const auto port = static_cast<SwitchPort>(box.peers.size());
      host.self = {Peer::Kind::host, j, w};
      host.up = {Peer::Kind::box, places[w], port};
      host.held.assign(c.fragments, false);
      box.peers.push_back(host.self);
      rows[places[w]].children.push_back({port, bit(w)});
    }
    for (std::uint32_t r = 1; r <= 2; ++r) {
      std::uint64_t below = 0;
      for (const auto& child : rows[r].children) below |= child.workers;
      if (below == 0) continue;
      const auto port = static_cast<SwitchPort>(racks + r - 1);
      rows[0].children.push_back({port, below});
      rows[0].hops.push_back({static_cast<std::uint16_t>(10 + r), port});
      boxes_[r].jobs.push_back(rows[r]);
      job.known.trees[0].push_back(static_cast<std::uint16_t>(10 + r));
    }
    job.known.trees[0].push_back(10);
    boxes_[0].jobs.push_back(rows[0]);
    if (c.options.scheme != AGGREGATE_SWITCHML) job.server.emplace(job.options, job.known);
    for (std::size_t w = 0; w < places.size(); ++w) new_worker(job, w);
    unfinished_ += places.size() * c.fragments;
  }
  for (std::size_t b = 0; b < 3; ++b) build(b, b == 0 ? c.slots : c.rack_slots);
  if (!c.reboot) return;
  const std::int64_t when = kHop.count * (10 + random_.below(400));
  for (std::uint32_t b = 0; b < 3; ++b) {
    push(when, kReboot, {Peer::Kind::box, b, 0});
    push(when + 20 * kHop.count, kTables, {Peer::Kind::box, b, 0});
  }
}

inline void Network::build(std::size_t number, std::uint32_t slots) {
  static const ProgramKind kind = aggregate_kind();
  constexpr const char* kPolicies[] = {"switchml", "atp", "esa"};
  constexpr const char* kDealloc[] = {"completion", "ack", "lazy"};
  Box& box = boxes_[number];
  const ProgramOptions options = {{"policy", std::string(kPolicies[case_.options.scheme])},
                                  {"pool", static_cast<std::int64_t>(slots * AGGREGATE_SLOT_BYTES(kValues))},
                                  {"values", static_cast<std::int64_t>(kValues)},
                                  {"dealloc", std::string(kDealloc[case_.dealloc])},
                                  {"downgrade", static_cast<std::int64_t>(case_.downgrade)},
                                  {"generation_check", case_.generation_check},
                                  {"hop", static_cast<std::int64_t>(10 + number)}};
  box.program = kind.make(checked_settings(kind, box.peers.size(), 1, options));
  box.program->set_tables(loomnet::test::aggregate_tables(box.jobs, box.peers.size(), ++box.generation));
}

inline void Network::new_worker(Job& job, std::size_t w) {
  Host& host = job.hosts[w];
  if (case_.options.scheme == AGGREGATE_SWITCHML) {
    host.switchml.emplace(job.options, job.known, static_cast<unsigned>(w));
  } else {
    host.worker.emplace(job.options, job.known, static_cast<unsigned>(w), case_.seed);
  }
}

inline std::string Network::run(std::uint64_t most_events) {
  for (Job& job : jobs_) {
    for (Host& host : job.hosts) pump(job, host);
  }
  Frame frame;
  while (unfinished_ > 0 && wrong_.empty()) {
    if (queue_.empty()) return "nothing is left to happen, " + std::to_string(unfinished_) + " results are missing";
    // SwitchML's timeout doubles without end, and emulated time has one.
    if (++events_ > most_events || now_ > seconds(1'000'000).count)
      return "not finished, " + std::to_string(unfinished_) + " results are missing";
    const Event event = queue_.top();
    queue_.pop();
    now_ = event.time;
    if (event.frame == kReboot) {
      boxes_[event.at.first].program->reset();
    } else if (event.frame == kTables) {
      Box& box = boxes_[event.at.first];
      box.program->set_tables(loomnet::test::aggregate_tables(box.jobs, box.peers.size(), ++box.generation));
    } else if (event.frame == kTick) {
      Job& job = jobs_[event.at.first];
      if (event.at.second == kServer) {
        if (event.time != job.ticks) continue;  // an earlier one has been set since, and has set this anew
        job.ticks = kNever.count;
        job.server->on_deadline({now_});
        pump(job);
      } else {
        Host& host = job.hosts[event.at.second];
        if (event.time != host.ticks) continue;
        host.ticks = kNever.count;
        if (!case_.removed.worker_timers) host.with([&](auto& w) { w.on_deadline({now_}); });
        pump(job, host);
      }
    } else {
      frame = frames_[event.frame];
      free_.push_back(event.frame);
      arrive(event.at, frame);
    }
  }
  return wrong_;
}

inline void Network::send(const Peer& to, const Frame& frame) {
  if (chance(case_.loss)) return;
  for (int copies = 1 + chance(case_.duplication); copies > 0; --copies) {
    std::int64_t delay = kHop.count;
    if (!case_.ordered && chance(case_.overtaking)) {
      delay += static_cast<std::int64_t>(-std::log(1 - random_.uniform()) *
                                         static_cast<double>(case_.extra_hops * kHop.count));
    }
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(frames_.size()));
      frames_.emplace_back();
    }
    const std::uint32_t f = free_.back();
    free_.pop_back();
    frames_[f] = frame;
    if (chance(case_.marking)) frames_[f].bytes[15] |= 3 << 4;  // CE
    push(now_ + delay, f, to);
  }
}

inline void Network::arrive(const Peer& at, Frame& frame) {
  if (at.kind == Peer::Kind::box) return through(at.first, at.second, frame);
  Job& job = jobs_[at.first];
  if (at.second == kServer) return to_server(job, frame);
  to_worker(job, job.hosts[at.second], frame);
}

inline void Network::through(std::uint32_t number, std::uint32_t port, Frame& frame) {
  Box& box = boxes_[number];
  const Verdict verdict = show(*box.program, memory_, frame, static_cast<SwitchPort>(port), {now_});
  if (events_ % 61 == 0) check_slots(number);
  if (!verdict.leaves()) return;
  if (verdict.action == Verdict::Action::reply) return send(box.peers[port], frame);
  if (verdict.action == Verdict::Action::replicate) {
    for (const SwitchPort member : box.program->members(verdict.value)) send(box.peers[member], frame);
    return;
  }
  send(box.peers[verdict.value], frame);
}

inline void Network::check_slots(std::size_t number) {  // I1
  if (!case_.generation_check || case_.removed.lifelong_numbers) return;
  const StateSnapshot rows = boxes_[number].program->snapshot();
  aggregate_slot slot;
  for (std::size_t at = 0; at < rows.bytes.size(); at += sizeof slot) {
    std::memcpy(&slot, &rows.bytes[at], sizeof slot);
    if (slot.state == AGGREGATE_FREE || slot.flags & AGGREGATE_BOOT) continue;
    const Job& job = jobs_[slot.job - 2u];
    const Bytes sum(reinterpret_cast<const std::uint8_t*>(slot.sum), 4 * std::size_t{slot.values});
    if (!job.reference->equals(place(job, slot.sequence, 0), slot.workers, sum))
      fail("I1: a slot's sum is not that of its workers");
  }
}

inline void Network::to_worker(Job& job, Host& host, const Frame& frame) {
  const aggregate_header h = frame.header();
  const Received got = host.with([&](auto& w) { return w.on_packet(h, frame.payload(), {now_}); });
  if (got.kind == Received::Kind::result) {
    const std::size_t n = place(job, on_wire(got.sequence), host.offset);
    if (n >= case_.fragments || host.held[n]) return fail("a result of no fragment, or taken twice");
    host.held[n] = true;
    --unfinished_;
    if (!job.reference->equals(n, job.known.workers, got.values)) return fail("a wrong sum");
    if (got.exponent != job.reference->exponent(n)) return fail("a wrong exponent");
    if (static_cast<bool>(got.flags & AGGREGATE_NONFINITE) != job.reference->nonfinite(n))
      return fail("a wrong NONFINITE");
    const Sequence base = host.with([](auto& w) { return w.base(); });
    if (case_.removed.lifelong_numbers && base == tensor() && host.offset + tensor() < case_.fragments) {
      host.offset += tensor();
      new_worker(job, host.self.second);
    }
  }
  pump(job, host);
}

inline void Network::to_server(Job& job, const Frame& frame) {
  if (!job.server) return;
  const aggregate_header h = frame.header();
  const std::size_t n = place(job, h.sequence, job.offset);
  if (!case_.removed.lifelong_numbers) {
    if (n >= case_.fragments) return fail("a packet of no fragment");
    if (!(h.flags & AGGREGATE_BOOT) && h.workers != 0 &&
        !job.reference->equals(n, h.workers, frame.payload().first(4 * std::size_t{h.values}))) {
      return fail("I2: a sum on its way is not that of its workers");
    }
  }
  ParameterServer& server = *job.server;
  server.on_packet(h, frame.payload(), {now_});
  if (!case_.removed.lifelong_numbers) {
    const Sequence s = job.options.first_sequence + static_cast<Sequence>(n);
    std::uint64_t all = 0;
    for (const auto& part : server.parts(s)) {
      if (all & part.workers) return fail("I3: parts overlap");
      all |= part.workers;
    }
    if (s > server.highest() - 2 * Sequence{job.options.window}) {
      if (job.had[n] & ~all) return fail("I4: the union of parts shrank");
      job.had[n] = all;
    } else if (all != 0) {
      return fail("I5: a fragment lives beyond two windows");
    }
  }
  pump(job);
  if (case_.removed.lifelong_numbers && server.base() == tensor()) {
    job.offset += tensor();
    job.server.emplace(job.options, job.known);
  }
}

inline void Network::tick_at(std::int64_t& ticks, Picoseconds deadline, const Peer& self) {
  if (deadline.count >= ticks) return;
  ticks = std::max(deadline.count, now_);
  push(ticks, kTick, self);
}

inline void Network::pump(Job& job, Host& host) {
  host.with([&](auto& w) {
    while (w.room() && w.submitted() - job.options.first_sequence < tensor()) {
      const std::size_t n = static_cast<std::size_t>(w.submitted() - job.options.first_sequence) + host.offset;
      w.submit(job.reference->part(n, host.self.second));
    }
    while (now_ >= host.asleep) {
      std::optional<Outgoing> out = w.pull({now_});
      if (!out) break;
      if (case_.removed.resend_bypass && out->header.type == AGGREGATE_RESEND) out->header.type = AGGREGATE_DATA;
      send(host.up, frame_of(*out, static_cast<std::uint8_t>(job.known.job)));
      if (chance(case_.straggling)) host.asleep = now_ + kHop.count * (1 + random_.below(100));
    }
    if (now_ < host.asleep) tick_at(host.ticks, {host.asleep}, host.self);
    if (!case_.removed.worker_timers) tick_at(host.ticks, w.deadline(), host.self);
  });
}

inline void Network::pump(Job& job) {
  while (const std::optional<Outgoing> out = job.server->pull({now_})) {
    if (case_.removed.kept_results && out->header.flags & AGGREGATE_UNICAST) continue;
    send(job.up, frame_of(*out, 0));
  }
  tick_at(job.ticks, job.server->deadline(), job.self);
}

inline std::uint64_t Network::counter(std::string_view name) const {
  std::uint64_t sum = 0;
  for (const Box& box : boxes_) {
    std::vector<SwitchCounter> all;
    box.program->counters(all);
    for (const auto& c : all) sum += c.name == name ? c.value : 0;
  }
  return sum;
}

inline std::uint32_t Network::timeouts() const {
  std::uint32_t most = 0;
  for (const Job& job : jobs_) {
    for (const Host& host : job.hosts) {
      most = std::max(most, host.with([](const auto& w) { return w.timeouts(); }));
    }
  }
  return most;
}

inline ServerCounters Network::servers() const {
  ServerCounters sum;
#define INA_ADD(name) sum.name += job.server->counters().name;
  for (const Job& job : jobs_) {
    if (!job.server) continue;
    INA_SERVER_COUNTS(INA_ADD)
    INA_DROPS(INA_ADD)
  }
#undef INA_ADD
  return sum;
}

inline WorkerCounters Network::workers() const {
  WorkerCounters sum;
  for (const Job& job : jobs_) {
    for (const Host& host : job.hosts) {
      const WorkerCounters& one = host.with([](const auto& w) -> const WorkerCounters& { return w.counters(); });
#define INA_ADD(name) sum.name += one.name;
      INA_WORKER_COUNTS(INA_ADD)
      INA_DROPS(INA_ADD)
#undef INA_ADD
    }
  }
  return sum;
}

}  // namespace loomnet::ina::test
