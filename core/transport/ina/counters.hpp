// What workers and parameter servers count, by name. Every packet that changes nothing has its counter.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/transport.hpp"

namespace loomnet::ina {

// Packets that are not believed.
#define INA_DROPS(X)                                                                 \
  X(drop_version)  /* of another version or scheme */                                \
  X(drop_job)      /* of another job */                                              \
  X(drop_type)     /* of a type that does not come this way */                       \
  X(drop_short)    /* with fewer values than a fragment has */                       \
  X(drop_values)   /* with another number of values than the fragment's */           \
  X(drop_workers)  /* with bits outside the job's mask, or none where one must be */ \
  X(drop_sequence) /* of a fragment that cannot be on its way */                     \
  X(drop_index)    /* with a next index outside the pool */                          \
  X(drop_boot)     /* with values for a fragment without, or the other way round */ \
  X(drop_floats)   /* with float32 for a fragment of int32, or the other way round */

#define INA_WORKER_COUNTS(X)                                                \
  X(data)        /* first transmissions */                                  \
  X(resend)      /* all retransmissions */                                  \
  X(timeout)     /* timers that ran out */                                  \
  X(nak_resend)  /* retransmissions that a NAK asked for */                 \
  X(gap_resend)  /* retransmissions of what a later result overtook */      \
  X(nak_early)   /* NAKs of a fragment not sent yet, held, or asked for within a round trip */ \
  X(result)      /* results taken */                                        \
  X(dup_result)  /* results of fragments whose result is held */            \
  X(ecn_result)  /* results with a congestion mark */

#define INA_SERVER_COUNTS(X)                                                \
  X(full)        /* sums that arrived whole */                              \
  X(from_parts)  /* sums that the server finished */                        \
  X(part)        /* partial sums stored */                                  \
  X(superset)    /* partial sums that replaced smaller ones */              \
  X(overlap)     /* partial sums discarded: they overlap and do not cover */\
  X(late)        /* contributions to a finished fragment, RESENDs apart */  \
  X(ghost)       /* contributions to a fragment forgotten */                \
  X(re_result)   /* results asked for again */                              \
  X(result_sent) /* RESULTs, both kinds */                                  \
  X(remind)      /* REMINDs sent */                                         \
  X(early)       /* fragments reminded because later ones are finished */   \
  X(nak)         /* NAKs sent */                                            \
  X(rehash)      /* positions with a new index */                           \
  X(saturated)   /* partial sums whose addition left the int32 range */      \
  X(as_floats)   /* sums of float32 */

#define INA_FIELD(name) std::uint64_t name = 0;
#define INA_APPEND(name) out.push_back({#name, name});

struct WorkerCounters {
  INA_WORKER_COUNTS(INA_FIELD)
  INA_DROPS(INA_FIELD)
  void append(std::vector<TransportCounter>& out) const {
    INA_WORKER_COUNTS(INA_APPEND)
    INA_DROPS(INA_APPEND)
  }
};

struct ServerCounters {
  INA_SERVER_COUNTS(INA_FIELD)
  INA_DROPS(INA_FIELD)
  void append(std::vector<TransportCounter>& out) const {
    INA_SERVER_COUNTS(INA_APPEND)
    INA_DROPS(INA_APPEND)
  }
};

#undef INA_FIELD
#undef INA_APPEND

}  // namespace loomnet::ina
