"""Runs a command on a kernel without one feature: a seccomp filter answers as such a kernel does.
python without_feature.py af_xdp|bpf|netns COMMAND…"""

import ctypes
import os
import platform
import struct
import sys

_NUMBERS = {
    "x86_64": {"socket": 41, "bpf": 321, "unshare": 272},
    "aarch64": {"socket": 198, "bpf": 280, "unshare": 97},
}
_AF_XDP, _CLONE_NEWNET = 44, 0x40000000
_EAFNOSUPPORT, _ENOSYS, _EINVAL = 97, 38, 22
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06  # linux/bpf_common.h, words
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2


def _filter(feature: str) -> list[tuple[int, int, int, int]]:
    number = _NUMBERS[platform.machine()]
    # seccomp_data: the number at 0, the first argument's low half at 16
    if feature == "bpf":
        call, test, answer = number["bpf"], None, _ENOSYS
    elif feature == "af_xdp":
        call, test, answer = number["socket"], (_EQUAL, _AF_XDP), _EAFNOSUPPORT
    else:
        call, test, answer = number["unshare"], (_ANY_BIT, _CLONE_NEWNET), _EINVAL
    if test is None:
        return [
            (_LOAD, 0, 0, 0),
            (_EQUAL, 0, 1, call),
            (_RETURN, 0, 0, _ERRNO | answer),
            (_RETURN, 0, 0, _ALLOW),
        ]
    return [
        (_LOAD, 0, 0, 0),
        (_EQUAL, 0, 3, call),
        (_LOAD, 0, 0, 16),
        (test[0], 0, 1, test[1]),
        (_RETURN, 0, 0, _ERRNO | answer),
        (_RETURN, 0, 0, _ALLOW),
    ]


def main() -> None:
    code = b"".join(
        struct.pack("<HBBI", op, true, false, k) for op, true, false, k in _filter(sys.argv[1])
    )
    text = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("<H6xQ", len(code) // 8, ctypes.addressof(text))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.c_char_p(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_SECCOMP)")
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
