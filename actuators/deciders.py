"""Who decides and who answers, as the settings say: the same for `pacehound actuators` and for an embedded head.

A head has no Kafka, and nothing here imports it.
"""

from __future__ import annotations

import threading

from actuators.attendant import Rules
from actuators.modes import Modes
from actuators.recovering import Asks
from actuators.recovery.restorer import load
from actuators.recovery_orders import RecoveryOrders
from actuators.site_commands import Log, SiteCommands
from actuators.site_folder import SiteFolder
from pacehound.bus.control import AskedWire
from pacehound.bus.signing import Keys, Signer
from pacehound.clock import Clock
from pacehound.settings import ActuatorSettings, Settings


def rules_of(settings: ActuatorSettings, own_key: str, folder: SiteFolder, log: Log | None = None) -> Rules:
    """What the settings say: who signs with `own_key`, or one of `actuators.keys`, may say yes.

    Commands of the site are run from `folder`; by `log` it is known who runs which, where there are several workers.

    Raises
    ------
    InvalidSetting
        One of them does not fit.

    """
    keys = Keys([own_key, *filter(None, map(str.strip, settings.keys.split(",")))])
    SiteCommands(settings)  # what cannot be taken apart into words is said at once
    return Rules(
        modes=Modes.of_settings(settings.mode, settings.modes),
        trusts=keys.have_signed,
        site=lambda: SiteCommands(settings, folder, log),
        noted=folder.noted,
    )


def survivors_by(
    settings: Settings, signer: Signer, clock: Clock, wire: AskedWire, asks: Asks | None
) -> RecoveryOrders:
    """Who answers ranks that have lost some and ask which plan to go on with; ordered in mode `auto` alone."""
    modes = Modes.of_settings(settings.actuators.mode, settings.actuators.modes)
    if modes.acts:
        threading.Thread(target=load, name="load solver", daemon=True).start()  # survivors wait for two seconds
    return RecoveryOrders(wire, signer, clock, modes, asks, settings.recovery)
