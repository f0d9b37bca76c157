// A piece of evidence: its sentence, and a picture of its numbers where they have one.

import { columns } from "../charts/columns.js";
import { waits } from "../charts/waits.js";
import { h } from "../dom.js";
import { percent, seconds } from "../words.js";

const SMALLEST = 2; // of one bar nothing is seen

const PICTURES = {
  own_time_grew: (piece) => ownTimes(piece, "How much longer the own time of each rank is"),
  own_time_apart: (piece) => ownTimes(piece, "The own time of each rank"),
  transfer_grew: (piece) => piece.link && piece.others_s?.length ? columns({
    label: "How much longer the transfers of each link take",
    words: seconds,
    rows: [{ name: `link ${piece.link.join(" – ")}`, tick: piece.link.join("–"), value: piece.grown_s, mark: "culprit" },
      ...piece.others_s.map(([a, b, value]) => ({ name: `link ${a} – ${b}`, tick: `${a}–${b}`, value }))],
  }) : null,
  edge_rates: (piece) => columns({
    label: "At which share of the rate that is usual there each end works",
    words: percent,
    rows: [{ name: `rank ${piece.sender} sends`, tick: `${piece.sender} sends`, value: piece.send_share, mark: "culprit" },
      { name: `rank ${piece.receiver} receives`, tick: `${piece.receiver} receives`, value: piece.receive_share, mark: "culprit" },
      { name: piece.reference === "earlier" ? "earlier" : "ranks in its place", tick: "usual", value: 1 }],
  }),
  connection: (piece) => columns({
    label: "What the connection gets through, beside its peers",
    words: (value) => `${Number((value / 1e6).toPrecision(3))} MB/s`,
    rows: [{ name: `rank ${piece.sender} to rank ${piece.receiver}`, tick: `${piece.sender}–${piece.receiver}`, value: piece.bytes_per_s, mark: "culprit" },
      { name: "its peers", tick: "peers", value: piece.peers_bytes_per_s }],
  }),
  waiting: (piece) => piece.waits?.length ? waits(piece.waits) : null,
  stack: (piece) => piece.frames?.length ? h("details", null, h("summary", null, `all ${piece.frames.length} frames`),
    h("pre", { tabindex: "0" }, piece.frames.join("\n"))) : null,
  slowdowns: (piece) => piece.slowdowns?.length >= SMALLEST ? columns({
    label: `How much longer each of the ${piece.of} makes the steps by itself`,
    words: percent,
    rows: piece.slowdowns.map(([name, slowdown]) => ({ name, value: slowdown - 1 })),
  }) : null,
};

export function evidence(pieces) {
  return h("ul", { class: "evidence" }, pieces.map((piece) => {
    const picture = PICTURES[piece.kind]?.(piece);
    return h("li", null, piece.words, picture ? h("div", { class: "picture" }, picture) : null);
  }));
}

function ownTimes(piece, label) {
  const named = new Set(piece.ranks);
  return piece.rank_s?.length >= SMALLEST ? columns({
    label,
    words: seconds,
    rows: piece.rank_s.map(([rank, value]) => ({ name: `rank ${rank}`, tick: rank, value, mark: named.has(rank) ? "culprit" : undefined })),
  }) : null;
}
