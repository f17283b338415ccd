#include "moe/transfers.hpp"

#include <algorithm>
#include <stdexcept>

namespace loomnet::moe {

class Transfers::Client final : public NicClient {
 public:
  Client(Transfers& transfers, NodeId host) : transfers_(transfers), nic_(transfers.network_.nic(host)) {
    client_ = nic_.clients().add(*this, transfers.options_.job, "model");
    // Only lengths are sent, so one region serves all writes that arrive at this host.
    key_ = nic_.register_region(nullptr, 0, transfers.options_.message, transfers.options_.job);
  }
  ~Client() override {
    nic_.deregister(key_);
    nic_.clients().remove(client_);
  }
  void take(QpNumber qp) { nic_.clients().own(qp, {transfers_.options_.job, client_}); }
  void on_completion(const Completion& completion, Picoseconds now) override {
    transfers_.completed(static_cast<TransferId>(completion.id), completion, now);
  }
  void on_arrival(const Arrival& arrival, Picoseconds now) override {
    transfers_.arrived(arrival.immediate, arrival.length, now);
  }
  Nic& nic() { return nic_; }
  std::uint32_t key() const { return key_; }

 private:
  Transfers& transfers_;
  Nic& nic_;
  ClientId client_{};
  std::uint32_t key_ = 0;
};

Transfers::Transfers(Network& network, const Options& options) : network_(network), options_(options) {
  if (options.depth == 0 || options.message == 0) {
    throw std::invalid_argument("moe: depth and message must be 1 or more");
  }
}

Transfers::~Transfers() = default;

Transfers::Client& Transfers::client(NodeId host) {
  if (host >= clients_.size()) clients_.resize(host + 1);
  if (!clients_[host]) clients_[host] = std::make_unique<Client>(*this, host);
  return *clients_[host];
}

void Transfers::own(const Way& way) {
  client(way.source).take(way.qp);
  client(way.destination);
}

TransferId Transfers::start(const Way& way, std::uint64_t bytes, Sink& sink, std::uint64_t cookie, Picoseconds now) {
  TransferId id = static_cast<TransferId>(transfers_.size());
  if (free_.empty()) {
    transfers_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
  }
  transfers_[id] = {.way = way, .bytes = bytes, .sink = &sink, .cookie = cookie};
  for (unsigned i = 0; i < options_.depth; ++i) pump(id, now);
  return id;
}

void Transfers::pump(TransferId id, Picoseconds now) {
  Transfer& t = transfers_[id];
  if (t.posted >= t.bytes) return;
  WorkRequest request;
  request.id = id;
  request.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(options_.message, t.bytes - t.posted));
  request.remote_key = client(t.way.destination).key();
  request.immediate = id;
  request.attributes.job = static_cast<std::uint32_t>(options_.job);
  request.attributes.sequence = id;
  request.opcode = Opcode::write_with_immediate;
  t.posted += request.length;
  client(t.way.source).nic().post(t.way.qp, request, now);
}

std::uint64_t Transfers::take_back(TransferId id) {
  Transfer& t = transfers_.at(id);
  const std::uint64_t rest = t.bytes - t.posted;
  t.bytes = t.posted;  // writes are still outstanding, so the transfer is closed later
  return rest;
}

void Transfers::arrived(TransferId id, std::uint32_t bytes, Picoseconds now) {
  if (id >= transfers_.size() || !transfers_[id].sink) return;
  Transfer& t = transfers_[id];
  t.arrived += bytes;
  t.sink->arrived(t.cookie, bytes, now);
}

void Transfers::completed(TransferId id, const Completion& completion, Picoseconds now) {
  if (id >= transfers_.size() || !transfers_[id].sink) return;
  Transfer& t = transfers_[id];
  if (completion.status != Status::ok) return t.sink->failed(t.cookie, completion.status, now);
  t.acked += completion.length;
  if (t.acked < t.bytes) return pump(id, now);
  close(id, now);
}

void Transfers::close(TransferId id, Picoseconds now) {
  const Transfer t = transfers_[id];  // a copy, because closed() may start another transfer in the same slot
  transfers_[id].sink = nullptr;
  free_.push_back(id);
  t.sink->closed(id, t.cookie, now);
}

}  // namespace loomnet::moe
