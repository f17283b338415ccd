// Any bytes as the tables of the forward program: unpacking refuses them or yields rows that pack into
// the same bytes, and a program that accepts the rows forwards by them.
#include <array>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "switch/forward/forward_program.hpp"

using namespace loomnet;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto batch = std::make_shared<TableBatch>();
  batch->generation = 1;
  batch->bytes.assign(data, data + size);
  try {
    const ForwardBatch rows = ForwardBatch::unpack(*batch);
    if (rows.pack()->bytes != batch->bytes) std::abort();
    ForwardProgram program(8, {});
    program.set_tables(batch);
    std::array<std::uint8_t, 54> frame{};
    frame[12] = 0x86, frame[13] = 0xdd, frame[14] = 0x60, frame[21] = 64, frame[22] = 0xfd;
    if (!rows.hosts.empty()) {
      std::copy_n(rows.hosts.back().address.begin(), 16, frame.begin() + 38);
    }
    const Verdict verdict = program.ingress(frame, frame.size(), {{}, 0});
    if (verdict.action == Verdict::Action::forward && verdict.value >= 8) std::abort();
  } catch (const std::invalid_argument&) {
    return 0;
  }
  return 0;
}
