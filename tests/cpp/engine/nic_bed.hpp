// Hosts with every transport side by side, and clients that note what they hear.
#pragma once

#include <gtest/gtest.h>

#include "engine/clos.hpp"
#include "transport/mrc/mrc_transport.hpp"
#include "transport/roce/roce_transport.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace loomnet::testing {

inline std::unique_ptr<Transport> make_transport(std::string_view name, Nic& nic, BitsPerSecond rate) {
  if (name == "mrc") {
    return std::make_unique<mrc::MrcTransport>(mrc::MrcOptions::sim(microseconds(12), rate), nic.sink(), nic.ports());
  }
  if (name == "roce") {
    return std::make_unique<roce::RoceTransport>(nic.sink(),
                                                 roce::RoceOptions{.payload_mtu = 4096, .timeout_exponent = 7});
  }
  tcp::TcpOptions o;
  o.mtu = 1500;
  o.rto_min = microseconds(500);
  o.rto_initial = milliseconds(1);
  return std::make_unique<tcp::TcpTransport>(nic.sink(), o);
}

inline void equip(Network& network, unsigned hosts, BitsPerSecond rate,
                  std::initializer_list<std::string_view> transports) {
  for (unsigned h = 0; h < hosts; ++h) {
    Nic& nic = network.nic(h);
    for (const auto name : transports) nic.set_transport(make_transport(name, nic, rate));
  }
}

inline std::uint64_t counter(const Transport& transport, std::string_view name) {
  std::vector<TransportCounter> all;
  transport.counters(all);
  for (const TransportCounter& c : all) {
    if (c.name == name) return c.value;
  }
  throw std::out_of_range("no counter " + std::string(name));
}

class Listener final : public NicClient {
 public:
  Listener(Nic& nic, JobId job) : nic_(nic), id(nic.clients().add(*this, job, "test")) {}
  ~Listener() override { nic_.clients().remove(id); }
  void on_completion(const Completion& c, Picoseconds) override { completions.push_back(c); }
  void on_arrival(const Arrival& a, Picoseconds) override { arrivals.push_back(a); }

 private:
  Nic& nic_;

 public:
  const ClientId id;
  std::vector<Completion> completions;
  std::vector<Arrival> arrivals;
};

}  // namespace loomnet::testing
