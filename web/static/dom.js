// Elements from data. What others have written (names, stacks, kernel lines) becomes text, never markup.

const SVG = "http://www.w3.org/2000/svg";

// What moves the direction of writing or is no text is shown as its number.
const NO_TEXT = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

export function plain(text) {
  return String(text).replace(NO_TEXT, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : plain(value));
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(plain(child)));
  }
}

// h("a", {href: "#/"}, "text", [more, children])
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// Puts new children into an element and leaves the focus where it was: on the link or control of the same name.
export function replace(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  const key = focused && (focused.id || focused.getAttribute("href"));
  element.replaceChildren();
  add(element, children);
  if (!key) return;
  const again = [...element.querySelectorAll("[id],[href]")].find((e) => (e.id || e.getAttribute("href")) === key);
  again?.focus({ preventScroll: true });
}

// A part of a view that is made again when its data has changed, and only then.
export function part(tag, attributes, render) {
  const element = h(tag, attributes);
  let last;
  element.show = (data) => {
    const said = JSON.stringify(data);
    if (said === last) return;
    last = said;
    replace(element, render(data));
  };
  return element;
}

export function table(caption, heads, rows) {
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    h("table", null,
      h("caption", { class: "hidden" }, caption),
      h("thead", null, h("tr", null, heads.map((head) =>
        h("th", { scope: "col", class: typeof head === "object" ? head.class : null },
          typeof head === "object" ? head.text : head)))),
      h("tbody", null, rows)));
}
