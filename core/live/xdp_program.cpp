// Life of a program's object (open, set data, load) and access to its maps, which xdp_abi.h names.
#include "live/xdp_program.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "live/loaded_object.hpp"
#include "switch_objects.hpp"

namespace loomnet {
namespace {

// Maps of the egress hook's rows, a lot each.
constexpr const char* kHookRows[LN_EGRESS_STATES] = {"ln_hook_rows", "ln_hook_rows_2"};
constexpr std::size_t kLabelBytes = LN_LABEL_SLOTS * sizeof(ln_labelled);

std::string in(const ProgramKind& kind) { return "the " + std::string(kind.name) + " program"; }

// Sets the initial bytes of a data section. Its size is the struct's, which both builds share.
void set_section(bpf_object* object, const ProgramKind& kind, const char* section,
                 std::span<const std::uint8_t> bytes) {
  bpf_map* map = bpf_object__find_map_by_name(object, section);
  if (!map) throw LiveError("find " + std::string(section) + " of " + in(kind), ENOENT);
  if (const int error = bpf_map__set_initial_value(map, bytes.data(), bytes.size())) {
    throw LiveError(
        "set " + std::string(section) + " of " + in(kind) + " to " + std::to_string(bytes.size()) + " bytes", -error);
  }
}

template <typename T>
std::span<const std::uint8_t> as_bytes_of(const T& value) {
  return {reinterpret_cast<const std::uint8_t*>(&value), sizeof value};
}

}  // namespace

void XdpProgram::Close::operator()(bpf_object* object) const { bpf_object__close(object); }

XdpProgram::XdpProgram(const ProgramKind& kind, const ProgramSettings& settings, XdpReports& reports)
    : kind_(kind), ports_(settings.ports), seed_(settings.seed) {
  if (kind.state) layout_ = kind.state(settings);
  if (ports_ == 0 || ports_ > LN_MAX_XDP_PORTS) {
    throw std::invalid_argument("an XDP switch has 1 to " + std::to_string(LN_MAX_XDP_PORTS) + " ports, not " +
                                std::to_string(ports_));
  }
  const std::span<const std::uint8_t> elf = kind.loaded ? kind.kernel_object : switch_object(kind.name);
  if (elf.empty()) throw std::invalid_argument(in(kind) + " has no build for the kernel");
  object_.reset(bpf_object__open_mem(elf.data(), elf.size(), nullptr));
  if (!object_) throw LiveError("open " + in(kind), errno);
  if (kind.loaded) check_loaded_parts(object_.get(), std::string(kind.name));
  set_section(object_.get(), kind, ".rodata.config", kind.config(settings));
  ln_settings clock{};
  clock.seed = seed_;
  set_section(object_.get(), kind, ".data.settings", as_bytes_of(clock));
  bpf_map* ring = bpf_object__find_map_by_name(object_.get(), "ln_reports");
  if (const int error = ring ? bpf_map__reuse_fd(ring, reports.map()) : -ENOENT) {
    throw LiveError("share the reports' ring with " + in(kind), -error);
  }
  if (bpf_map* rows = bpf_object__find_map_by_name(object_.get(), "ln_rows")) {
    if (bpf_map__value_size(rows) != layout_.row_bytes) {
      throw std::logic_error(in(kind) + ": its state's rows differ between the two builds");
    }
    bpf_map__set_max_entries(rows, std::max(layout_.rows, 1u));  // the kernel has no array of none
  }
  if (kind.egress_state) egress_lots_ = kind.egress_state(settings);
  for (std::size_t i = 0; i < egress_lots_.size(); ++i) {
    bpf_map* rows = bpf_object__find_map_by_name(object_.get(), kHookRows[i]);
    if (!rows || bpf_map__value_size(rows) != egress_lots_[i].row_bytes) {
      throw std::logic_error(in(kind_) + ": its egress hook's rows differ between the two builds");
    }
    bpf_map__set_max_entries(rows, std::max(egress_lots_[i].rows, 1u));
  }
  if (const int error = bpf_object__load(object_.get())) throw LiveError("load " + in(kind), -error);
  if (kind.loaded) check_loaded_code(object_.get(), std::string(kind.name));
  program_ = bpf_program__fd(bpf_object__find_program_by_name(object_.get(), "ln_switch"));
  tables_ = map("ln_tables");
  counters_ = map("ln_counters");
  rows_ = map("ln_rows");
  if (bpf_map__value_size(bpf_object__find_map_by_name(object_.get(), "ln_counters")) !=
      kind.counters.size() * sizeof(std::uint64_t)) {
    throw std::logic_error(in(kind) + ": its counters differ between the two builds");
  }
  if (const int fd = map("ln_labels"); fd >= 0) {
    void* mapped = ::mmap(nullptr, kLabelBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) throw LiveError("map the labels of " + in(kind), errno);
    labels_ = static_cast<ln_labelled*>(mapped);
  }
}

XdpProgram::~XdpProgram() {
  if (labels_) ::munmap(labels_, kLabelBytes);
}

int XdpProgram::map(const char* name) const { return bpf_object__find_map_fd_by_name(object_.get(), name); }

void XdpProgram::set_port(SwitchPort port, int ifindex) {
  if (port >= ports_) throw std::invalid_argument("no port " + std::to_string(port));
  const std::uint32_t number = port;
  const auto device = static_cast<std::uint32_t>(ifindex);
  const std::string which = "port " + std::to_string(port) + " is interface " + std::to_string(ifindex);
  if (bpf_map_update_elem(map("ln_egress"), &number, &device, BPF_ANY)) {
    throw LiveError("tell the devmap that " + which, errno);
  }
  if (bpf_map_update_elem(map("ln_ingress"), &device, &number, BPF_ANY)) {
    throw LiveError("tell " + in(kind_) + " that " + which, errno);
  }
}

void XdpProgram::set_tables(const TableBatch& batch) {
  if (batch.generation <= generation()) {
    throw std::invalid_argument("TableBatch.generation: " + std::to_string(batch.generation) + " does not follow " +
                                std::to_string(generation()));
  }
  validate_groups(batch, ports_);
  const KernelRows rows = kind_.kernel_rows(batch, ports_);
  auto count = static_cast<std::uint32_t>(rows.keys.size());
  const Fd inner =
      checked_fd(bpf_map_create(BPF_MAP_TYPE_HASH, "ln_batch", sizeof(ln_key), rows.value_bytes, count, nullptr),
                 "create the BPF map of a switch's tables");
  if (bpf_map_update_batch(inner.get(), rows.keys.data(), rows.values.data(), &count, nullptr)) {
    throw LiveError("fill the BPF map of a switch's tables", errno);
  }
  // The loop must know the groups before a packet can come back with this generation.
  auto published = std::make_shared<Published>();
  if (const auto old = groups_.load()) published->before = old->now;
  published->now.generation = batch.generation;
  for (const auto& group : batch.groups) {
    published->now.groups.push_back(std::make_shared<const std::vector<SwitchPort>>(group));
  }
  groups_.store(std::move(published));
  const std::uint32_t slot = 0;
  const int fd = inner.get();
  if (bpf_map_update_elem(tables_, &slot, &fd, BPF_ANY)) {
    throw LiveError("publish tables of generation " + std::to_string(batch.generation), errno);
  }
  generation_ = batch.generation;
}

void XdpProgram::reset() {
  const std::uint32_t slot = 0;
  if (bpf_map_delete_elem(tables_, &slot) && errno != ENOENT) {
    throw LiveError("take the tables from " + in(kind_), errno);
  }
  generation_ = 0;
  const std::vector<std::uint8_t> zeros(layout_.row_bytes);
  for (std::uint32_t row = 0; row < layout_.rows; ++row) {
    // A row with a lock is written under the lock; one without refuses the flag.
    if (bpf_map_update_elem(rows_, &row, zeros.data(), BPF_EXIST | BPF_F_LOCK) &&
        (errno != EINVAL || bpf_map_update_elem(rows_, &row, zeros.data(), BPF_EXIST))) {
      throw LiveError("clear the state of " + in(kind_), errno);
    }
  }
}

StateSnapshot XdpProgram::snapshot() const {
  StateSnapshot snapshot{layout_, {}};
  snapshot.bytes.resize(std::size_t{layout_.rows} * layout_.row_bytes);
  for (std::uint32_t row = 0; row < layout_.rows; ++row) {
    std::uint8_t* at = snapshot.bytes.data() + std::size_t{row} * layout_.row_bytes;
    if (bpf_map_lookup_elem_flags(rows_, &row, at, BPF_F_LOCK) &&
        (errno != EINVAL || bpf_map_lookup_elem(rows_, &row, at))) {
      throw LiveError("read the state of " + in(kind_), errno);
    }
  }
  return snapshot;
}

void XdpProgram::set_clock(std::int64_t wall, Picoseconds emulated, double dilation) {
  ln_settings clock{};
  clock.seed = seed_;
  clock.wall_start = static_cast<std::uint64_t>(wall);
  clock.emulated_start = static_cast<std::uint64_t>(emulated.count);
  clock.rate = static_cast<std::uint64_t>(std::ldexp(1000 / dilation, 32));
  const std::uint32_t slot = 0;
  if (bpf_map_update_elem(map(".data.settings"), &slot, &clock, BPF_ANY)) {
    throw LiveError("set the clock of " + in(kind_), errno);
  }
}

std::shared_ptr<const std::vector<SwitchPort>> XdpProgram::members(std::uint32_t generation,
                                                                   std::uint16_t group) const {
  const auto published = groups_.load();
  if (!published) return nullptr;
  for (const Groups* groups : {&published->now, &published->before}) {
    if (groups->generation == generation && group < groups->groups.size()) {
      return groups->groups[group];
    }
  }
  return nullptr;
}

void XdpProgram::set_label(std::uint64_t uid, std::uint32_t flow, std::uint32_t message) {
  labels_[uid & LN_LABEL_MASK] = {uid, flow, message};
}

void XdpProgram::add_counters(std::uint32_t row, std::span<std::uint64_t> sum) const {
  std::vector<std::uint64_t> values(static_cast<std::size_t>(libbpf_num_possible_cpus()) * sum.size());
  if (bpf_map_lookup_elem(counters_, &row, values.data())) {
    throw LiveError("read the counters of " + in(kind_), errno);
  }
  for (std::size_t i = 0; i < values.size(); ++i) sum[i % sum.size()] += values[i];
}

void XdpProgram::counters(std::vector<SwitchCounter>& out) const {
  std::vector<std::uint64_t> sum(kind_.counters.size());
  for (std::uint32_t port = 0; port < ports_; ++port) add_counters(port, sum);
  add_counters(LN_MAX_XDP_PORTS, sum);
  const std::size_t own = sum.size() - LN_HOST_COUNTER_COUNT;
  for (std::size_t i = 0; i < counted_.size(); ++i) {
    sum[own + i] += counted_[i].load(std::memory_order_relaxed);
  }
  for (std::size_t i = 0; i < sum.size(); ++i) out.push_back({kind_.counters[i], sum[i]});
}

void XdpProgram::counters(SwitchPort ingress, std::vector<SwitchCounter>& out) const {
  if (ingress >= ports_ && ingress != LN_MAX_XDP_PORTS) {
    throw std::out_of_range("no port " + std::to_string(ingress));
  }
  std::vector<std::uint64_t> sum(kind_.counters.size());
  add_counters(ingress, sum);
  for (std::size_t i = 0; i < sum.size(); ++i) out.push_back({kind_.counters[i], sum[i]});
}

std::uint64_t XdpProgram::drops() const {
  std::vector<std::uint64_t> sum(kind_.counters.size());
  for (std::uint32_t port = 0; port < ports_; ++port) add_counters(port, sum);
  add_counters(LN_MAX_XDP_PORTS, sum);
  std::uint64_t drops = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    if (kind_.counters[i].starts_with("drop_")) drops += sum[i];
  }
  return drops;
}

std::uint32_t XdpProgram::run(int program, std::span<const std::uint8_t> frame, std::vector<std::uint8_t>& out,
                              std::uint32_t& code, int repeat) const {
  out.resize(frame.size() + 256);
  LIBBPF_OPTS(bpf_test_run_opts, options);
  options.data_in = frame.data();
  options.data_size_in = static_cast<std::uint32_t>(frame.size());
  options.data_out = out.data();
  options.data_size_out = static_cast<std::uint32_t>(out.size());
  options.repeat = repeat;
  if (bpf_prog_test_run_opts(program, &options)) {
    throw LiveError("test-run " + in(kind_) + " on " + std::to_string(frame.size()) + " bytes", errno);
  }
  out.resize(options.data_size_out);
  code = options.retval;
  return options.duration;
}

void XdpProgram::test_run(std::span<const std::uint8_t> frame, TestRun& out) const {
  out.nanoseconds = run(program_, frame, out.frame, out.code);
  // The metadata, where the program got as far as writing it, stands before the frame.
  out.metadata.reset();
  out.label.reset();
  const std::size_t label = labels_ ? sizeof(ln_label) : 0;
  const std::size_t before = label + sizeof(ln_metadata);
  if (out.frame.size() >= before) {
    ln_metadata metadata;
    std::memcpy(&metadata, out.frame.data() + label, sizeof metadata);
    if (metadata.magic == LN_METADATA_MAGIC) {
      out.metadata = metadata;
      if (label && metadata.flags & LN_META_RELABELLED) {
        std::memcpy(&out.label.emplace(), out.frame.data(), sizeof(ln_label));
      }
      out.frame.erase(out.frame.begin(), out.frame.begin() + static_cast<std::ptrdiff_t>(before));
    }
  }
  std::vector<ln_last> last(static_cast<std::size_t>(libbpf_num_possible_cpus()));
  const std::uint32_t zero = 0;
  if (bpf_map_lookup_elem(map("ln_last"), &zero, last.data())) {
    throw LiveError("read the last verdict of " + in(kind_), errno);
  }
  const ln_last& here = last.at(static_cast<std::size_t>(sched_getcpu()));
  out.verdict = {static_cast<Verdict::Action>(here.action), static_cast<std::uint16_t>(here.value)};
  out.generation = here.generation;
}

void XdpProgram::test_egress(std::span<std::uint8_t> frame, const ln_egress_meta& meta, EgressRun& out,
                             int repeat) const {
  const bpf_program* hook = bpf_object__find_program_by_name(object_.get(), "ln_dequeue");
  const bpf_map* row = bpf_object__find_map_by_name(object_.get(), "ln_hook");
  if (!hook || !row) throw std::invalid_argument(in(kind_) + " has no egress hook");
  // Meta, the answer, the note, then the counters, which stay.
  constexpr std::size_t kAnswer = sizeof meta, kNote = kAnswer + sizeof(std::uint64_t);
  std::vector<std::uint8_t> bytes(bpf_map__value_size(row));
  const std::uint32_t slot = 0;
  if (bpf_map_lookup_elem(bpf_map__fd(row), &slot, bytes.data())) {
    throw LiveError("read the egress hook's counters of " + in(kind_), errno);
  }
  std::memcpy(bytes.data(), &meta, sizeof meta);
  if (bpf_map_update_elem(bpf_map__fd(row), &slot, bytes.data(), BPF_ANY)) {
    throw LiveError("tell the egress hook of " + in(kind_) + " of the queue", errno);
  }
  std::vector<std::uint8_t> edited;
  std::uint32_t code = 0;
  out.nanoseconds = run(bpf_program__fd(hook), frame, edited, code, repeat);
  if (edited.size() != frame.size() || bpf_map_lookup_elem(bpf_map__fd(row), &slot, bytes.data())) {
    throw LiveError("read the egress hook's answer of " + in(kind_), errno);
  }
  std::copy(edited.begin(), edited.end(), frame.begin());
  std::uint64_t action = 0;
  std::memcpy(&action, bytes.data() + kAnswer, sizeof action);
  std::memcpy(out.note.data(), bytes.data() + kNote, sizeof out.note);
  out.verdict = egress_verdict(action);
}

std::vector<StateSnapshot> XdpProgram::egress_snapshot() const {
  std::vector<StateSnapshot> all;
  for (std::size_t i = 0; i < egress_lots_.size(); ++i) {
    StateSnapshot& lot = all.emplace_back(StateSnapshot{egress_lots_[i], {}});
    lot.bytes.resize(std::size_t{lot.layout.rows} * lot.layout.row_bytes);
    for (std::uint32_t row = 0; row < lot.layout.rows; ++row) {
      if (bpf_map_lookup_elem(map(kHookRows[i]), &row, &lot.bytes[std::size_t{row} * lot.layout.row_bytes])) {
        throw LiveError("read the egress hook's rows of " + in(kind_), errno);
      }
    }
  }
  return all;
}

void XdpProgram::egress_counters(std::vector<SwitchCounter>& out) const {
  const bpf_map* row = bpf_object__find_map_by_name(object_.get(), "ln_hook");
  if (!row) return;
  std::vector<std::uint8_t> bytes(bpf_map__value_size(row));
  const std::uint32_t slot = 0;
  if (bpf_map_lookup_elem(bpf_map__fd(row), &slot, bytes.data())) {
    throw LiveError("read the egress hook's counters of " + in(kind_), errno);
  }
  std::size_t at = sizeof(ln_egress_meta) + sizeof(std::uint64_t) + LN_EGRESS_NOTES * sizeof(std::uint32_t);
  for (const EgressCounter& each : kind_.egress_counters) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    at += sizeof value;
    out.push_back({each.name, value});
  }
}

}  // namespace loomnet
