// What a loaded program's code is given of one packet, in guarded memory: copies, of which the engine takes back what a
// program may change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ebpf/platform.h"
#include "switch/loaded/calling_host.hpp"
#include "switch/loaded/guarded_memory.hpp"

namespace loomnet {

class CallMemory {
 public:
  CallMemory();

  // The packet, the host and meta that the code is given.
  struct Given {
    CallingHost host;
    ln_state state;
    ln_meta meta;
    ln_packet packet;
  };
  Given& lay_out(const CallingHost& host, ln_packet& packet, const ln_meta& meta);
  // Copies back what the code has made of the packet. False where it has written beside the packet's bytes; then the
  // packet is as it was.
  bool take_back(ln_packet& packet);
  // What an address is, as the end of a sentence: "12 bytes behind the packet's last"; empty where it is far from all
  // that was laid out last.
  std::string place_of(const void* address) const;

 private:
  Given& given() const { return *reinterpret_cast<Given*>(memory_.data()); }
  bool untouched() const;

  GuardedMemory memory_;
  std::uint8_t* frame_ = nullptr;
  std::size_t header_ = 0, payload_ = 0;  // bytes
  ln_state rows_{};  // of the switch, as they are
};

}  // namespace loomnet
