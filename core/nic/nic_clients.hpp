// Jobs, clients and queue pairs of one NIC: which client hears of which queue pair, and which job
// the queue pair belongs to.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nic/work_meter.hpp"
#include "transport/number_index.hpp"
#include "transport/transport.hpp"

namespace loomnet {

enum class JobId : std::uint32_t {};     // of a run
enum class ClientId : std::uint32_t {};  // of one NIC; 0: none

// A user of the NIC: it posts requests and takes their results. The NIC calls it after the transport
// has returned, so posting from within a call is safe.
class NicClient {
 public:
  virtual ~NicClient() = default;
  virtual void on_completion(const Completion& completion, Picoseconds now) = 0;
  virtual void on_arrival(const Arrival& arrival, Picoseconds now) = 0;
  // Nic::ahead() has said yes of this queue pair, and would say no now.
  virtual void on_caught_up(QpNumber, Picoseconds) {}
};

// What one host knows of one job.
struct NicJob {
  JobId id{};
  WorkMeter meter;
};

// Where a queue pair belongs. Without a client its results go to the job's first client.
struct QpOwner {
  JobId job{};
  ClientId client{};
};

class NicClients {
 public:
  explicit NicClients(Picoseconds meter_bin) : meter_bin_(meter_bin) {}

  // The job, which the first mention of its number makes.
  NicJob& job(JobId id);
  const NicJob* find_job(JobId id) const;
  // The job that was mentioned first; one is made where none was.
  NicJob& first_job() { return jobs_.empty() ? job(JobId{}) : *jobs_.front(); }
  // The job that payload of the host's kernel counts for; the first, where none is named.
  NicJob& kernel_job() { return kernel_job_ ? *kernel_job_ : first_job(); }
  void set_kernel_job(JobId id) { kernel_job_ = &job(id); }
  const std::vector<std::unique_ptr<NicJob>>& jobs() const { return jobs_; }
  Picoseconds meter_bin() const { return meter_bin_; }
  bool several_jobs() const { return jobs_.size() > 1; }
  // The most bins of each job's meter.
  void limit_meters(std::size_t bins);

  // `role` says in reports and errors what the client is: "rank", "flows". Numbers are not given
  // again.
  ClientId add(NicClient& client, JobId job, std::string_view role);
  void remove(ClientId id);
  struct Entry {
    NicClient* client = nullptr;  // null: it has been removed
    NicJob* job = nullptr;
    std::string role;
  };
  const std::vector<Entry>& entries() const { return entries_; }  // client n is at n - 1

  // Gives a queue pair to a job and, where `owner` names one, to a client. Throws
  // std::invalid_argument where it is another job's, or another client's that is still there.
  void own(QpNumber qp, const QpOwner& owner);
  // The first of `count` numbers in a row that no queue pair of this NIC has or had.
  QpNumber reserve(std::uint32_t count);

  // The client that a queue pair's results go to; null: none.
  NicClient* client_of(QpNumber qp) const {
    if (sole_) [[likely]]
      return sole_;
    return search(qp);
  }
  // The transport that carries a queue pair; null for one that is not connected.
  Transport* transport_of(QpNumber qp) const {
    const std::uint32_t at = by_number_.find(qp);
    return at == NumberIndex::kAbsent ? nullptr : queue_pairs_[at].transport;
  }
  void connected(QpNumber qp, Transport& by) { queue_pairs_[by_number_.find(qp)].transport = &by; }
  bool carried_by(const Transport& transport) const;
  // The job of a queue pair; null for one without an owner.
  const NicJob* job_of(QpNumber qp) const {
    const std::uint32_t at = by_number_.find(qp);
    return at == NumberIndex::kAbsent ? nullptr : queue_pairs_[at].job;
  }

 private:
  static constexpr QpNumber kFirstQp = 0x100;  // 0 to 2 are the transports' own end points
  struct QueuePair {
    NicJob* job = nullptr;
    Transport* transport = nullptr;
    ClientId client{};
  };
  NicClient* search(QpNumber qp) const;
  const Entry& entry(ClientId id) const;
  void find_sole();

  Picoseconds meter_bin_;
  std::size_t meter_bins_ = 0;  // 0: as the meter has it
  NicJob* kernel_job_ = nullptr;
  NicClient* sole_ = nullptr;   // where there is one job and one client
  std::vector<std::unique_ptr<NicJob>> jobs_;  // the addresses stay
  std::vector<Entry> entries_;
  NumberIndex by_number_;
  std::vector<QueuePair> queue_pairs_;
  QpNumber next_qp_ = kFirstQp;
};

}  // namespace loomnet
