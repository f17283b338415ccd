/* How long the engine's loop and the kernel's softirq threads waited for a processor, and which task held it
 * meanwhile. Attached to two events of the scheduler while a live run lasts; it changes nothing. */
#include "platform.h"
/* clang-format off */
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
/* clang-format on */
#include "sched_watch_abi.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Of the kernel's structure only what is read here; the loader finds the fields' places. */
struct task_struct {
  int pid;
  int tgid;
  char comm[WATCH_NAME];
} __attribute__((preserve_access_index));

/* Threads whose waits count, by thread id. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, WATCH_MAX_THREADS);
  __type(key, int);
  __type(value, struct watch_thread);
} watch_threads SEC(".maps");

/* Processes that are named as holders, by process id: a rank has many threads. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, WATCH_MAX_THREADS);
  __type(key, int);
  __type(value, ln_u32);
} watch_processes SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, WATCH_MAX_HOLDERS);
  __type(key, struct watch_key);
  __type(value, struct watch_wait);
} watch_waits SEC(".maps");

LN_INLINE ln_u32 kind_of(struct task_struct* task, int pid) {
  if (pid == 0) return WATCH_IDLE;
  struct watch_thread* thread = bpf_map_lookup_elem(&watch_threads, &pid);
  if (thread) return thread->kind;
  int process = BPF_CORE_READ(task, tgid);
  ln_u32* kind = bpf_map_lookup_elem(&watch_processes, &process);
  return kind ? *kind : WATCH_OTHER;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(woken, struct task_struct* task) {
  (void)ctx;
  int pid = BPF_CORE_READ(task, pid);
  struct watch_thread* thread = bpf_map_lookup_elem(&watch_threads, &pid);
  if (thread && thread->since == 0) thread->since = bpf_ktime_get_ns();
  return 0;
}

/* prev_state 0: `prev` has been preempted and is ready to run on. */
SEC("tp_btf/sched_switch")
int BPF_PROG(switched, _Bool preempt, struct task_struct* prev, struct task_struct* next, unsigned int prev_state) {
  int leaves = BPF_CORE_READ(prev, pid), comes = BPF_CORE_READ(next, pid);
  (void)ctx, (void)preempt;
  if (leaves && prev_state == 0) {
    struct watch_thread* thread = bpf_map_lookup_elem(&watch_threads, &leaves);
    if (thread) thread->since = bpf_ktime_get_ns();
  }
  if (comes == 0) return 0;
  struct watch_thread* thread = bpf_map_lookup_elem(&watch_threads, &comes);
  if (!thread || thread->since == 0) return 0;
  ln_u64 waited = bpf_ktime_get_ns() - thread->since;
  thread->since = 0;
  if (waited < WATCH_LEAST_NS) return 0;
  struct watch_key key = {};
  key.waiter = thread->kind;
  key.holder = kind_of(prev, leaves);
  if (key.holder != WATCH_IDLE) bpf_core_read_str(key.name, sizeof key.name, &prev->comm);
  struct watch_wait* wait = bpf_map_lookup_elem(&watch_waits, &key);
  if (!wait) {
    struct watch_wait none = {};
    bpf_map_update_elem(&watch_waits, &key, &none, BPF_NOEXIST);
    wait = bpf_map_lookup_elem(&watch_waits, &key);
    if (!wait) return 0;
  }
  __sync_fetch_and_add(&wait->count, 1);
  __sync_fetch_and_add(&wait->total_ns, waited);
  if (waited > wait->longest_ns) wait->longest_ns = waited;
  return 0;
}
