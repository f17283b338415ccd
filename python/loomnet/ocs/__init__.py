"""The control interfaces of an optical circuit switch, all to one device state."""

from loomnet.ocs.settings import Settings as Settings
from loomnet.ocs.sonic import Reconciled as Reconciled
from loomnet.ocs.sonic import Sonic as Sonic
from loomnet.ocs.switch import StandaloneSwitch as StandaloneSwitch
from loomnet.ocs.tl1 import Tl1Server as Tl1Server
