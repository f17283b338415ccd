// Loads the panel's program and writes its tables.
#include "live/xdp_panel.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <net/if.h>

#include <numeric>
#include <stdexcept>

#include "panel.skel.h"

namespace loomnet {

void XdpPanel::Close::operator()(panel_bpf* program) const { panel_bpf__destroy(program); }
void XdpPanel::Close::operator()(bpf_link* link) const { bpf_link__destroy(link); }

XdpPanel::XdpPanel(std::size_t ports) : ports_(ports), program_(panel_bpf__open_and_load()) {
  if (!program_) throw LiveError("load the panel's program", errno);
  if (ports > bpf_map__max_entries(program_->maps.panel_first)) {
    throw std::invalid_argument("panel: " + std::to_string(ports) + " ports, the most is " +
                                std::to_string(bpf_map__max_entries(program_->maps.panel_first)));
  }
  panel_entry none{};
  none.peer = PANEL_NO_PEER;
  const std::vector<panel_entry> dark(ports, none);
  publish(dark);
  publish(dark);  // both tables
}

XdpPanel::~XdpPanel() = default;

void XdpPanel::attach(const Netns& netns, const std::vector<std::string>& interfaces) {
  if (interfaces.size() > ports_) {
    throw std::invalid_argument("panel: " + std::to_string(interfaces.size()) + " interfaces for " +
                                std::to_string(ports_) + " ports");
  }
  netns.run([&] {
    for (std::uint32_t port = 0; port < interfaces.size(); ++port) {
      const std::string& name = interfaces[port];
      const unsigned index = ::if_nametoindex(name.c_str());
      if (index == 0) throw LiveError("find interface " + name, errno);
      const auto put = [&](const bpf_map* map, const unsigned& key, const unsigned& value) {
        if (const int error = bpf_map_update_elem(bpf_map__fd(map), &key, &value, BPF_ANY)) {
          throw LiveError("give the panel its port " + name, -error);
        }
      };
      put(program_->maps.panel_ingress, index, port);
      put(program_->maps.panel_egress, port, index);
      bpf_link* const link = bpf_program__attach_xdp(program_->progs.panel, static_cast<int>(index));
      if (!link) throw LiveError("attach the panel to " + name, errno);
      links_.emplace_back(link);
    }
  });
}

void XdpPanel::publish(std::span<const panel_entry> entries) {
  if (entries.size() != ports_) throw std::invalid_argument("panel: an entry for each port is needed");
  const bpf_map* const tables[] = {program_->maps.panel_first, program_->maps.panel_second};
  const int table = bpf_map__fd(tables[spare_]);
  std::vector<std::uint32_t> keys(ports_);
  std::iota(keys.begin(), keys.end(), 0u);
  auto count = static_cast<std::uint32_t>(ports_);
  if (ports_ && bpf_map_update_batch(table, keys.data(), entries.data(), &count, nullptr)) {
    throw LiveError("write the panel's table", errno);
  }
  const std::uint32_t slot = 0;
  // The kernel waits here until all packets have left the table that was in the slot.
  if (bpf_map_update_elem(bpf_map__fd(program_->maps.panel_slot), &slot, &table, BPF_ANY)) {
    throw LiveError("publish the panel's table", errno);
  }
  spare_ = 1 - spare_;
}

panel_counters XdpPanel::counters(std::size_t port) const {
  const auto key = static_cast<std::uint32_t>(port);
  std::vector<panel_counters> by_cpu(static_cast<std::size_t>(libbpf_num_possible_cpus()));
  if (bpf_map_lookup_elem(bpf_map__fd(program_->maps.panel_counts), &key, by_cpu.data())) {
    throw LiveError("read the panel's counters", errno);
  }
  panel_counters sum{};
  for (const panel_counters& one : by_cpu) {
    for (int i = 0; i < PANEL_VERDICTS; ++i) sum.packets[i] += one.packets[i];
    sum.bytes += one.bytes;
  }
  return sum;
}

panel_counters XdpPanel::totals() const {
  panel_counters sum{};
  for (std::size_t port = 0; port < ports_; ++port) {
    const panel_counters one = counters(port);
    for (int i = 0; i < PANEL_VERDICTS; ++i) sum.packets[i] += one.packets[i];
    sum.bytes += one.bytes;
  }
  return sum;
}

panel_question XdpPanel::ask(std::uint32_t port) const {
  panel_question frame[3] = {};  // an Ethernet header at least
  frame[0].port = port;
  LIBBPF_OPTS(bpf_test_run_opts, options);
  options.data_in = frame;
  options.data_size_in = sizeof frame;
  options.data_out = frame;
  options.data_size_out = sizeof frame;
  options.repeat = 1;
  if (bpf_prog_test_run_opts(bpf_program__fd(program_->progs.panel_ask), &options)) {
    throw LiveError("ask the panel's program", errno);
  }
  if (options.retval != XDP_PASS) {
    throw std::invalid_argument("panel: port " + std::to_string(port) + " is beyond its table");
  }
  return frame[0];
}

}  // namespace loomnet
