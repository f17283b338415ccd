# Fails unless a transport that is one new file in a folder of its own is registered by the build.
#   cmake -DSOURCE=<top folder> -DWORK=<scratch folder> -DCXX=<compiler> -P core/check_transport_by_folder.cmake
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
foreach(source ${added} ${WORK}/build/core/transports.cpp)
  run(${CXX} -std=c++20 -fsyntax-only -I${WORK}/tree/core -I${WORK}/tree ${source})
endforeach()
