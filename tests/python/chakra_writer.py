"""Writes Chakra traces for tests, with the protobuf library and a schema stated here by field
numbers: independent of the reader that it checks."""

import json

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_TYPES = descriptor_pb2.FieldDescriptorProto
METADATA, LOAD, COMPUTE, SEND, RECEIVE, COLLECTIVE = 1, 2, 4, 5, 6, 7
ALL_REDUCE, ALL_GATHER, GATHER, SCATTER, BROADCAST, ALL_TO_ALL = 0, 2, 3, 4, 5, 6
REDUCE_SCATTER, BARRIER = 7, 9


def _messages():
    file = descriptor_pb2.FileDescriptorProto(
        name="loomnet_test_chakra.proto", package="t", syntax="proto3"
    )

    def message(name, *fields):
        made = file.message_type.add(name=name)
        for number, field, kind, repeated, of in fields:
            entry = made.field.add(name=field, number=number, type=kind)
            entry.label = _TYPES.LABEL_REPEATED if repeated else _TYPES.LABEL_OPTIONAL
            if of:
                entry.type_name = f".t.{of}"
            if field.endswith(("_val", "_list")):  # a oneof: zeros are written too
                if not made.oneof_decl:
                    made.oneof_decl.add(name="value")
                entry.oneof_index = 0

    message("Flags", (1, "values", _TYPES.TYPE_BOOL, True, None))
    message(
        "Attribute",
        (1, "name", _TYPES.TYPE_STRING, False, None),
        (2, "doc_string", _TYPES.TYPE_STRING, False, None),
        (3, "double_val", _TYPES.TYPE_DOUBLE, False, None),
        (7, "int32_val", _TYPES.TYPE_INT32, False, None),
        (9, "int64_val", _TYPES.TYPE_INT64, False, None),
        (11, "uint32_val", _TYPES.TYPE_UINT32, False, None),
        (13, "uint64_val", _TYPES.TYPE_UINT64, False, None),
        (17, "sint64_val", _TYPES.TYPE_SINT64, False, None),
        (21, "fixed64_val", _TYPES.TYPE_FIXED64, False, None),
        (23, "sfixed32_val", _TYPES.TYPE_SFIXED32, False, None),
        (27, "bool_val", _TYPES.TYPE_BOOL, False, None),
        (28, "bool_list", _TYPES.TYPE_MESSAGE, False, "Flags"),
        (29, "string_val", _TYPES.TYPE_STRING, False, None),
    )
    message(
        "Metadata",
        (1, "version", _TYPES.TYPE_STRING, False, None),
        (2, "attr", _TYPES.TYPE_MESSAGE, True, "Attribute"),
    )
    message("Io", (1, "values", _TYPES.TYPE_STRING, False, None))
    message(
        "Node",
        (1, "id", _TYPES.TYPE_UINT64, False, None),
        (2, "name", _TYPES.TYPE_STRING, False, None),
        (3, "type", _TYPES.TYPE_INT32, False, None),
        (4, "ctrl_deps", _TYPES.TYPE_UINT64, True, None),
        (5, "data_deps", _TYPES.TYPE_UINT64, True, None),
        (6, "start_time_micros", _TYPES.TYPE_UINT64, False, None),
        (7, "duration_micros", _TYPES.TYPE_UINT64, False, None),
        (8, "inputs", _TYPES.TYPE_MESSAGE, False, "Io"),
        (10, "attr", _TYPES.TYPE_MESSAGE, True, "Attribute"),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"t.{name}"))
        for name in ("Attribute", "Metadata", "Node")
    }


MESSAGES = _messages()


def node(number, kind, *, name="", after=(), us=0, **attributes):
    """A Node message; integers become int64 attributes, strings string attributes, floats
    double ones, lists of true and false bool_list attributes."""
    made = MESSAGES["Node"](id=number, name=name, type=kind, duration_micros=us)
    made.data_deps.extend(after)
    for key, value in attributes.items():
        entry = made.attr.add(name=key)
        if isinstance(value, str):
            entry.string_val = value
        elif isinstance(value, float):
            entry.double_val = value
        elif isinstance(value, list):
            entry.bool_list.values.extend(value)
        else:
            entry.int64_val = value
    return made


def process_groups(number, groups):
    """The METADATA node of PyTorch's profiler for {"name": [ranks]}, as Chakra's converter writes
    it: JSON as the only string of a list."""
    made = MESSAGES["Node"](id=number, name="## process_group:init ##", type=METADATA)
    rows = [
        {
            "pg_name": name,
            "pg_desc": "",
            "backend_config": "cuda:nccl",
            "ranks": ranks,
            "group_size": len(ranks),
            "group_count": len(groups),
        }
        for name, ranks in groups.items()
    ]
    made.inputs.values = str([json.dumps(rows)])
    return made


def _sized(message):
    data, size, head = message.SerializeToString(), message.ByteSize(), b""
    while True:
        head += bytes([size & 0x7F | (0x80 if size > 0x7F else 0)])
        size >>= 7
        if not size:
            return head + data


def encode(nodes):
    return _sized(MESSAGES["Metadata"](version="0.0.4")) + b"".join(map(_sized, nodes))


def write(folder, ranks, prefix="t"):
    """One file per rank; returns the prefix to give to ln.Trace."""
    for rank, nodes in enumerate(ranks):
        (folder / f"{prefix}.{rank}.et").write_bytes(encode(nodes))
    return folder / prefix
