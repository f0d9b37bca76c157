// Numbers and times as a person reads them.

export function seconds(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 0.001) return `${(value * 1e6).toPrecision(3)} µs`;
  if (size < 1) return `${Number((value * 1e3).toPrecision(3))} ms`;
  if (size < 120) return `${Number(value.toPrecision(3))} s`;
  const minutes = Math.round(value / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.round(hours / 24)} days`;
}

export function percent(share) {
  const value = share * 100;
  return `${Math.abs(value) < 10 ? Number(value.toPrecision(2)) : Math.round(value)} %`;
}

export function whole(number) {
  return Number(number).toLocaleString("en");
}

export function hours(value, isOnGpus) {
  const number = value >= 10 ? Math.round(value) : Number(value.toPrecision(2));
  return `${whole(number)} ${isOnGpus ? "GPU-hours" : "rank-hours"}`;
}

export function ago(timeNs, nowNs) {
  const gone = (nowNs - timeNs) / 1e9;
  return gone < 2 ? "now" : `${seconds(Math.round(gone))} ago`;
}

export function until(timeNs, nowNs) {
  return `${moment(timeNs)} (in ${seconds(Math.max(Math.round((timeNs - nowNs) / 1e9), 1))})`;
}

export function moment(timeNs) {
  if (!timeNs) return "–";
  return new Date(timeNs / 1e6).toISOString().replace("T", " ").slice(0, 19) + " UTC";
}

export function communicatorName({ name, communicator }) {
  return name ? `'${name}'` : communicator.slice(0, 24);
}

export function ranks(list, most = 12) {
  const runs = [];
  for (const rank of [...list].sort((a, b) => a - b)) {
    const last = runs[runs.length - 1];
    if (last && rank === last[1] + 1) last[1] = rank;
    else runs.push([rank, rank]);
  }
  const words = runs.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`));
  const shown = words.length > most ? [...words.slice(0, most), `… (${list.length} in all)`] : words;
  return (list.length === 1 ? "rank " : "ranks ") + shown.join(", ");
}

export const CAUSES = {
  H1: "did not enter a call that its peers wait in",
  H2: "its calls differ from those of its peers",
  H3: "everybody entered and nobody gets on",
  S1: "computation",
  S2: "communication",
  S3: "computation and communication",
};

export const VERDICTS = {
  culprit: "proven by what was seen",
  suspected: "the likeliest, not proven",
  unknown: "nobody can be named from what was seen",
};

export const STATES = {
  slow: "something is wrong now",
  running: "nothing is wrong",
  silent: "nothing is heard of it",
  ended: "it is over",
};
