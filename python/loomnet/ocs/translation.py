"""The names that SONiC's OCS design (a draft) and SAI's experimental OCS objects use, in one table.
If they are renamed, only this file has to change."""

from __future__ import annotations

CONFIG_PORT = STATE_PORT = "OCS_PORT"
CONFIG_CROSS_CONNECT = STATE_CROSS_CONNECT = "OCS_CROSS_CONNECT"
PHYSICAL_PATH = "OCS_CROSS_CONNECT_PHYSICAL_PATH"
INSERTION_LOSS = "OCS_FACTORY_INSERTION_LOSS"
METADATA = {"type": "SonicOCS", "switch_type": "ocs"}

PORT_CONFIG = ("id", "label", "state")
PORT_STATUS = ("id", "connector_type", "connector_pin", "target_simplex_port_id", "status")
CROSS_CONFIG = ("id", "a_side", "b_side")
CROSS_STATUS = (*CROSS_CONFIG, "a_side_status", "b_side_status")
PORT_MAPPING = ("id", "connector_type", "connector_pin")
LOSS = ("id", "frequency_THz", "temperature_C", "loss_dB", "accuracy_dB")

PORT_STATES = ("normal", "force_blocked", "powered_off")
MODES = ("update", "safe", "overwrite")
CONNECTOR = "LC"  # a connector for two fibres: pin 1 is side A, pin 2 is side B
FREQUENCY_THZ, TEMPERATURE_C, ACCURACY_DB = "228.85", "28", "0.10"
