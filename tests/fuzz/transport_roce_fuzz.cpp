// Random packets between two connected RoCE NICs with work outstanding.
#include "transport/roce/roce_transport.hpp"
#include "transport_pair.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loomnet;
  roce::RoceOptions options;
  options.payload_mtu = 256;
  options.timeout_exponent = 5;
  return fuzz::exchange<roce::RoceTransport>({data, size}, options);
}
