// Colours of the theme as canvases need them.

export function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    text: of("text"), dim: of("dim"), line: of("line"), back: of("back"), accent: of("accent"),
    culprit: of("culprit"), victim: of("victim"), suspect: of("suspect"), pause: of("pause"), ok: of("ok"),
    dark: style.colorScheme === "dark",
  };
}

// From little to much, even in lightness, for those who see no red or no green, too (after viridis).
const STOPS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

export function shade(share) {
  const at = Math.min(Math.max(share, 0), 1) * (STOPS.length - 1);
  const low = Math.min(Math.floor(at), STOPS.length - 2);
  return STOPS[low].map((value, i) => Math.round(value + (STOPS[low + 1][i] - value) * (at - low)));
}
