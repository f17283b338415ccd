// The engine's side of its veths: one BPF object for the engine's namespace that hands every frame
// of an interface to that interface's AF_XDP socket.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "live/xdp_link.hpp"
#include "live/xsk.hpp"
#include "switch/program.hpp"

struct endpoint_bpf;

namespace loomnet {

class EngineEndpoint {
 public:
  EngineEndpoint();  // loads; throws LiveError with the verifier's last words
  ~EngineEndpoint();
  EngineEndpoint(const EngineEndpoint&) = delete;
  EngineEndpoint& operator=(const EngineEndpoint&) = delete;

  // Redirects the socket's interface to the socket. Call inside the interface's namespace. Returns
  // the slot; slots count up from 0.
  std::uint32_t add(const XskSocket& socket);
  // The pass program, for an interface that must accept redirected frames into its kernel's stack.
  // Call inside that interface's namespace.
  void add_pass(const std::string& interface);
  // Detaches everything: links are closed, then the object.
  void close();

  void counters(std::vector<SwitchCounter>& out) const;

 private:
  endpoint_bpf* object_ = nullptr;
  std::vector<Fd> links_;
  std::uint32_t next_slot_ = 0;
};

}  // namespace loomnet
