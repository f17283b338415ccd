// A rank whose all-reduces switches sum, as a client of its host's emulated NIC.
#pragma once

#include "traffic/sum_poster.hpp"

namespace loomnet {

class SumClient final : public NicClient {
 public:
  class Sink {
   public:
    virtual ~Sink() = default;
    virtual void ended(const SumPoster::Ended& tensor, Picoseconds now) = 0;
  };

  // `qp` is of transport "ina" and belongs to the job. `sink` must outlive the client.
  SumClient(Nic& nic, JobId job, QpNumber qp, const SumShape& shape, bool payload, Sink& sink)
      : nic_(nic), sink_(sink), client_(nic.clients().add(*this, job, "sums")),
        poster_(nic, job, client_, qp, shape, payload) {}
  ~SumClient() override { nic_.clients().remove(client_); }
  SumClient(const SumClient&) = delete;

  SumPoster& poster() { return poster_; }

  void on_completion(const Completion& c, Picoseconds now) override {
    if (const auto tensor = poster_.on_completion(c, now)) sink_.ended(*tensor, now);
  }
  void on_arrival(const Arrival&, Picoseconds) override {}

 private:
  Nic& nic_;
  Sink& sink_;
  ClientId client_;
  SumPoster poster_;
};

}  // namespace loomnet
