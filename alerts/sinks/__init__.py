"""Where a notice goes: one way of telling per file, all with the same face (`alerts.notice.Sink`)."""
