/* What the scheduler watch and its loader agree on. */
#ifndef LOOMNET_EBPF_SCHED_WATCH_ABI_H
#define LOOMNET_EBPF_SCHED_WATCH_ABI_H

#define WATCH_MAX_THREADS 1024
#define WATCH_MAX_HOLDERS 1024
#define WATCH_NAME 16
/* A wait for a processor below this is none that a figure could show. */
#define WATCH_LEAST_NS 50000

/* What a thread or a process is to the run. */
enum watch_kind {
  WATCH_OTHER,   /* none of the run's */
  WATCH_IDLE,    /* the processor was idle: waking it took that long */
  WATCH_ENGINE,  /* the live loop */
  WATCH_SOFTIRQ, /* the kernel's thread that carries frames when an interrupt may not */
  WATCH_RANK,
  WATCH_KINDS
};

struct watch_thread {
  unsigned long long since; /* bpf_ktime_get_ns() when it became ready to run; 0: it does not wait */
  unsigned int kind;
  unsigned int unused;
};

struct watch_key {
  unsigned int waiter; /* enum watch_kind */
  unsigned int holder; /* enum watch_kind of the task that ran on the processor last before the waiter */
  char name[WATCH_NAME]; /* of that task */
};

struct watch_wait {
  unsigned long long count, total_ns, longest_ns;
};

#endif /* LOOMNET_EBPF_SCHED_WATCH_ABI_H */
