"""Control interfaces of a live fabric's panels: TL1 on the management network, and JSON on a UNIX
socket for each panel, which belongs to the run's user."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterable
from functools import partial

from loomnet.live.namespaces import inside
from loomnet.live.nodes import LiveFabric
from loomnet.live.socket_folder import SocketFolder
from loomnet.ocs.access import Access
from loomnet.ocs.json_server import JsonServer
from loomnet.ocs.requests import Requests
from loomnet.ocs.settings import Settings
from loomnet.ocs.sockets import socket_name
from loomnet.ocs.tl1 import PORT, Tl1Server
from loomnet.processes.journal import RunLock


class PanelFaces:
    """Serves requests as soon as it is made. They wait until the network's owner looks at
    `requests`. Use it as a context manager, or call close(). `note(panel, at_ps, text)` is called
    for each request that changes something. Raises OSError where the machine refuses a socket."""

    def __init__(
        self,
        lock: RunLock,
        glue: LiveFabric,
        panels: Iterable[str],
        note: Callable[[str, int, str], None],
    ) -> None:
        self.requests = Requests()
        self._stack = contextlib.ExitStack()
        names = list(panels)
        if not names:
            return
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(SocketFolder(lock.directory, lock.run_id))
            # Requests are closed first. A server waits for its clients' threads, which may wait for
            # requests.
            faces: list[JsonServer | Tl1Server] = []
            stack.callback(lambda: [each.close() for each in faces])
            stack.callback(self.requests.close)
            for index, name in enumerate(names):
                access = Access(
                    partial(self.requests.operate, name), Settings(name=name), partial(note, name)
                )
                node = glue.panels[name]
                listener = inside(
                    node.netns,
                    lambda at=node.management: socket.create_server((at, PORT), backlog=64),
                )
                faces.append(Tl1Server(access.operate, listener=listener, access=access))
                faces.append(JsonServer(access, folder.listen(socket_name(name, index))))
            folder.show()
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Ends all servers. May be called more than once."""
        self._stack.close()

    def __enter__(self) -> PanelFaces:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
