/* The policies by which switches and hosts sum, one row each: SwitchML (Sapio et al., NSDI 2021), ATP
 * (Lao et al., NSDI 2021) and ESA (Wang et al., arXiv 2201.06398). C, C++ and Python take their names and
 * rules from here, so that another policy is a row, and a rule where no row says what it does. */
#ifndef LOOMNET_EBPF_AGGREGATE_POLICIES_H
#define LOOMNET_EBPF_AGGREGATE_POLICIES_H

enum aggregate_dealloc { AGGREGATE_ON_COMPLETION = 0, AGGREGATE_ON_ACK = 1, AGGREGATE_LAZILY = 2 };

/* What a worker repairs as soon as a later result has overtaken it: nothing, all of it, or some for
 * each result that is known to be lost. */
enum aggregate_repairs { AGGREGATE_REPAIRS_NONE = 0, AGGREGATE_REPAIRS_ALL = 1, AGGREGATE_REPAIRS_LOST = 2 };
/* What a fragment's timeout sends: the same packet again; its values past all memory to the server; or
 * there too, with what the slot held, which it empties. */
enum aggregate_resends { AGGREGATE_RESENDS_AGAIN = 0, AGGREGATE_RESENDS_PAST = 1, AGGREGATE_RESENDS_FLUSHING = 2 };
/* Whether a tree's root answers the workers: never (the server does), as a run's option, or always (there is no
 * server: each job has slots of its own). */
enum aggregate_answering { AGGREGATE_SERVER_ANSWERS = 0, AGGREGATE_ROOT_MAY_ANSWER = 1, AGGREGATE_ROOT_ANSWERS = 2 };

/* The policies, by their numbers on the wire. All that C, C++ and Python know of one is its row:
 * X(symbol, name, preempts: a more urgent fragment takes a slot, when slots are free again by default,
 *   whether servers remind switches of what they hold, repairs, resends, answering) */
#define AGGREGATE_POLICIES(X)                                                                             \
  X(SWITCHML, "switchml", 0, AGGREGATE_ON_COMPLETION, 0, AGGREGATE_REPAIRS_NONE, AGGREGATE_RESENDS_AGAIN, \
    AGGREGATE_ROOT_ANSWERS)                                                                               \
  X(ATP, "atp", 0, AGGREGATE_ON_ACK, 0, AGGREGATE_REPAIRS_ALL, AGGREGATE_RESENDS_FLUSHING,                \
    AGGREGATE_SERVER_ANSWERS)                                                                             \
  X(ESA, "esa", 1, AGGREGATE_ON_COMPLETION, 1, AGGREGATE_REPAIRS_LOST, AGGREGATE_RESENDS_PAST,            \
    AGGREGATE_ROOT_MAY_ANSWER)

enum aggregate_scheme {
#define AGGREGATE_SCHEME_(symbol, ...) AGGREGATE_##symbol,
  AGGREGATE_POLICIES(AGGREGATE_SCHEME_)
#undef AGGREGATE_SCHEME_
      AGGREGATE_SCHEMES
};

#ifdef __cplusplus
#include <vector>

struct aggregate_policy {
  const char* name;
  bool preempts;
  aggregate_dealloc dealloc;
  bool reminds;
  aggregate_repairs repairs;
  aggregate_resends resends;
  aggregate_answering answering;
  constexpr bool has_servers() const { return answering != AGGREGATE_ROOT_ANSWERS; }
};
#define AGGREGATE_POLICY_(symbol, ...) {__VA_ARGS__},
inline constexpr aggregate_policy aggregate_policies[AGGREGATE_SCHEMES] = {AGGREGATE_POLICIES(AGGREGATE_POLICY_)};
#undef AGGREGATE_POLICY_

template <typename Text>
std::vector<Text> aggregate_policy_names() {
  std::vector<Text> names;
  for (const aggregate_policy& each : aggregate_policies) names.push_back(each.name);
  return names;
}
#endif

#endif /* LOOMNET_EBPF_AGGREGATE_POLICIES_H */
