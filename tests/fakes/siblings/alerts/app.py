def make_alerts(settings, ledger, clock=None):
    return None
