// Elements without markup: text is never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an element: h("button", {class: "primary", onclick: save}, "Save").
 * Names that begin with "on" are listeners; true and false set and leave out; children may be nested, null is left out.
 */
export function h(name, props, ...children) {
  return fill(document.createElement(name), props, children);
}

/** Make an element of SVG. */
export function s(name, props, ...children) {
  return fill(document.createElementNS(SVG, name), props, children);
}

function fill(element, props, children) {
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "value") element.value = value;
    else if (key === "dataset") Object.assign(element.dataset, value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

/** Append children. */
export function add(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

/** Replace what is in an element. */
export function put(element, ...children) {
  element.replaceChildren();
  return add(element, children);
}

/** Set the text of an element if it differs, so that nothing is painted or read out for nothing. */
export function setText(element, text) {
  const value = String(text);
  if (element.textContent !== value) element.textContent = value;
}
