/* astraea.bpf.c for kernels before 6.10, whose cong_control has two arguments. */
#define LN_TWO_ARGUMENTS 1
#include "astraea.bpf.c"
