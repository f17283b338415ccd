// Loads the panel's programs and writes their tables.
#include "live/kernel_panel.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <net/if.h>

#include <cerrno>
#include <numeric>
#include <stdexcept>

#include "live/live_clock.hpp"
#include "panel.skel.h"

namespace loomnet {
namespace {

// clsact is used instead of tcx, because every kernel that has native XDP on veths has clsact.
void attach_tc(int program, unsigned index, const std::string& name) {
  LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = static_cast<int>(index), .attach_point = BPF_TC_INGRESS);
  if (const int error = bpf_tc_hook_create(&hook)) throw LiveError("give " + name + " a clsact qdisc", -error);
  LIBBPF_OPTS(bpf_tc_opts, options, .prog_fd = program);
  if (const int error = bpf_tc_attach(&hook, &options)) {
    throw LiveError("attach the panel to " + name + " at tc", -error);
  }
}

}  // namespace

void KernelPanel::Close::operator()(panel_bpf* program) const { panel_bpf__destroy(program); }
void KernelPanel::Close::operator()(bpf_link* link) const { bpf_link__destroy(link); }

KernelPanel::KernelPanel(std::size_t ports) : ports_(ports), program_(panel_bpf__open_and_load()) {
  if (!program_) throw LiveError("load the panel's program", errno);
  if (ports > bpf_map__max_entries(program_->maps.panel_first)) {
    throw std::invalid_argument("panel: " + std::to_string(ports) + " ports, the most is " +
                                std::to_string(bpf_map__max_entries(program_->maps.panel_first)));
  }
  panel_entry none{};
  none.peer = PANEL_NO_PEER;
  const std::vector<panel_entry> dark(ports, none);
  publish(dark);
  publish(dark);  // once for each of the two tables
}

KernelPanel::~KernelPanel() = default;

void KernelPanel::attach(const Netns& netns, const std::vector<std::string>& interfaces, PanelHook hook) {
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
      put(hook == PanelHook::tc ? program_->maps.panel_links : program_->maps.panel_egress, port, index);
      ++interfaces_;
      if (hook == PanelHook::tc) {
        attach_tc(bpf_program__fd(program_->progs.panel_tc), index, name);
        continue;
      }
      bpf_link* const link = bpf_program__attach_xdp(program_->progs.panel, static_cast<int>(index));
      if (!link) throw LiveError("attach the panel to " + name, errno);
      links_.emplace_back(link);
    }
  });
}

std::int64_t KernelPanel::publish(std::span<const panel_entry> entries) {
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
  const std::int64_t at = wall_nanoseconds();
  // This call returns when no CPU runs the program on the old table any more.
  if (bpf_map_update_elem(bpf_map__fd(program_->maps.panel_slot), &slot, &table, BPF_ANY)) {
    throw LiveError("publish the panel's table", errno);
  }
  spare_ = 1 - spare_;
  return at;
}

panel_counters KernelPanel::counters(std::size_t port) const {
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

panel_counters KernelPanel::totals() const {
  panel_counters sum{};
  for (std::size_t port = 0; port < ports_; ++port) {
    const panel_counters one = counters(port);
    for (int i = 0; i < PANEL_VERDICTS; ++i) sum.packets[i] += one.packets[i];
    sum.bytes += one.bytes;
  }
  return sum;
}

panel_question KernelPanel::ask(std::uint32_t port, PanelHook hook) const {
  panel_question question{};
  question.port = port;
  return ask(question, hook);
}

panel_question KernelPanel::ask(const panel_question& question, PanelHook hook) const {
  panel_question frame[2] = {question};  // two, because a test frame must be longer than an Ethernet header
  LIBBPF_OPTS(bpf_test_run_opts, options);
  options.data_in = frame;
  options.data_size_in = sizeof frame;
  options.data_out = frame;
  options.data_size_out = sizeof frame;
  options.repeat = 1;
  const bpf_program* const program = hook == PanelHook::tc ? program_->progs.panel_ask_tc : program_->progs.panel_ask;
  if (bpf_prog_test_run_opts(bpf_program__fd(program), &options)) {
    throw LiveError("ask the panel's program", errno);
  }
  if (options.retval != (hook == PanelHook::tc ? TC_ACT_OK : XDP_PASS)) {
    throw std::invalid_argument("panel: port " + std::to_string(question.port) + " is beyond its table");
  }
  return frame[0];
}

}  // namespace loomnet
