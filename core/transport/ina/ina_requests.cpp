// Requests become fragments, and results go where the requests say.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "clock/random.hpp"
#include "packet/host_address.hpp"
#include "transport/ina/ina_state.hpp"

namespace loomnet::ina {
namespace {

constexpr std::uint8_t kUsualPriority = 128;  // of a request that states none
constexpr std::array<std::uint8_t, 4 * AGGREGATE_MAX_VALUES> kZeroPayload{};

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

}  // namespace

InaTransport::InaTransport(TransportSink& sink, const InaOptions& options, std::size_t ports, std::uint64_t seed)
    : sink_(sink), options_(options), ports_(ports), seed_(seed), up_((1u << ports) - 1) {
  check(options_);
  if (ports == 0 || ports > kMaxPlanes) refuse("ports: 1 to 8");
}

InaTransport::~InaTransport() = default;

void InaTransport::connect(const QpConfig& config, Picoseconds) {
  if (!config.group) refuse("QpConfig.group: ina needs one");
  const GroupMember& group = *config.group;
  const bool server = group.member == GroupMember::kServer;
  if (group.members == 0 || group.members > AGGREGATE_MAX_WORKERS) refuse("QpConfig.group.members: 1 to 64");
  if (!server && group.member >= group.members) refuse("QpConfig.group.member: below members");
  if (by_number_.contains(config.local)) refuse("QpConfig.local: queue pair exists already");
  const std::uint32_t key = std::uint32_t{group.group} << 1 | server;
  if (by_job_.contains(key)) {
    refuse("QpConfig.group.group: " + std::to_string(group.group) + " has a member here already");
  }
  auto m = std::make_unique<Member>();
  m->ports = ports_of(config.planes);
  if (m->ports.empty()) refuse("QpConfig.planes: ina needs at least one plane");
  InaOptions options = options_;
  if (group.window) options.window = group.window;
  InaJob job{group.group, group.members == 64 ? ~0ull : bit(group.members) - 1, group.trees};
  check(job, options);
  m->qp = config.local;
  m->window = options.window;
  m->flow = config.flow;
  m->source = host_address(config.source);
  m->destination = server ? group_address(group.group) : host_address(config.destination);
  const std::uint64_t hash = hash_key(group.group, group.member, config.source);
  m->source_port = static_cast<std::uint16_t>((hash & 0x3fff) | 0xc000);
  if (server) {
    m->server = std::make_unique<ParameterServer>(options, job);
  } else if (!options.policy().has_servers()) {
    m->worker.emplace<SwitchMlWorker>(options, job, group.member);
  } else {
    m->worker.emplace<Worker>(options, job, group.member, hash_key(seed_, group.group, group.member));
  }
  const auto index = static_cast<std::uint32_t>(members_.size());
  by_number_.add(config.local, index);
  by_job_.add(key, index);
  members_.push_back(std::move(m));
}

std::vector<PlanePort> InaTransport::ports_of(const std::vector<PlanePaths>& planes) const {
  std::vector<PlanePort> found;
  for (PlanePort p = 0; p < planes.size() && p < ports_; ++p) {
    if (!planes[p].uplinks.empty()) found.push_back(p);
  }
  return found;
}

// Where no plane has a tree any more the member waits.
void InaTransport::on_paths(QpNumber qp, std::vector<PlanePaths> planes, Picoseconds now) {
  Member& m = member(qp);
  m.ports = ports_of(planes);
  settle(m, by_number_.find(qp), now);
}

void InaTransport::on_trees(QpNumber qp, std::vector<std::vector<std::uint16_t>> trees, Picoseconds) {
  Member& m = member(qp);
  if (auto* worker = std::get_if<Worker>(&m.worker)) worker->set_trees(trees.size());
  if (m.server) m.server->set_trees(std::move(trees));
}

InaTransport::Member& InaTransport::member(QpNumber qp) {
  const std::uint32_t at = by_number_.find(qp);
  if (at == NumberIndex::kAbsent) refuse("QpConfig.local: no queue pair " + std::to_string(qp));
  return *members_[at];
}

void InaTransport::on_post(QpNumber qp, const WorkRequest& request, Picoseconds now) {
  Member& m = member(qp);
  if (m.server) refuse("WorkRequest: queue pair " + std::to_string(qp) + " is a parameter server's");
  if (request.framing > request.length || (request.length - request.framing) % 4 != 0) {
    refuse("WorkRequest.length: framing and whole int32 values");
  }
  if (request.immediate & kSumFloats && (request.length == request.framing || !options_.policy().has_servers() ||
                                         options_.result_path == ResultPath::root)) {
    refuse("WorkRequest.immediate: floats need values, and a server that answers the workers");
  }
  Request r;
  r.request = request;
  const std::uint32_t bytes = 4 * options_.values, values = r.value_bytes();
  r.fragments = (values + bytes - 1) / bytes;
  if (values == 0) {
    r.fragments = request.framing;
  } else if (request.framing != 0 && request.framing < r.fragments) {
    refuse("WorkRequest.framing: a byte for each of " + std::to_string(r.fragments) + " fragments, or none");
  }
  m.requests.push_back(std::move(r));
  ++open_;
  feed(m);
  finish(m);
  settle(m, by_number_.find(qp), now);
}

// A worker is asked for nothing older than two windows before the next fragment it sends, and has at most
// a window of submitted ones before it.
Bytes InaTransport::keep(Member& m, Sequence n, Bytes values) {
  const std::size_t each = 4 * std::size_t{options_.values}, count = 4 * std::size_t{m.window};
  if (m.kept.empty()) m.kept.resize(each * count);
  std::uint8_t* at = &m.kept[static_cast<std::size_t>(static_cast<std::uint64_t>(n) % count) * each];
  std::copy(values.begin(), values.end(), at);
  return {at, values.size()};
}

void InaTransport::feed(Member& m) {
  m.each_worker([&](auto& worker) {
    for (; m.feeding < m.requests.size(); ++m.feeding) {
      Request& r = m.requests[m.feeding];
      const std::uint32_t bytes = 4 * options_.values, values = r.value_bytes();
      for (; r.submitted < r.fragments; ++r.submitted) {
        if (!worker.room()) return;
        const std::uint32_t d = r.submitted;
        Contribution c;
        c.boot = values == 0;
        c.floats = r.request.immediate & kSumFloats;
        c.first_of_tensor = d == 0 && !(r.request.immediate & kSumContinues);
        const std::int16_t stated = r.request.attributes.priority;
        c.priority = stated == kNoPriority ? kUsualPriority : static_cast<std::uint8_t>(stated);
        if (r.request.framing && r.request.local) {
          c.exponent = static_cast<std::int8_t>(r.request.local[d]);
          c.nonfinite = c.exponent == kNotFinite;
        }
        if (!c.boot) {
          const std::uint32_t length = std::min(bytes, values - d * bytes);
          c.values = r.request.local ? Bytes(r.request.local + r.request.framing + std::size_t{d} * bytes, length)
                                     : Bytes(kZeroPayload).first(length);
        }
        if (options_.result_path == ResultPath::root && r.request.local && !c.boot) {
          c.values = keep(m, worker.submitted(), c.values);
        }
        const Sequence n = worker.submit(c);
        if (d == 0) r.first = n;
      }
    }
  });
}

void InaTransport::placed(Request& r, bool ok) {
  if (ok) return;
  ++place_refused_;
  r.status = Status::remote_access_error;
}

void InaTransport::take(Member& m, const Received& got) {
  if (got.kind != Received::Kind::result) return;
  Request* r = m.request_of(got.sequence);
  if (!r) return;  // cannot happen: a worker takes each result once
  const auto d = static_cast<std::uint32_t>(got.sequence - r->first);
  const WorkRequest& request = r->request;
  if (request.framing) {
    const std::int8_t exponent = got.flags & AGGREGATE_NONFINITE  ? kNotFinite
                                 : got.flags & AGGREGATE_OVERFLOW ? kOverflowed
                                                                  : got.exponent;
    const auto byte = static_cast<std::uint8_t>(exponent);
    const Payload one{request.local ? &byte : nullptr, 1, 0, request.local ? PayloadKind::region : PayloadKind::none};
    placed(*r, sink_.place(m.qp, request.remote_key, request.remote_address + d, one));
  }
  if (!got.values.empty()) {
    const Payload sum{request.local ? got.values.data() : nullptr, static_cast<std::uint32_t>(got.values.size()), 0,
                      request.local ? PayloadKind::region : PayloadKind::none};
    const std::uint64_t at = request.remote_address + request.framing + std::uint64_t{d} * 4 * options_.values;
    placed(*r, sink_.place(m.qp, request.remote_key, at, sum));
  }
  ++r->held;
  finish(m);
}

void InaTransport::finish(Member& m) {
  while (!m.requests.empty() && m.requests.front().held == m.requests.front().fragments) {
    const Request& r = m.requests.front();
    sink_.complete({.qp = m.qp, .status = r.status, .id = r.request.id, .length = r.request.length});
    --open_;
    m.requests.pop_front();
    if (m.feeding > 0) --m.feeding;
  }
}

}  // namespace loomnet::ina
