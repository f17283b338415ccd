// Calls a loaded program's code so that a crash or an endless loop in it is survived and named. What the code
// is given lies in memory of its own: writes beyond it hit nothing of the engine's.
#pragma once

#include <memory>
#include <stdexcept>

#include "switch/loaded/calling_host.hpp"
#include "switch/loaded/loaded_kind.hpp"

namespace loomnet {

// A loaded program has crashed, or has not come back from one packet. The message is one line, and
// ends with " [NAME+0xOFFSET]", the place in the object's file, where that is known. The network is then
// of no use: the code may have written anywhere in the process.
class ProgramFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws ProgramFault.
ln_verdict guarded_call(const LoadedProgram& program, const void* config, const CallingHost& host, ln_packet& packet,
                        const ln_meta& meta);

// Lasts as long as slow calls in this thread are told of: after a second of processor time that was found to be a
// loaded program's, `tell` is called between two packets. A run of many slow calls then ends when a user asks for it.
class SlowCalls {
 public:
  SlowCalls(void (*tell)(void*), void* context);
  SlowCalls(const SlowCalls&) = delete;
  SlowCalls& operator=(const SlowCalls&) = delete;
  ~SlowCalls();

 private:
  void (*before_)(void*);
  void* context_before_;
};

// To be held while there are networks that run the program: sees that crashes come here, and that calls are timed.
std::shared_ptr<const void> watched_programs(const LoadedProgram& program);

}  // namespace loomnet
