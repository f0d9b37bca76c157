// A canvas as wide as its place, sharp on every screen, drawn again when its size or the theme changes.

import { h } from "../dom.js";

export function canvas(label, heightPx, draw) {
  const element = h("canvas", { role: "img", "aria-label": label });
  const place = h("div", { class: "canvas" }, element);
  let width = 0;
  const paint = () => {
    if (!width) return;
    const height = typeof heightPx === "function" ? heightPx(width) : heightPx;
    const scale = devicePixelRatio || 1;
    element.width = Math.round(width * scale);
    element.height = Math.round(height * scale);
    element.style.width = `${width}px`;
    element.style.height = `${height}px`;
    const context = element.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    draw(context, width, height);
  };
  const watcher = new ResizeObserver(([entry]) => {
    if (Math.round(entry.contentRect.width) === width) return;
    width = Math.round(entry.contentRect.width);
    paint();
  });
  watcher.observe(place);
  addEventListener("themed", paint);
  return { node: place, element, paint, leave: () => { watcher.disconnect(); removeEventListener("themed", paint); } };
}
