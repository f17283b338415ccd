// Life of the skeleton (open, set read-only data, load) and access to its maps.
#include "live/xdp_forward.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <sched.h>

#include <array>
#include <stdexcept>
#include <string>

#include "forward.skel.h"
#include "live/forward_tables.hpp"
#include "live/system.hpp"

namespace loomnet {

void XdpForward::Destroy::operator()(forward_bpf* object) const { forward_bpf__destroy(object); }

XdpForward::XdpForward(std::size_t ports, const ForwardSettings& settings) : ports_(ports) {
  if (ports == 0 || ports > LN_MAX_XDP_PORTS) {
    throw std::invalid_argument("an XDP switch has 1 to " + std::to_string(LN_MAX_XDP_PORTS) +
                                " ports, not " + std::to_string(ports));
  }
  object_.reset(forward_bpf__open());
  if (!object_) throw LiveError("open the forward program", errno);
  object_->rodata->forward_hash_seed = settings.hash_seed;
  object_->rodata->forward_options = settings.options;
  if (const int error = forward_bpf__load(object_.get())) {
    throw LiveError("load the forward program", -error);
  }
}

XdpForward::~XdpForward() = default;

int XdpForward::program() const { return bpf_program__fd(object_->progs.forward); }

void XdpForward::set_port(SwitchPort port, int ifindex) {
  if (port >= ports_) throw std::invalid_argument("no port " + std::to_string(port));
  const std::uint32_t number = port;
  const auto device = static_cast<std::uint32_t>(ifindex);
  const std::string which =
      "port " + std::to_string(port) + " is interface " + std::to_string(ifindex);
  if (bpf_map_update_elem(bpf_map__fd(object_->maps.fw_egress), &number, &device, BPF_ANY)) {
    throw LiveError("tell the devmap that " + which, errno);
  }
  if (bpf_map_update_elem(bpf_map__fd(object_->maps.fw_ingress), &device, &number, BPF_ANY)) {
    throw LiveError("tell the forward program that " + which, errno);
  }
}

void XdpForward::set_tables(const TableBatch& batch) {
  if (batch.generation <= generation_) {
    throw std::invalid_argument("TableBatch.generation: " + std::to_string(batch.generation) +
                                " does not follow " + std::to_string(generation_));
  }
  publish_forward_tables(bpf_map__fd(object_->maps.fw_tables), ForwardBatch::unpack(batch), ports_);
  generation_ = batch.generation;
}

void XdpForward::add_counters(std::uint32_t row, std::span<std::uint64_t> sum) const {
  std::vector<std::uint64_t> values(static_cast<std::size_t>(libbpf_num_possible_cpus()) *
                                    FORWARD_COUNTER_COUNT);
  if (bpf_map_lookup_elem(bpf_map__fd(object_->maps.fw_counters), &row, values.data())) {
    throw LiveError("read the forward program's counters", errno);
  }
  for (std::size_t i = 0; i < values.size(); ++i) sum[i % FORWARD_COUNTER_COUNT] += values[i];
}

void XdpForward::counters(std::vector<SwitchCounter>& out) const {
  std::array<std::uint64_t, FORWARD_COUNTER_COUNT> sum{};
  for (std::uint32_t port = 0; port < ports_; ++port) add_counters(port, sum);
  add_counters(LN_MAX_XDP_PORTS, sum);
  for (std::size_t i = 0; i < sum.size(); ++i) out.push_back({forward_counter_name(i), sum[i]});
}

void XdpForward::counters(SwitchPort ingress, std::vector<SwitchCounter>& out) const {
  if (ingress >= ports_ && ingress != LN_MAX_XDP_PORTS) {
    throw std::out_of_range("no port " + std::to_string(ingress));
  }
  std::array<std::uint64_t, FORWARD_COUNTER_COUNT> sum{};
  add_counters(ingress, sum);
  for (std::size_t i = 0; i < sum.size(); ++i) out.push_back({forward_counter_name(i), sum[i]});
}

void XdpForward::test_run(std::span<const std::uint8_t> frame, TestRun& out) const {
  out.frame.resize(frame.size() + 256);
  LIBBPF_OPTS(bpf_test_run_opts, options);
  options.data_in = frame.data();
  options.data_size_in = static_cast<std::uint32_t>(frame.size());
  options.data_out = out.frame.data();
  options.data_size_out = static_cast<std::uint32_t>(out.frame.size());
  options.repeat = 1;
  if (bpf_prog_test_run_opts(program(), &options)) {
    throw LiveError("test-run the forward program on " + std::to_string(frame.size()) + " bytes",
                    errno);
  }
  out.frame.resize(options.data_size_out);
  out.code = options.retval;

  // The metadata, where the program got as far as writing it, stands before the frame.
  out.metadata.reset();
  if (out.frame.size() == frame.size() + sizeof(ln_metadata)) {
    ln_metadata metadata;
    std::copy_n(out.frame.begin(), sizeof metadata, reinterpret_cast<std::uint8_t*>(&metadata));
    out.metadata = metadata;
    out.frame.erase(out.frame.begin(), out.frame.begin() + sizeof metadata);
  }
  std::vector<forward_last> last(static_cast<std::size_t>(libbpf_num_possible_cpus()));
  const std::uint32_t zero = 0;
  if (bpf_map_lookup_elem(bpf_map__fd(object_->maps.fw_last), &zero, last.data())) {
    throw LiveError("read the forward program's last verdict", errno);
  }
  const forward_last& here = last.at(static_cast<std::size_t>(sched_getcpu()));
  out.verdict = {static_cast<Verdict::Action>(here.action), static_cast<std::uint16_t>(here.value)};
  out.generation = here.generation;
}

}  // namespace loomnet
