// What the page asks its server.

export class Problem extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function fetched(path, options) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new Problem(0, "the head does not answer: has it ended?");
  }
  if (!response.ok) throw new Problem(response.status, (await response.text()).trim());
  return response;
}

export async function get(path, parameters = {}) {
  const known = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined);
  const query = known.length ? `?${new URLSearchParams(known)}` : "";
  return (await fetched(`api/${path}${query}`)).json();
}

// A map of cells: a line of JSON, then little-endian floats.
export async function cells(path) {
  const body = await (await fetched(`api/${path}`)).arrayBuffer();
  const bytes = new Uint8Array(body);
  const end = bytes.indexOf(10);
  const about = JSON.parse(new TextDecoder().decode(bytes.subarray(0, end)));
  return { ...about, values: new Float32Array(body.slice(end + 1)) };
}

export async function showToken(token) {
  await fetched("api/session", { method: "POST", headers: { Authorization: `Bearer ${token}` } });
}

// Says yes or no to a decision that waits.
export async function answer(decision, approves, by) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ approves, by }) };
  return (await fetched(`api/decisions/${encodeURIComponent(decision)}`, options)).json();
}

// Calls `onNews` whenever something new is stored, and `onState` when the connection comes or goes.
export function listen(onNews, onState) {
  const stream = new EventSource("api/live");
  stream.onopen = () => onState("live");
  stream.onmessage = () => onNews();
  stream.onerror = () => onState(stream.readyState === EventSource.CLOSED ? "closed" : "away");
  return stream;
}
