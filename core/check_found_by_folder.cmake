# Fails unless a transport, and a switch program with rows of its own, that are one new file each in a folder of its
# own are registered by the build.
#   cmake -DSOURCE=<top folder> -DWORK=<scratch folder> -DCXX=<compiler> -P core/check_found_by_folder.cmake
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK}/tree)
file(COPY ${SOURCE}/core ${SOURCE}/CMakeLists.txt DESTINATION ${WORK}/tree)
file(COPY ${SOURCE}/ebpf DESTINATION ${WORK}/tree FILES_MATCHING PATTERN "*.h")
set(added ${WORK}/tree/core/transport/nothing/nothing_transport.cpp)
file(WRITE ${added} [[
// A transport that does nothing.
#include "transport/factory.hpp"

namespace loomnet::nothing {

class Nothing final : public Transport {
 public:
  std::string_view name() const override { return "nothing"; }
  void connect(const QpConfig&, Picoseconds) override {}
  void on_post(QpNumber, const WorkRequest&, Picoseconds) override {}
  void on_packet(PlanePort, PacketPtr, Picoseconds) override {}
  void on_port(PlanePort, bool, Picoseconds) override {}
  void on_deadline(Picoseconds) override {}
  Pulled pull(PlanePort, QueueClass, Picoseconds) override { return Pulled::idle(); }
  Picoseconds next_deadline() const override { return kNever; }
  bool outstanding() const override { return false; }
  void counters(std::vector<TransportCounter>&) const override {}
};

void register_transport(TransportFactory& factory) {
  TransportKind kind;
  kind.name = "nothing";
  kind.make = [](const TransportContext&, const OptionValues&) {
    return std::make_unique<Nothing>();
  };
  factory.add(std::move(kind));
}

}  // namespace loomnet::nothing
]])
set(program ${WORK}/tree/core/switch/tally/tally_program.cpp)
file(WRITE ${program} [[
// A program that forwards and has rows of its own.
#include "ebpf/forward.h"
#include "switch/c_program.hpp"
#include "switch/forward/forward_kind.hpp"
#include "switch/forward/native_lookups.hpp"

namespace loomnet {
ProgramKind tally_kind();
namespace {

struct TallyLogic : FallsThroughToForward {
  static constexpr std::string_view kName = "tally";
  static constexpr std::string_view kSummary = "of a test";
  static constexpr ProgramNeeds kNeeds{};
  using Config = forward_config;
  static std::vector<ProgramOption> options() { return forward_options(); }
  static Config config(const ProgramSettings& s) { return forward_settings(s); }
  static std::vector<std::string_view> own_counters() { return forward_counters(); }
  static StateLayout state() { return {}; }
  static std::shared_ptr<const TableBatch> pack(const ForwardBatch& forward, const ProgramRows& rows) {
    check_tables(rows, {"tallies"});
    for (const ProgramRow& row : rows_of(rows, "tallies")) (void)row.number<std::uint16_t>("number");
    return forward.pack();
  }
  static ln_verdict ingress(const Config& config, ln_host& host, ln_packet& packet, const ln_meta&) {
    return forward_ingress(host.tables, &config, host.counters, packet.frame, packet.end, packet.length);
  }
};

}  // namespace
ProgramKind tally_kind() { return CProgram<TallyLogic>::kind(); }
}  // namespace loomnet
]])
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(status)
    message(FATAL_ERROR "${ARGN}:\n${said}")
  endif()
endfunction()
run(${CMAKE_COMMAND} -S ${WORK}/tree -B ${WORK}/build -DLOOMNET_PYTHON=OFF -DLOOMNET_LIVE=OFF)
file(READ ${WORK}/build/core/transports.cpp list)
if(NOT list MATCHES "nothing::register_transport\\(all\\)")
  message(FATAL_ERROR "the build has not found core/transport/nothing:\n${list}")
endif()
file(READ ${WORK}/build/core/switch_programs.cpp list)
if(NOT list MATCHES "tally_kind\\(\\)")
  message(FATAL_ERROR "the build has not found core/switch/tally:\n${list}")
endif()
foreach(source ${added} ${program} ${WORK}/build/core/transports.cpp ${WORK}/build/core/switch_programs.cpp)
  run(${CXX} -std=c++20 -fsyntax-only -I${WORK}/tree/core -I${WORK}/tree ${source})
endforeach()
