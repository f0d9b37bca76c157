"""What to do first, by cause: the third line of an alert."""

from __future__ import annotations

from pacehound.model.events import Finding

_BY_CAUSE = {
    "H1": "look at what {whom} does outside the collective (its stack is on the page); restart it if it is gone",
    "H2": "compare the code and the data of {whom} with the others: its call does not fit theirs; then restart the job",
    "H3": "look at the network of {whom}: it has sent and received least; drain its host and restart",
    "S1": "look at clocks, temperature and other work on the host of {whom}; replace it where it goes on",
    "S2": "look at the link or network card of {whom}: errors, speed, congestion; replace or move it where it goes on",
    "S3": "look at the host of {whom}, computation and network both; replace it where it goes on",
}
_BY_KIND = {
    "exit": "look at why {whom} left (signal, exit code, kernel log are on the page); then restart the job",
    "hang": "collect the stacks from the page before the process groups' timeout ends the job; then restart it",
    "blind": "look at the agents on its hosts (`pacehound doctor`, `pacehound status`): nothing is watched until then",
}


def advice(finding: Finding | None) -> str:
    """One line for whoever has just been woken."""
    if finding is None:
        return "look at the page"
    named = [f"rank {rank}" for rank in finding.culprits[:3]] or [f"link {a}->{b}" for a, b in finding.links[:3]]
    if not named and finding.kind != "blind":
        return _BY_KIND["hang"] if finding.kind == "hang" else "nobody can be named yet: look at the page's evidence"
    whom = ", ".join(named) or "its ranks"
    words = _BY_CAUSE.get(finding.cause or "") or _BY_KIND.get(finding.kind) or "look at the host of {whom}"
    return words.format(whom=whom)
